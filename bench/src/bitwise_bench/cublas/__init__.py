"""Measurements of cuBLASLt: byte comparisons, order surveys, cross-device replays and timing."""
