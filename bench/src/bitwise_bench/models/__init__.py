"""Whole transformers: training, serving and locks, by their bytes and by their times."""
