"""Triton kernels that run in clusters of blocks; only Triton loads these modules."""
