"""wgmma: fused steps of a warpgroup over tiles in shared memory, and their groups.

The assembler serialises matrix instructions whose accumulators are read before a wait, so a result is available when
the instruction is issued.  The tiles in shared memory are being read until the wait.

Source: PTX ISA 8.7, "Asynchronous Warpgroup Level Matrix Instructions".  Element (row 16 * warp + 8 * half + lane / 4,
column 8j + 2 * (lane % 4) + e) of the accumulator is in register 4j + 2 * half + e.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from bitwise_core.assembly.module import Immediate, Instruction, Operand, Register, Vector
from bitwise_core.execution.active_lanes import active_values
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.instruction_info import NO_DESTINATION, UPDATED_FIRST, Accumulation, Effect, InstructionInfo
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.memory.access import read_asynchronously
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.matrix_steps.matrix_chains import ChainedRegister, ChainedSteps, shape_of
from bitwise_core.execution.values.matrix_steps.mma_steps import MmaStep, OperandVectors
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import poison
from bitwise_nvidia_ptx.opcodes.common import FORMATS
from bitwise_nvidia_ptx.opcodes.matrices.fragments import fragment_vectors
from bitwise_nvidia_ptx.opcodes.matrices.matrix_sync import (
    ELEMENT_BITS,
    cuts_accumulator,
    instruction_k,
    integer_products,
    registers_in,
    step_name,
    units_of,
)
from bitwise_nvidia_ptx.opcodes.matrices.matrix_tiles import TileCells, tile_addresses, tile_cells, tile_vectors
from bitwise_nvidia_ptx.opcodes.memory import literal_value
from bitwise_nvidia_sm90.descriptors import tile_layout

TABLE = OpcodeTable()
FAMILY = "fused"
SAME_STEPS = frozenset({"f32 f16 k16", "f32 bf16 k16", "f32 tf32 k8", "f16 f16 k16"})
"""The steps, by result, operand and native k, that mma.sync and wgmma both run on Hopper; those of fp8 differ.

