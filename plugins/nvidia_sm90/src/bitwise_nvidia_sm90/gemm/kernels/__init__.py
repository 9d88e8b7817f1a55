"""Kernels of matrix products, which only Triton loads."""
