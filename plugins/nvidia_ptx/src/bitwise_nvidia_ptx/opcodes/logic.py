"""and, or, xor, not, lop3, prmt, and predicates' logic; packed registers keep their pieces where they can.

Source: PTX ISA 8.7, sections "Logic and Shift Instructions" and "Data Movement: prmt".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitwise_core.asm import Immediate, Instruction
from bitwise_core.machine import lanes as L
from bitwise_core.machine.arch import Context, OpcodeTable, UnknownInstruction
from bitwise_core.machine.lanes import Array, Lanes, Value
from bitwise_core.machine.pieces import choose, concat, cut, ends
from bitwise_core.machine.state import Machine, Step, invert
from bitwise_core.machine.steps import apply_integer
from bitwise_nvidia_ptx.opcodes.common import integer_step, type_bits

TABLE = OpcodeTable()

_FUNCTIONS: dict[str, Callable[..., Array]] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_FLOAT = {16: "fp16", 32: "fp32", 64: "fp64"}


@TABLE.opcode("and", "or", "xor")
def bitwise(instruction: Instruction, context: Context) -> Step:
    """Bitwise operations of two operands, predicates included."""
    root, kind = instruction.opcode.split(".")
    bits = type_bits(kind)
    destination, left, right = instruction.operands

    def step(machine: Machine) -> None:
        values = machine.read_bits(left, bits), machine.read_bits(right, bits)
        machine.write(destination, combine(machine, root, values[0], values[1], bits))

    return step


def combine(machine: Machine, root: str, left: Value, right: Value, bits: int) -> Value:
    """`left root right`, piece by piece where a register is packed or a known mask covers whole bytes."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return _FUNCTIONS[root](left, right)
    if L.other_form(left) is not None or L.other_form(right) is not None:
        return apply_integer(
            machine,
            f"{root}.{'pred' if bits == 1 else f'b{bits}'}",
            [left, right],
            bits,
            _FUNCTIONS[root],
            gathers=True,
        )
    if bits == 1:
        return _predicates(machine, root, left, right)
    for mask, value in ((left, right), (right, left)):
        changed = _with_mask(machine, root, mask, value, bits)
        if changed is not None:
            return changed
    if isinstance(left, L.Pieces) or isinstance(right, L.Pieces):
        cuts = sorted(set(ends(left)) | set(ends(right)))
        spans = list(zip([0, *cuts[:-1]], cuts, strict=True))
        if len(spans) > 1:
            return concat(
                [
                    combine(machine, root, cut(left, low, high - low), cut(right, low, high - low), high - low)
                    for low, high in spans
                ]
            )
    return apply_integer(machine, f"{root}.b{bits}", [left, right], bits, _FUNCTIONS[root], gathers=True)


def _predicates(machine: Machine, root: str, left: Value, right: Value) -> Value:
    for known, other in ((left, right), (right, left)):
        if isinstance(known, np.ndarray) and root in ("and", "or"):
            absorbing = known if root == "or" else ~known
            if absorbing.all():
                return known
            if not absorbing.any():
                return other
            return choose(absorbing, known, other)
    result = apply_integer(machine, f"{root}.pred", [left, right], 1, _FUNCTIONS[root], gathers=True)
    if root not in ("and", "or") or not isinstance(left, Lanes) or not isinstance(right, Lanes):
        return result
    for some, others in ((left, right), (right, left)):
        where = np.asarray(L.known_where(some))
        if not where.any():
            continue
        numbers = L.numbers_of(some)
        absorbs = where & (numbers if root == "or" else ~numbers)
        result = choose(where & ~absorbs, others, choose(absorbs, some, result))
    return result


def _with_mask(machine: Machine, root: str, mask: Value, value: Value, bits: int) -> Value | None:
    """A uniform known mask acts on whole bytes, or on a sign bit, without entering the term."""
    if not isinstance(mask, np.ndarray) or mask.size != 1:
        return None
    number = int(mask.reshape(())[()])
    full = (1 << bits) - 1
    neutral = full if root == "and" else 0
    if number == neutral:
        return value
    if (root, number) in (("and", 0), ("or", full)):
        return mask
    changed = sign_change(machine, root, number, value, bits)
    if changed is not None:
        return changed
    for size in (32, 16, 8):
        if size >= bits:
            continue
        pieces = [(number >> low) & ((1 << size) - 1) for low in range(0, bits, size)]
        whole = (1 << size) - 1
        useful = all(piece in (0, whole) for piece in pieces) if root in ("and", "or") else isinstance(value, L.Pieces)
        if useful or (isinstance(value, L.Pieces) and size in {L.width(part) for part in value.parts}):
            return concat(
                [
                    combine(
                        machine,
                        root,
                        np.full((1, 1), piece, dtype=L.UNSIGNED[size]),
                        cut(value, index * size, size),
                        size,
                    )
                    for index, piece in enumerate(pieces)
                ]
            )
    return None


