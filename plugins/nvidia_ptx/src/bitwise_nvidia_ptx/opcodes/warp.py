"""Exchanges within a warp: shfl, vote, activemask, elect and redux.

Source: PTX ISA 8.7, "Data Movement: shfl.sync" and "Parallel Synchronization and Communication Instructions".
"""

from __future__ import annotations

from copy import copy

import numpy as np

from bitwise_core.assembly.module import Instruction, Operand
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction, named
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect
from bitwise_core.execution.machine import Machine, Step, invert, literal
from bitwise_core.execution.uniformity import is_uniform
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.chosen_elements import element_at, sequence
from bitwise_core.execution.values.lane_selection import take_threads
from bitwise_core.execution.values.logic import combine
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.numerics import Operation
from bitwise_nvidia_ptx.assembler_choices.expanded_branches import kept_exchanges
from bitwise_nvidia_ptx.opcodes.common import operands_of, parts_of, write_pair

TABLE = OpcodeTable()

_MODES = ("up", "down", "bfly", "idx")


def source_lanes(mode: str, lane: Array, by: Array, clamp: Array) -> tuple[Array, Array]:
    """Return the lane that each lane reads and whether it is in range, by PTX's definition of shfl."""
    segment = (clamp >> 8) & 31
    limit = clamp & 31
    amount = by & 31
    highest = (lane & segment) | (limit & ~segment & 31)
    lowest = lane & segment
    if mode == "up":
        source = lane - amount
        valid = source >= highest
    elif mode == "down":
        source = lane + amount
        valid = source <= highest
    elif mode == "bfly":
        source = lane ^ amount
        valid = source <= highest
    else:
        source = lowest | (amount & ~segment & 31)
        valid = source <= highest
    return np.where(valid, source, lane), valid


@TABLE.opcode("shfl", operands=DESTINATION_FIRST, effects=Effect.CROSS_LANE, least=5)
def shuffle(instruction: Instruction, context: Context) -> Step:
    """shfl.sync.{up,down,bfly,idx}.b32 d{|p}, a, b, c, membermask."""
    parts = instruction.opcode.split(".")
    if len(parts) != 4 or parts[1] != "sync" or parts[2] not in _MODES or parts[3] != "b32":
        raise UnknownInstruction(instruction)
    mode = parts[2]
    destination, source, by, clamp, members = operands_of(instruction, 5)
    line = instruction.line

    def step(machine: Machine) -> None:
        distance = machine.read_bits(by, 32)
        amounts = [machine.known(each) for each in (distance, machine.read_bits(clamp, 32))]
        if amounts[0] is None and mode == "idx" and _reads_any_lane(machine, amounts[1], members):
            among = _sequence_of_warp(machine, as_symbolic_vector(machine.read_bits(source, 32)))
            lanes = as_symbolic_vector(combine(machine, "and", distance, literal(31, 32), 32))
            write_pair(machine, destination, element_at(32, "lane", among, lanes), np.ones((1, 1), dtype=bool))
            return
        if amounts[0] is None or amounts[1] is None:
            raise DataDependent("a shuffle's distance depends on data", line)
        if _parts_of_warps_choose(machine):
            raise DataDependent("the set of lanes that take part in a shuffle depends on data", line)
        everyone = machine.known(machine.read_bits(members, 32))
        _check_members(machine, everyone, line)
        thread = np.arange(machine.threads, dtype=np.int64)[None]
        lane, base = thread & 31, thread & ~31
        chosen, valid = source_lanes(mode, lane, amounts[0].astype(np.int64), amounts[1].astype(np.int64))
        value = machine.read_bits(source, 32)
        if machine.parted_lanes and (chosen != lane).any() and _whole_warps_exchange(machine, everyone):
            exchanged = machine.domain.name == "bits" or (machine.domain.name == "terms" and _differs_in_warps(value))
            kept = exchanged and id(instruction) in kept_exchanges(context.kernel, context.arch.opcodes)
            machine.parted_lanes = not kept
        index = base + chosen
        if machine.threads % 32 and ((index >= machine.threads) & machine.active()).any():
            raise Unsupported("a shuffle reads a lane that the block does not have", line)
        if machine.mask is not None:
            active = machine.active()
            where = np.broadcast_to(index, active.shape)
            inside = where < machine.threads
            if (~np.take_along_axis(active, np.where(inside, where, 0), axis=1) & active).any():
                raise Unsupported("a shuffle reads a lane that does not take part", line)
        # In an abstract domain, one value can represent data that differs between threads.  The copy is a new object,
        # so that the shuffled value is not identified with the value that the thread held before.
        result = (
            take_threads(value, np.minimum(index, machine.threads - 1))
            if _varies_between_threads(value)
            else copy(value)
        )
        write_pair(machine, destination, result, np.broadcast_to(valid, index.shape))

    return step


