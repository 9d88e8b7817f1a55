"""Attention on sm_90 in one pinned tree: its descriptor, its kernels, and their launches."""
