"""Races: the order of accesses of threads, warps, agents and blocks, and the values that depend on it."""
