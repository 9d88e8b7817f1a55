"""Inputs of recorded launches, drawn from a seed."""
