"""tcgen05.shift: the rows of 8 columns of tensor memory move by one.

Source: PTX ISA 8.8, "tcgen05.shift".  It does not say which row takes the place of which.  A public readback on a B200
does: lane i takes the content of lane i + 1 in each quarter of the lanes, and the last lane of a quarter keeps its own,
with an address in lane 0.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.assembly.module import Address, Instruction
from bitwise_core.execution.architecture import UnknownInstruction
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.memory.cluster_memory import agent_detectors
from bitwise_core.execution.races.agent_accesses import AgentAccess
from bitwise_nvidia_sm100.issued_numbers import issuing_thread, known_numbers, numbers_of_blocks
from bitwise_nvidia_sm100.products import OPERAND_READ, SHIFT, pairs_of
from bitwise_nvidia_sm100.tensor_memory.column_values import moved
from bitwise_nvidia_sm100.tensor_memory.memory import tensor_memory
from bitwise_nvidia_sm100.tensor_memory.places import LANES, NAME, PIPELINE, QUARTER, race_cells

_COLUMNS = 8
_LANE = np.arange(LANES)
_SOURCES = np.where(_LANE % QUARTER == QUARTER - 1, _LANE, _LANE + 1)
"""The lane whose content each lane takes."""


def shift_step(instruction: Instruction, of_pair: bool) -> Step:
    """tcgen05.shift.cta_group::{1,2}.down [address]; `of_pair` (.cta_group::2): in both blocks of a pair."""
    if len(instruction.operands) != 1 or not isinstance(instruction.operands[0], Address):
        raise UnknownInstruction(instruction, "has operands that are not modelled")
    target = instruction.operands[0]

    def step(machine: Machine) -> None:
        thread, memory = issuing_thread(machine, "tcgen05.shift"), tensor_memory(machine)
        for (address,), issuers in numbers_of_blocks(machine, [known_numbers(machine, target, 32)]):
            if address >> 16:
                raise Unsupported(f"tcgen05.shift from lane {address >> 16} of tensor memory is not modelled")
            blocks = pairs_of(machine, issuers, "a shift of rows") if of_pair else issuers
            columns = address + np.arange(_COLUMNS)
            memory.require_allocated(columns, blocks)
            # Those of one pipeline are executed after the multiplications that read the rows, and before later ones.
            access = AgentAccess(
                (PIPELINE, thread), thread, writes=True, kind=SHIFT, after=frozenset({SHIFT, OPERAND_READ})
            )
            cells = race_cells(_LANE[:, None], columns[None])
            for races, own in agent_detectors(machine, issuers, access, of_pairs=of_pair):
                races.agent_accesses(NAME, cells, own)
            for number in columns.tolist():
                memory.put(number, moved(memory.column(number), _SOURCES, LANES), blocks)

    return step
