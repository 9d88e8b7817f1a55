"""Smaller pairs that are still wrong, for pairs of loops and of kernels whose threads work together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

P = TypeVar("P")
T = TypeVar("T")


def shrunk_pair(
    pair: P, smaller: Callable[[P], Iterable[tuple[T, T]]], wrong: Callable[[P, T, T], P | None], most: int
) -> P:
    """Return a smaller pair after at most `most` attempts.

    `smaller` yields the programs of smaller pairs.  `wrong` returns the pair of two programs if it is as wrong as
    another pair, else None.
    """
    attempts, progress = 0, True
    while progress:
        progress = False
        for left, right in smaller(pair):
            attempts += 1
            if attempts > most:
                return pair
            found = wrong(pair, left, right)
            if found is not None:
                pair, progress = found, True
                break
    return pair
