"""The architectures gfx942 and gfx950: initial state of a wave, kernel arguments, and the tables of instructions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from bitwise_amd_gfx942 import matrix_units, rules
from bitwise_amd_gfx942.addresses.address_words import POINTERS, note_preloaded_words
from bitwise_amd_gfx942.bf16_rounding import bf16_roundings
from bitwise_amd_gfx942.functions import functions_of
from bitwise_amd_gfx942.kernarg_preload import check_kernarg_preload
from bitwise_amd_gfx942.kernarg_segment import kernarg_words
from bitwise_amd_gfx942.opcodes import calls, control, gfx950, waits
from bitwise_amd_gfx942.opcodes.matrices import gfx950_matrix, matrix
from bitwise_amd_gfx942.opcodes.memory import atomics, buffer_loads, buffers, flat, scratch, shared_memory
from bitwise_amd_gfx942.opcodes.scalar import scalar_integers, scalar_logic, scalar_memory, scalar_moves
from bitwise_amd_gfx942.opcodes.vector import (
    comparisons,
    conversion,
    cross_lane,
    division,
    dot_products,
    floating,
    fp8_conversion,
    gfx950_fp8,
    packed,
    vector_carries,
    vector_integers,
    vector_logic,
)
from bitwise_amd_gfx942.opcodes.waits import WaitingTable
from bitwise_amd_gfx942.registers import ALL_LANES, EXEC, WAVE, as_lane_mask_of_pair, storage
from bitwise_amd_gfx942.text.parser import parse
from bitwise_core.assembly.module import Kernel, Module
from bitwise_core.execution.architecture import Arch, BitSupport, ContractionAudit, OpcodeTable
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.machine import Machine, literal
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_core.ir.rules.table import register

register(rules.STATED_RULES, (), rules.PROOFS)

SHARED = (
    atomics.TABLE, buffer_loads.TABLE, buffers.TABLE, calls.TABLE, vector_carries.TABLE, comparisons.TABLE,
    control.TABLE, conversion.TABLE, division.TABLE, dot_products.TABLE, flat.TABLE, floating.TABLE, packed.TABLE,
    scalar_integers.TABLE, scalar_logic.TABLE, scalar_memory.TABLE, scalar_moves.TABLE, scratch.TABLE,
    shared_memory.TABLE, vector_integers.TABLE, vector_logic.TABLE, waits.TABLE, cross_lane.TABLE,
)  # fmt: skip
"""The instructions that gfx942 and gfx950 share."""

Audit: TypeAlias = Callable[[Module, str, str | None], ContractionAudit]


_BYTES = re.compile(r"ds_\w+_[bui]8(?:_|$)")
"""Mnemonics of accesses to single bytes of shared memory."""

_HALVES = re.compile(r"(?:b?f|[bui])16(?:_|$)|short")
"""Mnemonics of instructions on 16 bits, whose results may be parts of the words that are stored."""


def granule(kernel: Kernel) -> int:
    """The smallest unit, in bytes, in which the kernel is expected to access shared memory: 1, 2 or 4.

    A run in which a smaller one is needed is repeated.
    """
    found = 4
    for name in {instruction.opcode.partition(".")[0] for instruction in kernel.instructions}:
        if _BYTES.search(name):
            return 1
        if _HALVES.search(name):
            found = 2
    return found


def special(machine: Machine, launch: Launch) -> None:
    """Set the special registers; `machine.special["block"]` holds the linear indices of the blocks, as uint32.

    Raises Unsupported where a block is not a whole number of waves.
    """
    if machine.threads % WAVE:
        raise Unsupported(f"a block of {machine.threads} threads is not a whole number of waves of {WAVE}")
    block = machine.special["block"].astype(np.uint32)
    machine.special["block"] = block


def _coordinates(number: Array, extent: tuple[int, int, int]) -> list[Array]:
    """The x, y and z coordinates of linear indices in a box of this extent, x fastest."""
    x, y, _ = (np.uint32(each) for each in extent)
    values = [number % x, number // x % y, number // (x * y)]
    return [literal(0, 32) if extent[index] == 1 else value for index, value in enumerate(values)]


def prepare(machine: Machine, module: Module, kernel: Kernel, launch: Launch) -> None:
    """Set the registers that hardware and runtime initialise before the kernel's first instruction.

    Raises ManifestError where the launch does not fit the kernel, Unsupported for a descriptor that is not modelled.
    """
    if kernel.attributes.get("ieee_mode", "1") != "1" or kernel.attributes.get("dx10_clamp", "1") != "1":
        raise Unsupported("the kernel descriptor disables the IEEE mode or DX10_CLAMP, which is not modelled")
    if kernel.attributes.get("tg_split", "0") != "0":
        raise Unsupported("the kernel descriptor lets the waves of a block run on several compute units (tg_split)")
    coordinates = int(kernel.attributes.get("system_vgpr_workitem_id", "0"))
    if any(extent > 1 for extent in machine.block[1 + coordinates :]):
        raise Unsupported("the block has more axes than coordinates of a thread that the kernel descriptor asks for")
    machine.extra[scalar_memory.ARGUMENTS] = words = kernarg_words(machine, kernel, launch)
    machine.registers[EXEC] = ALL_LANES
    next_register = _set_user_registers(machine, kernel, words)
    attributes = kernel.attributes
    for axis, number in zip("xyz", _coordinates(machine.special["block"], launch.grid), strict=True):
        if attributes.get(f"system_sgpr_workgroup_id_{axis}", "1" if axis == "x" else "0") == "1":
            machine.registers[f"s{next_register}"] = number
            next_register += 1
    thread = np.arange(machine.threads, dtype=np.uint32)[None]
    x, y, z = _coordinates(thread, machine.block)
    machine.registers["v0"] = x if machine.block[1:] == (1, 1) else x | y << np.uint32(10) | z << np.uint32(20)


def _set_user_registers(machine: Machine, kernel: Kernel, words: list[Value]) -> int:
    """Set the user SGPRs that the kernel descriptor enables; return the number of the next scalar register."""
    attributes = kernel.attributes
    next_register, base = 0, ""
    for name, count in (
        ("private_segment_buffer", 4), ("dispatch_ptr", 2), ("queue_ptr", 2), ("kernarg_segment_ptr", 2),
        ("dispatch_id", 2), ("flat_scratch_init", 2), ("private_segment_size", 1),
    ):  # fmt: skip
        if attributes.get(f"user_sgpr_{name}", "0") != "1":
            continue
        if name == "kernarg_segment_ptr":
            base = f"s{next_register}"
            machine.registers[base] = literal(scalar_memory.ARGUMENTS_BASE, 32)
            machine.registers[f"s{next_register + 1}"] = literal(scalar_memory.ARGUMENTS_BASE >> 32, 32)
        next_register += count
    length = int(attributes.get("user_sgpr_kernarg_preload_length", "0"))
    start = int(attributes.get("user_sgpr_kernarg_preload_offset", "0"))
    preloaded: dict[str, int] = {}
    pointers = machine.extra[POINTERS]
    for index, word in enumerate(words[start : start + length], start):
        machine.registers[f"s{next_register}"] = word
        preloaded[f"s{next_register}"] = index
        note_preloaded_words(machine, [(f"s{next_register}", each) for each in (0, 1) if index - each in pointers])
        next_register += 1
    if length:
        check_kernarg_preload(kernel, base, preloaded)
    if base:
        scalar_memory.note_first_loads(machine, kernel, base)
    return int(attributes.get("user_sgpr_count", str(next_register)))


def _arch(name: str, own: tuple[OpcodeTable, ...], audit: Audit) -> Arch:
    """Return an architecture with the shared instructions and its `own`."""
    rows = tuple(row for row in matrix_units.ROWS if row.architecture == name)
    return Arch(
        name=name,
        extension=".amdgcn",
        targets=(name,),
        warp=WAVE,
        opcodes=WaitingTable(*SHARED, *own),
        parse=parse,
        granule=granule,
        special=special,
        prepare=prepare,
        audit_contraction=audit,
        storage=storage,
        execution_mask=EXEC,
        under_one_key=as_lane_mask_of_pair,
        sequences=bf16_roundings,
        bits=BitSupport(functions_of(name), rows),
    )


GFX942 = _arch("gfx942", (fp8_conversion.TABLE, matrix.TABLE), matrix.audit_contraction)
GFX950 = _arch("gfx950", (gfx950.TABLE, gfx950_fp8.TABLE, gfx950_matrix.TABLE), gfx950_matrix.audit_contraction)
