"""Results of cuBLASLt on a GPU that any CPU checks against their descriptors."""
