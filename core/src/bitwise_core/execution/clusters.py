"""Clusters: boxes of neighbouring blocks of a grid, which run at the same time.

The blocks of a cluster may access each other's shared memory and wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_core.assembly.module import Kernel
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Launch, ManifestError
from bitwise_core.execution.values.symbolic_vector import Array

Extents = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Clusters:
    """The clusters of a grid: the extents of the grid and of a cluster in blocks (x, y, z).

    Each extent of the grid is a multiple of that of a cluster.  `explicit`: the launch requests clusters, rather than
    running every block alone by default; None where neither the launch nor the text decides.
    """

    grid: Extents
    shape: Extents = (1, 1, 1)
    explicit: bool | None = False

    @property
    def size(self) -> int:
        """The number of blocks in a cluster."""
        return _product(self.shape)

    def cluster_of(self, blocks: Array) -> Array:
        """Return the numbers of the clusters that contain these blocks; both are numbered with x varying fastest."""
        across, up = (each // own for each, own in zip(self.grid[:2], self.shape[:2], strict=True))
        x, y, z = (at // own for at, own in zip(_coordinates(blocks, self.grid), self.shape, strict=True))
        found: Array = x + across * (y + up * z)
        return found

    def blocks_of(self, clusters: Array) -> Array:
        """Return the blocks of these clusters, shape (clusters, size), by ascending rank."""
        of_grid: Extents = tuple(each // own for each, own in zip(self.grid, self.shape, strict=True))  # type: ignore[assignment]
        ranks = np.arange(self.size, dtype=np.int64)
        inner = _coordinates(ranks[None], self.shape)
        outer = _coordinates(np.asarray(clusters, dtype=np.int64)[:, None], of_grid)
        x, y, z = (at * own + inside for at, own, inside in zip(outer, self.shape, inner, strict=True))
        found: Array = x + self.grid[0] * (y + self.grid[1] * z)
        return found

    def whole(self, blocks: Sequence[int] | None) -> Array:
        """Return all blocks of the clusters of these blocks (None: of the grid), cluster by cluster, by rank."""
        if blocks is None:
            chosen = np.arange(_product(self.grid) // self.size, dtype=np.int64)
        else:
            chosen = np.unique(self.cluster_of(np.asarray(blocks, dtype=np.int64)))
        return self.blocks_of(chosen).reshape(-1)


def _product(extents: Extents) -> int:
    return extents[0] * extents[1] * extents[2]


def _coordinates(numbers: Array, extents: Extents) -> tuple[Array, Array, Array]:
    x, y, _ = extents
    return numbers % x, numbers // x % y, numbers // (x * y)


def clusters_of(kernel: Kernel, launch: Launch, architecture: str, largest: int) -> Clusters:
    """Return the clusters of a launch, from the text and the launch.

    `largest` is the largest number of blocks of a cluster on the architecture.  Raises ManifestError if the launch has
    no such clusters, and Unsupported if neither the text nor the launch states their shape.
    """
    stated = kernel.clusters
    if stated is not None and stated.grid_of_clusters:
        raise Unsupported(f"the launch of {kernel.name} counts clusters instead of blocks, which is not modelled")
    shape = cluster_shape(kernel, launch.cluster)
    if shape is None and stated is not None:
        raise Unsupported(
            f"the text of {kernel.name} requires a launch in clusters of blocks and does not state their shape; add "
            '"cluster": [x, y, z] to its launch in the manifest',
            kernel.line,
        )
    if shape is None:
        return Clusters(launch.grid)
    size = _product(shape)
    limit = largest if stated is None or stated.largest is None else min(largest, stated.largest)
    if size > limit:
        raise ManifestError(
            f"the launch of {kernel.name} has clusters of {_named(shape)} blocks; "
            + (f"{architecture} has no clusters" if largest == 1 else f"a cluster has at most {limit} blocks here")
        )
    if size < 1 or any(whole % part for whole, part in zip(launch.grid, shape, strict=True)):
        raise ManifestError(
            f"the grid of {kernel.name}, {_named(launch.grid)} blocks, does not divide into clusters of "
            f"{_named(shape)} blocks; each extent of the grid is a multiple of that of a cluster"
        )
    explicit = launch.cluster is not None or (stated is not None and stated.explicit)
    return Clusters(launch.grid, shape, explicit or None)


def cluster_shape(kernel: Kernel, launched: Extents | None) -> Extents | None:
    """Return the shape of the clusters that the text or the launch states; None if neither does.

    Raises ManifestError if they disagree.
    """
    required = None if kernel.clusters is None else kernel.clusters.shape
    if required is not None and launched not in (None, required):
        assert launched is not None
        raise ManifestError(
            f"the text of {kernel.name} requires clusters of {_named(required)} blocks, and its launch has clusters of "
            f"{_named(launched)}"
        )
    return required or launched


def _named(extents: Extents) -> str:
    return " x ".join(str(each) for each in extents)
