"""Launches whose blocks synchronise (tickets, turns, look-back, grid barriers), and the memory of their runs."""
