"""Triton kernels of matrix products; importing them needs Triton."""
