"""Sums of regression trees, fitted by gradient boosting."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitwise_nvidia_sm90.gemm.device_costs import Correction, Numbers

DEPTH = 6
"""The nodes from the root of a tree to a leaf."""
_TREES = 400
_RATE = 0.06
"""The part of the remaining residuals that a tree takes."""
_BINS = 24
_ROWS, _COLUMNS = 0.6, 0.6
"""The parts of the rows and of the columns that a tree is fitted to, drawn for each tree."""
_LEAST_WEIGHT = 2.0
"""The least weight of the rows of a leaf."""
_SHRINKAGE = 1.0
"""The weight of rows without residual that each leaf has besides its own."""
_LEAST_GAIN = 1e-9
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
    nodes, leaves = 2**DEPTH - 1, 2**DEPTH
    indices, bounds = np.zeros((_TREES, nodes), np.int64), np.full((_TREES, nodes), _ABOVE_ALL)
    values = np.zeros((_TREES, leaves))
    every = np.arange(len(targets))
    for tree in range(_TREES):
        drawn = np.flatnonzero(dice.random(len(targets)) < _ROWS)
        columns = np.sort(dice.permutation(inputs.shape[1])[: max(1, int(_COLUMNS * inputs.shape[1]))])
        seen, own = bins[drawn][:, columns], weights[drawn]
        place, first = np.zeros(len(targets), np.int64), 0
        for level in range(DEPTH):
            splits = _best_splits(seen, remaining[drawn], own, place[drawn] - first, 2**level)
            for node, split in enumerate(splits):
                if split is not None:
                    column = int(columns[split[0]])
                    indices[tree, first + node], bounds[tree, first + node] = column, edges[column][split[1]]
            above = inputs[every, indices[tree, place]] > bounds[tree, place]
            place, first = 2 * place + 1 + above, 2 * first + 1
        leaf = place - nodes
        total = np.bincount(leaf[drawn], own * remaining[drawn], leaves)
        values[tree] = _RATE * total / (np.bincount(leaf[drawn], own, leaves) + _SHRINKAGE)
        remaining -= values[tree, leaf]
    return Correction(indices, bounds, values)


def _best_splits(
    bins: NDArray[np.int64], residuals: Numbers, weights: Numbers, nodes: NDArray[np.int64], count: int
) -> list[tuple[int, int] | None]:
    """Return for each of `count` nodes, to which `nodes` assigns the rows, the column and the edge that part it best.

    None where no split leaves both parts enough weight.
    """
    width = bins.shape[1]
    cells = (nodes[:, None] * width + np.arange(width)) * _BINS + bins
    shape = (count, width, _BINS)

    def below(of_rows: Numbers) -> Numbers:
        """Return for each node, column and edge the sum over rows that are not above the edge; the last is of all."""
        found = np.bincount(cells.ravel(), np.repeat(of_rows, width), int(np.prod(shape)))
        return np.asarray(found.reshape(shape).cumsum(axis=2))

    sums, parts = below(residuals * weights), below(weights)
    total, weight = sums[:, :, -1:], parts[:, :, -1:]
    sums, parts = sums[:, :, :-1], parts[:, :, :-1]
    gains = sums**2 / (parts + _SHRINKAGE) + (total - sums) ** 2 / (weight - parts + _SHRINKAGE)
    gains -= total**2 / (weight + _SHRINKAGE)
    gains = np.where((parts > _LEAST_WEIGHT) & (weight - parts > _LEAST_WEIGHT), gains, 0).reshape(count, -1)
    best = gains.argmax(axis=1)
    edges = _BINS - 1
    return [
        (int(place) // edges, int(place) % edges) if gains[node, place] > _LEAST_GAIN else None
        for node, place in enumerate(best)
    ]