Measured on an H100: 819,200 fp32 results each, over operands with a wide range of exponents, without a difference
(records/matrix-units-sm90-h100.json); with fp16 results, both agree with the same row on every probe
(records/matrix-probes-sm90-h100.json).
"""
_MATRIX_READS = "matrix instructions"
_SHAPE = re.compile(r"m64n(\d+)k(\d+)")
_WARPGROUP = 128


def warpgroup_info(instruction: Instruction) -> InstructionInfo:
    """Return what wgmma reads and writes: mma_async adds to its first operand, the other forms write no register."""
    if not instruction.opcode.startswith("wgmma.mma_async") or not instruction.operands:
        return NO_DESTINATION.info(instruction, Effect.NONE)
    info = UPDATED_FIRST.info(instruction, Effect.LOAD | Effect.CROSS_LANE)
    accumulator = instruction.operands[0]
    return replace(info, accumulation=Accumulation(accumulator, accumulator, instruction_k(instruction.opcode)))


@TABLE.opcode("wgmma", operands=warpgroup_info)
def warpgroup(instruction: Instruction, context: Context) -> Step:
    """wgmma.mma_async, fence, commit_group and wait_group."""
    parts = instruction.opcode.split(".")
    if parts[1] == "fence":
        return _no_operation
    if parts[1] == "commit_group":
        return _commit
    if parts[1] == "wait_group":
        return _wait(literal_value(instruction.operands[0], instruction))
    found = _SHAPE.fullmatch(parts[4]) if len(parts) > 4 else None
    if parts[1] != "mma_async" or found is None or "sp" in parts:
        raise UnknownInstruction(instruction)
    *options, result, left, right = parts[5:]
    if set(options) or left not in ELEMENT_BITS or right not in ELEMENT_BITS:
        raise UnknownInstruction(instruction)
    return _multiply(instruction, context, int(found[1]), int(found[2]), result, left, right)


def _no_operation(machine: Machine) -> None:
    return None


def _multiply(instruction: Instruction, context: Context, n: int, k: int, result: str, left: str, right: str) -> Step:
    destination, a, b, *rest = instruction.operands
    signed = result == "s32"
    scale_d = rest[0] if rest else Immediate(1)
    scales = [literal_value(each, instruction) for each in rest[1:]]
    negations, transposes = ([], []) if signed else (scales[:2], scales[2:])
    if any(each != 1 for each in negations):
        raise UnknownInstruction(instruction, "negates an operand, which is not modelled")
    in_registers = isinstance(a, Vector)
    flags = [bool(each) for each in transposes]
    trans_a = bool(flags[0]) if len(flags) == 2 else False
    trans_b = bool(flags[-1]) if flags else False
    family = FAMILY if f"{result} {left} k{k}" in SAME_STEPS else "wgmma"
    name = step_name(family, k, result, left, right, result, context.arch.name)
    bits = ELEMENT_BITS[left]
    forms = [FORMATS.get(each, each) for each in (left, right)]
    size = bits // 8
    out = 16 if result == "f16" else 32
    line = instruction.line
    names = tuple(each.name for each in registers_in(destination) if isinstance(each, Register))
    if len(names) < len(registers_in(destination)):
        raise UnknownInstruction(instruction, "has a result that is no register")

    products = integer_products(k, result, left, right, clamps=False)
    fused = MmaStep(
        name,
        positive_zero=result in ("f32", "f16"),
        commutes=left == right,
        integers=products,
        cuts=cuts_accumulator(name, context),
        units=units_of(context),
    )

    def step(machine: Machine) -> None:
        groups = _groups(machine, line)
        rows = (
            _register_rows(machine, registers_in(a), bits, forms[0], groups)
            if in_registers
            else _tile_rows(machine, a, 64, k, size, forms[0], not trans_a, groups)
        )
        columns = _tile_rows(machine, b, n, k, size, forms[1], not trans_b, groups)
        old = _accumulator(machine, names, out, n, scale_d, groups)
        row_index = _rows_from_registers(len(groups)) if in_registers else _rows_from_tiles(len(groups))
        left_vectors = rows[0].concatenated(rows[1:]).take(row_index)
        if all(each is columns[0] for each in columns):
            right_vectors = columns[0].take(_columns_from_tiles(1, n))
        else:
            right_vectors = columns[0].concatenated(columns[1:]).take(_columns_from_tiles(len(groups), n))
        new = machine.domain.mma_step(fused, old, left_vectors, right_vectors)
        _write(machine, names, new, out, groups)

    return step


def _groups(machine: Machine, line: int) -> list[int]:
    """Return the indices of the active warpgroups.  Raises Unsupported if one is partly active."""
    if machine.condition is not None:
        raise DataDependent("a warpgroup instruction depends on data", line)
    mask = np.ones((1, 1), dtype=bool) if machine.mask is None else machine.mask
    active = np.zeros((len(mask), -(-machine.threads // _WARPGROUP) * _WARPGROUP), dtype=bool)
    active[:, : machine.threads] = mask
    by_group = active.reshape(len(mask), -1, _WARPGROUP)
    if (by_group.any(axis=2) != by_group.all(axis=2)).any():
        raise Unsupported("a warpgroup instruction runs in part of a warpgroup", line)
    return [int(each) for each in np.flatnonzero(by_group.any(axis=(0, 2)))]


def _tile_rows(
    machine: Machine, operand: Operand, rows: int, k: int, size: int, form: str, k_major: bool, groups: list[int]
) -> list[OperandVectors]:
    """Return, for each warpgroup, the operand vectors of its tile.  Raises Unsupported."""
    value = machine.known(machine.read_bits(operand, 64))
    if value is None:
        raise DataDependent("a matrix descriptor depends on data")
    result = []
    for group in groups:
        number = _uniform_descriptor(machine, value, group)
        result.append(_tile(machine, number, rows, k, size, form, k_major, group))
    return result


def _uniform_descriptor(machine: Machine, value: Array, group: int) -> int:
    part = value if value.shape[1] == 1 else value[:, group * _WARPGROUP : (group + 1) * _WARPGROUP]
    if machine.mask is not None and part.shape[0] > 1:
        active = np.broadcast_to(machine.mask, (part.shape[0], machine.mask.shape[1])).any(axis=1)
        part = part[active]
    if part.size == 0 or (part != part.flat[0]).any():
        raise Unsupported(
            "a matrix descriptor differs between threads or blocks; in a cluster, a shared address holds the rank of "
            "its block from bit 24 on, and a descriptor takes only bits 4 to 17"
        )
    return int(part.flat[0])


def _tile(
    machine: Machine, descriptor: int, rows: int, k: int, size: int, form: str, k_major: bool, group: int
) -> OperandVectors:
    cache: dict[tuple[int, ...], TileCells] = machine.extra.setdefault("tiles of descriptors", {})
    key = descriptor, rows, k, size, k_major
    tile = cache.get(key)
    if tile is None:
        if len(cache) > 512:
            cache.clear()
        addresses = tile_addresses(tile_layout(descriptor), rows, k, size, k_major)
        tile = cache[key] = tile_cells(machine, addresses, size)
    machine.shared.reserve_cells(tile.end)
    first = group * _WARPGROUP
    # The warps of the group come to the instruction one by one.
    others = range(first + machine.warp, first + _WARPGROUP, machine.warp)
    read_asynchronously(machine, _MATRIX_READS, tile.touched, first, machine.line, others)
    return tile_vectors(machine, tile, form)


def _register_rows(
    machine: Machine, registers: Sequence[Operand], bits: int, form: str, groups: list[int]
) -> list[OperandVectors]:
    """Return the operand vectors of A's fragment in registers: for each half, eight per warp of the warpgroups."""
    values = [machine.read_bits(each, 32) for each in registers]
    if len(groups) * _WARPGROUP != machine.threads:  # the registers of other warpgroups are no operands
        active = np.isin(np.arange(machine.threads) // _WARPGROUP, groups)[None]
        values = [blend_values(active, each, np.zeros((1, 1), dtype=np.uint32)) for each in values]
    first = np.array(groups)[:, None] * _WARPGROUP // 4
    chosen = (first + np.arange(_WARPGROUP // 4)).ravel()
    return [half.take(chosen) for half in fragment_vectors(machine, values, bits, form, 2)]


@cache
def _rows_from_registers(groups: int) -> Array:
    """Return the indices of A's vectors in registers, broadcast to the accumulator's axes.

    The axes are (j, half, e, group, warp, lane / 4, lane % 4), in the notation of the module's docstring.
    """
    return np.arange(groups * 64).reshape(1, 2, 1, groups, 4, 8, 1)


@cache
def _rows_from_tiles(groups: int) -> Array:
    """Return the indices of A's vectors in tiles, broadcast to the axes of `_rows_from_registers`."""
    row = np.arange(groups * 64).reshape(groups, 4, 2, 8)
    return row.transpose(2, 0, 1, 3)[None, :, None, :, :, :, None]


@cache
def _columns_from_tiles(groups: int, n: int) -> Array:
    """Return the indices of B's vectors, broadcast to the axes of `_rows_from_registers`."""
    column = np.arange(groups * n).reshape(groups, n // 8, 4, 2)
    return column.transpose(1, 3, 0, 2)[:, None, :, :, None, None, :]


def _in_active_threads(machine: Machine, value: Array) -> Array:
    """Return a value in the active threads of all blocks, flat."""
    if machine.mask is None or value.size == 1:
        return value.ravel()
    return active_values(value, machine.mask)


def _accumulator(
    machine: Machine, registers: Sequence[str], bits: int, n: int, scale: Operand, groups: list[int]
) -> SymbolicVector:
    """Return the accumulator with the axes of `_rows_from_registers`, or +0 if scale-d is 0.  Raises Unsupported."""
    shape = (n // 8, 2, 2, len(groups), 4, 8, 4)
    accumulates = machine.known(
        machine.read_bits(scale, 1) if not isinstance(scale, Immediate) else np.full((1, 1), bool(scale.value))
    )
    active = None if accumulates is None else _in_active_threads(machine, accumulates)
    if active is None or (active != active[0]).any():
        raise Unsupported("scale-d of a matrix instruction differs between threads or depends on data")
    if not active[0]:
        zero = L.constant_vector(np.zeros((1, 1), dtype=L.UNSIGNED[bits]))
        return SymbolicVector(bits, zero.words.reshape(2, *(1,) * 8), zero.flags)
    held = [machine.registers.get(each) for each in registers]
    values = [poison(32) if each is None else each for each in held]
    bundled = _whole_accumulator(values)
    if bundled is not None and shape_of(bundled)[2:] == shape:
        return bundled
    if bits == 16:
        values = [extract(value, low, 16) for value in values for low in (0, 16)]
        order = [2 * (2 * j + half) + e for j in range(n // 8) for half in range(2) for e in range(2)]
        values = [values[index] for index in order]
    lanes = [as_symbolic_vector(value) for value in values]
    blocks = max(each.words.shape[1] for each in lanes)
    chosen = [thread for group in groups for thread in range(group * _WARPGROUP, (group + 1) * _WARPGROUP)]
    whole = len(chosen) == machine.threads
    words = np.empty((2, blocks, len(lanes), len(chosen)), dtype=np.uint64)
    flag_arrays = [each.flags for each in lanes]
    for index, each in enumerate(lanes):
        uniform = each.words.shape[2] == 1
        words[:, :, index] = each.words if whole or uniform else each.words[:, :, chosen]
    flags: L.Flags
    if all(isinstance(each, int) and each == flag_arrays[0] for each in flag_arrays):
        flags = flag_arrays[0]
    else:
        table = np.empty((blocks, len(lanes), len(chosen)), dtype=np.uint32)
        for index, flag_array in enumerate(flag_arrays):
            full_flags = np.broadcast_to(
                np.uint32(flag_array) if isinstance(flag_array, int) else flag_array, (blocks, machine.threads)
            )
            table[:, index] = full_flags if whole else full_flags[:, chosen]
        flags = table.reshape(blocks, *shape)
    return SymbolicVector(bits, words.reshape(2, blocks, *shape), flags)


def _whole_accumulator(values: list[Value]) -> SymbolicVector | None:
    first = values[0]
    if not isinstance(first, SymbolicVector) or first.bundle is None:
        return None
    whole = first.bundle[0]
    for index, value in enumerate(values):
        if (
            not isinstance(value, SymbolicVector)
            or value.bundle is None
            or value.bundle[0] is not whole
            or value.bundle[1] != index
        ):
            return None
    return whole


def _write(machine: Machine, registers: Sequence[str], value: SymbolicVector, bits: int, groups: list[int]) -> None:
    count = len(registers) * (32 // bits)
    shape = (count // 4, 2, 2, len(groups), 4, 8, 4)
    whole = bits == 32 and len(groups) * _WARPGROUP == machine.threads
    if whole and isinstance(value, ChainedSteps) and value.shape[2:] == shape:
        parts = [ChainedRegister(value, count, index) for index in range(count)]
        if machine.mask is None and machine.domain.recorder is None:
            machine.registers.update(zip(registers, parts, strict=True))
            return
        for register, part in zip(registers, parts, strict=True):
            machine.write(Register(register), part)
        return
    blocks = value.words.shape[1]
    words = np.broadcast_to(value.words, (2, blocks, *shape)).reshape(2, blocks, count, -1)
    threads = words.shape[-1]
    flags = value.flags
    if not isinstance(flags, int):
        flags = np.broadcast_to(flags, (flags.shape[0], *shape)).reshape(flags.shape[0], count, threads)
    if threads != machine.threads:
        words, flags = _in_all_threads(machine, words, flags, groups)
    lanes = []
    for index in range(count):
        each = SymbolicVector(bits, words[:, :, index], flags if isinstance(flags, int) else flags[:, index])
        each.bundle = (
            (value, index) if bits == 32 and threads == machine.threads and value.words.shape[2:] == shape else None
        )
        lanes.append(each)
    results: list[Value] = list(lanes)
    if bits == 16:
        pairs = [(j, half) for j in range(count // 4) for half in range(2)]
        results = [concat([lanes[4 * j + 2 * half], lanes[4 * j + 2 * half + 1]]) for j, half in pairs]
    for register, result in zip(registers, results, strict=True):
        machine.write(Register(register), result)


def _in_all_threads(machine: Machine, words: Array, flags: L.Flags, groups: list[int]) -> tuple[Array, L.Flags]:
    chosen = [thread for group in groups for thread in range(group * _WARPGROUP, (group + 1) * _WARPGROUP)]
    full = np.zeros((*words.shape[:-1], machine.threads), dtype=np.uint64)
    full[..., chosen] = words
    if isinstance(flags, int):
        return full, flags
    spread = np.zeros((*flags.shape[:-1], machine.threads), dtype=np.uint32)
    spread[..., chosen] = flags
    return full, spread


def _commit(machine: Machine) -> None:
    _groups(machine, machine.line)
    machine.asynchronous_reads.commit(_MATRIX_READS, machine.active())


def _wait(pending: int) -> Step:
    def step(machine: Machine) -> None:
        _groups(machine, machine.line)
        machine.asynchronous_reads.wait(_MATRIX_READS, pending, machine.active(), machine.races, machine.warp)

    return step
