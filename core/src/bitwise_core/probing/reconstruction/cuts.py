"""From the nodes of a tree to nests of cuts whose innermost parts are walks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from bitwise_core.descriptors import Cut, DescriptorError, Group
from bitwise_core.descriptors.cuts import Positions, strided_owners
from bitwise_core.descriptors.merge_orders import MERGE_ORDERS, MergeOrder
from bitwise_core.probing import SumTree
from bitwise_core.probing.reconstruction.partial_sums import MASK, Axis, Sum, merged
from bitwise_core.probing.summation_tree import below

W = TypeVar("W")

DEEPEST = 8
"""Cuts in one another that are tried."""


def _orders(running_sum: bool) -> list[MergeOrder]:
    return [order for order in MERGE_ORDERS.values() if order.running_sum == running_sum]


@dataclass(frozen=True)
class Observed:
    """The tree that was read off, and its nodes for single look-ups and for many at once."""

    axis: Axis
    tree: SumTree
    nodes: dict[int, int]
    array: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, axis: Axis, tree: SumTree) -> Observed:
        """A tree of sums over an axis."""
        nodes = axis.nodes_of_tree(tree)
        return cls(axis, tree, nodes, np.array(sorted(nodes), dtype=np.uint64))

    @cached_property
    def _above(self) -> dict[int, int]:
        """The node above each child, as SumTree counts them."""
        return {child: number for number, node in enumerate(self.tree.nodes) for child in node}

    def over(self, whole: Positions) -> Iterator[Positions]:
        """What the nodes above the first of some positions add, by places among them, until it is all of them."""
        child = int(whole[0])
        held = np.array([child])
        while len(held) < len(whole) and child in self._above:
            number = self._above[child]
            added = [self._leaves(each) for each in self.tree.nodes[number] if each != child]
            held = np.concatenate([held, *added])
            child = ~number
            yield np.sort(np.searchsorted(whole, held))

    def _leaves(self, child: int) -> Positions:
        if child >= 0:
            return np.array([child])
        numbers = below(self.tree.nodes, ~child)
        return np.array([each for number in numbers for each in self.tree.nodes[number] if each >= 0])

    def has(self, node: Sum) -> bool:
        """Whether a node, or a single position, or nothing is there."""
        return node[1] < 2 or node[0] in self.nodes

    def among(self, sums: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which of some sums are nodes."""
        return np.isin(sums, self.array)


@dataclass(frozen=True)
class Nest(Generic[W]):
    """Cuts, outermost first, all in one type, and how the innermost parts are walked."""

    cuts: tuple[Cut, ...]
    walk: W


def nests(
    seen: Observed, positions: Positions, walks: Callable[[Sequence[Positions]], list[W]]
) -> Iterator[list[Nest[W]]]:
    """The nests that explain every part, those of fewest cuts together and first, then those of one more.

    `walks` gives the ways in which some parts are all walked.
    """
    fewest = DEEPEST
    for depth in range(DEEPEST + 1):
        found = list(_explained(seen, [positions], walks, depth)) if depth <= fewest + 1 else []
        if found:
            fewest = min(fewest, depth)
            yield found


def _explained(
    seen: Observed, parts: Sequence[Positions], walks: Callable[[Sequence[Positions]], list[W]], depth: int
) -> Iterator[Nest[W]]:
    if depth == 0:
        yield from (Nest((), walk) for walk in walks(parts))
        return
    tried = set()
    for cut in candidates(seen, parts):
        if cut in tried:
            continue
        tried.add(cut)
        inner = _parted(seen, cut, parts)
        # A cut that cuts nothing explains nothing.
        if inner is None or len(inner) <= len(parts):
            continue
        for rest in _explained(seen, inner, walks, depth - 1):
            yield Nest((cut, *rest.cuts), rest.walk)


def _parted(seen: Observed, cut: Cut, parts: Sequence[Positions]) -> list[Positions] | None:
    """The parts of parts, where all of them and every sum of theirs are nodes."""
    found = []
    for whole in parts:
        try:
            each = cut.parts(whole)
        except DescriptorError:
            return None
        sums = [seen.axis.sum(part) for part in each]
        if not all(map(seen.has, sums)) or not all(map(seen.has, merged(cut, sums)[1])):
            return None
        found += [part for part in each if len(part)]
    return found


def candidates(seen: Observed, parts: Sequence[Positions]) -> Iterator[Cut]:
    """Cuts that the longest of some parts may have, the plainer ones first."""
    whole = max(parts, key=len)
    if len(whole) < 2:
        return
    several = len({len(part) for part in parts}) > 1
    yield from _contiguous(seen, whole, several)
    yield from _strided(seen, whole)


