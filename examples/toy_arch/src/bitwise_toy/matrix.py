"""The instruction of the matrix unit of toy1: a wave of four lanes multiplies 2 x 2 matrices of fp16, adding in fp32.

Lane 2 i + j holds element (i, j) of the accumulator.  A register of lane 2 i holds row i of the left matrix and a
register of lane j holds column j of the right matrix (j = 0, 1), the first element in the low half.  The operand
registers of the other lanes are not read.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context, OpcodeTable
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.values.matrix_steps.mma_fragments import accumulate, operand_vectors
from bitwise_core.execution.values.matrix_steps.mma_steps import MmaStep
from bitwise_core.execution.values.packing import extract
from bitwise_toy.matrix_units import MAC
from bitwise_toy.opcodes import operands

TABLE = OpcodeTable()
_STEP = MmaStep(MAC.name, positive_zero=True, commutes=True)


@TABLE.opcode("mac", operands=DESTINATION_FIRST, effects=Effect.CROSS_LANE)
def multiply(instruction: Instruction, context: Context) -> Step:
    """mac r, left, right, accumulator."""
    destination, left, right, accumulator = operands(instruction, "rrrr")

    def step(machine: Machine) -> None:
        if not machine.active().all():
            raise Unsupported("the matrix instruction is executed by a part of the block only", instruction.line)
        thread = np.arange(machine.threads)
        rows, columns = 2 * (thread // 4) + thread // 2 % 2, 2 * (thread // 4) + thread % 2
        first = 4 * np.arange(machine.threads // 4)[:, None]
        vectors = []
        for operand, places in ((left, [0, 2]), (right, [0, 1])):
            value = machine.read_bits(operand, 32)
            holders = (first + np.array(places)).reshape(-1, 1)
            elements = [extract(value, 0, 16), extract(value, 16, 16)]
            vectors.append(operand_vectors(machine, elements, MAC.left, holders.repeat(2, axis=1)))
        old = machine.read_bits(accumulator, 32)
        machine.write(destination, accumulate(machine, _STEP, old, vectors[0], vectors[1], rows, columns))

    return step
