"""st, and asynchronous stores to the shared memory of a cluster, which complete on a memory barrier (st.async).

Source: PTX ISA 8.7, "st" and "st.async".
The bytes of an asynchronous store arrive when the phase of its memory barrier ends, which must be in the block to which
they go.  Until then an access to them is a race.  The PTX ISA does not say whether such a store passes through the
asynchronous proxy.  Here it may overtake loads that no proxy fence ends, as a copy of that proxy does, and asynchronous
agents read what it wrote behind a proxy fence only, as what threads write.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from bitwise_core.assembly.module import Address, Instruction, Operand
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.instruction_info import NO_DESTINATION, Effect, InstructionInfo
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.memory.access import check_aligned
from bitwise_core.execution.memory.cluster_memory import (
    cluster_state,
    enter_phase_from_cluster,
    start_stores,
    use_in_cluster,
)
from bitwise_core.execution.opcode_steps import for_each_set_of_threads
from bitwise_core.execution.values.packing import concat
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_nvidia_ptx.addresses.shared import place_of
from bitwise_nvidia_ptx.opcodes import memory
from bitwise_nvidia_ptx.opcodes.common import type_bits
from bitwise_nvidia_ptx.opcodes.copies.issuing_thread import require_known_condition
from bitwise_nvidia_ptx.opcodes.copies.mbarriers import StoresOfCluster, complete_phase, initialised_mbarrier
from bitwise_nvidia_ptx.opcodes.memory import address_of

TABLE = OpcodeTable()

_COMPLETION = "mbarrier::complete_tx::bytes"
_TYPES = ("b32", "b64", "u32", "u64", "s32", "s64", "f32", "f64")


def _info(instruction: Instruction) -> InstructionInfo:
    if "async" not in instruction.opcode.split("."):
        return memory.store_info(instruction)
    effects = Effect.LOAD | Effect.STORE | Effect.ASYNCHRONOUS | Effect.CLUSTER
    return NO_DESTINATION.info(instruction, effects)


@TABLE.opcode("st", operands=_info, least=2)
def store(instruction: Instruction, context: Context) -> Step:
    """st, and st.async{.weak}.shared::cluster.mbarrier::complete_tx::bytes{.v2, .v4}.type [a], b, [mbarrier]."""
    parts = instruction.opcode.split(".")
    if "async" not in parts:
        return memory.store(instruction, context)
    _, _, *modifiers, kind = parts
    vectors = [each for each in modifiers if each in ("v2", "v4")]
    rest = [each for each in modifiers if each not in (*vectors, "weak", "shared::cluster")]
    if parts[1] != "async" or kind not in _TYPES or rest != [_COMPLETION] or len(vectors) > 1:
        raise UnknownInstruction(instruction)
    if len(instruction.operands) != 3 or not all(isinstance(instruction.operands[each], Address) for each in (0, 2)):
        raise UnknownInstruction(instruction)
    target, source, barrier = instruction.operands
    items = memory.elements(source, int(vectors[0][1:]) if vectors else 1, instruction)
    return partial(_start, (target, barrier), items, type_bits(kind), instruction.line)


def _start(places: tuple[Operand, Operand], items: tuple[Operand, ...], bits: int, line: int, machine: Machine) -> None:
    require_known_condition(machine, "an asynchronous store", of_blocks=True)
    addresses = [machine.known(address_of(machine, each)) for each in places]
    if addresses[0] is None or addresses[1] is None:
        raise DataDependent("an asynchronous store to a computed address", line)
    check_aligned(machine, addresses[0], bits * len(items) // 8, line)
    (offset, ranks), (place, owners) = (place_of(machine, each) for each in addresses if each is not None)
    active = machine.active()
    if ((ranks != owners) & active).any():
        raise Unsupported("an asynchronous store and its memory barrier are in different blocks", line)
    value = concat([machine.read_bits(item, bits) for item in items])
    cells = machine.shared.cells(np.broadcast_to(offset, active.shape), machine.mask)
    ranks, place = (np.broadcast_to(each, active.shape).astype(np.int64) for each in (ranks, place))
    state, _ = cluster_state(machine)
    outer, size = machine.mask, bits * len(items) // 8
    counted: set[tuple[int, int]] = set()

    def store_to(rank: int, address: int) -> None:
        threads = machine.active()
        lanes = np.zeros(machine.blocks, dtype=np.int64)
        lanes[rank :: state.size] = threads.sum(axis=1).reshape(-1, state.size).sum(axis=1)
        holding: Array = lanes > 0
        use_in_cluster(machine, address, rank)
        barrier = initialised_mbarrier(machine, address, holding)
        enter_phase_from_cluster(machine, address, rank, machine.active_blocks(), counted)
        start_stores(machine, cells, ranks, 8 * size)
        stores = StoresOfCluster(barrier.phase.copy(), cells, ranks, value, threads.copy(), 8 * size, holding)
        barrier.stores.append(stores)
        for races in machine.races.of_blocks(holding):
            races.expect_later(address)
        barrier.bytes = barrier.bytes - size * lanes
        complete_phase(machine, barrier)

    try:
        for rank, address in np.unique(np.stack([ranks[active], place[active]]), axis=1).T.tolist():
            machine.mask = active & (ranks == rank) & (place == address)
            for_each_set_of_threads(machine, partial(store_to, rank, address))
    finally:
        machine.mask = outer
