"""Kernels written in Triton, which only its compiler loads."""
