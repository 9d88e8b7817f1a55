"""Helpers for instructions that one thread issues for its block, such as mbarrier operations and tensor copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bitwise_core.assembly.module import Operand
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.cluster_memory import cluster_state, own_ranks
from bitwise_core.execution.opcode_steps import for_each_set_of_threads
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_nvidia_ptx.addresses.shared import own_offset
from bitwise_nvidia_ptx.opcodes.memory import address_of


def uniform_address(machine: Machine, operand: Operand, what: str) -> int:
    """Return a global address that must be the same in all active threads of all blocks.

    `what` names the accessed object in messages.  Raises Unsupported if the address is unknown or differs.
    """
    return _uniform(machine, _known_address(machine, operand, what), what)


def uniform_offset(machine: Machine, operand: Operand, what: str) -> int:
    """Return the offset of a shared address of the own block; see `uniform_address`."""
    return _uniform(machine, own_offset(machine, _known_address(machine, operand, what)), what)


def _known_address(machine: Machine, operand: Operand, what: str) -> Array:
    value = machine.known(address_of(machine, operand))
    if value is None:
        raise DataDependent(f"{what} is at a computed address")
    return value


def _uniform(machine: Machine, value: Array, what: str) -> int:
    if value.size > 1:
        shape = np.broadcast_shapes(value.shape, (1, 1) if machine.mask is None else machine.mask.shape)
        active = np.broadcast_to(value, shape)
        active = active.ravel() if machine.mask is None else active[np.broadcast_to(machine.mask, shape)]
        if (active != active[0]).any():
            raise Unsupported(f"{what} differs between threads")
        return int(active[0])
    return int(value.flat[0])


def require_known_condition(machine: Machine, what: str, *, of_blocks: bool = False) -> None:
    """Raise Unsupported if a data-dependent condition controls whether `what` is executed.

    `of_blocks`: even if each block executes it as a whole or not at all.
    """
    if machine.condition is not None or (of_blocks and machine.path is not None):
        raise DataDependent(f"{what} depends on data")


def active_lane_count(machine: Machine) -> Array:
    """Return the number of active threads in each block, shape (blocks,)."""
    lanes: Array = machine.active().sum(axis=1)
    return lanes


def value_of_issuing_thread(machine: Machine, value: Array) -> Array:
    """Return the value in the first active thread of each block, shape (blocks or 1, 1)."""
    lazy = L.lazy_integers(value)
    if lazy is not None:
        return lazy.numbers_of_thread(int(np.flatnonzero(machine.active_threads())[0]))
    if value.shape[1] == 1:
        return value
    if machine.mask is None:
        return value[:, :1]
    active = machine.active((max(value.shape[0], machine.mask.shape[0]), machine.threads))
    first = np.argmax(active, axis=1)
    chosen: Array = np.broadcast_to(value, active.shape)[np.arange(active.shape[0]), first]
    return chosen[:, None]


def blocks_of_mask(machine: Machine, operand: Operand) -> Array:
    """Return the mask of ranks that the issuing thread of each block gives, shape (blocks,).  Raises DataDependent."""
    chosen = machine.known(machine.read_bits(operand, 16))
    if chosen is None:
        raise DataDependent("the blocks of a cluster that an asynchronous instruction reaches depend on data")
    return np.broadcast_to(value_of_issuing_thread(machine, chosen), (machine.blocks, 1))[:, 0].astype(np.int64)


def require_pairs(machine: Machine) -> None:
    """Raise Unsupported unless the blocks of the clusters are pairs, as .cta_group::2 requires."""
    state, _ = cluster_state(machine)
    if state.size % 2:
        raise Unsupported(f"an instruction with .cta_group::2 runs in clusters of {state.size} blocks, not of pairs")


def issuers_and_receivers(
    machine: Machine, masks: Array, issuing: Array, what: str
) -> Iterator[tuple[int, int, Array]]:
    """Yield the ranks of issuing and receiving blocks, with the issuing blocks, a boolean array of shape (blocks,).

    `masks` are the ranks of the receiving blocks as bits, `issuing` the issuing blocks, both of shape (blocks,).
    """
    state, _ = cluster_state(machine)
    if (issuing & (masks >> state.size != 0)).any():
        raise Unsupported(f"{what} goes to a block outside the cluster")
    own = own_ranks(machine)[:, 0]
    for issuer in range(state.size):
        for receiver in range(state.size):
            rows = issuing & (own == issuer) & (masks >> receiver & 1 != 0)
            if rows.any():
                yield issuer, receiver, rows


def for_each_place(machine: Machine, operands: tuple[Operand, ...], act: Callable[[], None]) -> None:
    """Call `act` separately for the blocks and threads whose shared addresses in `operands` differ.

    All addresses are those of the own block.  Raises Unsupported for another one.
    """
    found = []
    for operand in operands:
        value = machine.known(address_of(machine, operand))
        if value is None:
            raise DataDependent("a shared address of an asynchronous instruction depends on data")
        found.append(own_offset(machine, value))
    for_each_number(machine, found, act)


def for_each_number(machine: Machine, numbers: Sequence[Array], act: Callable[[], None]) -> None:
    """Call `act` separately for the blocks and threads whose numbers differ, and for blocks with other active threads.

    In each call, all active blocks have the same active threads.
    """
    outer, active = machine.mask, machine.active()
    places = [_places(machine, value, active) for value in numbers if value.size > 1]
    if not places:
        for_each_set_of_threads(machine, act)
        return
    shape = np.broadcast_shapes(*(each.shape for each in places))
    chosen = active if shape[1] > 1 else np.any(active, axis=1, keepdims=True)
    parts = [np.broadcast_to(each, chosen.shape)[chosen] for each in places]
    if parts[0].size and all((each == each[0]).all() for each in parts):
        for_each_set_of_threads(machine, act)
        return
    keys = np.unique(np.stack(parts), axis=1).T
    try:
        for key in keys:
            same = np.all(
                [np.broadcast_to(each, shape) == part for each, part in zip(places, key, strict=True)], axis=0
            )
            machine.mask = active & same
            for_each_set_of_threads(machine, act)
    finally:
        machine.mask = outer


def _places(machine: Machine, value: Array, active: Array) -> Array:
    """Return addresses, shape (blocks, 1) if all active threads of each block agree, else (blocks, threads)."""
    of_block = np.broadcast_to(value_of_issuing_thread(machine, value), (machine.blocks, 1))
    if L.lazy_integers(value) is not None or value.shape[1] == 1 or not ((value != of_block) & active).any():
        return of_block
    return np.broadcast_to(value, active.shape)
