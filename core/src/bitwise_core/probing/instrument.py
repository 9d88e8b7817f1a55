"""An instrument on a callable: it counts how many small values reach an output.

A probe is one row of codes along the reduced axis: nothing, +L, -L, or a small value r.  Until +L and -L have been
added to each other, each r that is added to either is lost; afterwards it is kept.  L and r are powers of two, so far
apart that the sum of all r of a probe is lost when added to L.  The number of r in a probe is limited so that the
output's format holds every count exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core.errors import BitwiseError
from bitwise_core.probing.operand_arrays import NUMPY, OperandArrays, patterns_of

Codes: TypeAlias = npt.NDArray[np.int8]
MakeCodes: TypeAlias = Callable[[int, int], Codes]

NOTHING, PLUS, MINUS, SMALL = 0, 1, 2, 3


class ProbeError(BitwiseError):
    """A callable that cannot be probed, or a request that it does not support."""


@dataclass(frozen=True, slots=True)
class Extremes:
    """The binary exponents of L and of r in an operand's format."""

    large: int
    small: int


EXTREMES = MappingProxyType(
    {
        "float64": Extremes(200, -100),
        "float32": Extremes(60, -60),
        "float16": Extremes(15, -24),
        "bfloat16": Extremes(60, -60),
        "float8_e4m3fn": Extremes(8, -9),
        "float8_e5m2": Extremes(15, -16),
    }
)
"""L and r of each operand type, by the names of PyTorch and NumPy."""

OUTPUT_PRECISION = MappingProxyType({"float64": 53, "float32": 24, "bfloat16": 8, "float16": 11})
"""Significand bits p of each output type: every count below 2^p is exact."""

FP8_COUNT_BITS = 13
"""Bits of a count that every matrix unit's accumulator of 8-bit products holds."""

ACCUMULATOR_BITS = 24
"""Significand bits of the widest accumulator in which r must be lost when added to L; 53 for float64 operands."""


@dataclass
class Instrument:
    """A callable as an instrument.  `read` returns how many small values reached each output.

    `launch(codes)` runs `lanes` probes: it takes codes (lanes, length) and returns counts (lanes,), -1 where the output
    is not a count.  `capacity` is the maximum number of small values in one probe.
    """

    launch: Callable[[Codes], npt.NDArray[np.int64]]
    lanes: int
    length: int
    capacity: int
    probes: int = field(default=0, init=False)
    launches: int = field(default=0, init=False)

    def read(self, make: MakeCodes, total: int) -> npt.NDArray[np.int64]:
        """Return the counts of `total` probes; `make(low, high)` returns the codes of probes low to high - 1."""
        found = np.empty(total, dtype=np.int64)
        for low in range(0, total, self.lanes):
            high = min(low + self.lanes, total)
            codes = np.zeros((self.lanes, self.length), dtype=np.int8)
            codes[: high - low] = make(low, high)
            found[low:high] = self.launch(codes)[: high - low]
            self.launches += 1
        self.probes += total
        return found


def product_instrument(
    function: Callable[[Any, Any], Any], m: int, n: int, k: int, dtype: str = "float32", *, dtype_b: str | None = None,
    arrays: OperandArrays = NUMPY, accumulator: int | None = None, transpose_b: bool = False,
) -> Instrument:  # fmt: skip
    """Return the instrument on `c = function(a, b)`, a (m, k) of `dtype` and b (k, n) of `dtype_b`, made by `arrays`.

    Each index of the output's longer axis is a probe, and all elements along the other axis must agree, so that all m n
    sums are checked.  For 8-bit operands each diagonal element is a probe.  `transpose_b` passes b as the transpose of
    a dense (n, k).  `accumulator` is the number of significand bits of the widest accumulator.  Raises ProbeError for
    an unsupported type and, when it is used, for an output of another shape.
    """
    b_type = dtype_b or dtype
    left, right = _extremes(dtype), _extremes(b_type)
    narrow = dtype.startswith("float8") or b_type.startswith("float8")
    output = arrays.output_type(function, (m, k), (k, n), dtype, b_type, transpose_b)
    if narrow:
        large, small = left.large + right.large, left.small + right.small
    else:
        large, small = left.large, left.small
    # Matrix units keep as few as 14 bits of a sum of 8-bit products: larger counts could be inexact.
    maximum = 2**FP8_COUNT_BITS if narrow else 2**40
    width = accumulator or (53 if dtype == "float64" else ACCUMULATOR_BITS)
    capacity = min(maximum, _capacity(large, small, width, output))

    def launch(codes: Codes) -> npt.NDArray[np.int64]:
        if narrow:
            a = _operand(arrays, _padded_rows(codes, m), left, dtype, signed=True)
            b = _operand(arrays, _padded_rows(codes, n), right, b_type, signed=False)
        elif m >= n:
            a = _operand(arrays, codes, left, dtype, signed=True)
            b = arrays.of_doubles(np.ones((n, k)), b_type)
        else:
            a = arrays.of_doubles(np.ones((m, k)), dtype)
            b = _operand(arrays, codes, right, b_type, signed=True)
        right_operand = b.T if transpose_b else arrays.dense(b.T)
        result = arrays.doubles(function(a, right_operand), output)
        if result.shape != (m, n):
            raise ProbeError(f"the callable returned the shape {result.shape}, not {(m, n)}")
        lanes = np.diagonal(result)[:, None] if narrow else result if m >= n else result.T
        return _counts(lanes, small)

    return Instrument(launch, min(m, n) if narrow else max(m, n), k, capacity)


