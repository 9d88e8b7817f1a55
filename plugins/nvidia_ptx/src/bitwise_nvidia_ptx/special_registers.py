"""The special registers of PTX: their values in a launch, and which of them a launch fixes.

Source: PTX ISA 8.7, "Special Registers".
"""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.architecture import ClusterRegisters
from bitwise_core.execution.clusters import Clusters
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.machine import Machine, literal
from bitwise_core.execution.values.symbolic_vector import Array

_FIXED_PREFIXES = (
    "%tid", "%ctaid", "%ntid", "%nctaid", "%laneid", "%lanemask", "WARP_SZ", "%cluster",
    "%ncluster", "%is_explicit_cluster",
)  # fmt: skip
"""Prefixes of the special registers that the launch fixes.

%warpid is none: it is where a warp runs, which may change, and %nwarpid is the largest number of such places.
"""

CLUSTER_REGISTERS = ClusterRegisters(
    cluster=("%clusterid.x", "%clusterid.y", "%clusterid.z"),
    clusters=("%nclusterid.x", "%nclusterid.y", "%nclusterid.z"),
    others=frozenset(
        [f"%{name}.{axis}" for name in ("cluster_ctaid", "cluster_nctaid") for axis in "xyz"]
        + ["%cluster_ctarank", "%cluster_nctarank", "%is_explicit_cluster"]
    ),
)
"""The special registers that depend on the clusters of the launch."""


SHARED_WINDOW = "shared window"
"""The name under which `Machine.special` holds the address of the first byte of a block's shared memory.

It is there in clusters of several blocks only; otherwise the address is 0.
"""

RANK_SHIFT = 24
"""The first bit of a block's rank in an address of its shared memory; the bits below are the offset in the block."""


def fixed_by_launch(register: str) -> bool:
    """Return whether a launch fixes the value of a special register."""
    return register.startswith(_FIXED_PREFIXES)


def fill_special_registers(machine: Machine, launch: Launch) -> None:
    """Set the special registers that the launch fixes; `machine.special["block"]` holds the linear block indices."""
    block = machine.special["block"].astype(np.uint32)
    thread = np.arange(machine.threads, dtype=np.uint32)[None]
    size = machine.block
    grid = launch.grid
    special = machine.special
    for axis, value in zip("xyz", _coordinates(block, grid), strict=True):
        special[f"%ctaid.{axis}"] = value
    for axis, value in zip("xyz", _coordinates(thread, size), strict=True):
        special[f"%tid.{axis}"] = value
    for index, axis in enumerate("xyz"):
        special[f"%ntid.{axis}"] = literal(size[index], 32)
        special[f"%nctaid.{axis}"] = literal(grid[index], 32)
    special["%laneid"] = thread & np.uint32(31)
    _fill_cluster_registers(special, machine.clusters)
    lane = thread & np.uint32(31)
    special["%lanemask_lt"] = (np.uint32(1) << lane) - np.uint32(1)
    special["%lanemask_eq"] = np.uint32(1) << lane
    special["%lanemask_le"] = special["%lanemask_lt"] | special["%lanemask_eq"]
    special["%lanemask_gt"] = ~special["%lanemask_le"]
    special["%lanemask_ge"] = ~special["%lanemask_lt"]
    special["WARP_SZ"] = literal(32, 32)


def _fill_cluster_registers(special: dict[str, Array], clusters: Clusters) -> None:
    """Set the registers of clusters from the coordinates of the blocks."""
    ranks = literal(0, 32)
    stride = 1
    for axis, grid, extent in zip("xyz", clusters.grid, clusters.shape, strict=True):
        at = special[f"%ctaid.{axis}"]
        inside = literal(0, 32) if extent == 1 else at % np.uint32(extent)
        special[f"%clusterid.{axis}"] = at if extent == 1 else at // np.uint32(extent)
        special[f"%nclusterid.{axis}"] = literal(grid // extent, 32)
        special[f"%cluster_ctaid.{axis}"] = inside
        special[f"%cluster_nctaid.{axis}"] = literal(extent, 32)
        if extent > 1:
            ranks = inside * np.uint32(stride) + ranks
        stride *= extent
    special["%cluster_ctarank"] = ranks
    special["%cluster_nctarank"] = literal(clusters.size, 32)
    if clusters.size > 1:
        special[SHARED_WINDOW] = ranks.astype(np.uint64) << np.uint64(RANK_SHIFT)
    if clusters.explicit is not None:
        special["%is_explicit_cluster"] = literal(int(clusters.explicit), 1)


def _coordinates(index: Array, extent: tuple[int, int, int]) -> list[Array]:
    """Return x, y and z of linear indices; those of an axis of extent 1 are a literal 0."""
    x, y, _ = (np.uint32(each) for each in extent)
    values = [index % x, index // x % y, index // (x * y)]
    return [literal(0, 32) if extent[axis] == 1 else value for axis, value in enumerate(values)]
