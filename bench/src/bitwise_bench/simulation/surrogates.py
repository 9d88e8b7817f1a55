"""Surrogates for operations whose bits are not documented; used for simulated bytes only.

Each is within one ulp of the exact value, as the instruction set documents, and exact where the value is representable.
Otherwise a hash of the operand chooses between the two neighbouring numbers: two kernels must not agree because an
approximation happens to be correctly rounded, also not because 2^x rounds to 1 for every x near 0, which no document
states but for subnormal x.  `bitwise run` never uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product

import numpy as np

from bitwise_amd_gfx942.matrix_units import MODELS
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.numerics import FLOAT_FORMATS, operation
from bitwise_core.numerics.mma import Arithmetic, FlooredSum, MmaSpec, SequentialMultiplyAdd
from bitwise_nvidia_ptx.matrix_rows import FP8

_EXACT: Mapping[str, Callable[..., Array]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "rcp": lambda x: 1.0 / x,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "sin turns": lambda x: np.sin(2 * np.pi * np.asarray(x)),
    "cos turns": lambda x: np.cos(2 * np.pi * np.asarray(x)),
    "tanh": np.tanh,
    "div": lambda x, y: x / y,
}
_MIX = np.uint64(0x9E3779B97F4A7C15)


def _number(kind: str, flushes: bool, patterns: Array) -> Array:
    widen = patterns if kind == "fp64" else operation(f"convert.fp64.{kind}").evaluate(patterns)
    numbers = np.ascontiguousarray(widen).view(np.float64)
    if not flushes:
        return numbers
    smallest = 2.0 ** FLOAT_FORMATS[kind].smallest_exponent
    return np.where(np.abs(numbers) < smallest, np.copysign(0.0, numbers), numbers)


def surrogate(function: str, kind: str, flushes: bool, *operands: Array) -> Array:
    """Return the surrogate of a function of `_EXACT` on bit patterns of `kind` (fp16, bf16, fp32 or fp64)."""
    form, patterns = FLOAT_FORMATS[kind], operands[0]
    for position, other in enumerate(operands[1:], 1):
        patterns = patterns + other * other.dtype.type(2 * position + 1)  # one hash of all operands
    with np.errstate(all="ignore"):
        exact = np.asarray(_EXACT[function](*(_number(kind, flushes, each) for each in operands)))
    if kind == "fp64":
        return _hash_rounded(exact.view(np.uint64), patterns, exact, form.mantissa_bits)
    beyond = np.abs(exact) >= 2.0 ** (1 - form.smallest_exponent + 1)
    nearest, cut = (operation(f"convert.{way}.{kind}.fp64").evaluate(exact.view(np.uint64)) for way in ("rn", "rz"))
    rounded = np.where(beyond, nearest, cut)
    back = np.ascontiguousarray(operation(f"convert.fp64.{kind}").evaluate(rounded)).view(np.float64)
    inexact = (back != exact) & np.isfinite(exact) & ~beyond
    found = np.where(inexact, _hash_rounded(rounded, patterns, exact, form.mantissa_bits), rounded)
    if function == "ex2":
        found = _near_one(found, patterns, exact, _number(kind, flushes, operands[0]), form.smallest_exponent)
    if flushes:
        size = found & found.dtype.type((1 << (form.bits - 1)) - 1)
        found = np.where(size < found.dtype.type(1 << form.mantissa_bits), found - size, found)
    return found.astype(patterns.dtype)


def _hash_rounded(below: Array, patterns: Array, exact: Array, mantissa: int) -> Array:
    """Return each pattern or its neighbour away from zero, chosen by a hash of the operand; powers of two are kept."""
    up = _chosen(patterns) & np.isfinite(exact) & (exact != 0)
    fraction = below & below.dtype.type((1 << mantissa) - 1)
    inside = (fraction != 0) & (fraction != below.dtype.type((1 << mantissa) - 1))
    found: Array = np.where(up & inside, below + below.dtype.type(1), below)
    return found


def _near_one(found: Array, patterns: Array, exact: Array, operand: Array, smallest: int) -> Array:
    """Return powers of two with 1 or its neighbour for normal operands so near 0 that a double has 1 for them."""
    near = (exact == 1) & (np.abs(operand) >= 2.0**smallest) & _chosen(patterns)
    step = np.where(operand < 0, -1, 1).astype(found.dtype)
    return np.where(near, found + step, found)


def _chosen(patterns: Array) -> Array:
    """Return a bit of a hash of each pattern."""
    mixed = (patterns.astype(np.uint64) + np.uint64(1)) * _MIX
    return ((mixed >> np.uint64(41)) & np.uint64(1)).astype(bool)


def flushed(verb: str, *patterns: Array) -> Array:
    """Return an fp32 operation that flushes subnormal operands and results to zeros of their sign."""
    found: Array = operation(f"{verb}.rn.ftz.fp32").evaluate(*patterns)
    return found


def surrogates_of(architecture: str) -> Mapping[str, Callable[..., Array]]:
    """Return the surrogates of an architecture by the operation's full name."""
    found: dict[str, Callable[..., Array]] = {}
    for function, kind, flushes in product(_EXACT, ("fp16", "bf16", "fp32", "fp64"), (False, True)):
        verb, _, turns = function.partition(" ")
        for method, literal in product(("approx", "full"), ("", ".literal")):
            name = f"{verb}.{method}{'.turns' * bool(turns)}{literal}{'.ftz' * flushes}.{kind}@{architecture}"
            found[name] = partial(surrogate, function, kind, flushes)
    if architecture.startswith("gfx"):
        found |= {f"{verb}.rn.ftz.fp32@{architecture}": partial(flushed, verb) for verb in ("add", "sub", "mul", "fma")}
    return found


_GFX950_SHAPES = (
    *((kind, kind, side, k) for kind in ("fp16", "bf16") for side, k in ((32, 8), (16, 16), (32, 16), (16, 32))),
    *((left, right, side, k) for left, right in FP8 for side, k in ((32, 64), (16, 128))),
)


def surrogate_rows(architecture: str) -> tuple[MmaSpec, ...]:
    """Return rows for matrix instructions whose arithmetic is not published: those of gfx950.

    The rounding of an instruction with 32 rows is another one than that of an instruction with 16 rows, so that two
    kernels do not agree because their instructions happen to have the same arithmetic.
    """
    if architecture != "gfx950":
        return ()

    def row(left: str, right: str, result: str, side: int, k: int, rule: Arithmetic) -> MmaSpec:
        family = f"mfma-{side}x{side}"
        return MmaSpec(architecture, family, left, right, result, result, k, rule, "published only", MODELS)

    rows = [
        row(left, right, "fp32", side, k, FlooredSum(8 if side == 32 else 4, 24, 31, 24))
        for left, right, side, k in _GFX950_SHAPES
    ]
    chains = [("fp32", 32, 2), ("fp32", 16, 4), ("fp64", 16, 4)]
    return (*rows, *(row(kind, kind, kind, side, k, SequentialMultiplyAdd()) for kind, side, k in chains))
