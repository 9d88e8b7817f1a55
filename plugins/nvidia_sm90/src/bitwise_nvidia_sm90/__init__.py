"""NVIDIA sm_90: wgmma, matrix-unit rows, approximate functions, and a launcher of GEMM descriptors."""