def reduction_instrument(
    function: Callable[[Any], Any], rows: int, length: int, dtype: str = "float32", *,
    arrays: OperandArrays = NUMPY, accumulator: int | None = None,
) -> Instrument:  # fmt: skip
    """Return the instrument on `y = function(x)`, x (rows, length) of `dtype` and y (rows,): every row is a probe.

    Raises ProbeError as `product_instrument` does.
    """
    extremes = _extremes(dtype)
    output = arrays.name(function(arrays.of_doubles(np.ones((rows, length)), dtype)))
    width = accumulator or (53 if dtype == "float64" else ACCUMULATOR_BITS)

    def launch(codes: Codes) -> npt.NDArray[np.int64]:
        result = arrays.doubles(function(_operand(arrays, codes, extremes, dtype, signed=True)), output)
        if result.shape != (rows,):
            raise ProbeError(f"the callable returned the shape {result.shape}, not {(rows,)}")
        return _counts(result[:, None], extremes.small)

    return Instrument(launch, rows, length, _capacity(extremes.large, extremes.small, width, output))


def _extremes(dtype: str) -> Extremes:
    if dtype not in EXTREMES:
        raise ProbeError(f"operands of {dtype} cannot be probed; the supported types are {', '.join(EXTREMES)}")
    return EXTREMES[dtype]


def _capacity(large: int, small: int, accumulator: int, output: str) -> int:
    """Return how many small values a probe may have: their sum must be lost in L, and the output must hold it."""
    if output not in OUTPUT_PRECISION:
        raise ProbeError(
            f"an output of {output} cannot be probed; the supported types are {', '.join(OUTPUT_PRECISION)}"
        )
    lost_bits = large - accumulator - small
    if lost_bits < 0:
        raise ProbeError(
            f"2**{small} is not lost when added to 2**{large} in an accumulator of {accumulator} bits, "
            "so operands of this type cannot be probed"
        )
    return int(min(2**lost_bits, 2 ** OUTPUT_PRECISION[output], 2**40))


def _operand(arrays: OperandArrays, codes: Codes, extremes: Extremes, dtype: str, *, signed: bool) -> Any:
    """Return the operand of codes; without `signed`, -L is +L too, for the second factor of a product."""
    large, small = 2.0**extremes.large, 2.0**extremes.small
    table = patterns_of(np.array([0.0, large, -large if signed else large, small]), dtype)
    return arrays.of_patterns(table[codes], dtype)


def _padded_rows(codes: Codes, rows: int) -> Codes:
    padded = np.zeros((rows, codes.shape[1]), dtype=np.int8)
    padded[: len(codes)] = codes[:rows]
    return padded


def _counts(outputs: npt.NDArray[np.float64], small: int) -> npt.NDArray[np.int64]:
    """Return counts (lanes,) from outputs (lanes, others): -1 where the others disagree or are not a count."""
    counts = outputs / 2.0**small
    good = (counts == counts[:, :1]).all(axis=1) & (counts[:, 0] >= 0) & (counts[:, 0] < 2**53)
    first = np.where(good, counts[:, 0], -1)
    return np.where(first == np.floor(first), first, -1).astype(np.int64)
