"""What a reading of PTX for every launch needs beside the meaning of each instruction."""

from __future__ import annotations

_FIXED_PREFIXES = ("%tid", "%ctaid", "%ntid", "%nctaid", "%laneid", "%warpid", "%nwarpid", "%lanemask", "WARP_SZ", "%cluster")
"""Beginnings of special registers that the launch fixes (those of clusters are 0 or 1 without clusters)."""

GRID_DEPENDENT = frozenset(f"{name}.{axis}" for name in ("%clusterid", "%nclusterid") for axis in "xyz")


def fixed_by_launch(register: str) -> bool:
    """Whether a launch fixes a special register."""
    return register.startswith(_FIXED_PREFIXES)
