"""The processor's own fp32 and fp64 arithmetic, where it is known to give IEEE results to nearest even.

The bits are those of `softfloat`, with which the tests compare it; it is only faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core.numerics.formats import FloatFormat
from bitwise_core.numerics.relations import RELATIONS
from bitwise_core.numerics.word_arithmetic import Bits, Booleans

Floats: TypeAlias = npt.NDArray[np.floating[Any]]

_TYPES: dict[str, type[np.floating[Any]]] = {"fp32": np.float32, "fp64": np.float64}
_SMALLEST, _ONE, _EPSILON = 5e-324, 1.0, 2.0**-52


def trusted() -> bool:
    """Whether this thread keeps subnormals and rounds to nearest even; a library may have changed the mode."""
    return (
        _SMALLEST * _ONE > 0.0
        and _ONE + 0.25 * _EPSILON == _ONE
        and _ONE + 0.75 * _EPSILON == _ONE + _EPSILON
        and -_ONE - 0.25 * _EPSILON == -_ONE
    )


def _fma32(left: Floats, right: Floats, addend: Floats) -> Floats:
    """Fused multiply-add by rounding to odd in fp64, then to fp32: exact, since 53 bits exceed twice 24 plus two."""
    product = left.astype(np.float64) * right.astype(np.float64)
    wide = addend.astype(np.float64)
    total = np.atleast_1d(product + wide)
    rest = total - product
    error = (product - (total - rest)) + (wide - rest)
    bits = total.view(np.uint64)
    inexact = np.isfinite(total) & (error != 0) & ((bits & np.uint64(1)) == 0)
    # The last bit is even: one step toward the exact sum makes it odd.
    away = (error > 0) == (total > 0)
    step = np.where(away, np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF))
    odd = np.where(inexact, bits + step, bits).view(np.float64)
    return odd.astype(np.float32)


_FUNCTIONS: dict[str, Callable[..., Floats]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "sqrt": np.sqrt,
    "fma": _fma32,
}


_COMPARED: dict[str, type[np.floating[Any]]] = {"fp16": np.float16, **_TYPES}

_OPPOSITES = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


def compares(form: FloatFormat) -> bool:
    """Whether `compare` supports this format."""
    return form.name in _COMPARED


def compare(verb: str, form: FloatFormat, left: Bits, right: Bits) -> Booleans:
    """Evaluate a comparison named as in `floating.COMPARISONS`."""
    kind = _COMPARED[form.name]
    x, y = (bits.view(kind) for bits in (left, right))
    with np.errstate(invalid="ignore"):
        if verb in ("ord", "unord"):
            unordered = np.isnan(x) | np.isnan(y)
            return np.asarray(unordered if verb == "unord" else ~unordered)
        if verb == "ne":
            return np.asarray((x < y) | (x > y))
        if verb == "equ":
            return np.asarray(~((x < y) | (x > y)))
        if verb == "neu":
            return np.asarray(x != y)
        if verb.endswith("u"):
            return np.asarray(~RELATIONS[_OPPOSITES[verb[:-1]]](x, y))
        return np.asarray(RELATIONS[verb](x, y))


_CONVERTED: frozenset[tuple[str, str]] = frozenset(
    (target, source)
    for narrow, wide in (("bf16", "fp32"), ("fp16", "fp32"), ("fp32", "fp64"))
    for target, source in ((narrow, wide), (wide, narrow))
)
"""The conversions of `convert`, each a target and a source."""


def converts(target: FloatFormat, source: FloatFormat) -> bool:
    """Whether `convert` supports this conversion."""
    return (target.name, source.name) in _CONVERTED


def convert(target: FloatFormat, source: FloatFormat, operand: Bits) -> Bits:
    """Convert to another format, rounded to nearest even; NaNs are canonical."""
    assert target.canonical_nan is not None
    if target.name == "bf16":
        # Half of the dropped unit, less one where the kept part is even, carries into the kept part, up to infinity.
        nan = (operand & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
        with np.errstate(over="ignore"):
            rounded = operand + (np.uint32(0x7FFF) + ((operand >> np.uint32(16)) & np.uint32(1)))
        found = (rounded >> np.uint32(16)).astype(np.uint16)
    elif source.name == "bf16":
        nan = (operand & np.uint16(0x7FFF)) > np.uint16(0x7F80)
        found = operand.astype(np.uint32) << np.uint32(16)
    else:
        numbers = operand.view(_COMPARED[source.name])
        with np.errstate(all="ignore"):
            result = numbers.astype(_COMPARED[target.name])
        nan, found = np.isnan(numbers), result.view(f"u{result.dtype.itemsize}")
    return np.where(nan, found.dtype.type(target.canonical_nan), found)


def supports(verb: str, form: FloatFormat) -> bool:
    """Whether `compute` supports this operation."""
    return verb in _FUNCTIONS and form.name in _TYPES and (verb, form.name) != ("fma", "fp64")


def compute(verb: str, form: FloatFormat, operands: tuple[Bits, ...]) -> Bits:
    """Evaluate one supported operation, rounded to nearest even; NaN results are canonical."""
    kind = _TYPES[form.name]
    with np.errstate(all="ignore"):
        result = _FUNCTIONS[verb](*(np.ascontiguousarray(bits).view(kind) for bits in operands))
    pattern = np.ascontiguousarray(result).view(operands[0].dtype)
    assert form.canonical_nan is not None
    return np.where(np.isnan(result), operands[0].dtype.type(form.canonical_nan), pattern)
