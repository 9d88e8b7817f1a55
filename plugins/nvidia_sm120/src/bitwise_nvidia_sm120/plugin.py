"""The hooks of this distribution: the architecture sm_120 and its matrix units."""

from __future__ import annotations

from collections.abc import Iterable

from bitwise_core.execution.architecture import Arch, BitSupport, OpcodeTable
from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_nvidia_ptx.architecture import nvidia_arch
from bitwise_nvidia_sm120.matrix_units import NAME, ROWS

SM120 = nvidia_arch(NAME, (NAME, "sm_120a", "sm_120f"), OpcodeTable(), BitSupport(matrix_units=ROWS))


@hookimpl
def bitwise_arches() -> Iterable[Arch]:
    """sm_120.  All of its opcodes are shared with other architectures."""
    return [SM120]


@hookimpl
def bitwise_matrix_units() -> Iterable[MmaSpec]:
    """mma.sync of sm_120, without block scales and without operands of 4 and 6 bits."""
    return ROWS
