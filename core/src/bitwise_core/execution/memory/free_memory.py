"""Memory that the allocator holds although nothing uses it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache


@cache
def _trim() -> Callable[[int], int] | None:
    """Return the function of the C library that returns free memory, None where it has none."""
    import ctypes

    try:
        return getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):
        return None


def return_free_memory() -> None:
    """Return free memory to the operating system, where the C library can (glibc); elsewhere do nothing.

    Freed arrays lie between others, so that they would take memory until the process ends.
    """
    trim = _trim()
    if trim is not None:
        trim(0)
