"""Bulk copies from the shared memory of a block to that of a block of its cluster, which complete on a memory barrier.

Source: PTX ISA 8.7, "cp.async.bulk", from shared::cta to shared::cluster.
The memory barrier is in the receiving block.  Who waits for its phase knows that the bytes have been read, so that the
issuing block may neither overwrite them nor end before a thread of it comes after such a wait.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_core.assembly.module import Address, Instruction
from bitwise_core.execution.architecture import UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.memory.cluster_memory import read_by_copy
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_nvidia_ptx.addresses.shared import own_offset, place_of
from bitwise_nvidia_ptx.opcodes.copies import tensor_copy
from bitwise_nvidia_ptx.opcodes.copies.issuing_thread import (
    active_lane_count,
    for_each_number,
    issuers_and_receivers,
    value_of_issuing_thread,
)
from bitwise_nvidia_ptx.opcodes.memory import address_of

SPACES = ["shared::cluster", "shared::cta"]
"""The spaces of such a copy, in the order of its opcode."""

_MODIFIERS = ["async", "bulk", *SPACES, "mbarrier::complete_tx::bytes"]
_CHUNK = 8
"""The size in bytes of what is moved at once."""


def copy(instruction: Instruction, parts: Sequence[str]) -> Step:
    """cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [to], [from], size, [mbarrier]."""
    operands, line = instruction.operands, instruction.line
    if list(parts[1:]) != _MODIFIERS or len(operands) != 4:
        raise UnknownInstruction(instruction)
    if not all(isinstance(operands[each], Address) for each in (0, 1, 3)):
        raise UnknownInstruction(instruction)

    def step(machine: Machine) -> None:
        tensor_copy.for_each_thread(machine, lambda: issue(machine))

    def issue(machine: Machine) -> None:
        target, source, barrier = (_known(machine, address_of(machine, operands[each]), line) for each in (0, 1, 3))
        size = _known(machine, machine.read_bits(operands[2], 32), line)
        (offset, ranks), (place, owners) = place_of(machine, target), place_of(machine, barrier)
        if ((ranks != owners) & machine.active()).any():
            raise Unsupported("a bulk copy and its memory barrier are in different blocks", line)
        numbers = [size, own_offset(machine, source), offset, place]

        def act() -> None:
            _start(machine, [_number(machine, each) for each in numbers], ranks, line)

        for_each_number(machine, numbers, act)

    return step


def _known(machine: Machine, value: Value, line: int) -> Array:
    found = machine.known(value)
    if found is None:
        raise DataDependent("a bulk copy between blocks depends on data", line)
    return found


def _number(machine: Machine, value: Array) -> int:
    """Return the number that all active threads share."""
    active = machine.active()
    return int(np.broadcast_to(value, active.shape)[active][0])


def _start(machine: Machine, numbers: Sequence[int], ranks: Array, line: int) -> None:
    size, source, target, place = numbers
    if not size or any(each % 16 for each in (size, source, target)):
        raise Unsupported("a bulk copy whose size or address is no multiple of 16 is not defined", line)
    chunks = np.arange(0, size, _CHUNK, dtype=np.int64)[None]
    written, read = (machine.shared.cells(begin + chunks, None) for begin in (target, source))
    count = max(1, _CHUNK // machine.shared.granule)
    touched, origins = ((each[0][:, None] + np.arange(count)).ravel() for each in (written, read))
    thread, issuing = int(np.flatnonzero(machine.active_threads())[0]), active_lane_count(machine) > 0
    value = machine.shared.load(read, 8 * _CHUNK)
    masks = np.int64(1) << value_of_issuing_thread(machine, np.broadcast_to(ranks, machine.active().shape))[:, 0]
    for issuer, receiver, rows in issuers_and_receivers(machine, masks, issuing, "a bulk copy"):
        read_by_copy(machine, origins, thread, (place, receiver), rows)
        moved = place, written, value, touched
        tensor_copy.multicast(machine, moved, (issuer, receiver, receiver), rows, thread, size)
