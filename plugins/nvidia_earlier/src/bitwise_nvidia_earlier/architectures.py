"""The architectures sm_80, sm_86 and sm_89.  All of their opcodes are shared with other architectures."""

from __future__ import annotations

from bitwise_core.execution.architecture import Arch, BitSupport, OpcodeTable
from bitwise_nvidia_earlier.matrix_units import ROWS
from bitwise_nvidia_ptx.architecture import nvidia_arch


def _arch(name: str) -> Arch:
    return nvidia_arch(name, (name,), OpcodeTable(), BitSupport(matrix_units=ROWS))


SM80, SM86, SM89 = map(_arch, ("sm_80", "sm_86", "sm_89"))
