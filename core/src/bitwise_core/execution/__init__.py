"""Execution of programs over value domains: architectures, launches, the machine, memories, values and domains."""
