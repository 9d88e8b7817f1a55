"""The hooks of this distribution: the architecture sm_120 and its matrix units."""

from __future__ import annotations

from collections.abc import Iterable

from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_core.plugins.references import ArchReference
from bitwise_nvidia_ptx.references import nvidia_reference
from bitwise_nvidia_sm120.matrix_units import NAME, ROWS


@hookimpl
def bitwise_arches() -> Iterable[ArchReference]:
    """sm_120."""
    return [nvidia_reference((NAME, "sm_120a", "sm_120f"), "bitwise_nvidia_sm120.architecture:SM120")]


@hookimpl
def bitwise_matrix_units() -> Iterable[MmaSpec]:
    """mma.sync of sm_120, without block scales and without operands of 4 and 6 bits."""
    return ROWS
