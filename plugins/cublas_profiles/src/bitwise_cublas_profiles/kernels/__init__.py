"""Kernels in the language of Triton; imported where there is a GPU."""
