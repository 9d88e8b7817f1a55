"""Triton kernels of the benchmark and of small test cases. Importing a module of this package imports Triton."""
