"""Guesses of the range checks that ptxas keeps in the expansion of each approximate division.

ptxas bounds the values of registers, and omits a check of a divisor that its bounds make unnecessary.  The bounds here
follow what was observed of ptxas 12.8: sums have bounds only without a rounding modifier, products only if they are
squares, extrema have those of both operands together, and loaded values, roots, reciprocals, converted integers, and
results of other lanes and of fused operations have none.  A wrong guess costs only an assembly.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import TypeAlias

from bitwise_core.assembly.module import Immediate, Operand
from bitwise_nvidia_ptx.contraction.program import Program, Statement
from bitwise_nvidia_ptx.contraction.rewrite import Division, expandable

_Bounds: TypeAlias = tuple[float, float]
"""The least and the largest number that a register may hold, apart from NaN."""

_UNBOUNDED: _Bounds = (-math.inf, math.inf)
_LARGE = 2.0**126
_TINY = 2.0**-126
_PASSES = 4
"""How often bounds are passed on.  They are valid after each pass, and tighter after more of them."""


def likely_divisions(program: Program) -> Mapping[int, Division]:
    """Return, for each approximate division that can be expanded, by its index, the checks of its divisor."""
    indices = [i for i, each in enumerate(program.statements) if each.base == "div" and expandable(each)]
    if not indices:
        return {}
    known = _bounds(program)
    return {index: _division(_of_operand(known, program.statements[index], 1)) for index in indices}


def _division(bounds: _Bounds) -> Division:
    low, high = bounds
    return Division(
        large=high > _LARGE or low < -_LARGE, tiny=not (low >= _TINY or high <= -_TINY), absolute=not low >= 0
    )


def _bounds(program: Program) -> Mapping[str, _Bounds]:
    """Return the bounds of the registers that have any."""
    known: dict[str, _Bounds] = {}
    for _ in range(_PASSES):
        results = [_of_result(known, statement) for statement in program.statements]
        found = {}
        for name, written in program.definitions.items():
            low, high = min(results[i][0] for i in written), max(results[i][1] for i in written)
            if (low, high) != _UNBOUNDED:
                found[name] = (low, high)
        if found == known:
            break
        known = found
    return known


def _of_operand(known: Mapping[str, _Bounds], statement: Statement, position: int) -> _Bounds:
    operand, names = statement.read[position], statement.sources[position]
    if not names:
        value = _number(operand)
        return _UNBOUNDED if value is None else (value, value)
    return known.get(names[0], _UNBOUNDED) if len(names) == 1 else _UNBOUNDED


def _number(operand: Operand) -> float | None:
    """Return the number of an fp32 literal, None for a NaN and for other operands."""
    if not isinstance(operand, Immediate):
        return None
    value: float = struct.unpack("<f", struct.pack("<I", operand.value & 0xFFFFFFFF))[0]
    return None if math.isnan(value) else value


def _of_result(known: Mapping[str, _Bounds], statement: Statement) -> _Bounds:
    if statement.vector or len(statement.results) != 1:
        return _UNBOUNDED
    base = statement.base
    if base != "mov" and statement.kind != "f32":
        return _UNBOUNDED
    if base in _RESULTS:
        return _RESULTS[base]
    if base == "mul":
        same = statement.contractible and len(set(statement.sources)) == 1 and statement.sources[0]
        return (0.0, math.inf) if same else _UNBOUNDED
    if (compute := _INTERVALS.get(base)) is None or (base in ("add", "sub") and not statement.contractible):
        return _UNBOUNDED
    operands = [_of_operand(known, statement, position) for position in range(len(statement.read))]
    if base == "selp":
        operands.pop()
    return compute(operands)


def _hull(values: list[float]) -> _Bounds:
    return (min(values), max(values)) if not any(map(math.isnan, values)) else _UNBOUNDED


def _absolute(operands: list[_Bounds]) -> _Bounds:
    ((low, high),) = operands
    return 0.0 if low < 0 < high else min(abs(low), abs(high)), max(abs(low), abs(high))


def _of_any(operands: list[_Bounds]) -> _Bounds:
    return min(low for low, _ in operands), max(high for _, high in operands)


_RESULTS: Mapping[str, _Bounds] = {"ex2": (0.0, math.inf), "tanh": (-1.0, 1.0), "sin": (-1.0, 1.0), "cos": (-1.0, 1.0)}
_INTERVALS: Mapping[str, Callable[[list[_Bounds]], _Bounds]] = {
    "mov": _of_any,
    "selp": _of_any,
    "max": _of_any,
    "min": _of_any,
    "neg": lambda each: (-each[0][1], -each[0][0]),
    "abs": _absolute,
    "add": lambda each: _hull([each[0][0] + each[1][0], each[0][1] + each[1][1]]),
    "sub": lambda each: _hull([each[0][0] - each[1][1], each[0][1] - each[1][0]]),
}