def sign_change(machine: Machine, root: str, number: int, value: Value, bits: int) -> Value | None:
    """xor with the sign bit is a negation and and-ing it away an absolute value, of whatever format."""
    sign = 1 << (bits - 1) if bits > 8 else 0
    if not sign or not isinstance(value, Lanes) or bits not in _FLOAT:
        return None
    if (root, number) not in (("xor", sign), ("and", sign - 1)):
        return None
    changed = machine.domain.floating(f"{'neg' if root == 'xor' else 'abs'}.{_FLOAT[bits]}", [value], bits)
    known = L.known_where(value)
    if known is False or not np.any(known):
        return changed
    numbers = _FUNCTIONS[root](L.numbers_of(value), L.UNSIGNED[bits](number))
    return choose(np.asarray(known), numbers, changed)  # numbers that are no floats may look like NaNs


@TABLE.opcode("not", "cnot")
def complement(instruction: Instruction, context: Context) -> Step:
    """not of bits or of a predicate."""
    root, kind = instruction.opcode.split(".")
    destination, source = instruction.operands
    if root != "not":
        raise UnknownInstruction(instruction)
    if kind == "pred":

        def step(machine: Machine) -> None:
            machine.write(destination, invert(machine.domain, machine.read_bits(source, 1)))

        return step
    bits = type_bits(kind)
    return integer_step(instruction, f"not.b{bits}", np.bitwise_not, (bits,), bits)


@TABLE.opcode("lop3")
def three_operands(instruction: Instruction, context: Context) -> Step:
    """lop3.b32: any function of three bits by its truth table."""
    if instruction.opcode != "lop3.b32" or len(instruction.operands) != 5:
        raise UnknownInstruction(instruction)
    table = instruction.operands[4]
    if not isinstance(table, Immediate):
        raise UnknownInstruction(instruction, "has a truth table that is no literal")
    truth = table.value & 255

    def evaluate(a: Array, b: Array, c: Array) -> Array:
        result: Array = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), dtype=np.uint32)
        for row in range(8):
            if truth >> row & 1:
                result = result | (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
        return result

    destination, *sources = instruction.operands[:4]
    shorter = Instruction(
        instruction.opcode, (destination, *sources), instruction.guard, instruction.line, instruction.source
    )
    return integer_step(shorter, f"lop3 {truth}", evaluate, (32, 32, 32), 32)


@TABLE.opcode("prmt")
def permute_bytes(instruction: Instruction, context: Context) -> Step:
    """prmt.b32 in its generic mode: four bytes chosen from eight, or the sign of one."""
    if instruction.opcode != "prmt.b32":
        raise UnknownInstruction(instruction)
    destination, left, right, selector = instruction.operands

    def evaluate(a: Array, b: Array, control: Array) -> Array:
        pair = b.astype(np.uint64) << np.uint64(32) | a.astype(np.uint64)
        result: Array = np.zeros(np.broadcast_shapes(a.shape, b.shape, control.shape), dtype=np.uint32)
        for place in range(4):
            nibble = (control >> np.uint32(4 * place)) & np.uint32(15)
            byte = (pair >> (np.uint64(8) * (nibble & np.uint32(7)).astype(np.uint64))) & np.uint64(255)
            byte = np.where(nibble & np.uint32(8), np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0)), byte)
            result = result | byte.astype(np.uint32) << np.uint32(8 * place)
        return result

    def step(machine: Machine) -> None:
        values = [machine.read_bits(each, 32) for each in (left, right, selector)]
        control = values[2]
        if not isinstance(control, np.ndarray) or all(isinstance(each, np.ndarray) for each in values):
            machine.write(destination, apply_integer(machine, "prmt.b32", values, 32, evaluate))
            return
        numbers = np.unique(control & np.uint32(0xFFFF))
        result: Value | None = None
        for number in numbers:
            if int(number) & 0x8888:
                result = apply_integer(machine, "prmt.b32", values, 32, evaluate)
                break
            chosen = _pick(values[0], values[1], int(number))
            result = chosen if result is None else choose((control & np.uint32(0xFFFF)) == number, chosen, result)
        assert result is not None
        machine.write(destination, result)

    return step


def _pick(left: Value, right: Value, selector: int) -> Value:
    """The four chosen bytes, halves kept whole where they stay together."""
    chosen = [selector >> 4 * place & 7 for place in range(4)]
    parts: list[Value] = []
    for low, high in ((chosen[0], chosen[1]), (chosen[2], chosen[3])):
        if high == low + 1 and low % 2 == 0:
            parts.append(cut(left if low < 4 else right, 8 * (low % 4), 16))
        else:
            parts.extend(cut(left if byte < 4 else right, 8 * (byte % 4), 8) for byte in (low, high))
    return concat(parts)
