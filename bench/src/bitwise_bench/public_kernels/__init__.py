"""Kernels of public packages: captured as their operators launch them, run on a GPU, and read without one."""
