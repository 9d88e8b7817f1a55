"""Programs under construction: values with their registers and their bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core import numerics

LANES = 4
Bits: TypeAlias = npt.NDArray[Any]
UNSIGNED = {1: np.bool_, 16: np.uint16, 32: np.uint32, 64: np.uint64}
PREFIX = {"f32": "%f", "f64": "%g", "f16": "%h", "bf16": "%h", "f16x2": "%r", "i32": "%r", "i64": "%d", "pred": "%p"}
WIDTH = {"f32": 32, "f64": 64, "f16": 16, "bf16": 16, "f16x2": 32, "i32": 32, "i64": 64, "pred": 1}
FORMAT = {"f32": "fp32", "f64": "fp64", "f16": "fp16", "bf16": "bf16"}
SLOT = 8

LITERALS = {
    "f32": (0, 0x80000000, 0x3F800000, 0xBF800000, 0xFF800000, 0x7F800000, 0x40000000, 0x00000001, 0x477FE000),
    "f64": (0, 1 << 63, 0x3FF0000000000000, 0xBFF0000000000000, 0xFFF0000000000000),
    "f16": (0, 0x8000, 0x3C00, 0xBC00, 0xFC00, 0x7C00),
    "bf16": (0, 0x8000, 0x3F80, 0xBF80, 0xFF80),
    "i32": (0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 2, 31, 0x10000),
    "i64": (0, 1, 2**64 - 1, 1 << 63, 63, 1 << 48),  # none that an analysis takes for the address of a buffer
    "f16x2": (0, 0x80008000, 0x3C003C00, 0xFC00FC00),
    "pred": (0, 1),
}
SPECIAL = {
    "f32": (0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 1, 0x80000001, 0x00800000, 0x80800000,
            0x3F800000, 0xBF800000, 0x7F7FFFFF, 0x33800000, 0x3F800001, 0x477FE000, 0x1E3CE508),
    "f16": (0, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0xFE01, 1, 0x8001, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0x3C01, 0x1400),
    "bf16": (0, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0xFFC1, 1, 0x8001, 0x0080, 0x3F80, 0xBF80, 0x7F7F, 0x1E3C),
    "i32": (0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 31, 32, 0x8000, 0xFFFF0000),
    "i64": (0, 1, 2**64 - 1, 1 << 63, 2**63 - 1, 63, 64, 1 << 32),
}  # fmt: skip
LEAVES = ("f32", "f32", "f32", "f16", "f16", "bf16", "bf16", "i32", "i32", "i64", "i64")
FLOATS = ("f32", "f32", "f32", "f32", "f16", "f16", "bf16", "f64")

Draw: TypeAlias = tuple[int, int, int, int]
"""The random numbers of a statement: three operands and the operation."""


@dataclass
class Value:
    """One value: its register, its kind, and its bits of shape (lanes, samples)."""

    kind: str
    register: str
    bits: Bits


@dataclass
class Program:
    """A program under construction: its text and its values."""

    lines: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def register(self, kind: str) -> str:
        """Return an unused register of a kind."""
        prefix = PREFIX[kind]
        self.counts[prefix] = self.counts.get(prefix, {"%p": 8, "%d": 2, "%r": 1}.get(prefix, 0)) + 1
        return f"{prefix}{self.counts[prefix]}"

    def add(self, kind: str, bits: Bits, *lines: str) -> None:
        """Add a value; the lines write its register as @."""
        register = self.register(kind)
        self.lines += [line.replace("@@", register) for line in lines]
        assert bits.dtype == UNSIGNED[WIDTH[kind]], (kind, bits.dtype)
        self.values.append(Value(kind, register, bits))

    def pick(self, kind: str, number: int) -> Value | None:
        """Return a value of a kind, the newest for number 0, or a literal."""
        found = [value for value in self.values if value.kind == kind]
        choices = len(found) + len(LITERALS[kind]) // 2
        if not choices:
            return None
        number %= choices
        if number < len(found):
            return found[-1 - number]
        literal = LITERALS[kind][(number * 7919) % len(LITERALS[kind])]
        return Value(kind, spelled(kind, literal), np.full((LANES, 1), literal, dtype=UNSIGNED[WIDTH[kind]]))


def spelled(kind: str, literal: int) -> str:
    """Return a literal in PTX syntax."""
    if kind == "f32":
        return f"0f{literal:08X}"
    if kind == "f64":
        return f"0d{literal:016X}"
    return str(literal) if kind != "pred" else f"{literal}"


def evaluate(name: str, *operands: Value | Bits) -> Bits:
    """Return the result of an operation of the vocabulary on patterns."""
    arrays = [each.bits if isinstance(each, Value) else each for each in operands]
    return numerics.operation(name).evaluate(*np.broadcast_arrays(*arrays))


def operands(program: Program, kind: str, numbers: Sequence[int]) -> list[Value] | None:
    found = [program.pick(kind, number) for number in numbers]
    return None if any(each is None for each in found) else [each for each in found if each is not None]


def in_register(program: Program, value: Value) -> Value:
    """Return the value in a register, for an instruction that takes no literal."""
    if value.register.startswith("%"):
        return value
    bits = WIDTH[value.kind]
    if value.kind == "pred":
        program.add("pred", value.bits, f"setp.ne.u32 @@, {value.register}, 0;")
    else:
        program.add(value.kind, value.bits, f"mov.b{bits} @@, {value.register};")
    return program.values[-1]
