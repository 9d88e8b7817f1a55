"""Launches on a GPU, and the bytes that they return."""
