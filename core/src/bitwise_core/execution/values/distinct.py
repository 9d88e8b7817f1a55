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
