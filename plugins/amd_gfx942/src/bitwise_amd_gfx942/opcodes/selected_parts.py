"""SDWA: sources that are bytes or halves of registers, and results that go to one of them.

Source: AMD Instinct MI300 ISA, "Sub-Dword Addressing (SDWA)".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bitwise_amd_gfx942.opcodes.constants import BITS
from bitwise_amd_gfx942.opcodes.forms import check_modifiers
from bitwise_amd_gfx942.opcodes.sources import Reader, Writer, changed_sign, reader, word_reader, writer
from bitwise_core.assembly.module import Instruction, Modified, Operand, Register
from bitwise_core.execution.architecture import UnknownInstruction
from bitwise_core.execution.machine import Machine, Step, literal
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.packing import as_symbolic_vector, concat, extract
from bitwise_core.execution.values.symbolic_vector import PackedVector, SymbolicVector, Value
from bitwise_core.numerics import operation

MODIFIERS = ("dst_sel", "dst_unused", "src0_sel", "src1_sel")

_PARTS = {
    "BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8), "WORD_0": (0, 16), "WORD_1": (16, 16),
    "DWORD": (0, 32),
}  # fmt: skip
"""Selectors: the first bit and the number of bits."""


def part_reader(operand: Operand, selector: str, kind: str, instruction: Instruction) -> Reader:
    """The selected part of a source, widened to its type.  Raises UnknownInstruction."""
    if selector not in _PARTS:
        raise UnknownInstruction(instruction, f"selects {selector or 'a part'}, which is not modelled")
    changes: tuple[str, ...] = ()
    if isinstance(operand, Modified):
        changes, operand = operand.changes, operand.operand
    low, size = _PARTS[selector]
    bits = BITS[kind]
    if bits > 32 or (kind.startswith("fp") and size != bits and selector != "DWORD"):
        raise UnknownInstruction(instruction, f"selects {selector} of a source of {bits} bits, which is not modelled")
    signs = "sext" in changes
    floats = [operation(f"{change}.{kind}") for change in changes if change != "sext"]
    if floats and not kind.startswith("fp"):
        raise UnknownInstruction(instruction, f"changes an operand by {changes[-1]}, which is not modelled")
    whole = word_reader(operand.name, instruction) if isinstance(operand, Register) else None
    if whole is None:
        if selector != "DWORD" or signs:
            raise UnknownInstruction(instruction, "selects a part of a constant, which is not modelled")
        whole = reader(operand, "b32", instruction)

    def read(machine: Machine) -> Value:
        value = extract(whole(machine), low, min(size, bits))
        if size < bits:
            value = widened(machine, value, size, bits, signs)
        for sign in floats:
            value = changed_sign(machine, sign, value)
        return value

    return read


def widened(machine: Machine, value: Value, size: int, bits: int, signs: bool) -> Value:
    """A value of `size` bits as one of `bits`, with its sign or with zeros in front."""
    if not signs:
        zeros = {8: [8], 16: [16], 24: [8, 16]}[bits - size]
        return concat([value, *(literal(0, each) for each in zeros)])

    return apply_integer(machine, operation(f"convert.b{bits}.s{size}"), [value])


def widened_half(machine: Machine, value: Value) -> Value:
    """16 bits as 32 with its sign, kept as two halves: so compilers move one of two numbers, and cut it off again."""
    wide = widened(machine, value, 16, 32, True)
    if not isinstance(value, SymbolicVector) or not isinstance(wide, SymbolicVector):
        return wide
    row = PackedVector((value, as_symbolic_vector(extract(wide, 16, 16))))
    row.joined = wide
    return row


def part_writer(operand: Operand, selector: str, unused: str, out: int, instruction: Instruction) -> Writer:
    """Where a result goes whose part is selected.  Raises UnknownInstruction."""
    if not isinstance(operand, Register) or selector not in _PARTS:
        raise UnknownInstruction(instruction, f"selects {selector or 'a part'} of its result, which is not modelled")
    if selector == "DWORD":
        return writer(operand, out, instruction)
    low, size = _PARTS[selector]
    if unused not in ("UNUSED_PAD", "UNUSED_PRESERVE"):
        raise UnknownInstruction(instruction, f"treats what it leaves out as {unused}, which is not modelled")
    old = word_reader(operand.name, instruction)
    write = writer(operand, 32, instruction)

    def put(machine: Machine, value: Value) -> None:
        kept = old(machine) if unused == "UNUSED_PRESERVE" else literal(0, 32)
        parts: list[Value] = []
        place = 0
        while place < 32:
            if place == low:
                parts.append(extract(value, 0, size))
                place += size
                continue
            step = 16 if place % 16 == 0 and not place <= low < place + 16 else 8
            parts.append(extract(kept, place, step))
            place += step
        write(machine, concat(parts))

    return put


def step(
    instruction: Instruction,
    kinds: Sequence[str],
    out: int,
    compute: Callable[..., Value],
    first: int = 1,
    also: Sequence[str] = (),
) -> Step:
    """The step of an instruction in this encoding; `also`: see `lanewise`.  Raises UnknownInstruction."""
    modifiers = check_modifiers(instruction, *MODIFIERS, *also).modifiers
    readers = [
        part_reader(operand, modifiers.get(f"src{index}_sel", "DWORD"), kind, instruction)
        if index < 2
        else reader(operand, kind, instruction)
        for index, (operand, kind) in enumerate(zip(instruction.operands[first:], kinds, strict=True))
    ]
    unused = modifiers.get("dst_unused", "UNUSED_PRESERVE")
    write = part_writer(instruction.operands[0], modifiers.get("dst_sel", "DWORD"), unused, out, instruction)

    def run(machine: Machine) -> None:
        write(machine, compute(machine, *[each(machine) for each in readers]))

    return run
