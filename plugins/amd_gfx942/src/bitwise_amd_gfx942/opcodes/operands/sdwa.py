"""SDWA: sources that are a byte or a half of a register, and results that are written to one.

Source: AMD Instinct MI300 ISA, "Sub-Dword Addressing (SDWA)".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bitwise_amd_gfx942.opcodes.forms import SDWA_MODIFIERS, check_modifiers
from bitwise_amd_gfx942.opcodes.operands.constants import BITS
from bitwise_amd_gfx942.opcodes.operands.operand_access import Reader, Writer, apply_sign, reader, word_reader, writer
from bitwise_core.assembly.module import Instruction, Modified, Operand, Register
from bitwise_core.execution.architecture import UnknownInstruction
from bitwise_core.execution.machine import Machine, Step, literal
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.packing import as_symbolic_vector, concat, extract
from bitwise_core.execution.values.symbolic_vector import PackedVector, SymbolicVector, Value
from bitwise_core.numerics import operation

_SELECTORS = {
    "BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8), "WORD_0": (0, 16), "WORD_1": (16, 16),
    "DWORD": (0, 32),
}  # fmt: skip
"""By selector: the lowest bit and the number of bits."""


def part_reader(operand: Operand, selector: str, kind: str, instruction: Instruction) -> Reader:
    """The selected part of a source, extended to its type: by its sign under sext, else by zeros.

    Raises UnknownInstruction.
    """
    if selector not in _SELECTORS:
        raise UnknownInstruction(instruction, f"selects {selector or 'nothing'}, which is not modelled")
    changes: tuple[str, ...] = ()
    if isinstance(operand, Modified):
        changes, operand = operand.changes, operand.operand
    low, size = _SELECTORS[selector]
    bits = BITS[kind]
    if bits > 32 or (kind.startswith("fp") and size != bits and selector != "DWORD"):
        raise UnknownInstruction(instruction, f"selects {selector} of a source of {bits} bits, which is not modelled")
    is_signed = "sext" in changes
    sign_changes = [operation(f"{change}.{kind}") for change in changes if change != "sext"]
    if sign_changes and not kind.startswith("fp"):
        raise UnknownInstruction(instruction, f"applies {changes[-1]} to an integer operand, which is not modelled")
    whole = word_reader(operand.name, instruction) if isinstance(operand, Register) else None
    if whole is None:
        if selector != "DWORD" or is_signed:
            raise UnknownInstruction(instruction, "selects a part of a constant, which is not modelled")
        whole = reader(operand, "b32", instruction)

    def read(machine: Machine) -> Value:
        value = extract(whole(machine), low, min(size, bits))
        if size < bits:
            value = widened(machine, value, size, bits, is_signed)
        for sign_change in sign_changes:
            value = apply_sign(machine, sign_change, value)
        return value

    return read


def widened(machine: Machine, value: Value, size: int, bits: int, is_signed: bool) -> Value:
    """A value of `size` bits sign-extended or zero-extended to `bits` bits."""
    if not is_signed:
        zeros = {8: [8], 16: [16], 24: [8, 16]}[bits - size]
        return concat([value, *(literal(0, each) for each in zeros)])

    return apply_integer(machine, operation(f"convert.b{bits}.s{size}"), [value])


def widened_half(machine: Machine, value: Value) -> Value:
    """16 bits sign-extended to 32, kept as two halves.

    Compilers sign-extend to move one of two packed numbers and then take its low half again, which stays exact here.
    """
    wide = widened(machine, value, 16, 32, True)
    if not isinstance(value, SymbolicVector) or not isinstance(wide, SymbolicVector):
        return wide
    row = PackedVector((value, as_symbolic_vector(extract(wide, 16, 16))))
    row.joined = wide
    return row


def part_writer(operand: Operand, selector: str, unused: str, result_bits: int, instruction: Instruction) -> Writer:
    """The writer of a result to the selected part of a register.

    The other bits become 0 (UNUSED_PAD) or are left unchanged (UNUSED_PRESERVE).  Raises UnknownInstruction.
    """
    if not isinstance(operand, Register) or selector not in _SELECTORS:
        raise UnknownInstruction(instruction, f"selects {selector or 'nothing'} of its result, which is not modelled")
    if selector == "DWORD":
        return writer(operand, result_bits, instruction)
    low, size = _SELECTORS[selector]
    if unused not in ("UNUSED_PAD", "UNUSED_PRESERVE"):
        raise UnknownInstruction(instruction, f"has the value {unused} of dst_unused, which is not modelled")
    old = word_reader(operand.name, instruction)
    write = writer(operand, 32, instruction)

    def put(machine: Machine, value: Value) -> None:
        kept = old(machine) if unused == "UNUSED_PRESERVE" else literal(0, 32)
        parts: list[Value] = []
        bit = 0
        while bit < 32:
            if bit == low:
                parts.append(extract(value, 0, size))
                bit += size
                continue
            step = 16 if bit % 16 == 0 and not bit <= low < bit + 16 else 8
            parts.append(extract(kept, bit, step))
            bit += step
        write(machine, concat(parts))

    return put


def sdwa_step(
    instruction: Instruction,
    kinds: Sequence[str],
    result_bits: int,
    compute: Callable[..., Value],
    first: int = 1,
    extra_modifiers: Sequence[str] = (),
) -> Step:
    """The step of an instruction in this encoding; the parameters are those of `lanewise`.

    Raises UnknownInstruction.
    """
    modifiers = check_modifiers(instruction, *SDWA_MODIFIERS, *extra_modifiers).modifiers
    readers = [
        part_reader(operand, modifiers.get(f"src{index}_sel", "DWORD"), kind, instruction)
        if index < 2
        else reader(operand, kind, instruction)
        for index, (operand, kind) in enumerate(zip(instruction.operands[first:], kinds, strict=True))
    ]
    unused = modifiers.get("dst_unused", "UNUSED_PRESERVE")
    write = part_writer(instruction.operands[0], modifiers.get("dst_sel", "DWORD"), unused, result_bits, instruction)

    def run(machine: Machine) -> None:
        write(machine, compute(machine, *[each(machine) for each in readers]))

    return run
