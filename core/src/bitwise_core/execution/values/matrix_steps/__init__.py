"""The steps of matrix units as terms: operands, steps, and chains of steps."""
