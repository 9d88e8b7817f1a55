"""Kernels with one change, and whether the verdicts detect it."""
