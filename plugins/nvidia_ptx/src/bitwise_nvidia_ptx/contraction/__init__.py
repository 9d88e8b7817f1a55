"""The contraction audit: which products ptxas fused into sums."""
