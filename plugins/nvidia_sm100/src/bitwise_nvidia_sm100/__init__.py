"""NVIDIA sm_100 and sm_103: what they share with other architectures is read; tensor memory is not modelled yet."""
