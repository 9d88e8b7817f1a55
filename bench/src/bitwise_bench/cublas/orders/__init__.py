"""Summation orders of cuBLASLt from its outputs, and the descriptors that are reconstructed from them."""
