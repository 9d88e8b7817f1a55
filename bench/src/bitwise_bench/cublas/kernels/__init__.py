"""Triton kernels that measurements compare with. Importing a module of this package imports Triton."""