def _whole_warps_exchange(machine: Machine, members: Array | None) -> bool:
    """Return whether all lanes of all warps take part in an exchange, which lanes do together.

    A lane receives what another one holds in the same instruction.  So a warp that a branch may have parted is together
    again, as long as the assembler keeps the exchange.
    """
    whole = machine.mask is None and machine.threads % machine.warp == 0
    here = whole and machine.condition is None and machine.path is None
    return here and members is not None and bool((members == 0xFFFFFFFF).all())


def _differs_in_warps(value: Value) -> bool:
    """Return whether lanes of a warp hold several values: an assembler cannot take their exchange for a copy."""
    if not _varies_between_threads(value):
        return False
    words = as_symbolic_vector(value).words
    if words.shape[2] % 32:
        return False
    words = words.reshape(*words.shape[:2], -1, 32)
    return bool((words != words[..., :1]).any())


def _reads_any_lane(machine: Machine, clamp: Array | None, members: Operand) -> bool:
    """Return whether whole warps exchange values, and each lane may read any of its warp."""
    everyone = machine.known(machine.read_bits(members, 32))
    if clamp is None or everyone is None or machine.condition is not None or not machine.races.follows_updates:
        return False
    # An abstract domain has one value for data that differs between threads; it has no undetermined values.
    if machine.memory.undetermined is None or machine.threads % 32 or not has_whole_warps(machine):
        return False
    return bool((clamp == 31).all() and (everyone == 0xFFFFFFFF).all())


def _sequence_of_warp(machine: Machine, value: SymbolicVector) -> SymbolicVector:
    """Return, in each lane, the number of the sequence of its warp's values."""
    shape = (machine.blocks, machine.threads)
    words, flags = np.broadcast_to(value.words, (2, *shape)), L.flags_of_lanes(value.flags, shape)
    found = [
        sequence(SymbolicVector(32, words[:, :, low : low + 32], flags[:, low : low + 32]), np.arange(32))
        for low in range(0, machine.threads, 32)
    ]
    every = [L.flags_of_lanes(each.flags, (machine.blocks, 1)) for each in found]
    repeated = np.repeat(np.concatenate(every, axis=1), 32, axis=1)
    return SymbolicVector(64, np.repeat(np.concatenate([each.words for each in found], axis=2), 32, axis=2), repeated)


def _check_members(machine: Machine, members: Array | None, line: int) -> None:
    """Check that every lane that executes a shuffle is in its member mask.  Raises Unsupported."""
    if members is None:
        raise DataDependent("a shuffle's member mask depends on data", line)
    if members.size == 1 and int(members.flat[0]) == 0xFFFFFFFF:
        return
    lane = (np.arange(machine.threads, dtype=np.uint32) & np.uint32(31))[None]
    if ((members >> lane & np.uint32(1) == 0) & machine.active()).any():
        raise Unsupported("a lane executes a shuffle whose member mask does not contain it", line)


def _check_exact_members(machine: Machine, members: Operand, line: int) -> None:
    """Check that the member mask is the set of lanes that execute the instruction.  Raises Unsupported."""
    mask = machine.known(machine.read_bits(members, 32))
    if mask is None:
        raise DataDependent("a member mask depends on data", line)
    lanes = machine.threads - (np.arange(machine.threads) & ~31)
    there = np.where(
        lanes < 32, (np.uint32(1) << np.minimum(lanes, 31).astype(np.uint32)) - np.uint32(1), ~np.uint32(0)
    )
    if (((mask & there) != ballot(machine, np.ones((1, 1), dtype=bool))) & machine.active()).any():
        raise Unsupported("the member mask of a warp's instruction is not the set of lanes that execute it", line)


