"""Kernels to compare times with, which only Triton loads."""
