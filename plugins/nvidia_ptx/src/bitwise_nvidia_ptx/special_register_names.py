"""The names of the special registers of PTX.

Source: PTX ISA 8.7, "Special Registers".
"""

from __future__ import annotations

_WITH_AXES = ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
_SCALARS = (
    "warpid",
    "nwarpid",
    "laneid",
    "smid",
    "nsmid",
    "gridid",
    "is_explicit_cluster",
    "cluster_ctarank",
    "cluster_nctarank",
    "lanemask_eq",
    "lanemask_le",
    "lanemask_lt",
    "lanemask_ge",
    "lanemask_gt",
    "clock",
    "clock_hi",
    "clock64",
    "globaltimer",
    "globaltimer_lo",
    "globaltimer_hi",
    "total_smem_size",
    "aggr_smem_size",
    "dynamic_smem_size",
    "current_graph_exec",
    "reserved_smem_offset_begin",
    "reserved_smem_offset_end",
    "reserved_smem_offset_cap",
    "reserved_smem_offset_0",
    "reserved_smem_offset_1",
)
SPECIAL_REGISTERS = frozenset(
    [f"%{name}{part}" for name in _WITH_AXES for part in ("", ".x", ".y", ".z", ".w")]
    + [f"%{name}" for name in _SCALARS]
    + [f"%envreg{n}" for n in range(32)]
    + [f"%pm{n}{wide}" for n in range(8) for wide in ("", "_64")]
)
"""The names of all special registers."""
