"""Byte comparisons of random products: cuBLASLt against a launcher of descriptors, in several processes."""
