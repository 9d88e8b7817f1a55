"""The hooks of this distribution: the architectures sm_80, sm_86 and sm_89, and matrix-unit rows from sm_70 on."""

from __future__ import annotations

from collections.abc import Iterable

from bitwise_core.execution.architecture import Arch, BitSupport, OpcodeTable
from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_nvidia_earlier.matrix_units import ROWS
from bitwise_nvidia_ptx.architecture import nvidia_arch

NAMES = ("sm_80", "sm_86", "sm_89")


def _arch(name: str) -> Arch:
    return nvidia_arch(name, (name,), OpcodeTable(), BitSupport(matrix_units=ROWS))


@hookimpl
def bitwise_arches() -> Iterable[Arch]:
    """sm_80, sm_86 and sm_89.  All of their opcodes are shared with other architectures."""
    return [_arch(name) for name in NAMES]


@hookimpl
def bitwise_matrix_units() -> Iterable[MmaSpec]:
    """The matrix units of sm_70, sm_75, sm_80, sm_86 and sm_89."""
    return ROWS
