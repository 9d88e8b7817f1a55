"""The orders in which the values of parts are added to a single value.

An order is one entry of `MERGE_ORDERS`: its additions as a function of the number of parts, its words, and the numbers
of parts it is defined for.  Evaluation, dependence trees, the comparison of descriptors, reconstruction, texts and
figures use the entry; a kernel declares which orders it implements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias, TypeVar

from pydantic import AfterValidator

V = TypeVar("V")
Addition: TypeAlias = tuple[int, int]
"""(into, from): the value at `into` becomes the sum of both, in that order."""


@dataclass(frozen=True, slots=True)
class MergeSteps:
    """A merge of numbered values: `zeros` values of +0 follow the parts, and `additions` are made in order.

    The sum is the value at `result`.
    """

    additions: Sequence[Addition]
    result: int = 0
    zeros: int = 0

    @property
    def sequence(self) -> list[int]:
        """The numbers of the values in the order in which a running sum adds them."""
        if not self.additions:
            return [self.result]
        return [self.additions[0][0], *(other for _, other in self.additions)]

    def from_zero(self, count: int) -> MergeSteps:
        """Return the steps of a running sum over `count` parts that starts from +0 instead of its first part."""
        start = count + self.zeros
        return MergeSteps([(start, part) for part in self.sequence], start, self.zeros + 1)

    def run(self, parts: Sequence[V], zero: V, add: Callable[[V, V], V]) -> V:
        """Return the sum of the parts, given the addition `add` and a value of +0."""
        values = [*parts, *[zero] * self.zeros]
        for into, other in self.additions:
            values[into] = add(values[into], values[other])
        return values[self.result]


@dataclass(frozen=True, slots=True)
class MergeOrder:
    """An order of merging.

    `additions` returns the additions of a number of parts, at least 1; the last one makes the sum.  `words` end the
    sentence "the parts are added ...".  `tree` names the shape of an order that adds sums to sums, in which parts and
    sums have one type; None means a running sum, which adds one part after the other, may start from +0, and may have
    another type than the parts.  `power_of_two` says that the number of parts must be a power of two.

    Raises ValueError where the additions of 1 to 16 parts do not add every part once, or are not a running sum and
    `tree` is None.
    """

    name: str
    words: str
    additions: Callable[[int], list[Addition]]
    tree: str | None = None
    power_of_two: bool = False

    def __post_init__(self) -> None:
        for count in filter(self.takes, range(1, 17)):
            left, additions = set(range(count)), self.additions(count)
            for into, other in additions:
                if into == other or not {into, other} <= left:
                    raise ValueError(
                        f"the merge order {self.name} adds part {other} of {count} to part {into}: each part is added "
                        "once, to another one"
                    )
                left.remove(other)
            if left != {self.steps(count).result}:
                raise ValueError(f"the last addition of the merge order {self.name} does not make the sum of {count}")
            if self.running_sum and len({into for into, _ in additions}) > 1:
                raise ValueError(f"the merge order {self.name} adds to several of {count} parts: name its tree")

    @property
    def running_sum(self) -> bool:
        """Whether a single running sum adds one part after the other."""
        return self.tree is None

    def takes(self, count: int) -> bool:
        """Whether the order is defined for that number of parts."""
        return not self.power_of_two or not count & (count - 1)

    def least(self, count: int) -> int:
        """Return the smallest number of parts, at least `count`, that the order is defined for."""
        return 1 << (count - 1).bit_length() if self.power_of_two else count

    def steps(self, count: int) -> MergeSteps:
        """Return the merge of `count` parts."""
        additions = self.additions(count)
        return MergeSteps(additions, additions[-1][0] if additions else 0)

    def first_round(self, count: int) -> list[Addition]:
        """Return the additions before the first one that uses a sum: each adds two parts, so they are independent."""
        found: dict[int, int] = {}
        for into, other in self.additions(count):
            if {into, other} & {*found, *found.values()}:
                break
            found[into] = other
        return list(found.items())


def _chain(count: int) -> list[Addition]:
    return [(0, part) for part in range(1, count)]


def _chain_down(count: int) -> list[Addition]:
    return [(count - 1, part) for part in range(count - 2, -1, -1)]


def _neighbours(count: int) -> list[Addition]:
    offsets = [1 << bit for bit in range((count - 1).bit_length())]
    return [(part, part + offset) for offset in offsets for part in range(0, count - offset, 2 * offset)]


def _halves(count: int) -> list[Addition]:
    offsets = [1 << bit for bit in reversed(range((count - 1).bit_length()))]
    return [(part, part + offset) for offset in offsets for part in range(min(offset, count - offset))]


def _paired(count: int) -> list[Addition]:
    """Return the additions of a chain over pairs of parts half the number apart, where the last part has no pair."""
    half = (count + 1) // 2
    pairs = [(part, part + half) for part in range(half) if part + half < count - 1]
    return [*pairs, *[(0, count - 1)] * (count > 1), *((0, part) for part in range(1, half))]


MERGE_ORDERS: dict[str, MergeOrder] = {
    order.name: order
    for order in (
        MergeOrder("chain", "one after the other", _chain),
        MergeOrder("chain-down", "one after the other, the last first", _chain_down),
        # The rounds of a butterfly with ascending offsets, and of one with descending offsets.
        MergeOrder("neighbours", "as a balanced tree, neighbours first", _neighbours, "a balanced tree", True),
        MergeOrder("halves", "as a balanced tree, the two halves pairwise first", _halves, "a balanced tree", True),
        MergeOrder("paired", "in pairs half their number apart, the last one after the first pair", _paired, "pairs"),
    )
}
"""Every order by its name, the likeliest first: reconstruction tries them in this order."""


def index_bits(order: MergeOrder, count: int) -> tuple[int, ...] | None:
    """Return the bits of the parts' numbers by which an order halves a power of two of parts, round after round.

    A round adds to every remaining part whose bit is 0 the part that differs from it in that bit only.  Returns None
    for any other order, and where `count` is not a power of two.
    """
    if count & (count - 1):
        return None
    left, bits, additions = list(range(count)), [], order.additions(count)
    while len(left) > 1:
        made, additions = additions[: len(left) // 2], additions[len(left) // 2 :]
        offset = made[0][1] - made[0][0]
        left = [part for part in left if not part & offset]
        if offset < 1 or offset & (offset - 1) or sorted(made) != [(part, part + offset) for part in left]:
            return None
        bits.append(offset.bit_length() - 1)
    return tuple(bits)


def _known(name: str) -> str:
    if name not in MERGE_ORDERS:
        raise ValueError(f"there is no merge order {name!r}; there are {', '.join(MERGE_ORDERS)}")
    return name


def _running(name: str) -> str:
    if not MERGE_ORDERS[_known(name)].running_sum:
        running = ", ".join(each.name for each in MERGE_ORDERS.values() if each.running_sum)
        raise ValueError(f"a fold is a running sum, not {MERGE_ORDERS[name].tree}: give one of {running}, not {name!r}")
    return name


MergeName = Annotated[str, AfterValidator(_known)]
"""A field that holds the name of an order."""
RunningSumName = Annotated[str, AfterValidator(_running)]
"""A field that holds the name of an order of a running sum."""
