"""gfx942 as an architecture: how a wave starts, its arguments, and the tables of its instructions."""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942 import matrix_units
from bitwise_amd_gfx942.functions import FUNCTIONS
from bitwise_amd_gfx942.launch_arguments import argument_words
from bitwise_amd_gfx942.opcodes import (
    atomics,
    buffers,
    calls,
    comparisons,
    control,
    conversion,
    cross_lane,
    division,
    dot_products,
    flat,
    floating,
    fp8_conversion,
    matrix,
    packed,
    scalar_integers,
    scalar_logic,
    scalar_memory,
    scalar_moves,
    scratch,
    shared_memory,
    vector_carries,
    vector_integers,
    vector_logic,
    waits,
)
from bitwise_amd_gfx942.opcodes.waits import WaitingTable
from bitwise_amd_gfx942.preloading import check_preloaded
from bitwise_amd_gfx942.registers import EVERYONE, EXEC, WAVE, storage
from bitwise_amd_gfx942.text.parser import TARGET, parse
from bitwise_core.assembly.module import Kernel, Module
from bitwise_core.execution.architecture import Arch, BitSupport
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.machine import Machine, literal
from bitwise_core.execution.values.symbolic_vector import Array, Value

OPCODES = WaitingTable(
    atomics.TABLE, buffers.TABLE, calls.TABLE, vector_carries.TABLE, comparisons.TABLE, control.TABLE, conversion.TABLE,
    division.TABLE, dot_products.TABLE, flat.TABLE, floating.TABLE, matrix.TABLE, fp8_conversion.TABLE, packed.TABLE,
    scalar_integers.TABLE, scalar_logic.TABLE, scalar_memory.TABLE, scalar_moves.TABLE, scratch.TABLE,
    shared_memory.TABLE, vector_integers.TABLE, vector_logic.TABLE, waits.TABLE, cross_lane.TABLE,
)  # fmt: skip


def granule(kernel: Kernel) -> int:
    """The least unit, in bytes, in which the kernel's instructions look at data; finer accesses start a finer run."""
    return 4


def special(machine: Machine, launch: Launch) -> None:
    """The number of each thread and block; `machine.special["block"]` holds the blocks' numbers.

    Raises Unsupported for a block that is not made of whole waves.
    """
    if machine.threads % WAVE:
        raise Unsupported(f"a block of {machine.threads} threads is not made of whole waves of {WAVE}")
    block = machine.special["block"].astype(np.uint32)
    machine.special["block"] = block


def _coordinates(number: Array, extent: tuple[int, int, int]) -> list[Array]:
    x, y, _ = (np.uint32(each) for each in extent)
    values = [number % x, number // x % y, number // (x * y)]
    return [literal(0, 32) if extent[index] == 1 else value for index, value in enumerate(values)]


def prepare(machine: Machine, module: Module, kernel: Kernel, launch: Launch) -> None:
    """Fills the registers that hardware and runtime set before a kernel's first instruction.

    Raises ManifestError where the launch does not fit, Unsupported for a descriptor that is not modelled.
    """
    if kernel.attributes.get("ieee_mode", "1") != "1" or kernel.attributes.get("dx10_clamp", "1") != "1":
        raise Unsupported("the descriptor turns the IEEE mode or the clamping of NaNs off, which is not modelled")
    machine.extra[scalar_memory.ARGUMENTS] = words = argument_words(machine, kernel, launch)
    machine.registers[EXEC] = EVERYONE
    place = _user_registers(machine, kernel, words)
    given = kernel.attributes
    for axis, number in zip("xyz", _coordinates(machine.special["block"], launch.grid), strict=True):
        if given.get(f"system_sgpr_workgroup_id_{axis}", "1" if axis == "x" else "0") == "1":
            machine.registers[f"s{place}"] = number
            place += 1
    thread = np.arange(machine.threads, dtype=np.uint32)[None]
    x, y, z = _coordinates(thread, machine.block)
    machine.registers["v0"] = x if machine.block[1:] == (1, 1) else x | y << np.uint32(10) | z << np.uint32(20)


def _user_registers(machine: Machine, kernel: Kernel, words: list[Value]) -> int:
    """The scalar registers that the descriptor asks for; gives back the number of the next one."""
    given = kernel.attributes
    place, base = 0, ""
    for name, count in (
        ("private_segment_buffer", 4), ("dispatch_ptr", 2), ("queue_ptr", 2), ("kernarg_segment_ptr", 2),
        ("dispatch_id", 2), ("flat_scratch_init", 2), ("private_segment_size", 1),
    ):  # fmt: skip
        if given.get(f"user_sgpr_{name}", "0") != "1":
            continue
        if name == "kernarg_segment_ptr":
            base = f"s{place}"
            machine.registers[base] = literal(scalar_memory.ARGUMENTS_BASE, 32)
            machine.registers[f"s{place + 1}"] = literal(scalar_memory.ARGUMENTS_BASE >> 32, 32)
        place += count
    length = int(given.get("user_sgpr_kernarg_preload_length", "0"))
    start = int(given.get("user_sgpr_kernarg_preload_offset", "0"))
    preloaded: dict[str, int] = {}
    for index, word in enumerate(words[start : start + length], start):
        machine.registers[f"s{place}"] = word
        preloaded[f"s{place}"] = index
        place += 1
    if length:
        check_preloaded(kernel, base, preloaded)
    return int(given.get("user_sgpr_count", str(place)))


GFX942 = Arch(
    name=TARGET,
    extension=".amdgcn",
    targets=(TARGET,),
    warp=WAVE,
    opcodes=OPCODES,
    parse=parse,
    granule=granule,
    special=special,
    prepare=prepare,
    audit_contraction=matrix.audit_contraction,
    storage=storage,
    bits=BitSupport(FUNCTIONS, tuple(matrix_units.ROWS)),
)
