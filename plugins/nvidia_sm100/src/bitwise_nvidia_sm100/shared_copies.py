"""tcgen05.cp: copies from shared memory to tensor memory.

Source: PTX ISA 8.8, "tcgen05.cp".
The tile in shared memory has the layout of an operand whose rows are contiguous: each row fills the columns of a lane.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_core.assembly.module import Address, Instruction
from bitwise_core.execution.architecture import UnknownInstruction
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.memory.cluster_memory import agent_detectors
from bitwise_core.execution.races.agent_accesses import AgentAccess
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector
from bitwise_nvidia_ptx.opcodes.matrices.matrix_tiles import tile_addresses, tile_cells, tile_values
from bitwise_nvidia_sm100.descriptors import check_unit, tile_layout
from bitwise_nvidia_sm100.issued_numbers import issuing_thread, known_numbers, numbers_of_blocks
from bitwise_nvidia_sm100.products import COPY, OPERAND_READ, pairs_of
from bitwise_nvidia_sm100.tensor_memory.memory import tensor_memory
from bitwise_nvidia_sm100.tensor_memory.places import LANES, NAME, PIPELINE, QUARTER, race_cells

_SHAPES: dict[frozenset[str], tuple[int, int, tuple[int, ...]]] = {
    frozenset({"128x256b"}): (128, 32, (0, 1, 2, 3)),
    frozenset({"128x128b"}): (128, 16, (0, 1, 2, 3)),
    frozenset({"64x128b", "warpx2::02_13"}): (64, 16, (0, 1, 0, 1)),
    frozenset({"64x128b", "warpx2::01_23"}): (64, 16, (0, 0, 1, 1)),
    frozenset({"32x128b", "warpx4"}): (32, 16, (0, 0, 0, 0)),
}
"""The rows of each shape, the bytes of a row, and which 32 rows each quarter of the lanes receives.

ptxas takes the shape and the multicast in either order; Triton emits the multicast first.
"""


def copy_step(instruction: Instruction, modifiers: Sequence[str], of_pair: bool) -> Step:
    """tcgen05.cp.cta_group::{1,2}.{shape}{.multicast} [address], descriptor.

    `of_pair` (.cta_group::2): each block of a pair copies from its own shared memory to its own tensor memory.
    """
    shape = _SHAPES.get(frozenset(modifiers))
    if shape is None or len(modifiers) != len(set(modifiers)):
        raise UnknownInstruction(instruction)
    if len(instruction.operands) != 2 or not isinstance(instruction.operands[0], Address):
        raise UnknownInstruction(instruction, "has operands that are not modelled")
    target, source = instruction.operands

    def step(machine: Machine) -> None:
        thread = issuing_thread(machine, "tcgen05.cp")
        found = known_numbers(machine, target, 32), known_numbers(machine, source, 64)
        for (address, descriptor), blocks in numbers_of_blocks(machine, found):
            _copy(machine, thread, blocks, shape, address, descriptor, of_pair)

    return step


def _copy(
    machine: Machine,
    thread: int,
    blocks: Array,
    shape: tuple[int, int, tuple[int, ...]],
    address: int,
    descriptor: int,
    of_pair: bool,
) -> None:
    rows, size, quarters = shape
    if address >> 16:
        raise Unsupported(f"tcgen05.cp to lane {address >> 16} of tensor memory is not modelled")
    issuers = blocks
    if of_pair:
        blocks = pairs_of(machine, issuers, "a copy to tensor memory")
    memory = tensor_memory(machine)
    columns = (address & 0xFFFF) + np.arange(size // 4)
    memory.require_allocated(columns, blocks)
    layout = tile_layout(descriptor)
    check_unit(layout, wide=False)
    words = np.ascontiguousarray(tile_addresses(layout, rows, size, 1, True)[:, ::4])
    tile = tile_cells(machine, words, 4)
    places = race_cells(np.arange(LANES)[:, None], columns[None])
    agent = (PIPELINE, thread)
    # PTX orders a multiplication after a copy; that a copy follows earlier work is an assumption (SOUNDNESS.md).
    copied = AgentAccess(agent, thread, writes=True, kind=COPY, after=frozenset({COPY, OPERAND_READ}))
    reading = AgentAccess(agent, thread, writes=False, kind=OPERAND_READ)
    for races, own in agent_detectors(machine, issuers, reading, of_pairs=of_pair):
        races.agent_reads(tile.touched, own)
    for races, own in agent_detectors(machine, issuers, copied, of_pairs=of_pair):
        races.agent_accesses(NAME, places, own)
    value = tile_values(machine, tile)
    lane = np.arange(LANES)
    row = np.array(quarters)[lane // QUARTER] * QUARTER + lane % QUARTER
    for index, column in enumerate(columns.tolist()):
        flags = value.flags if isinstance(value.flags, int) else L.uniform_flags(value.flags[:, row, index])
        memory.put(column, SymbolicVector(32, value.words[:, :, row, index], flags), blocks)
