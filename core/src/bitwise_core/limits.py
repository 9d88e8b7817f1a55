"""Limits that hold where a caller sets none."""

from __future__ import annotations

READING_SECONDS = 60.0
"""The wall-clock time in which one kernel is read, in the commands and the public Python functions."""
