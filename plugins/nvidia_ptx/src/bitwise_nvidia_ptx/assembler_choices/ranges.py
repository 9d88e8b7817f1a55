"""The ranges of fp32 numbers that ptxas knows, by which it decides comparisons also for a NaN.

ptxas makes `setp.ge.f32 p, |x|, 0` true, and `setp.lt.f32 p, tanh(x), 2`, though both are false for a NaN.  ptxas 12.8
and 13.0 know ranges of magnitudes, ex2, sin, cos, tanh, saturated results, squares, signs, sums, differences and
products of these, their extrema and selections; not behind a shuffle, a branch, a loop or a fused product.  The ranges
here are at least as narrow.  A comparison with an infinity, which tests for NaNs, stays one.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass

from bitwise_core.assembly.module import Immediate, Instruction, Operand, Register
from bitwise_nvidia_ptx.assembler_choices.sources import Sources

_ORDERED = re.compile(r"setp?\.(lt|le|gt|ge)(u?)\.([\w.]*\.)?f32")
_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
_DEPTH = 100
"""Through how many instructions a range is followed."""


@dataclass(frozen=True, slots=True)
class _Range:
    """The least and the largest number that a value may be; `nan`: whether it may be a NaN as well."""

    low: float
    high: float
    nan: bool = True

    def joined(self, other: _Range) -> _Range:
        """Return the range of one of two values."""
        return _Range(min(self.low, other.low), max(self.high, other.high), self.nan or other.nan)


_ANY = _Range(-math.inf, math.inf)


def compared_by_range(instruction: Instruction, sources: Sources) -> Operand | None:
    """Return the operand whose NaN an assembler does not see as it decides a comparison by the range of its numbers.

    None for an instruction of which that is no such comparison.
    """
    found = _ORDERED.fullmatch(instruction.opcode)
    if found is None:
        return None
    verb = _OPPOSITE[found.group(1)] if found.group(2) else found.group(1)
    first, second = instruction.operands[1:3]
    for number, bound, decided in ((first, second, verb), (second, first, verb.translate(_SWAPPED))):
        if not isinstance(number, Register):
            continue
        numbers = _range_of(number, instruction, sources, _DEPTH)
        if not numbers.nan or (numbers.low, numbers.high) == (_ANY.low, _ANY.high):
            continue
        low, high = numbers.low, numbers.high

        def holds(literal: int, low: float = low, high: float = high, decided: str = decided) -> bool:
            limit = _number(literal)
            return (
                math.isfinite(limit)
                and {"lt": high < limit, "le": high <= limit, "gt": low > limit, "ge": low >= limit}[decided]
            )

        if sources.may_be(bound, holds, instruction):
            return number
    return None


_SWAPPED = str.maketrans({"l": "g", "g": "l"})


def _number(pattern: int) -> float:
    found: float = struct.unpack("<f", struct.pack("<I", pattern & 0xFFFFFFFF))[0]
    return found


def _range_of(operand: Operand, user: Instruction, sources: Sources, depth: int) -> _Range:
    """Return the range of an operand of an instruction."""
    if isinstance(operand, Immediate):
        number = _number(operand.value)
        return _ANY if math.isnan(number) else _Range(number, number, nan=False)
    made = list(sources.defined(operand, user)) if isinstance(operand, Register) else []
    if not made or not depth:
        return _ANY
    found = _kept_result(made[0], sources, depth - 1)
    for each in made[1:]:
        found = found.joined(_kept_result(each, sources, depth - 1))
    return found


def _kept_result(made: Instruction, sources: Sources, depth: int) -> _Range:
    """Return the range of the result of an instruction; of one that depends on itself nothing is known."""
    found: _Range | None = sources.ranges.get(id(made))
    if found is None:
        sources.ranges[id(made)] = _ANY
        found = sources.ranges[id(made)] = _result_of(made, sources, depth)
    return found


def _result_of(made: Instruction, sources: Sources, depth: int) -> _Range:
    base, *parts = made.opcode.split(".")
    if not isinstance(made.operands[0], Register):
        return _ANY

    def operand(place: int) -> _Range:
        return _range_of(made.operands[place], made, sources, depth)

    if base == "selp" and any(
        each.operands[1] == each.operands[2] for each in sources.comparisons(made.operands[3], made)
    ):
        return _narrowest(operand(1), operand(2))
    if base in ("mov", "selp") and len(made.operands) > 1:
        return operand(1) if base == "mov" else operand(1).joined(operand(2))
    if parts[-1:] != ["f32"] or base == "div":
        return _of_passed(made, sources, depth)
    if "sat" in parts:
        return _Range(0.0, 1.0, nan=False)
    if base in ("sin", "cos", "tanh"):
        return _Range(-1.0, 1.0)
    if base == "ex2":
        return _Range(0.0, math.inf, operand(1).nan)
    if base in ("abs", "neg"):
        inner = operand(1)
        if base == "neg":
            return _Range(-inner.high, -inner.low, inner.nan)
        ends = abs(inner.low), abs(inner.high)
        return _Range(0.0 if inner.low <= 0 <= inner.high else min(ends), max(ends), inner.nan)
    if base in ("min", "max"):
        one, other, choose = operand(1), operand(2), min if base == "min" else max
        return _Range(choose(one.low, other.low), choose(one.high, other.high), one.nan or other.nan)
    if base in ("add", "sub"):
        return _sum(operand(1), operand(2) if base == "add" else _negated(operand(2)))
    if base == "mul":
        return _product(made, operand(1), operand(2))
    if base == "fma":
        return _sum(_product(made, operand(1), operand(2)), operand(3))
    return _ANY


def _of_passed(made: Instruction, sources: Sources, depth: int) -> _Range:
    """Return the narrowest range of what an instruction may return unchanged; of a load, of what its memory holds."""
    kept = [*sources.stored(made), *sources.restored(sources.places[id(made)])]
    passed: list[tuple[Operand, Instruction]] = [(Register(name), sources.kernel.instructions[at]) for name, at in kept]
    if sources.passes_on(made):
        passed += [(each, made) for each in made.operands[1:]]
    return _narrowest(*(_range_of(each, user, sources, depth) for each, user in passed if isinstance(each, Register)))


def _narrowest(*ranges: _Range) -> _Range:
    """Return the range that decides most comparisons."""
    return min(ranges, key=lambda each: (each == _ANY, each.high - each.low), default=_ANY)


def _negated(one: _Range) -> _Range:
    return _Range(-one.high, -one.low, one.nan)


def _sum(one: _Range, other: _Range) -> _Range:
    low, high = one.low + other.low, one.high + other.high
    infinite = math.inf in (one.high, other.high, -one.low, -other.low)
    return _Range(
        -math.inf if math.isnan(low) else low, math.inf if math.isnan(high) else high,
        one.nan or other.nan or infinite,
    )  # fmt: skip


def _product(made: Instruction, one: _Range, other: _Range) -> _Range:
    ends = [0.0 if 0.0 in (a, b) else a * b for a in (one.low, one.high) for b in (other.low, other.high)]
    low = 0.0 if made.operands[1] == made.operands[2] else min(ends)
    infinite = math.inf in (one.high, other.high, -one.low, -other.low)
    return _Range(max(low, min(ends)), max(ends), one.nan or other.nan or infinite)
