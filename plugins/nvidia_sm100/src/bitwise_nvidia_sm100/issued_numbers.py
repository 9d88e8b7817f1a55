"""What one thread of each block issues: its operands as known numbers, for the blocks that agree on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from bitwise_core.assembly.module import Address, Operand
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_nvidia_ptx.opcodes.copies.issuing_thread import require_known_condition, value_of_issuing_thread
from bitwise_nvidia_ptx.opcodes.memory import address_of


def require_known(machine: Machine) -> None:
    """Raise Unsupported where data decides which threads execute an instruction on tensor memory."""
    require_known_condition(machine, "an instruction on tensor memory", of_blocks=True)


def known_numbers(machine: Machine, operand: Operand, bits: int) -> Array:
    """Return the numbers of an address in brackets, or of another operand.  Raises DataDependent."""
    of_address = isinstance(operand, Address)
    value = machine.known(address_of(machine, operand) if of_address else machine.read_bits(operand, bits))
    if value is None:
        raise DataDependent("an operand of an instruction on tensor memory depends on data")
    return value


def issuing_thread(machine: Machine, what: str) -> int:
    """Return the thread that issues an instruction in every active block.  Raises Unsupported for several."""
    require_known(machine)
    threads = np.flatnonzero(machine.active_threads())
    if threads.size != 1:
        raise Unsupported(f"several threads issue one {what}")
    return int(threads[0])


def numbers_of_blocks(machine: Machine, values: Sequence[Array]) -> Iterator[tuple[list[int], Array]]:
    """Yield the numbers of the issuing thread, and the blocks (a boolean array) in which it has them."""
    rows = machine.active_blocks()
    own = [value_of_issuing_thread(machine, each)[:, 0].astype(np.uint64) for each in values]
    if all(each.size == 1 for each in own):
        if rows.any():
            yield [int(each[0]) for each in own], rows
        return
    table = np.stack([np.broadcast_to(each, (machine.blocks,)) for each in own], axis=1)
    for chosen in distinct_rows(table[rows]):
        yield [int(each) for each in chosen], rows & (table == chosen).all(axis=1)


def distinct_rows(table: Array) -> Array:
    """Return the distinct rows of a table of numbers, of the shape (rows, numbers): blocks mostly agree."""
    if len(table) < 2 or (table == table[:1]).all():
        return table[:1]
    found: Array = np.unique(table, axis=0)
    return found
