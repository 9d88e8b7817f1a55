"""Calls of the operators of public packages.  A module has `CASES`: functions of a `tensors.Tensors`, by name."""
