"""ReductionDesc: everything that determines the bits of the sum along one axis."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Annotated, Literal

from pydantic import Field, model_validator

from bitwise_core.descriptors.cuts import MAXIMUM_LENGTH, FloatName, Length
from bitwise_core.descriptors.merge_orders import MERGE_ORDERS, RunningSumName
from bitwise_core.descriptors.record import DescriptorError
from bitwise_core.descriptors.text import Descriptor, TextRecord
from bitwise_core.numerics import FLOAT_FORMATS


class Digit(TextRecord, word="digit"):
    """A digit of an index: it takes the values 0 to `count` - 1 and has the weight `stride`."""

    stride: Length
    count: Length = 2


class Fold(TextRecord, word="fold"):
    """The sum over one digit of the index: of the `count` values whose indices differ by multiples of `stride`.

    They are added in the order `order`, a running sum of `MERGE_ORDERS` over the ascending digit, from the first value
    or from +0 (with a count of 1 the value is added to +0).  A digit of count 2 is one bit of the index, and its fold
    is one round of a tree.  With `within`, further digits are summed in the same chain, the last digit the fastest.
    """

    stride: Length
    count: Length = 2
    order: RunningSumName = "chain"
    start: Literal["first", "zero"] = "first"
    within: tuple[Digit, ...] = ()

    @property
    def digits(self) -> tuple[Digit, ...]:
        """All digits that are summed, the slowest first."""
        return (Digit(stride=self.stride, count=self.count), *self.within)

    @property
    def offsets(self) -> list[int]:
        """The offsets from an index whose digits here are 0, in the order of the chain."""
        found = [0]
        for digit in self.digits:
            found = [low + place * digit.stride for low in found for place in range(digit.count)]
        return [found[place] for place in MERGE_ORDERS[self.order].steps(len(found)).sequence]


class ReductionDesc(Descriptor, word="reduction"):
    """y = the sum of x[0] ... x[length - 1], by `folds` in execution order.  Equal descriptors determine equal bits.

    The index is a number with the folds' digits: sorted by stride, each stride is the previous stride times its count.
    A chain inside a thread is a digit of several values, a round of lane exchanges is a digit of count 2, and a loop
    over chunks is the topmost digit, folded first (an accumulator for each position in a chunk) or last (each chunk is
    summed, then the chunks are added).

    Elements are widened to `accumulator_dtype`, every addition is made there to nearest even, and the sum is rounded to
    `output_dtype`.  `padding` says what indices from `length` on hold, where there are any: nothing (`absent`, the
    other operand of the addition is kept), +0 (`zero`) or -0 (`negative-zero`).  Raises DescriptorError.
    """

    length: Length
    dtype: FloatName
    accumulator_dtype: FloatName = "fp32"
    output_dtype: FloatName = "fp32"
    folds: Annotated[tuple[Fold, ...], Field(max_length=64)]
    padding: Literal["absent", "zero", "negative-zero"] = "absent"

    @model_validator(mode="after")
    def _consistent(self) -> ReductionDesc:
        reach = 1
        digits = [digit for fold in self.folds for digit in fold.digits]
        for digit in sorted(digits, key=lambda each: (each.stride, each.count)):
            if digit.stride != reach:
                raise ValueError(
                    f"the folds below stride {digit.stride} reach {reach} indices: give one of stride {reach}, so that "
                    "every index has exactly one position"
                )
            reach *= digit.count
        if reach > 2 * MAXIMUM_LENGTH:
            raise ValueError(f"the folds cover {reach} indices; at most {2 * MAXIMUM_LENGTH} are described")
        if reach < self.length:
            raise ValueError(
                f"the folds cover {reach} indices and the axis has {self.length}: give one more of stride {reach} and "
                f"count {-(-self.length // reach)}"
            )
        if reach == self.length and self.padding != "absent":
            raise ValueError(f"the folds cover no index beyond the axis of {self.length}: leave padding out")
        if not FLOAT_FORMATS[self.accumulator_dtype].holds(FLOAT_FORMATS[self.dtype]):
            raise ValueError(
                f"{self.accumulator_dtype} does not hold every {self.dtype}: choose another accumulator_dtype"
            )
        return self

    @property
    def reach(self) -> int:
        """The number of indices that the folds cover, padding included."""
        reach = 1
        for fold in self.folds:
            reach *= prod(digit.count for digit in fold.digits)
        return reach


def index_bits(
    length: int,
    order: Iterable[int] | None = None,
    *,
    dtype: str = "fp32",
    accumulator_dtype: str = "fp32",
    output_dtype: str = "fp32",
    chunk: int | None = None,
    chunks_first: bool = True,
    padding: Literal["absent", "zero", "negative-zero"] = "absent",
) -> ReductionDesc:
    """Return a tree over the bits of the index, folded in the order given; by default from the lowest bit up.

    With `chunk`, a power of two, the tree reduces chunks of that length, and the chunks are added in a chain from +0:
    elementwise before the tree (`chunks_first`), or their totals after it.  Raises DescriptorError.
    """
    if length < 1:
        raise DescriptorError(f"a reduction has at least one element, not {length}")
    if chunk is not None and (chunk < 1 or chunk & (chunk - 1)):
        raise DescriptorError(f"a chunk of a tree over index bits is a power of two long, not {chunk}")
    bits = ((length if chunk is None else chunk) - 1).bit_length()
    chosen = tuple(range(bits)) if order is None else tuple(order)
    if sorted(chosen) != list(range(bits)):
        raise DescriptorError(
            f"the order {chosen} of the index bits does not name each of the bits 0 to {bits - 1} of {length} elements "
            "once: give a permutation of them"
        )
    folds = tuple(Fold(stride=1 << bit) for bit in chosen)
    if chunk is not None and length > chunk:
        loop = (Fold(stride=chunk, count=-(-length // chunk), start="zero"),)
        folds = loop + folds if chunks_first else folds + loop
    reach = 1
    for fold in folds:
        reach *= fold.count
    return ReductionDesc(
        length=length,
        dtype=dtype,
        accumulator_dtype=accumulator_dtype,
        output_dtype=output_dtype,
        folds=folds,
        padding=padding if reach > length else "absent",
    )
