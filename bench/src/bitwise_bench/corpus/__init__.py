"""Kernels and the configurations in which they are compiled and launched."""
