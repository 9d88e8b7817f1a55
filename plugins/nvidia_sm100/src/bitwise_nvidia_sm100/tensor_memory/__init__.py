"""Tensor memory: its places, its contents, and the loads and stores that reach them."""
