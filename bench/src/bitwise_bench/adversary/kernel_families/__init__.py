"""Families of kernels whose threads work together."""
