"""The hooks of this distribution: the architectures sm_100 and sm_103 and their matrix units."""

from __future__ import annotations

from collections.abc import Iterable

from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_core.plugins.references import ArchReference
from bitwise_nvidia_ptx.references import nvidia_reference
from bitwise_nvidia_sm100 import matrix_units


@hookimpl
def bitwise_arches() -> Iterable[ArchReference]:
    """sm_100 and sm_103."""
    targets = {"SM100": "sm_100", "SM103": "sm_103"}
    return [
        nvidia_reference((name, f"{name}a", f"{name}f"), f"bitwise_nvidia_sm100.architecture:{each}")
        for each, name in targets.items()
    ]


@hookimpl
def bitwise_matrix_units() -> Iterable[MmaSpec]:
    """mma.sync and tcgen05.mma of sm_100 and sm_103."""
    return matrix_units.ROWS
