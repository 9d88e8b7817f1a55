"""The order of a pinned reduction, as text and as steps over the bits of an element's index.

An order is a list of steps separated by commas. With n elements padded to 2**k, the index has bits 0 to k - 1:

    3               pairs: the two elements that differ in bit 3 of their index are combined
    inner_tree      bits ascending, neighbours first;  inner_tree(a:b) bits a to b - 1
    outer_tree      bits descending, i is combined with i + 2**(k-1) first;  outer_tree(a:b) bits b - 1 down to a
    chain(a:b)      the elements that differ in bits a to b - 1 only, sequentially in ascending order

Either bound may be omitted: `inner_tree(:7), chain(7:)` is a tree inside chunks of 128 and a chain over the chunks;
`chain(7:), inner_tree` adds whole chunks elementwise first. A step applies to the bits that no earlier step has folded.
Every bit must be folded once. Bounds beyond k are clipped to k, so one text applies to every extent.

`auto` leaves the order to the kernel's compilation: `Order.resolved` derives it from properties that all configurations
share, so that they have one order, and `pinned_reductions` reports it.

Padding follows the last element and changes no bits: a pair with one padding element gives the other element. A kernel
pads sums with -0.0, which leaves every number unchanged, -0.0 included.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from bitwise_core.descriptors import ReductionDesc

_STEP = re.compile(r"(?:(?P<bit>\d+)|(?P<name>\w+)\s*(?:\((?P<low>\d*)\s*:\s*(?P<high>\d*)\))?)\Z")
# Pairs in one reshape: more of them mean more axes, fewer mean more reshapes.
_GROUP = 3
_NAMES = ("inner_tree", "outer_tree", "chain", "auto")

AUTO = "auto"

Tree: TypeAlias = "int | tuple[Tree, Tree]"


class OrderError(ValueError):
    """An order that cannot be parsed, or that does not fold every bit of an extent exactly once."""


@dataclass(frozen=True)
class Pair:
    """Folds one bit. `position` is its index among the remaining bits, from the lowest."""

    position: int


@dataclass(frozen=True)
class Chain:
    """Folds `bits` adjacent bits at once as a chain of 2**bits elements. `position` is the index of the lowest bit."""

    position: int
    bits: int


Step: TypeAlias = Pair | Chain


@dataclass(frozen=True)
class Order:
    """An order of reduction, by its text. Raises OrderError for invalid text."""

    text: str = "inner_tree"

    def __post_init__(self) -> None:
        _parsed(self.text)

    def steps(self, extent: int) -> tuple[Step, ...]:
        """The steps for `extent` elements. Raises OrderError if a bit is folded twice or not at all."""
        return tuple(step for step, _ in _steps(self.text, extent))

    def resolved(self, extent: int, itemsize: int, *, last: bool) -> Order:
        """This order, with `auto` resolved for an axis of `extent` elements of `itemsize` bytes; `last` marks the last
        axis.

        Along the last axis a thread loads 16 bytes, a warp 32 times as much, with four warps (eight beyond 2048
        elements) adjacent: the bits of a load come first, then those of separate registers, of lanes, and of warps.
        Along another axis neighbours are mostly in the lanes and warps of up to 16 rows, and registers hold the rest.
        """
        if self.text.strip() != AUTO:
            return self
        if not last:
            return Order("outer_tree(4:), inner_tree")
        vector = max(1, 16 // itemsize).bit_length() - 1
        held = vector + 5 + (2 if extent <= 2048 else 3)
        first = f"inner_tree(:{vector}), " if vector else ""
        return Order(f"{first}outer_tree({held}:), inner_tree")

    def descriptor(self, length: int, dtype: str = "fp32", accumulator: str = "fp32") -> ReductionDesc:
        """The descriptor of the sum of `length` elements of `dtype` in this order, accumulated and returned in
        `accumulator`.

        Raises OrderError if the order does not fold every bit once.
        """
        from bitwise_core.descriptors import Fold, ReductionDesc

        folds = tuple(Fold(stride=1 << bits[0], count=1 << len(bits)) for _, bits in _steps(self.text, length))
        return ReductionDesc(
            length=length, dtype=dtype, accumulator_dtype=accumulator, output_dtype=accumulator, folds=folds
        )

    def chunking(self) -> tuple[int, int]:
        """How an axis is read tile by tile: the number of steps before the chain, and the chunk.

        The chunk is the number of elements that the steps other than the chain fold, 2**c for `chain(c:)`.
        Raises OrderError unless there is one chain with an open upper bound and every other step folds bits below it.
        """
        parsed = _parsed(self.text)
        chains = [place for place, (name, _, high) in enumerate(parsed) if name == "chain" and high is None]
        low = parsed[chains[0]][1] or 0 if chains else 0
        count = 1 + max(bit for _, *ends in parsed for bit in (0, *ends) if bit is not None)
        found = _steps(self.text, 1 << count)
        opened = [number for number, (_, bits) in enumerate(found) if bits == tuple(range(low, count))]
        if len(chains) != 1 or not opened or not isinstance(found[opened[0]][0], Chain):
            raise OrderError(
                f"The order {self.text!r} cannot be read tile by tile: it needs one chain with an open upper bound "
                "that folds every bit from its first one, such as 'inner_tree(:7), chain(7:)'."
            )
        return opened[0], 1 << low


def padded_extent(extent: int) -> int:
    """The power of two that `extent` elements are padded to. Raises OrderError for no elements."""
    if extent < 1:
        raise OrderError(f"A reduction of {extent} elements has no order; it needs one element or more.")
    return 1 << (extent - 1).bit_length()


def tree_of(order: Order, extent: int) -> Tree:
    """The tree over element numbers 0 to extent - 1. The left operand of a node has the lower first element."""

    def join(left: Any, right: Any) -> Any:
        return left if right is None else right if left is None else (left, right)

    places: list[Any] = [*range(extent), *[None] * (padded_extent(extent) - extent)]
    values = np.empty(len(places), object)
    values[:] = places
    found: Tree = _fold(order, extent, values, np.frompyfunc(join, 2, 1))[()]
    return found


def evaluate(
    order: Order, values: Sequence[Any] | Any, combine: Callable[[Any, Any], Any] = np.add, *, neutral: Any = -0.0
) -> Any:
    """The bits that a kernel returns: `values`, an array of shape (..., n), reduced along its last axis.

    `combine` takes two arrays and rounds as the kernel does, in the type of `values`. `neutral` pads the axis and must
    leave every value unchanged. Raises OrderError.
    """
    array = np.asarray(values)
    extent = array.shape[-1]
    missing = padded_extent(extent) - extent
    filled = np.concatenate([array, np.full((*array.shape[:-1], missing), neutral, array.dtype)], axis=-1)
    return _fold(order, extent, filled, combine)


def _fold(order: Order, extent: int, values: Any, combine: Callable[[Any, Any], Any]) -> Any:
    for step in order.steps(extent):
        count = 1 << (step.bits if isinstance(step, Chain) else 1)
        low = 1 << step.position
        *outer, length = values.shape
        pieces = values.reshape((*outer, length // (count * low), count, low))
        result = pieces[..., 0, :]
        for place in range(1, count):
            result = combine(result, pieces[..., place, :])
        values = np.asarray(result).reshape((*outer, length // count))
    return values[..., 0]


def merged_extents(extents: Sequence[int]) -> list[int]:
    """Adjacent axes as one axis, or none if they have one element.

    Every pass over a kernel verifies the layouts of all its values, which is slower with more axes.
    """
    count = math.prod(extents)
    return [count] if count > 1 else []


def reshape_groups(steps: Sequence[Step]) -> Iterator[tuple[int, tuple[Step, ...]]]:
    """`steps` split into groups that share a reshape, each with its first step's number: a chain, or some pairs."""
    number = 0
    while number < len(steps):
        count = 1
        if isinstance(steps[number], Pair):
            following = steps[number : number + _GROUP]
            count = next((place for place, step in enumerate(following) if isinstance(step, Chain)), len(following))
        yield number, tuple(steps[number : number + count])
        number += count


