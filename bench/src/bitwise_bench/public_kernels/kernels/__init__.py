"""Kernels that run beside those that are recorded."""
