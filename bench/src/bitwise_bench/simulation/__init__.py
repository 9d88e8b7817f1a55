"""Launches executed on bit patterns, without a GPU."""
