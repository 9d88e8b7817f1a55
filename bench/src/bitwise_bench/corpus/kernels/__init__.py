"""Triton kernels by family; only Triton loads these modules."""
