"""Operands of instructions: readers, writers, modifiers, the execution mask, and lanes that are computed later."""
