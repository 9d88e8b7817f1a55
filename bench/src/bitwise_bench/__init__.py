"""Measurements of this repository: corpora of kernels, recorded bytes, campaigns, mutants, benchmarks and tables."""
