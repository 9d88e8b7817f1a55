"""s_load: kernel arguments, and global memory read at one address for a whole wave.

Source: AMD Instinct MI300 ISA, "Scalar memory operations" (SMEM).
"""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.addresses.address_words import note_argument_words, note_loaded_pointers
from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers, form, modifier_value
from bitwise_amd_gfx942.opcodes.memory.flat import add_address, zero_extend
from bitwise_amd_gfx942.opcodes.memory.memory_access import aligned_access_bits
from bitwise_amd_gfx942.opcodes.memory.pointer_provenance import provenance_of
from bitwise_amd_gfx942.opcodes.operands.operand_access import reader, writer
from bitwise_core.assembly.module import (
    Immediate,
    Instruction,
    Kernel,
    Modified,
    Register,
    Vector,
    once_a_kernel,
    registers_of,
)
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect
from bitwise_core.execution.machine import Machine, Step, literal
from bitwise_core.execution.memory.access import check_aligned, load_global
from bitwise_core.execution.values.packing import concat
from bitwise_core.execution.values.symbolic_vector import Array, Value, lazy_integers

TABLE = Table()

ARGUMENTS_BASE = 1 << 36
"""The address of the kernel argument segment: below every buffer."""

ARGUMENTS = "arguments"
"""The key of `Machine.extra` for the 32-bit words of the argument segment."""

_LOAD = "s_load_dword"
_COUNTS = {"": 1, "x2": 2, "x3": 3, "x4": 4, "x8": 8, "x16": 16}


def argument_words(machine: Machine, address: Array, count: int, line: int) -> tuple[int, list[Value]] | None:
    """The number of the first word of the argument segment at an address, and the words; None outside of it.

    Raises Unsupported for an access that is misaligned or past the end of the arguments.
    """
    if lazy_integers(address) is not None:
        return None  # an address that differs between blocks: the arguments are in no buffer, which each access needs
    if address.size > 1:
        shape = np.broadcast_shapes(address.shape, (1, 1) if machine.mask is None else machine.mask.shape)
        lanes = np.broadcast_to(address, shape)
        lanes = lanes.ravel() if machine.mask is None else lanes[np.broadcast_to(machine.mask, shape)]
        if not lanes.size or (lanes != lanes[0]).any():
            return None
        address = lanes[:1]
    offset = int(address.flat[0]) - ARGUMENTS_BASE
    words: list[Value] = machine.extra[ARGUMENTS]
    if not 0 <= offset < 1 << 16:
        return None
    if offset % 4 or offset // 4 + count > len(words):
        raise Unsupported("the kernel's arguments are read past their end", line)
    return offset // 4, words[offset // 4 : offset // 4 + count]


@TABLE.opcode(*(f"{_LOAD}{count}" for count in _COUNTS), operands=DESTINATION_FIRST, effects=Effect.LOAD)
def load(instruction: Instruction, context: Context) -> Step:
    """Load words at a base address plus a constant offset, a register, or both."""
    modifiers = check_modifiers(instruction, "glc", "offset").modifiers
    if len(instruction.operands) != 3:
        raise UnknownInstruction(instruction, "takes three operands")
    count = _COUNTS[form(instruction.opcode).name.removeprefix(_LOAD)]
    target, base, offset = instruction.operands
    if isinstance(offset, Modified):
        raise UnknownInstruction(instruction, "has a neg or abs modifier on its offset")
    fixed = modifier_value(instruction, modifiers.get("offset", "0"))
    varying = None
    if isinstance(offset, Immediate):
        fixed += offset.value
    else:
        varying = reader(offset, "b32", instruction)
    read, write = reader(base, "b64", instruction), writer(target, 32 * count, instruction)
    line = instruction.line

    def step(machine: Machine) -> None:
        start = read(machine)
        if varying is not None:
            start = add_address(machine, start, zero_extend(varying(machine)))
        address = machine.known(start)
        if address is None:
            write(machine, concat(_gathered(machine, start, fixed, count, line)))
            return
        if fixed:
            address = address + np.uint64(fixed & (1 << 64) - 1)
        found = argument_words(machine, address, count, line)
        if found is not None:
            first, words = found
            note_argument_words(machine, instruction, first, count)
            write(machine, concat(words))
            return
        check_aligned(machine, address, 4, line)
        note_loaded_pointers(machine, instruction, address, count)
        size = _bits_of_loads(machine, address, count)
        # The cache of scalar loads does not see stores of the launch.
        places = (address + np.uint64(low // 8) for low in range(0, 32 * count, size))
        write(machine, concat([load_global(machine, each, size, line, coherent=False) for each in places]))

    return step


def note_first_loads(machine: Machine, kernel: Kernel, base: str) -> None:
    """Note which words of addresses the loads of arguments return with which a kernel begins.

    They are executed in any case, so that the flow of these words is followed once instead of after each load.  `base`
    is the first of the two registers that hold the address of the arguments.
    """
    words: list[Value] = machine.extra[ARGUMENTS]
    for instruction, first, count in _first_loads(kernel, base):
        if first + count <= len(words):
            note_argument_words(machine, instruction, first, count)


@once_a_kernel
def _first_loads(kernel: Kernel, base: str) -> tuple[tuple[Instruction, int, int], ...]:
    """Return the loads of arguments at constant offsets with which a kernel begins: first word and number of words."""
    found: list[tuple[Instruction, int, int]] = []
    pair = Vector((Register(base), Register(f"s{int(base[1:]) + 1}")))
    held = registers_of(pair)
    for instruction in kernel.instructions:
        name, operands = form(instruction.opcode).name, instruction.operands
        if name == "s_waitcnt":
            continue
        if not name.startswith(_LOAD) or "." in instruction.opcode or len(operands) != 3 or operands[1] != pair:
            break
        offset, count = operands[2], _COUNTS.get(name.removeprefix(_LOAD))
        if not isinstance(offset, Immediate) or offset.value < 0 or offset.value % 4 or count is None:
            break
        found.append((instruction, offset.value // 4, count))
        if not registers_of(operands[0]).isdisjoint(held):
            break
    return tuple(found)


def _bits_of_loads(machine: Machine, address: Array, count: int) -> int:
    """The bits in which words are loaded: those of a pointer where the launch gives pointers, and else of a word."""
    pairs = machine.memory.given.has_pointers and count % 2 == 0
    return aligned_access_bits(machine, address, 64, 64) if pairs else 32


def _gathered(machine: Machine, start: Value, fixed: int, count: int, line: int) -> list[Value]:
    """Words at an address that depends on data.

    Hardware ignores the low two bits of the address, so the address must be a known multiple of 4 for the term to
    describe the words that are read.  Raises Unsupported where the alignment or the buffer is unknown.
    """
    base = provenance_of(machine, start)
    if base is None or base.alignment % 4 or fixed % 4:
        raise DataDependent("memory is read for a whole wave at an address that depends on data", line)
    return [
        machine.memory.gather(
            add_address(machine, start, literal(fixed + 4 * index, 64)) if fixed + 4 * index else start,
            32,
            machine.mask,
            line,
            base.buffers,
        )
        for index in range(count)
    ]
