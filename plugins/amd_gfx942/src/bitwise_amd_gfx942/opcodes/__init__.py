"""Semantics of gfx942 instructions by group; each module of a group fills one opcode table."""
