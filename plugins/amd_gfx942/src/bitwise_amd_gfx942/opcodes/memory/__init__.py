"""Loads, stores and atomic operations: global, buffers, shared memory, scratch."""
