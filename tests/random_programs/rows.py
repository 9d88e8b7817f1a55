"""Statements on rows: powers of two, and sums of powers that are padded with -inf."""

from __future__ import annotations

import numpy as np

from random_programs.values import LANES, LEAVES, Bits, Draw, Program, Value, evaluate

MOST_REGISTERS, REGISTERS = 88, 24
"""The number of fp32 registers of a program, and the maximum length of a row."""


def power(bits: Bits) -> Bits:
    """Return an approximate power of two of fp32 patterns: +0 for -inf, NaN for NaN, never negative."""
    with np.errstate(all="ignore"):
        found = np.exp2(bits.view(np.float32).astype(np.float64)).astype(np.float32)
    return np.where(np.isnan(found), np.uint32(0x7FFFFFFF), found.view(np.uint32))


def exponential(program: Program, n: Draw) -> None:
    """Add the power of two of a value minus a loaded one, which the assembler cannot evaluate."""
    value = program.pick("f32", n[0])
    if value is not None:
        _term(program, value, _loaded(program, n[1]))


def padded(program: Program, n: Draw) -> None:
    """Add sums of powers of values minus another value, padded at two places; sometimes a third value is subtracted."""
    if program.counts.get("%f", 0) > MOST_REGISTERS - REGISTERS:
        return
    row = [program.pick("f32", n[0] + index) for index in range(3)]
    first, second = _loaded(program, n[1]), _loaded(program, n[1] + 1)
    if any(each is None for each in row):
        return
    terms = [_term(program, each, first) for each in row if each is not None]
    infinity = Value("f32", "0fFF800000", np.full((LANES, 1), 0xFF800000, dtype=np.uint32))
    paddings = [_term(program, infinity, first), _term(program, infinity, second if n[3] % 3 == 0 else first)]
    for count, place in ((1, n[2] % 4), (2, n[2] // 4 % 4)):
        order = [*terms[:place], *paddings[:count], *terms[place:]]
        total = order[0]
        for each in order[1:]:
            total = _binary(program, "add", total, each)


def _loaded(program: Program, number: int) -> Value:
    loaded = program.values[: len(LEAVES)]
    found = [value for value in loaded if value.kind == "f32"]
    return found[number % len(found)]


def _term(program: Program, value: Value, peak: Value) -> Value:
    return _power(program, _binary(program, "sub", value, peak))


def _power(program: Program, value: Value) -> Value:
    program.add("f32", power(value.bits), f"ex2.approx.f32 @@, {value.register};")
    return program.values[-1]


def _binary(program: Program, verb: str, left: Value, right: Value) -> Value:
    program.add("f32", evaluate(f"{verb}.rn.fp32", left, right), f"{verb}.f32 @@, {left.register}, {right.register};")
    return program.values[-1]
