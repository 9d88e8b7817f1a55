"""setp, set, selp, slct: comparisons in few canonical forms, and choices by predicate.

Source: PTX ISA 8.7, "Comparison and Selection Instructions".
"""

from __future__ import annotations

import numpy as np

from bitwise_core import numeric
from bitwise_core.asm import Instruction, Paired
from bitwise_core.machine.arch import Context, OpcodeTable, UnknownInstruction
from bitwise_core.machine.lanes import Array, Value
from bitwise_core.machine.pieces import choose
from bitwise_core.machine.state import Machine, Step, invert
from bitwise_core.machine.steps import apply_integer
from bitwise_nvidia_ptx.opcodes.common import (
    FORMATS,
    PACKED,
    check_modifiers,
    is_integer,
    signed,
    type_bits,
    write_pair,
)
from bitwise_nvidia_ptx.opcodes.logic import combine

TABLE = OpcodeTable()

_CANONICAL = {
    "eq": ("eq", False, False), "ne": ("eq", False, True), "lt": ("lt", False, False), "le": ("le", False, False),
    "gt": ("lt", True, False), "ge": ("le", True, False), "lo": ("lt", False, False), "ls": ("le", False, False),
    "hi": ("lt", True, False), "hs": ("le", True, False),
}  # fmt: skip
"""Integer comparison -> (base, swap the operands, negate)."""

_CANONICAL_FLOAT = {
    "eq": ("eq", False, False), "lt": ("lt", False, False), "le": ("le", False, False), "gt": ("lt", True, False),
    "ge": ("le", True, False), "neu": ("eq", False, True), "geu": ("lt", False, True), "gtu": ("le", False, True),
    "leu": ("lt", True, True), "ltu": ("le", True, True), "num": ("num", False, False), "nan": ("num", False, True),
    "ne": ("ne", False, False), "equ": ("ne", False, True),
}  # fmt: skip

_FLOAT_TYPES = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}


def compare_floats(base: str, form: str, left: Array, right: Array) -> Array:
    """One of the base comparisons (eq, ne, lt, le, num; ordered) on bit patterns."""
    if form == "bf16":
        wide = [each.astype(np.uint32) << np.uint32(16) for each in (left, right)]
        return compare_floats(base, "fp32", wide[0], wide[1])
    x, y = left.view(_FLOAT_TYPES[form]), right.view(_FLOAT_TYPES[form])
    ordered = ~(np.isnan(x) | np.isnan(y))
    with np.errstate(invalid="ignore"):
        results: dict[str, Array] = {
            "eq": x == y,
            "ne": (x != y) & ordered,
            "lt": x < y,
            "le": x <= y,
            "num": ordered,
        }
    return results[base]


def compare(machine: Machine, operator: str, kind: str, left: Value, right: Value, flush: bool) -> Value:
    """The predicate `left operator right` for a PTX type."""
    if is_integer(kind):
        base, swap, negate = _CANONICAL[operator]
        is_signed = kind[0] == "s"
        tag = f"{base}.{kind if base != 'eq' else 'b' + kind[1:]}"

        def evaluate(a: Array, b: Array) -> Array:
            x, y = (signed(a), signed(b)) if is_signed else (a, b)
            return x == y if base == "eq" else x < y if base == "lt" else x <= y
    else:
        base, swap, negate = _CANONICAL_FLOAT[operator]
        form = FORMATS[kind]
        tag = f"{base}{'.ftz' if flush else ''}.{form}"

        def evaluate(a: Array, b: Array) -> Array:
            if flush:
                flushed = numeric.operation(f"add.rn.ftz.{form}").evaluate
                zero = np.zeros((1, 1), dtype=a.dtype)
                a, b = flushed(a, zero), flushed(b, zero)
            return compare_floats(base, form, a, b)

    pair = (right, left) if swap else (left, right)
    result = apply_integer(machine, f"compare.{tag}", pair, 1, evaluate)
    return invert(machine.domain, result) if negate else result


@TABLE.opcode("setp", "set")
def set_predicate(instruction: Instruction, context: Context) -> Step:
    """setp.op{.bool}{.ftz}.type p{|q}, a, b{, c}, and set with a 32-bit result."""
    root, operator, *modifiers = instruction.opcode.split(".")
    if root == "set":
        return _set_register(instruction, operator, modifiers)
    *modifiers, kind = modifiers
    check_modifiers(instruction, modifiers, {"and", "or", "xor", "ftz"})
    if kind in PACKED or operator not in (_CANONICAL if is_integer(kind) else _CANONICAL_FLOAT):
        raise UnknownInstruction(instruction)
    boolean = next((each for each in modifiers if each in ("and", "or", "xor")), None)
    bits, flush = type_bits(kind), "ftz" in modifiers
    destination, left, right, *rest = instruction.operands

    def step(machine: Machine) -> None:
        result = compare(machine, operator, kind, machine.read_bits(left, bits), machine.read_bits(right, bits), flush)
        other = invert(machine.domain, result) if isinstance(destination, Paired) else result
        if boolean is not None:
            third = machine.read_bits(rest[0], 1)
            result = combine(machine, boolean, result, third, 1)
            other = combine(machine, boolean, other, third, 1)
        write_pair(machine, destination, result, other)

    return step


def _set_register(instruction: Instruction, operator: str, modifiers: list[str]) -> Step:
    *options, out, kind = modifiers
    check_modifiers(instruction, options, {"ftz"})
    if out not in ("u32", "s32", "f32") or kind in PACKED:
        raise UnknownInstruction(instruction)
    bits = type_bits(kind)
    destination, left, right = instruction.operands
    true = np.full((1, 1), 0x3F800000 if out == "f32" else 0xFFFFFFFF, dtype=np.uint32)
    false = np.zeros((1, 1), dtype=np.uint32)

    def step(machine: Machine) -> None:
        values = machine.read_bits(left, bits), machine.read_bits(right, bits)
        predicate = compare(machine, operator, kind, *values, "ftz" in options)
        machine.write(destination, machine.domain.select(predicate, true, false))

    return step


@TABLE.opcode("selp")
def select(instruction: Instruction, context: Context) -> Step:
    """selp.type d, a, b, p."""
    kind = instruction.opcode.split(".")[1]
    bits = type_bits(kind)
    destination, left, right, predicate = instruction.operands

    def step(machine: Machine) -> None:
        chosen = machine.read_bits(predicate, 1)
        values = machine.read_bits(left, bits), machine.read_bits(right, bits)
        if isinstance(chosen, np.ndarray):
            machine.write(destination, choose(chosen, *values))
        else:
            machine.write(destination, machine.domain.select(chosen, *values))

    return step
