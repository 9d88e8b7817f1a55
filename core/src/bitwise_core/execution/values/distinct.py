"""The distinct numbers of an array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def sorted_distinct(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return the distinct numbers of an array in ascending order, shape (count,).

    `np.unique` of NumPy 2.4 hashes integers, which takes up to a hundred times as long where most of them differ.
    """
    ordered: NDArray[Any] = np.sort(numbers, axis=None)
    if ordered.size < 2:
        return ordered
    first: NDArray[np.bool_] = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    return np.compress(first, ordered)


def among_sorted(numbers: NDArray[Any], known: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which of the numbers occur in an ascending vector."""
    if not known.size:
        return np.zeros(numbers.shape, dtype=bool)
    found: NDArray[np.bool_] = known[np.minimum(np.searchsorted(known, numbers), known.size - 1)] == numbers
    return found


def joined_sorted(known: NDArray[Any], numbers: NDArray[Any]) -> NDArray[Any]:
    """Return an ascending vector of the different numbers of two such vectors; the first one where it has them all."""
    fresh = numbers[~among_sorted(numbers, known)]
    return np.insert(known, np.searchsorted(known, fresh), fresh) if fresh.size else known
