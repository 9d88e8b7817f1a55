"""NVIDIA sm_120: the opcodes that it shares with other architectures, and its rows of mma.sync."""
