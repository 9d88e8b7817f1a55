"""The semantics of PTX instructions.  Each module defines one table of opcodes."""