def _varies_between_threads(value: Value) -> bool:
    if isinstance(value, np.ndarray):
        return bool(value.shape[1] > 1)
    if isinstance(value, L.PackedVector):
        return any(_varies_between_threads(part) for part in value.parts)
    if L.lazy_integers(value) is not None:
        return True
    return value.words.shape[2] > 1 or (not isinstance(value.flags, int) and value.flags.shape[1] > 1)


def _warps(machine: Machine, predicate: Array) -> Array:
    """Reshape a predicate to (blocks, warps, 32), padded with False."""
    full = np.broadcast_to(predicate, (machine.blocks, machine.threads))
    count = -(-machine.threads // 32)
    padded = np.zeros((machine.blocks, count * 32), dtype=full.dtype)
    padded[:, : machine.threads] = full
    return padded.reshape(machine.blocks, count, 32)


def _broadcast_to_lanes(machine: Machine, per_warp: Array) -> Array:
    return np.repeat(per_warp, 32, axis=1)[:, : machine.threads]


def ballot(machine: Machine, predicate: Array) -> Array:
    """Return, in all lanes of each warp, the bit mask of its active lanes where the predicate holds.

    Raises Unsupported.
    """
    if _parts_of_warps_choose(machine):
        raise DataDependent("the set of lanes that vote depends on data")
    lanes = _warps(machine, np.broadcast_to(predicate, (machine.blocks, machine.threads)) & machine.active())
    bits = (lanes.astype(np.uint32) << np.arange(32, dtype=np.uint32)).sum(axis=2, dtype=np.uint32)
    return _broadcast_to_lanes(machine, bits)


@TABLE.opcode("vote", "activemask", "match", operands=DESTINATION_FIRST, effects=Effect.CROSS_LANE)
def vote(instruction: Instruction, context: Context) -> Step:
    """vote.sync.{all,any,uni,ballot}, on data in whole warps, and activemask.  match is not modelled."""
    parts = parts_of(instruction, 1 if instruction.opcode.startswith("activemask") else 3)
    destination = operands_of(instruction, 1 if parts[0] == "activemask" else 3)[0]
    line = instruction.line
    if parts[0] == "activemask":

        def active(machine: Machine) -> None:
            if machine.splits_warps or not has_whole_warps(machine):
                raise Unsupported("which lanes of a warp are active together is not determined", line)
            machine.write(destination, ballot(machine, np.ones((1, 1), dtype=bool)))

        return active
    if parts[0] == "match" or parts[1] != "sync" or parts[2] not in ("all", "any", "uni", "ballot"):
        raise UnknownInstruction(instruction)
    mode, source = parts[2], instruction.operands[1]
    members = instruction.operands[2]

    def step(machine: Machine) -> None:
        _check_exact_members(machine, members, line)
        vote = machine.read_bits(source, 1)
        predicate = machine.known(vote)
        if predicate is None:
            part = _parts_of_warps_choose(machine) or machine.threads % 32 or not has_whole_warps(machine)
            # In an abstract domain, one value can represent data that differs between threads.
            if part or not _varies_between_threads(vote):
                raise DataDependent("a vote depends on data", line)
            machine.write(destination, _vote_on_data(machine, mode, vote))
            return
        bits = ballot(machine, predicate)
        if mode == "ballot":
            machine.write(destination, bits)
            return
        present = ballot(machine, np.ones((1, 1), dtype=bool))
        result = {"all": bits == present, "any": bits != 0, "uni": (bits == present) | (bits == 0)}[mode]
        machine.write(destination, result)

    return step


def _vote_on_data(machine: Machine, mode: str, predicate: Value) -> Value:
    """Return the result of a vote of whole warps by a predicate on data."""
    thread = np.arange(machine.threads, dtype=np.int64)[None]
    if mode == "ballot":
        first = thread & ~31
        of_lanes = [take_threads(predicate, first + lane) for lane in range(32)]
        bits = [machine.domain.select(of_lanes[lane], literal(1 << lane, 32), literal(0, 32)) for lane in range(32)]
        total = bits[0]
        for each in bits[1:]:
            total = combine(machine, "or", total, each, 32)
        return total
    found = {}
    for verb in ("and", "or"):
        value = predicate
        for distance in (1, 2, 4, 8, 16):
            value = combine(machine, verb, value, take_threads(value, thread ^ distance), 1)
        found[verb] = value
    if mode == "uni":
        return combine(machine, "or", found["and"], invert(machine.domain, found["or"]), 1)
    return found["and" if mode == "all" else "or"]


@TABLE.opcode("elect", operands=DESTINATION_FIRST, effects=Effect.CROSS_LANE)
def elect(instruction: Instruction, context: Context) -> Step:
    """elect.sync d|p: the leader is the lowest active lane of each warp."""
    destination, members = operands_of(instruction, 2)
    line = instruction.line

    def step(machine: Machine) -> None:
        _check_exact_members(machine, members, line)
        lanes = _warps(machine, machine.active())
        first = np.argmax(lanes, axis=2).astype(np.uint32)
        leader = _broadcast_to_lanes(machine, first)
        lane = (np.arange(machine.threads, dtype=np.uint32) & np.uint32(31))[None]
        chosen = lane == leader
        write_pair(machine, destination, leader, chosen)

    return step


@TABLE.opcode("redux", operands=DESTINATION_FIRST, effects=Effect.CROSS_LANE)
def redux(instruction: Instruction, context: Context) -> Step:
    """redux.sync.op{.abs}{.NaN}.type over whole warps: the operations are exact, so their order does not matter."""
    parts = parts_of(instruction, 4)
    verb, kind = parts[2], parts[-1]
    if parts[1] != "sync" or verb not in ("add", "min", "max", "and", "or", "xor"):
        raise UnknownInstruction(instruction)
    if kind == "f32" and verb in ("min", "max"):
        kind = "nan.fp32" if "NaN" in parts else "fp32"
    elif "abs" in parts or kind not in (("b32",) if verb in ("and", "or", "xor") else ("u32", "s32")):
        raise UnknownInstruction(instruction)
    meaning = named(instruction, f"{verb}.b32" if verb == "add" else f"{verb}.{kind}")
    magnitude = named(instruction, "abs.fp32") if "abs" in parts else None
    destination, source, members = operands_of(instruction, 3)
    line = instruction.line

    def step(machine: Machine) -> None:
        value = machine.read_bits(source, 32)
        if machine.threads % 32 or not has_whole_warps(machine):
            raise Unsupported("redux over part of a warp", line)
        _check_exact_members(machine, members, line)
        if magnitude is not None:
            value = machine.domain.floating(magnitude, [value])
        thread = np.arange(machine.threads, dtype=np.int64)[None]
        for distance in (1, 2, 4, 8, 16):
            other = take_threads(value, thread ^ distance) if _varies_between_threads(value) else value
            value = _combine(machine, meaning, value, other)
        machine.write(destination, value)

    return step


def has_whole_warps(machine: Machine) -> bool:
    """Whether all or none of the lanes of each warp are active, in every block."""
    if machine.mask is None:
        return True
    lanes = _warps(machine, machine.active())
    whole = _warps(machine, np.ones((1, 1), dtype=bool))
    return bool(((lanes == whole).all(axis=2) | ~lanes.any(axis=2)).all())


def _parts_of_warps_choose(machine: Machine) -> bool:
    """Return whether the condition under which the lanes execute an instruction may differ within a warp."""
    return machine.condition is not None and not is_uniform(machine, machine.condition, machine.warp)


def _combine(machine: Machine, meaning: Operation, left: Value, right: Value) -> Value:
    if meaning.is_float:
        return machine.domain.floating(meaning, [left, right])
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        assert meaning.function is not None
        found: Array = meaning.function(left, right)
        return found
    return machine.domain.integer(meaning, [left, right])
