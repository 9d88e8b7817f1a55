"""The hooks of this distribution: the architectures sm_80, sm_86 and sm_89, and matrix-unit rows from sm_70 on."""

from __future__ import annotations

from collections.abc import Iterable

from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_core.plugins.references import ArchReference
from bitwise_nvidia_earlier.matrix_units import ROWS
from bitwise_nvidia_ptx.references import nvidia_reference

NAMES = {"SM80": "sm_80", "SM86": "sm_86", "SM89": "sm_89"}


@hookimpl
def bitwise_arches() -> Iterable[ArchReference]:
    """sm_80, sm_86 and sm_89."""
    return [nvidia_reference((name,), f"bitwise_nvidia_earlier.architectures:{each}") for each, name in NAMES.items()]


@hookimpl
def bitwise_matrix_units() -> Iterable[MmaSpec]:
    """The matrix units of sm_70, sm_75, sm_80, sm_86 and sm_89."""
    return ROWS
