"""Functions that stand in for approximations whose exact bits are not public, in comparisons of simulated bytes alone.

Each is within one unit in the last place of the exact value, as the instruction set documents, and exact where the
value is a number of the format.  Where it is none, whether it is rounded up or down depends on the operand's bits in
no simple way: kernels must not look equal because an approximation happens to be rounded well.
`bitwise run` never uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product

import numpy as np

from bitwise_core.machine.lanes import Array
from bitwise_core.numeric import FLOAT_FORMATS, operation

_EXACT: Mapping[str, Callable[[Array], Array]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "rcp": lambda x: 1.0 / x,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sqrt": np.sqrt,
    "sin": lambda x: np.sin(2 * np.pi * np.asarray(x)),
    "cos": lambda x: np.cos(2 * np.pi * np.asarray(x)),
}
_MIX = np.uint64(0x9E3779B97F4A7C15)


def stand_in(verb: str, kind: str, flushes: bool, patterns: Array) -> Array:
    """The function of a verb on patterns of a format (fp16, fp32, fp64)."""
    form = FLOAT_FORMATS[kind]
    widen = patterns if kind == "fp64" else operation(f"convert.fp64.{kind}").evaluate(patterns)
    numbers = np.ascontiguousarray(widen).view(np.float64)
    if flushes:
        smallest = 2.0**form.smallest_exponent
        numbers = np.where(np.abs(numbers) < smallest, np.copysign(0.0, numbers), numbers)
    with np.errstate(all="ignore"):
        exact = np.asarray(_EXACT[verb](numbers))
    if kind == "fp64":
        return _moved(exact.view(np.uint64), patterns, exact, form.mantissa_bits)
    beyond = np.abs(exact) >= 2.0 ** (1 - form.smallest_exponent + 1)
    nearest, cut = (operation(f"convert.{way}.{kind}.fp64").evaluate(exact.view(np.uint64)) for way in ("rn", "rz"))
    rounded = np.where(beyond, nearest, cut)
    back = np.ascontiguousarray(operation(f"convert.fp64.{kind}").evaluate(rounded)).view(np.float64)
    inexact = (back != exact) & np.isfinite(exact) & ~beyond
    found = np.where(inexact, _moved(rounded, patterns, exact, form.mantissa_bits), rounded)
    if flushes:
        size = found & found.dtype.type((1 << (form.bits - 1)) - 1)
        found = np.where(size < found.dtype.type(1 << form.mantissa_bits), found - size, found)
    return found.astype(patterns.dtype)


def _moved(below: Array, patterns: Array, exact: Array, mantissa: int) -> Array:
    """Patterns rounded toward zero, or their neighbours away from it, by bits of the operand; powers of two stay."""
    mixed = (patterns.astype(np.uint64) + np.uint64(1)) * _MIX
    up = ((mixed >> np.uint64(41)) & np.uint64(1)).astype(bool) & np.isfinite(exact) & (exact != 0)
    fraction = below & below.dtype.type((1 << mantissa) - 1)
    inside = (fraction != 0) & (fraction != below.dtype.type((1 << mantissa) - 1))
    found: Array = np.where(up & inside, below + below.dtype.type(1), below)
    return found


def flushed(verb: str, *patterns: Array) -> Array:
    """Arithmetic of fp32 that takes subnormal operands for zeros of their sign, and makes its results so."""
    found: Array = operation(f"{verb}.rn.ftz.fp32").evaluate(*patterns)
    return found


_APPROXIMATIONS: Mapping[str, Callable[..., Array]] = {
    f"{verb}.approx{'.turns' if verb in ('sin', 'cos') else ''}{'.ftz' * flushes}.{kind}@gfx942": partial(
        stand_in, verb, kind, flushes
    )
    for verb, kind, flushes in product(_EXACT, ("fp16", "fp32", "fp64"), (False, True))
}
_FLUSHED: Mapping[str, Callable[..., Array]] = {
    f"{verb}.rn.ftz.fp32@gfx942": partial(flushed, verb) for verb in ("add", "sub", "mul", "fma")
}
STAND_INS: Mapping[str, Callable[..., Array]] = {**_APPROXIMATIONS, **_FLUSHED}
"""By the operation's full name."""