def _contiguous(seen: Observed, whole: Positions, several: bool) -> Iterator[Cut]:
    length = len(whole)
    before = seen.axis.prefixes(whole)
    sizes = np.arange(1, length)
    ends = np.minimum(2 * sizes, length)
    second = before[ends] - before[sizes]
    front = (seen.among(before[1:length]) | (sizes == 1)) & (seen.among(second) | (ends - sizes == 1))
    # From the back: the last part, and the one before it.
    last, starts = before[length] - before[length - sizes], np.maximum(length - 2 * sizes, 0)
    following = before[length - sizes] - before[starts]
    back = (seen.among(last) | (sizes == 1)) & (seen.among(following) | (length - sizes - starts == 1))
    for span in sizes[front].tolist():
        count = -(-length // span)
        for order in _orders(True):
            if span > 1:
                yield Cut(span=span, merge=order.name)
        if count > 2 and not several:
            for order in _orders(False):
                yield Cut(span=span, merge=order.name, count=order.least(count))
        if several and count > 1:
            for order in (*_orders(True), *_orders(False)):
                if order.takes(count):
                    yield from (Cut(count=count, tile=tile, merge=order.name) for tile in _tiles(span))
        yield from _long_last(length, span)
    for span in sizes[back].tolist():
        if span > 1 and length % span:
            for order in _orders(True):
                yield Cut(span=span, remainder="short-first", merge=order.name)
    yield from _spread(seen, before, length)


def _tiles(span: int) -> list[int]:
    return [tile for tile in range(1, span + 1) if span % tile == 0 and (tile & (tile - 1) == 0 or tile == span)]


def _long_last(length: int, span: int) -> Iterator[Cut]:
    """As many parts as the others' length leaves: the last, or the first, is longer."""
    for count in {length // span, length // span - 1} - {0, 1}:
        for tile in _tiles(span):
            if length // tile // count * tile == span:
                for remainder in ("long-last", "long-first"):
                    yield Cut(count=count, tile=tile, remainder=remainder)
                break


def _spread(seen: Observed, before: npt.NDArray[np.uint64], length: int) -> Iterator[Cut]:
    """Parts of two lengths, a tile apart, the longer ones first."""
    firsts = np.flatnonzero(seen.among(before[1:length])) + 1
    for more in firsts[:64].tolist():
        place = 0
        while place + more <= length and _between(before, place, place + more) in seen.nodes:
            place += more
        left = length - place
        rest = np.arange(2, min(more, left))
        for less in rest[seen.among(before[place + rest] - before[place])].tolist():
            count, tile = place // more + -(-left // less), more - less
            if Cut(count=count, tile=tile, remainder="spread").lengths(length)[: place // more + 1] == [
                *[more] * (place // more), less,
            ]:  # fmt: skip
                yield Cut(count=count, tile=tile, remainder="spread")


def _between(before: npt.NDArray[np.uint64], low: int, high: int) -> int:
    return (int(before[high]) - int(before[low])) & MASK


def _strided(seen: Observed, whole: Positions) -> Iterator[Cut]:
    """Deals that the first part shows: its first tile, and where its second one begins."""
    length = len(whole)
    deals = []
    codes = seen.axis.codes[whole]
    for tile, count in _deals(seen, whole):
        owner = strided_owners(length, tile, count)
        mine = owner == 0
        if int(codes[mine].sum(dtype=np.uint64)) not in seen.nodes:
            continue
        sums = np.zeros(count, dtype=np.uint64)
        np.add.at(sums, owner, codes)
        sizes = np.bincount(owner, minlength=count)
        if (seen.among(sums) | (sizes < 2)).all():
            deals.append((tile, count))
    for tile, count in deals:
        for order in (*_orders(True), *_orders(False)):
            if order.running_sum or (count > 2 and order.takes(count)):
                yield Cut(layout="strided", count=count, tile=tile, merge=order.name)
    for tile, count in deals:
        for groups in _groups(count):
            yield Cut(layout="strided", count=count, tile=tile, groups=groups)


def _deals(seen: Observed, whole: Positions) -> list[tuple[int, int]]:
    """Tiles and counts of parts: the first part begins with a tile, and goes on with that of the next turn."""
    found: dict[tuple[int, int], None] = {}
    for places in seen.over(whole):
        gaps = np.flatnonzero(np.diff(places) > 1)
        if len(gaps):
            tile, following = int(gaps[0]) + 1, int(places[gaps[0] + 1])
            if following % tile == 0:
                found[tile, following // tile] = None
    return list(found)


def _groups(count: int) -> Iterator[tuple[Group, ...]]:
    """Ways to deal parts to groups: one or two chains of powers of two, and halves of those."""
    sizes = (2, 4, 8, 16, 32)
    for first, second in product(sizes, (1, *sizes)):
        if first * second > 2 * count:
            continue
        chains = (Group(count=first), *((Group(count=second),) if second > 1 else ()))
        for halves in range(3):
            yield (*chains, *(Group(count=2, merge="halves"),) * halves)
