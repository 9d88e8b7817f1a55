"""NVIDIA sm_100 and sm_103: tensor memory, its matrix instructions, and opcodes shared with other architectures."""
