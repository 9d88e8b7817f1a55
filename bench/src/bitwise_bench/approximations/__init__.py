"""Approximate instructions of GPUs against the functions that state them."""
