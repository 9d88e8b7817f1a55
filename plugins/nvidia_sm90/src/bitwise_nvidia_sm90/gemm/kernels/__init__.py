"""Triton kernels of matrix products.  Importing them needs Triton."""
