"""What is probed: a callable, turned into an instrument that reads how many small values reach an output.

A probe is one row of codes along the reduced axis: nothing, +L, -L, or a small value r.  While +L and -L have not met,
each r that is added to either is lost; afterwards each is kept.  L and r are powers of two, far enough apart that all
the r of a probe together are lost beside L, and few enough that the output's own format holds every count of them.
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
Make: TypeAlias = Callable[[int, int], Codes]

NOTHING, PLUS, MINUS, SMALL = 0, 1, 2, 3


class ProbeError(BitwiseError):
    """What is wrong with a callable or with what is asked of it; its text is a sentence."""


@dataclass(frozen=True, slots=True)
class Extremes:
    """The exponents of L and of r in an operand's format."""

    large: int
    small: int


OPERANDS = MappingProxyType(
    {
        "float64": Extremes(200, -100),
        "float32": Extremes(60, -60),
        "float16": Extremes(15, -24),
        "bfloat16": Extremes(60, -60),
        "float8_e4m3fn": Extremes(8, -9),
        "float8_e5m2": Extremes(15, -16),
    }
)
"""L and r of each operand type; the names are PyTorch's and NumPy's."""

PRECISION = MappingProxyType({"float64": 53, "float32": 24, "bfloat16": 8, "float16": 11})
"""Bits of an output's significand: every count below two to that power is exact."""

NARROW = 13
"""Bits of a count that every accumulator of 8-bit products holds."""

ACCUMULATOR = 24
"""Bits of the widest accumulator that an L must drown an r in; 53 for operands of float64."""


@dataclass
class Instrument:
    """A callable as an instrument.  `read` returns how many small values reached each output.

    `launch(codes)` takes codes (lanes, length) and returns counts (lanes,), -1 where the outcome is no count; the
    instrument gives it `lanes` probes at a time.  `capacity` is how many small values one probe may hold.
    """

    launch: Callable[[Codes], npt.NDArray[np.int64]]
    lanes: int
    length: int
    capacity: int
    probes: int = field(default=0, init=False)
    launches: int = field(default=0, init=False)

    def read(self, make: Make, total: int) -> npt.NDArray[np.int64]:
        """The counts of `total` probes; `make(low, high)` returns the codes of some of them."""
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
    """The instrument on `c = function(a, b)`, a (m, k) of `dtype` and b (k, n) of `dtype_b`, made by `arrays`.

    The output's longer axis tells the probes apart and every element along the other must agree, so that all m n sums
    take part.  8-bit operands take both axes: the element on the diagonal is the probe.  `transpose_b` gives b as the
    transpose of a dense (n, k).  Raises ProbeError for a type without extremes or an output of another shape.
    """
    b_type = dtype_b or dtype
    left, right = _extremes(dtype), _extremes(b_type)
    narrow = dtype.startswith("float8") or b_type.startswith("float8")
    output = arrays.output_type(function, (m, k), (k, n), dtype, b_type, transpose_b)
    if narrow:
        large, small = left.large + right.large, left.small + right.small
    else:
        large, small = left.large, left.small
    # Matrix units keep as few as 14 bits of a sum of 8-bit products: larger counts might not be whole.
    most = 2**NARROW if narrow else 2**40
    width = accumulator or (53 if dtype == "float64" else ACCUMULATOR)
    capacity = min(most, _capacity(large, small, width, output))

    def launch(codes: Codes) -> npt.NDArray[np.int64]:
        if narrow:
            a = _values(arrays, _rows(codes, m), left, dtype, signed=True)
            b = _values(arrays, _rows(codes, n), right, b_type, signed=False)
        elif m >= n:
            a = _values(arrays, codes, left, dtype, signed=True)
            b = arrays.of_doubles(np.ones((n, k)), b_type)
        else:
            a = arrays.of_doubles(np.ones((m, k)), dtype)
            b = _values(arrays, codes, right, b_type, signed=True)
        flipped = b.T if transpose_b else arrays.dense(b.T)
        outcome = arrays.doubles(function(a, flipped), output)
        if outcome.shape != (m, n):
            raise ProbeError(f"the callable returned the shape {outcome.shape}, not {(m, n)}")
        lanes = np.diagonal(outcome)[:, None] if narrow else outcome if m >= n else outcome.T
        return _counts(lanes, small)

    return Instrument(launch, min(m, n) if narrow else max(m, n), k, capacity)


def reduction_instrument(
    function: Callable[[Any], Any], rows: int, length: int, dtype: str = "float32", *,
    arrays: OperandArrays = NUMPY, accumulator: int | None = None,
) -> Instrument:  # fmt: skip
    """The instrument on `y = function(x)`, x (rows, length) of `dtype` and y (rows,): every row is a probe.

    Raises ProbeError as product_subject does.
    """
    extremes = _extremes(dtype)
    output = arrays.name(function(arrays.of_doubles(np.ones((rows, length)), dtype)))
    width = accumulator or (53 if dtype == "float64" else ACCUMULATOR)

    def launch(codes: Codes) -> npt.NDArray[np.int64]:
        outcome = arrays.doubles(function(_values(arrays, codes, extremes, dtype, signed=True)), output)
        if outcome.shape != (rows,):
            raise ProbeError(f"the callable returned the shape {outcome.shape}, not {(rows,)}")
        return _counts(outcome[:, None], extremes.small)

    return Instrument(launch, rows, length, _capacity(extremes.large, extremes.small, width, output))


def _extremes(dtype: str) -> Extremes:
    if dtype not in OPERANDS:
        raise ProbeError(f"operands of {dtype} are not probed; there are {', '.join(OPERANDS)}")
    return OPERANDS[dtype]


def _capacity(large: int, small: int, accumulator: int, output: str) -> int:
    """The small values that L drowns even when they come as one sum, and whose count the output holds."""
    if output not in PRECISION:
        raise ProbeError(f"an output of {output} is not read; there are {', '.join(PRECISION)}")
    drowned = large - accumulator - small
    if drowned < 0:
        raise ProbeError(
            f"2**{small} is not lost beside 2**{large} in an accumulator of {accumulator} bits; "
            "nothing can be read from operands of this type"
        )
    return int(min(2**drowned, 2 ** PRECISION[output], 2**40))


def _values(arrays: OperandArrays, codes: Codes, extremes: Extremes, dtype: str, *, signed: bool) -> Any:
    """The operand of codes; without signs both L are positive, for the other factor of a product."""
    large, small = 2.0**extremes.large, 2.0**extremes.small
    table = patterns_of(np.array([0.0, large, -large if signed else large, small]), dtype)
    return arrays.of_patterns(table[codes], dtype)


def _rows(codes: Codes, rows: int) -> Codes:
    whole = np.zeros((rows, codes.shape[1]), dtype=np.int8)
    whole[: len(codes)] = codes[:rows]
    return whole


def _counts(outcome: npt.NDArray[np.float64], small: int) -> npt.NDArray[np.int64]:
    """Counts (lanes,) from outcomes (lanes, others): -1 where the others disagree or no count came back."""
    counts = outcome / 2.0**small
    good = (counts == counts[:, :1]).all(axis=1) & (counts[:, 0] >= 0) & (counts[:, 0] < 2**53)
    first = np.where(good, counts[:, 0], -1)
    return np.where(first == np.floor(first), first, -1).astype(np.int64)
