"""Kernels of the corpus as descriptors, evaluated on a CPU."""
