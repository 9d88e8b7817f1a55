"""Words that the answers to several questions share."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 kernel, 2 classes."""
    plural = f"{noun}es" if noun.endswith(("s", "ch")) else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


COMMON_NOTES = (
    "assumed: the buffers do not overlap, and no access leaves its buffer",
    "all NaNs of a floating-point output count as one value; where the bits of another NaN matter, a NaN from "
    "arithmetic is assumed to be the canonical one",
)
"""The assumptions of every verdict."""
