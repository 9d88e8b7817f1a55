"""Sums of regression trees, fitted by gradient boosting."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitwise_nvidia_sm90.gemm.device_costs import TREE_DEPTH, Correction, Numbers

_TREES = 300
_RATE = 0.12
"""The part of the remaining residuals that a tree takes."""
_BINS = 24
_ROWS, _COLUMNS = 0.6, 0.6
"""The parts of the rows and of the columns that a tree is fitted to, drawn for each tree."""
_LEAST_WEIGHT = 2.0
"""The least weight of the rows of a leaf."""
_SHRINKAGE = 1.0
"""The weight of rows without residual that each leaf has besides its own."""
_ABOVE_ALL = 1e300
"""The bound of a node that parts no rows."""
_SEED = 0


def boosted_trees(inputs: Numbers, targets: Numbers, weights: Numbers) -> Correction:
    """Return trees whose sum fits the targets, by weighted least squares."""
    levels = np.linspace(0, 1, _BINS + 1)[1:-1]
    edges = [np.unique(np.quantile(column, levels)) for column in inputs.T]
    # The bin of a value is the number of edges below it.
    bins = np.stack(
        [np.searchsorted(each, column, side="left") for each, column in zip(edges, inputs.T, strict=True)], axis=1
    )
    dice = np.random.default_rng(_SEED)
    remaining = targets.astype(float).copy()
    nodes, leaves = 2**TREE_DEPTH - 1, 2**TREE_DEPTH
    indices, bounds = np.zeros((_TREES, nodes), np.int64), np.full((_TREES, nodes), _ABOVE_ALL)
    values = np.zeros((_TREES, leaves))
    for tree in range(_TREES):
        drawn = np.flatnonzero(dice.random(len(targets)) < _ROWS)
        columns = np.sort(dice.permutation(inputs.shape[1])[: max(1, int(_COLUMNS * inputs.shape[1]))])
        place = np.zeros(len(targets), np.int64)
        for node in range(nodes):
            rows = drawn[place[drawn] == node]
            split = _best_split(bins[rows][:, columns], remaining[rows], weights[rows])
            above = np.zeros(len(targets), bool)
            if split is not None:
                column, edge = int(columns[split[0]]), split[1]
                indices[tree, node], bounds[tree, node] = column, edges[column][edge]
                above = bins[:, column] > edge
            here = place == node
            place[here] = 2 * node + 1 + above[here]
        for leaf in range(leaves):
            rows = drawn[place[drawn] == nodes + leaf]
            mean = np.sum(remaining[rows] * weights[rows]) / (np.sum(weights[rows]) + _SHRINKAGE)
            values[tree, leaf] = _RATE * mean
        remaining -= values[tree, place - nodes]
    return Correction(indices, bounds, values)


def _best_split(bins: NDArray[np.int64], residuals: Numbers, weights: Numbers) -> tuple[int, int] | None:
    """Return the column and the edge that part rows best; None if no split leaves both parts enough weight."""
    total, weight = float(np.sum(residuals * weights)), float(np.sum(weights))
    best, found = 1e-9, None
    for column in range(bins.shape[1]):
        sums = np.cumsum(np.bincount(bins[:, column], residuals * weights, _BINS))[:-1]
        parts = np.cumsum(np.bincount(bins[:, column], weights, _BINS))[:-1]
        gains = sums**2 / (parts + _SHRINKAGE) + (total - sums) ** 2 / (weight - parts + _SHRINKAGE)
        gains = np.where((parts > _LEAST_WEIGHT) & (weight - parts > _LEAST_WEIGHT), gains, 0)
        edge = int(np.argmax(gains))
        gain = float(gains[edge]) - total**2 / (weight + _SHRINKAGE)
        if gain > best:
            best, found = gain, (column, edge)
    return found
