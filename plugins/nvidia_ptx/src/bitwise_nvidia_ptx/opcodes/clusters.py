"""Addresses in the shared memory of a cluster, accesses to them, and barriers of the cluster.

Source: PTX ISA 8.7, "mapa", "getctarank", "State Spaces: Shared" and "barrier.cluster".

`addresses.shared` says what an address is.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.assembly.module import Instruction, Register, Symbol
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect
from bitwise_core.execution.machine import Control, Machine, Step
from bitwise_core.execution.memory.cluster_memory import (
    arrive_at_cluster,
    cluster_state,
    read_cluster,
    wait_for_cluster,
    write_cluster,
)
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_nvidia_ptx.addresses.shared import address_in, place_of
from bitwise_nvidia_ptx.opcodes.cluster_fences import is_released_by_a_fence
from bitwise_nvidia_ptx.opcodes.common import check_modifiers

TABLE = OpcodeTable()


def load_from_cluster(machine: Machine, address: Array, bits: int) -> Value:
    """Return `bits` bits at each active thread's address in shared::cluster."""
    return read_cluster(machine, *place_of(machine, address), bits)


def store_to_cluster(machine: Machine, address: Array, value: Value) -> None:
    """Store the value at each active thread's address in shared::cluster."""
    write_cluster(machine, *place_of(machine, address), value)


@TABLE.opcode("mapa", operands=DESTINATION_FIRST, effects=Effect.CLUSTER)
def map_address(instruction: Instruction, context: Context) -> Step:
    """mapa d, a, b: the address in the block of rank b that corresponds to the shared address a."""
    _, *modifiers, kind = instruction.opcode.split(".")
    check_modifiers(instruction, modifiers, {"shared::cluster"})
    destination, source, rank = instruction.operands
    bits = _bits(instruction, kind)
    if not isinstance(source, Register | Symbol):
        raise UnknownInstruction(instruction, "takes a register or the name of an array")

    def step(machine: Machine) -> None:
        address, target = machine.known(machine.read_bits(source, bits)), machine.known(machine.read_bits(rank, 32))
        if address is None or target is None:
            raise Unsupported("an address in a cluster is computed from data", instruction.line)
        state, _ = cluster_state(machine)
        outside = target >= state.size
        if (outside if machine.mask is None else outside & machine.mask).any():
            raise Unsupported(
                f"the rank of a block is not below {state.size}, the size of its cluster", instruction.line
            )
        offset, _ = place_of(machine, address)
        machine.write(destination, address_in(offset, target).astype(L.UNSIGNED[bits]))

    return step


@TABLE.opcode("getctarank", operands=DESTINATION_FIRST, effects=Effect.CLUSTER)
def rank_of_address(instruction: Instruction, context: Context) -> Step:
    """getctarank d, a: the rank of the block that contains the shared address a."""
    _, *modifiers, kind = instruction.opcode.split(".")
    check_modifiers(instruction, modifiers, {"shared::cluster"})
    destination, source = instruction.operands
    bits = _bits(instruction, kind)
    if not isinstance(source, Register | Symbol):
        raise UnknownInstruction(instruction, "takes a register or the name of an array")

    def step(machine: Machine) -> None:
        address = machine.known(machine.read_bits(source, bits))
        if address is None:
            raise Unsupported("an address in a cluster is computed from data", instruction.line)
        _, ranks = place_of(machine, address)
        machine.write(destination, ranks.astype(np.uint32))

    return step


def _bits(instruction: Instruction, kind: str) -> int:
    if kind not in ("u32", "u64"):
        raise UnknownInstruction(instruction)
    return int(kind[1:])


def cluster_barrier(instruction: Instruction, context: Context) -> Step:
    """barrier.cluster.arrive and barrier.cluster.wait, with their modifiers."""
    _, _, verb, *modifiers = instruction.opcode.split(".")
    if verb not in ("arrive", "wait") or instruction.operands:
        raise UnknownInstruction(instruction)
    check_modifiers(
        instruction, modifiers, {"aligned", *(("release", "relaxed") if verb == "arrive" else ("acquire",))}
    )
    aligned = "aligned" in modifiers
    publishes = "relaxed" not in modifiers or is_released_by_a_fence(instruction, context)

    def step(machine: Machine) -> Control | None:
        if aligned:
            _check_whole_warps(machine)
        if verb == "wait":
            return wait_for_cluster(machine)
        arrive_at_cluster(machine, publishes=publishes)
        return None

    return step


def _check_whole_warps(machine: Machine) -> None:
    """Raise Unsupported if some threads of a warp are active and others are not and have not ended."""
    if machine.mask is None:
        return
    state, _ = cluster_state(machine)
    active = machine.active()
    missing = ~active & ~state.ended
    firsts = np.arange(0, machine.threads, machine.warp)
    some, others = (np.logical_or.reduceat(each, firsts, axis=1) for each in (active, missing))
    if (some & others).any():
        raise Unsupported("an aligned barrier of the cluster is reached by part of a warp")
