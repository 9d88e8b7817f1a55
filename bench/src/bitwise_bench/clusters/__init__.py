"""Kernels in clusters of blocks: their bytes on an sm_90 GPU against their simulation."""
