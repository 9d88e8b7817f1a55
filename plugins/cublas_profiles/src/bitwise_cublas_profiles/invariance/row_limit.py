"""The largest number of rows of a certificate, which the help of the command states."""

from __future__ import annotations

MAXIMUM_ROWS = 1 << 16
"""The largest M of a certificate."""
