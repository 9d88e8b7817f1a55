"""s_load: arguments of the kernel, and memory that all lanes of a wave read at one address.

Source: AMD Instinct MI300 ISA, "Scalar memory operations" (SMEM).
"""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.opcodes.bases import base_of
from bitwise_amd_gfx942.opcodes.flat import plus, unsigned
from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers, form, number
from bitwise_amd_gfx942.opcodes.sources import reader, writer
from bitwise_core.assembly.module import Immediate, Instruction, Modified
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect
from bitwise_core.execution.machine import Machine, Step, literal
from bitwise_core.execution.memory.access import check_aligned, load_global
from bitwise_core.execution.values.packing import concat
from bitwise_core.execution.values.symbolic_vector import Array, Value

TABLE = Table()

ARGUMENTS_BASE = 1 << 36
"""Where the segment of kernel arguments lies: below every buffer."""

ARGUMENTS = "arguments"
"""The key of `Machine.extra` that holds the segment's 32-bit words."""

_COUNTS = {"": 1, "x2": 2, "x3": 3, "x4": 4, "x8": 8, "x16": 16}


def argument_words(machine: Machine, address: Array, count: int, line: int) -> list[Value] | None:
    """Words of the segment of arguments, or None where the address lies elsewhere.  Raises Unsupported past its end."""
    if address.size > 1:
        shape = np.broadcast_shapes(address.shape, (1, 1) if machine.mask is None else machine.mask.shape)
        lanes = np.broadcast_to(address, shape)
        lanes = lanes.ravel() if machine.mask is None else lanes[np.broadcast_to(machine.mask, shape)]
        if not lanes.size or (lanes != lanes[0]).any():
            return None
        address = lanes[:1]
    place = int(address.flat[0]) - ARGUMENTS_BASE
    words: list[Value] = machine.extra[ARGUMENTS]
    if not 0 <= place < 1 << 16:
        return None
    if place % 4 or place // 4 + count > len(words):
        raise Unsupported("the kernel's arguments are read past their end", line)
    return words[place // 4 : place // 4 + count]


@TABLE.opcode(*(f"s_load_dword{count}" for count in _COUNTS), operands=DESTINATION_FIRST, effects=Effect.LOAD)
def load(instruction: Instruction, context: Context) -> Step:
    """Words from the base address and an offset, a constant or a register's or both."""
    modifiers = check_modifiers(instruction, "glc", "offset").modifiers
    if len(instruction.operands) != 3:
        raise UnknownInstruction(instruction, "takes three operands")
    count = _COUNTS[form(instruction.opcode).name.removeprefix("s_load_dword")]
    target, base, offset = instruction.operands
    if isinstance(offset, Modified):
        raise UnknownInstruction(instruction, "has an offset that is changed")
    fixed = number(instruction, modifiers.get("offset", "0"))
    varying = None
    if isinstance(offset, Immediate):
        fixed += offset.value
    else:
        varying = reader(offset, "b32", instruction)
    read, write = reader(base, "b64", instruction), writer(target, 32 * count, instruction)
    line = instruction.line

    def step(machine: Machine) -> None:
        place = read(machine)
        if varying is not None:
            place = plus(machine, place, unsigned(varying(machine)))
        address = machine.known(place)
        if address is None:
            write(machine, concat(_gathered(machine, place, fixed, count, line)))
            return
        if fixed:
            address = address + np.uint64(fixed & (1 << 64) - 1)
        words = argument_words(machine, address, count, line)
        if words is None:
            check_aligned(machine, address, 4, line)
            words = [load_global(machine, address + np.uint64(4 * index), 32, line) for index in range(count)]
        write(machine, concat(words))

    return step


def _gathered(machine: Machine, place: Value, fixed: int, count: int, line: int) -> list[Value]:
    """Words at an address that depends on data.

    The lowest two bits of an address are not looked at: it must be a multiple of 4, or a load of another kind would
    read something else there.  Raises Unsupported where that cannot be told, or not in which buffer it lies.
    """
    base = base_of(machine, place)
    if base is None or base.unit % 4 or fixed % 4:
        raise Unsupported("memory is read for a whole wave at an address that depends on data", line)
    return [
        machine.memory.gather(
            plus(machine, place, literal(fixed + 4 * index, 64)) if fixed + 4 * index else place,
            32,
            machine.mask,
            line,
            base.buffers,
        )
        for index in range(count)
    ]
