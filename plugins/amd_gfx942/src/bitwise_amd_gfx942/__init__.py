"""Rows of the matrix units of gfx942."""