def split_extents(pairs: Sequence[Step], length: int) -> tuple[list[int], list[int]]:
    """How an axis of `length` elements is split for `pairs`: the extents, and each step's axis among the remaining
    ones.
    """
    bits = list(range(length.bit_length() - 1))
    left = list(bits)
    folded = [left.pop(step.position) for step in pairs]
    cut: list[list[int]] = []
    for bit in reversed(bits):
        if bit in folded or not cut or cut[-1][-1] in folded:
            cut.append([bit])
        else:
            cut[-1].append(bit)
    extents, places = [1 << len(part) for part in cut], []
    for bit in folded:
        places.append(cut.index([bit]))
        del cut[places[-1]]
    return extents, places


def _split(text: str) -> list[str]:
    return text.split(",")


@lru_cache(maxsize=256)
def _parsed(text: str) -> tuple[tuple[str, int | None, int | None], ...]:
    """Each step as (name, low, high); a single bit has the name "bit"."""
    found: list[tuple[str, int | None, int | None]] = []
    for part in _split(text):
        match = _STEP.match(part.strip())
        if match is None or (match["name"] is not None and match["name"] not in _NAMES):
            raise OrderError(
                f"The order {text!r} has the step {part.strip()!r}; a step is a bit number, inner_tree, outer_tree or "
                "chain, the last three with a range of bits such as chain(7:)."
            )
        if match["bit"] is not None:
            found.append(("bit", int(match["bit"]), int(match["bit"]) + 1))
            continue
        low = int(match["low"]) if match["low"] else None
        high = int(match["high"]) if match["high"] else None
        if low is not None and high is not None and low >= high:
            raise OrderError(f"The order {text!r} has the empty range {part.strip()!r}; write the lower bit first.")
        found.append((str(match["name"]), low, high))
    if AUTO in (name for name, _, _ in found) and text.strip() != AUTO:
        raise OrderError(f"The order {text!r} combines {AUTO} with other steps; use it alone.")
    return tuple(found)


