"""NVIDIA sm_100 and sm_103: the opcodes that they share with other architectures.  Tensor memory is not modelled."""
