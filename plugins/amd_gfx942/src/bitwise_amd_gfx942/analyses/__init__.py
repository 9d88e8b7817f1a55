"""Analyses of a kernel's text before it is executed: control flow, definitions, skipped regions, waits."""
