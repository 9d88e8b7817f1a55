"""PTX: the parser and writer, the opcodes that NVIDIA architectures share, and the contraction audit."""
