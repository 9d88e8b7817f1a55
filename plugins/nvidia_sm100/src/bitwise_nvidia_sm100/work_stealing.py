"""clusterlaunchcontrol: a block takes over the tiles of blocks that were not started.

Source: PTX ISA 8.8, "clusterlaunchcontrol".
Which blocks are taken over is a choice of the hardware.  Executed is one choice in which all of them are started: each
takes over `TAKEN` others, and the block that had a tile before differs each time.  So each tile is computed as the
first one of a block and after one to `TAKEN` others.  Stores of different values at one address are a race, so that a
launch without one has the same values in each case.  That other choices give these values as well is an assumption,
and without it the verdict is Unknown.

In clusters, a cluster takes over another one, and the response, which goes to all of its blocks, names the first block
of that one.

The response has a form of its own: x and y of the block in its lower half, z and whether there is one in its upper
half.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.assembly.module import Instruction, Vector
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.assumptions import WORK_STEALING
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, NO_DESTINATION, Effect, InstructionInfo
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.memory.cluster_memory import cluster_state
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import blend_values, extract
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.execution.values.term_hash import poison
from bitwise_nvidia_ptx.opcodes.copies.issuing_thread import issuers_and_receivers, uniform_offset
from bitwise_nvidia_ptx.opcodes.copies.mbarriers import Copy, enter_phase, mbarrier_at
from bitwise_nvidia_ptx.opcodes.copies.tensor_copy import add_copy, multicast
from bitwise_nvidia_sm100.issued_numbers import issuing_thread

OPCODE = "clusterlaunchcontrol"
TAKEN = 4
"""How many further tiles each block takes over."""
_RESPONSE = 16
"""The bytes of a response."""
_REQUEST = ["try_cancel", "async", "shared::cta", "mbarrier::complete_tx::bytes", "b128"]
_REQUEST_OF_CLUSTER = [*_REQUEST[:-1], "multicast::cluster::all", "b128"]
_AXES = {"get_first_ctaid::x": 0, "get_first_ctaid::y": 1, "get_first_ctaid::z": 2}
_ORDERED = ("atom.", "red.", "cp.reduce.", "multimem.")
"""What the opcodes begin with that change memory by what it holds: a tile is computed several times here."""


def _info(instruction: Instruction) -> InstructionInfo:
    if "try_cancel" in instruction.opcode.split("."):
        of_cluster = Effect.CLUSTER if "multicast::cluster::all" in instruction.opcode else Effect.NONE
        return NO_DESTINATION.info(instruction, Effect.LOAD | Effect.STORE | of_cluster)
    return DESTINATION_FIRST.info(instruction, Effect.INTEGER)


def declare(table: OpcodeTable) -> None:
    """Add the opcode to a table."""
    table.opcode(OPCODE, operands=_info)(_steal)


def _steal(instruction: Instruction, context: Context) -> Step:
    """clusterlaunchcontrol.{try_cancel, query_cancel.is_canceled, query_cancel.get_first_ctaid}."""
    parts = instruction.opcode.split(".")[1:]
    if parts in (_REQUEST, _REQUEST_OF_CLUSTER):
        for each in context.kernel.instructions:
            if each.opcode.startswith(_ORDERED):
                raise UnknownInstruction(instruction, f"beside {each.opcode} (line {each.line}) is not modelled")
        return _request(instruction, parts == _REQUEST_OF_CLUSTER)
    if parts == ["query_cancel", "is_canceled", "pred", "b128"]:
        return _is_taken(instruction)
    if parts == ["query_cancel", "get_first_ctaid", "v4", "b32", "b128"]:
        return _place(instruction, (0, 1, 2))
    if len(parts) == 4 and parts[1] in _AXES and parts[0::2] == ["query_cancel", "b32"] and parts[3] == "b128":
        return _place(instruction, (_AXES[parts[1]],))
    raise UnknownInstruction(instruction)


def _request(instruction: Instruction, of_cluster: bool) -> Step:
    target, place = instruction.operands

    def step(machine: Machine) -> None:
        if not machine.domain.assumes(WORK_STEALING):
            raise Unsupported(
                "which blocks take over tiles of others is a choice of the hardware; --assume work-stealing reads one "
                "choice for all",
                instruction.line,
            )
        thread = issuing_thread(machine, "a request to take over a block")
        is_alone = machine.cluster is None and machine.clusters.shape == (1, 1, 1)
        if not is_alone and not of_cluster:
            raise Unsupported("a cluster takes over another, and one block gets the response", instruction.line)
        blocks, line = machine.active_blocks(), instruction.line
        base = uniform_offset(machine, target, "the response to a request")
        cells = machine.shared.cells(np.array([[base, base + 8]], dtype=np.int64), None)
        touched = (cells[0][:, None] + np.arange(max(1, 8 // machine.shared.granule))).ravel()
        value = _responses(machine, blocks, line)
        if is_alone:
            barrier = mbarrier_at(machine, place)
            for races in machine.races.acting(machine.mask):
                races.copies_over(touched, thread, line)
            enter_phase(machine, barrier, machine.active_warps())
            add_copy(machine, barrier, Copy(barrier.phase.copy(), cells, value, blocks, touched), _RESPONSE)
            return
        state, _ = cluster_state(machine)
        address = uniform_offset(machine, place, "an mbarrier")
        every = np.full(machine.blocks, (1 << state.size) - 1, dtype=np.int64)
        for issuer, receiver, rows in issuers_and_receivers(machine, every, blocks, "a response"):
            ranks = issuer, receiver, receiver
            multicast(machine, (address, cells, value, touched), ranks, rows, thread, _RESPONSE)

    return step


def _responses(machine: Machine, blocks: Array, line: int) -> Array:
    """Return the responses to the next request of these blocks, shape (blocks, 2)."""
    own, counts = [], []
    shape = machine.clusters.shape
    for axis, length in zip("xyz", shape, strict=True):
        number, extent = machine.special[f"%ctaid.{axis}"], machine.special[f"%nctaid.{axis}"]
        if L.lazy_integers(number) is not None:
            raise Unsupported("blocks take over others in a launch that is not executed block by block")
        own.append(np.broadcast_to(number, (machine.blocks, 1))[:, 0].astype(np.int64) // length)
        counts.append(int(extent.flat[0]) // length)
    made: Array = machine.extra.setdefault("requests", np.zeros(machine.blocks, dtype=np.int64))
    of_cluster = blocks.reshape(-1, int(np.prod(shape)))
    if (of_cluster.sum(axis=1) > 1).any():
        raise Unsupported("several blocks of a cluster ask to take over another one at once", line)
    count = made + np.repeat(of_cluster.any(axis=1), of_cluster.shape[1])
    machine.extra["requests"] = count
    x, y, _ = counts
    total = x * y * counts[2]
    # The steps 1, 2, 3 ... between the tiles of a block: a tile follows another one in each block that takes it.
    flat = (own[0] + x * (own[1] + y * own[2]) + count * (count + 1) // 2) % total
    taken = (count <= TAKEN) & (total > 1)
    low = flat % x * shape[0] | flat // x % y * shape[1] << 32
    return np.stack([low, flat // (x * y) * shape[2] | taken.astype(np.int64) << 32], axis=1).astype(np.uint64)


def _taken(machine: Machine, instruction: Instruction) -> Array:
    found = machine.known(extract(machine.read_bits(instruction.operands[1], 128), 96, 32))
    if found is None:
        raise DataDependent("a response to a request to take over a block depends on data", instruction.line)
    taken: Array = found != 0
    return taken


def _is_taken(instruction: Instruction) -> Step:
    def step(machine: Machine) -> None:
        machine.write(instruction.operands[0], _taken(machine, instruction))

    return step


def _place(instruction: Instruction, axes: tuple[int, ...]) -> Step:
    destination = instruction.operands[0]
    targets = destination.items[: len(axes)] if isinstance(destination, Vector) else (destination,)
    if len(targets) != len(axes):
        raise UnknownInstruction(instruction)

    def step(machine: Machine) -> None:
        taken, response = _taken(machine, instruction), machine.read_bits(instruction.operands[1], 128)
        for target, axis in zip(targets, axes, strict=True):
            machine.write(target, blend_values(taken, extract(response, 32 * axis, 32), poison(32)))

    return step
