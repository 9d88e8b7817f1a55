"""Precision and time of the verdicts."""
