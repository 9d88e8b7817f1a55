"""The hooks of this distribution: the architectures sm_100 and sm_103 and their matrix units."""

from __future__ import annotations

from collections.abc import Iterable

from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Arch, BitSupport, Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect
from bitwise_core.execution.machine import Step
from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_nvidia_ptx.architecture import nvidia_arch
from bitwise_nvidia_sm100 import matrix_units

TABLE = OpcodeTable()


@TABLE.opcode("tcgen05", operands=DESTINATION_FIRST, effects=Effect.LOAD | Effect.STORE | Effect.CROSS_LANE)
def tensor_memory(instruction: Instruction, context: Context) -> Step:
    """Raise UnknownInstruction: fifth-generation tensor cores and tensor memory are not modelled."""
    raise UnknownInstruction(instruction, "works on tensor memory, which is not modelled")


BITS = BitSupport(matrix_units=tuple(matrix_units.ROWS))
SM100 = nvidia_arch("sm_100", ("sm_100", "sm_100a", "sm_100f"), TABLE, BITS, largest_cluster=16)
SM103 = nvidia_arch("sm_103", ("sm_103", "sm_103a", "sm_103f"), TABLE, BITS, largest_cluster=16)


@hookimpl
def bitwise_arches() -> Iterable[Arch]:
    """sm_100 and sm_103.  The names of their approximations and matrix steps carry the architecture."""
    return [SM100, SM103]


@hookimpl
def bitwise_matrix_units() -> Iterable[MmaSpec]:
    """mma.sync and tcgen05.mma of sm_100 and sm_103."""
    return matrix_units.ROWS