@lru_cache(maxsize=1024)
def _steps(text: str, extent: int) -> tuple[tuple[Step, tuple[int, ...]], ...]:
    """Each step of an order with the bits it folds."""
    if text.strip() == AUTO:
        raise OrderError("An auto order has no steps before a kernel is compiled; use Order.resolved.")
    count = padded_extent(extent).bit_length() - 1
    left = list(range(count))
    steps: list[tuple[Step, tuple[int, ...]]] = []
    for name, low, high in _parsed(text):
        first, last = low or 0, count if high is None else min(high, count)
        named = range(first, last)
        bits = [bit for bit in named if bit in left]
        if (low is not None or high is not None) and len(bits) != len(named):
            twice = next(bit for bit in named if bit not in left)
            raise OrderError(f"The order {text!r} folds bit {twice} twice.")
        if not bits:
            continue
        if name == "chain":
            position = left.index(bits[0])
            if left[position : position + len(bits)] != bits:
                raise OrderError(
                    f"The order {text!r} chains bits {bits}, which are not adjacent among the remaining bits; chain "
                    "adjacent bits."
                )
            steps.append((Chain(position, len(bits)), tuple(bits)))
            left = [bit for bit in left if bit not in bits]
            continue
        for bit in reversed(bits) if name == "outer_tree" else bits:
            steps.append((Pair(left.index(bit)), (bit,)))
            left.remove(bit)
    if left:
        raise OrderError(
            f"The order {text!r} leaves bit {left[0]} of {count} (an extent of {extent}); end it with inner_tree."
        )
    return tuple(steps)
