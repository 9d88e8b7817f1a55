"""The contraction audit: which products ptxas contracted with sums into fused multiply-adds."""
