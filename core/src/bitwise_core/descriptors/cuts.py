"""Cuts of a contracted axis into parts, and the merge of the parts into one value."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field, StrictInt, model_validator

from bitwise_core.descriptors.merge_orders import MERGE_ORDERS, Addition, MergeName, MergeOrder, MergeSteps
from bitwise_core.descriptors.record import DescriptorError, float_name, wider
from bitwise_core.descriptors.text import TextRecord

Positions: TypeAlias = npt.NDArray[np.int64]
Positive = Annotated[StrictInt, Field(ge=1)]

MAXIMUM_LENGTH = 1 << 24
"""The longest sum of a descriptor: its partition is checked position by position, in 8 bytes each."""

MAXIMUM_PARTS = 1 << 18
"""The largest number of parts of one cut."""

Length = Annotated[StrictInt, Field(ge=1, le=MAXIMUM_LENGTH)]
Count = Annotated[StrictInt, Field(ge=1, le=MAXIMUM_PARTS)]
FloatName = Annotated[str, AfterValidator(float_name)]

Start: TypeAlias = Literal["first", "zero"]
Remainder: TypeAlias = Literal["short-last", "short-first", "long-last", "long-first", "spread", "spread-last"]
"""How the parts differ where the tiles do not divide evenly: the last or the first part is short, or is long, or the
first parts (spread) or the last ones (spread-last) take one tile more each."""


class Group(TextRecord, word="group"):
    """Parts distributed round-robin over `count` groups, part i to group i mod `count`; an empty group is +0.

    The groups' sums are added in the order `merge`.
    """

    count: Count
    merge: MergeName = "chain"

    @model_validator(mode="after")
    def _consistent(self) -> Group:
        if not MERGE_ORDERS[self.merge].takes(self.count):
            raise ValueError(
                f"the merge {self.merge} takes a power of two of groups, not {self.count}: give such, or a chain"
            )
        return self


class Cut(TextRecord, word="cut"):
    """One cut of a sequence of k into parts, and their merge.

    contiguous: a part is a range of consecutive k.  `span` gives the parts' length; `count` gives their number, and
    their lengths are then whole tiles of `tile` k (ceil(ceil(length / tile) / count) * tile with a short part, floors
    with a long one); both together give `count` parts of `span`.  strided: tiles of `tile` k are distributed
    round-robin, tile i to part i mod `count`.  With a `count` there are always that many parts, and an empty one is +0.

    A finished part is rounded to `partial_dtype`.  Each addition is made in the wider of `partial_dtype` and
    `merge_dtype`, to nearest even, and the running sum is rounded to `merge_dtype`.  `merge` names one of
    `MERGE_ORDERS`.  The sum starts with the first part, rounded to `merge_dtype`, or from +0 (running sums only).  An
    order that adds sums to sums has one type for both.

    `groups` distribute the finished parts over groups, the parts of a group over its subgroups, and so on.  `groups`
    lists the outermost level first.  The parts of an innermost group are added in the order `merge`; then the sums of
    the groups are added, the innermost level first.
    """

    layout: Literal["contiguous", "strided"] = "contiguous"
    span: Length | None = None
    count: Count | None = None
    tile: Length = 1
    remainder: Remainder = "short-last"
    merge: MergeName = "chain"
    start: Start = "first"
    partial_dtype: FloatName = "fp32"
    merge_dtype: FloatName = "fp32"
    groups: tuple[Group, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Cut:
        if self.layout == "strided":
            if self.count is None or self.span is not None:
                raise ValueError("a strided cut distributes tiles over `count` parts: give count, and no span")
            if self.remainder != "short-last":
                raise ValueError("a strided cut distributes tiles round-robin: leave remainder out")
        elif self.span is None and self.count is None:
            raise ValueError("a contiguous cut needs the length of its parts, span, or their number, count")
        elif self.span is not None and self.tile != 1:
            raise ValueError(f"with span = {self.span} the tile has no effect: leave tile out")
        elif self.span is not None and self.remainder not in ("short-last", "short-first"):
            raise ValueError(
                f"with a span a part can only be short: remainder is short-last or short-first, not {self.remainder!r}"
            )
        if self.order.power_of_two and (self.count is None or not self.order.takes(self.count)):
            raise ValueError(
                f"the merge {self.merge} takes a power of two of parts: give such a count, not {self.count}, or a chain"
            )
        if not self.order.running_sum:
            if self.start == "zero":
                raise ValueError(f"the merge {self.merge} has no running sum to start from zero: leave start out")
            if self.partial_dtype != self.merge_dtype:
                raise ValueError(
                    f"the merge {self.merge} adds sums to sums: make partial_dtype and merge_dtype one type"
                )
        if self.groups and (not self.order.running_sum or self.start == "zero"):
            raise ValueError("the parts of a group are added in a chain from the first: leave merge and start out")
        if self.groups and self.partial_dtype != self.merge_dtype:
            raise ValueError("groups add sums to sums: make partial_dtype and merge_dtype one type")
        try:
            wider(self.partial_dtype, self.merge_dtype)
        except DescriptorError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def order(self) -> MergeOrder:
        """The order named by `merge`: of all parts, or with `groups` of the parts of an innermost group."""
        return MERGE_ORDERS[self.merge]

    @property
    def running_sum(self) -> bool:
        """Whether a single running sum adds one part after the other."""
        return self.order.running_sum and not self.groups

    def part_steps(self, count: int) -> MergeSteps:
        """Return the merge of `count` parts without the initial +0 of `start`; the result is in one of the parts."""
        return _grouped(self, count) if self.groups else self.order.steps(count)

    def merge_steps(self, count: int) -> MergeSteps:
        """Return the merge of `count` parts into one value, from +0 where `start` is zero."""
        steps = self.part_steps(count)
        return steps.from_zero(count) if self.start == "zero" else steps

    def lengths(self, length: int) -> list[int]:
        """Return the lengths of the parts of `length` k, in order, for a contiguous cut.

        Raises DescriptorError where they do not cover `length`.
        """
        if self.span is not None:
            count = -(-length // self.span) if self.count is None else self.count
            if count > MAXIMUM_PARTS:
                raise DescriptorError(
                    f"the cut has {count} parts of {self.span} k; at most {MAXIMUM_PARTS} are described: "
                    "give a longer span"
                )
            if count * self.span < length:
                raise DescriptorError(
                    f"the cut's {count} parts of {self.span} k cover {count * self.span} of {length}: "
                    f"give span = {-(-length // count)}, or count = {-(-length // self.span)}, or leave count out"
                )
            full = [self.span] * (length // self.span)
            short = [length % self.span] if length % self.span else []
            given = short + full if self.remainder == "short-first" else full + short
            empty = [0] * (count - len(given))
            return empty + given if self.remainder == "short-first" else given + empty
        assert self.count is not None
        tiles = -(-length // self.tile)
        if self.remainder in ("short-last", "short-first"):
            whole = -(-tiles // self.count) * self.tile
            found = [max(0, min(whole, length - whole * part)) for part in range(self.count)]
            return found[::-1] if self.remainder == "short-first" else found
        if self.remainder in ("spread", "spread-last"):
            more = tiles % self.count
            each = [(tiles // self.count + (part < more)) * self.tile for part in range(self.count)]
            each = each if self.remainder == "spread" else each[::-1]
            # The last tile may be short; it belongs to the last part that is not empty.
            last = max(part for part in range(self.count) if each[part]) if tiles else 0
            each[last] -= tiles * self.tile - length
            return each
        whole = length // self.tile // self.count * self.tile
        rest = length - whole * (self.count - 1)
        return (
            [whole] * (self.count - 1) + [rest]
            if self.remainder == "long-last"
            else [rest] + [whole] * (self.count - 1)
        )

    def part_lengths(self, length: int) -> list[int]:
        """Return the numbers of k of the parts of `length` k, in order.  Raises DescriptorError as `lengths` does."""
        if self.layout != "strided":
            return self.lengths(length)
        assert self.count is not None
        tiles, rest = divmod(length, self.tile)
        each, more = divmod(tiles, self.count)
        found = [(each + (part < more)) * self.tile for part in range(self.count)]
        found[more] += rest
        return found

    def parts(self, positions: Positions) -> list[Positions]:
        """Return the parts of a sequence of k, in order.  Raises DescriptorError where they do not cover it."""
        if self.layout == "strided":
            assert self.count is not None
            owner = strided_owners(len(positions), self.tile, self.count)
            ends = np.cumsum(np.bincount(owner, minlength=self.count))
            return list(np.split(positions[np.argsort(owner, kind="stable")], ends[:-1]))
        ends = np.cumsum(self.lengths(len(positions)))
        return list(np.split(positions, ends[:-1]))


def strided_owners(length: int, tile: int, count: int) -> Positions:
    """Return the part of each of `length` positions, tiles of `tile` distributed round-robin over `count` parts."""
    return np.arange(length) // tile % count


def _grouped(cut: Cut, count: int) -> MergeSteps:
    """Return the merge of `count` parts in groups; an empty group uses one of the zeros."""
    additions: list[Addition] = []
    total = count

    def merged(members: list[int], order: MergeOrder) -> int:
        steps = order.steps(len(members))
        additions.extend((members[into], members[other]) for into, other in steps.additions)
        return members[steps.result]

    def folded(members: list[int], groups: tuple[Group, ...]) -> int:
        nonlocal total
        if not groups:
            return merged(members, cut.order)
        sums = []
        for number in range(groups[0].count):
            owned = members[number :: groups[0].count]
            if not owned:
                owned, total = [total], total + 1
            sums.append(folded(owned, groups[1:]))
        return merged(sums, MERGE_ORDERS[groups[0].merge])

    result = folded(list(range(count)), cut.groups)
    return MergeSteps(additions, result, total - count)
