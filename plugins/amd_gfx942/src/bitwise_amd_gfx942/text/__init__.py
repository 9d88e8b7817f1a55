"""The parser for gfx942 assembly as LLVM writes it."""
