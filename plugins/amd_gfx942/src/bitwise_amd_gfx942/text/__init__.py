"""Reads the assembly of gfx942 that LLVM writes."""
