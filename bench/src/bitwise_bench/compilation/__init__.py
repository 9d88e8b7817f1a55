"""Kernels of the corpus compiled without a GPU."""
