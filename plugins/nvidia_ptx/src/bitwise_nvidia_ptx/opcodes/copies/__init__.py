"""Asynchronous copies, the barriers on which they complete, and the maps of tensors."""
