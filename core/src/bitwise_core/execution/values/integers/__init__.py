"""Integers that depend on data: sums, bounds, narrow types, comparisons, and predicates as their bits."""
