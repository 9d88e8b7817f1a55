"""Registers that hold words of addresses, found by a data-flow analysis."""
