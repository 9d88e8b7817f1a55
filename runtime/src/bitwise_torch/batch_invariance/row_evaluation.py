"""The functions of rows in NumPy: the order of their sums, and their roundings, as `kernels/rows.py` states them.

Rows are fp32 matrices of shape (rows, length).  Sums, products, quotients and square roots round to nearest even, so
that they have the bits of the kernels; exponentials and logarithms are those of NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Function: TypeAlias = Callable[[Floats], Floats]

MOST_LANES = 8192
"""The number of lanes of a long row."""


def lanes_of(length: int) -> int:
    """Return the number of lanes to which a row is dealt: a power of two, from 2 to MOST_LANES."""
    return min(max(2, 1 << (length - 1).bit_length()), MOST_LANES)


def sums(x: Floats) -> Floats:
    """Return the sum of each row, as a column."""
    rows, length = x.shape
    lanes = lanes_of(length)
    total = np.zeros((rows, lanes), np.float32)
    for start in range(0, length, lanes):
        part = x[:, start : start + lanes]
        total[:, : part.shape[1]] += part
    while lanes > 1:
        lanes //= 2
        total = total[:, 0::2] + total[:, 1::2]
    return total


def means(x: Floats) -> Floats:
    """Return the mean of each row, as a column."""
    return sums(x) / np.float32(x.shape[1])


def prefix_sums(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the sums over the second axis of x[o, n, c] up to each number, which is added to the sum before it."""
    found = np.empty_like(x)
    total = np.zeros_like(x[:, 0])
    for place in range(x.shape[1]):
        total = total + x[:, place]
        found[:, place] = total
    return found


def softmax(x: Floats, log: bool, exponential: Function = np.exp, logarithm: Function = np.log) -> Floats:
    """Return the softmax of each row, or with `log` its logarithm."""
    shifted = x - x.max(axis=1, keepdims=True)
    exponentials = exponential(shifted)
    total = sums(exponentials)
    return shifted - logarithm(total) if log else exponentials / total


def softmax_gradient(gradient: Floats, y: Floats, log: bool, exponential: Function = np.exp) -> Floats:
    """Return the gradient of a softmax y, or with `log` of its logarithm y."""
    if log:
        return gradient - exponential(y) * sums(gradient)
    return y * (gradient - sums(gradient * y))


def normalised(
    x: Floats, weight: Floats | None, bias: Floats | None, epsilon: float, centered: bool
) -> tuple[Floats, Floats, Floats]:
    """Return the rows with their mean (0 unless `centered`) and scale taken out, the means, and the scales."""
    average = means(x) if centered else np.zeros((x.shape[0], 1), np.float32)
    shifted = x - average
    factor = np.float32(1) / np.sqrt(means(shifted * shifted) + np.float32(epsilon))
    found = shifted * factor
    found = found if weight is None else found * weight
    return found if bias is None else found + bias, average, factor


def normalisation_gradient(
    gradient: Floats, x: Floats, weight: Floats | None, mean: Floats, scale: Floats, centered: bool
) -> Floats:
    """Return the gradient of `normalised` for its rows; `mean` and `scale` are columns."""
    g = gradient if weight is None else gradient * weight
    y = (x - mean) * scale
    d = means(g * y)
    c = means(g) if centered else np.float32(0)
    return ((g - c) - y * d) * scale


def added_entries(
    index: NDArray[np.int64], order: NDArray[np.int64], source: Floats, out: Floats, alpha: float
) -> None:
    """Add alpha times the rows `order` of a source to the rows `index` of out, in order."""
    for target, line in zip(index, order, strict=True):
        out[target] += source[line] * np.float32(alpha)
