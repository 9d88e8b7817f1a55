"""Nested cuts of the k axis that explain the nodes of a revealed tree; each innermost part is one loop over k."""

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
from bitwise_core.probing.reconstruction.partial_sums import CODE_MASK, Axis, Sum, merged
from bitwise_core.probing.summation_tree import descendants

LoopT = TypeVar("LoopT")

MAXIMUM_DEPTH = 8
"""The maximum number of nested cuts."""


def _merge_orders(running_sum: bool) -> list[MergeOrder]:
    return [order for order in MERGE_ORDERS.values() if order.running_sum == running_sum]


@dataclass(frozen=True)
class ObservedTree:
    """A revealed tree, and the codes of its nodes: as a dictionary, and as a sorted array for vectorized look-ups."""

    axis: Axis
    tree: SumTree
    nodes: dict[int, int]
    array: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, axis: Axis, tree: SumTree) -> ObservedTree:
        """Return the record of a tree over an axis."""
        nodes = axis.nodes_of_tree(tree)
        return cls(axis, tree, nodes, np.array(sorted(nodes), dtype=np.uint64))

    @cached_property
    def _parent(self) -> dict[int, int]:
        """The number of the node above each child; children are numbered as in SumTree."""
        return {child: number for number, node in enumerate(self.tree.nodes) for child in node}

    def ancestors(self, positions: Positions) -> Iterator[Positions]:
        """Yield what each node above the first of some positions adds, as indices into them, up to all of them."""
        child = int(positions[0])
        leaves = np.array([child])
        while len(leaves) < len(positions) and child in self._parent:
            number = self._parent[child]
            added = [self._leaves(each) for each in self.tree.nodes[number] if each != child]
            leaves = np.concatenate([leaves, *added])
            child = ~number
            yield np.sort(np.searchsorted(positions, leaves))

    def _leaves(self, child: int) -> Positions:
        if child >= 0:
            return np.array([child])
        numbers = descendants(self.tree.nodes, ~child)
        return np.array([each for number in numbers for each in self.tree.nodes[number] if each >= 0])

    def has_node(self, node: Sum) -> bool:
        """Return whether the tree has a node; a single position and an empty sum need none."""
        return node[1] < 2 or node[0] in self.nodes

    def are_nodes(self, sums: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Return which codes are those of nodes."""
        return np.isin(sums, self.array)


@dataclass(frozen=True)
class CutNest(Generic[LoopT]):
    """Nested cuts, outermost first, all in one type, and the loop over k of the innermost parts."""

    cuts: tuple[Cut, ...]
    k_loop: LoopT


def nests(
    observed: ObservedTree, positions: Positions, k_loops: Callable[[Sequence[Positions]], list[LoopT]]
) -> Iterator[list[CutNest[LoopT]]]:
    """Yield lists of nests that explain every node: first all those with the fewest cuts, then those with one more.

    `k_loops` returns the loops over k that explain all of some parts.
    """
    fewest = MAXIMUM_DEPTH
    for depth in range(MAXIMUM_DEPTH + 1):
        found = list(_nests_of_depth(observed, [positions], k_loops, depth)) if depth <= fewest + 1 else []
        if found:
            fewest = min(fewest, depth)
            yield found


def _nests_of_depth(
    observed: ObservedTree,
    parts: Sequence[Positions],
    k_loops: Callable[[Sequence[Positions]], list[LoopT]],
    depth: int,
) -> Iterator[CutNest[LoopT]]:
    if depth == 0:
        yield from (CutNest((), k_loop) for k_loop in k_loops(parts))
        return
    tried = set()
    for cut in candidates(observed, parts):
        if cut in tried:
            continue
        tried.add(cut)
        inner = _split(observed, cut, parts)
        # A cut that splits no part explains no node.
        if inner is None or len(inner) <= len(parts):
            continue
        for rest in _nests_of_depth(observed, inner, k_loops, depth - 1):
            yield CutNest((cut, *rest.cuts), rest.k_loop)


def _split(observed: ObservedTree, cut: Cut, parts: Sequence[Positions]) -> list[Positions] | None:
    """Return the parts of all parts under a cut; None if one of them or one of their partial sums is not a node."""
    result = []
    for whole in parts:
        try:
            inner = cut.parts(whole)
        except DescriptorError:
            return None
        sums = [observed.axis.sum(part) for part in inner]
        if not all(map(observed.has_node, sums)) or not all(map(observed.has_node, merged(cut, sums)[1])):
            return None
        result += [part for part in inner if len(part)]
    return result


def candidates(observed: ObservedTree, parts: Sequence[Positions]) -> Iterator[Cut]:
    """Yield cuts that the longest of some parts may have, the simpler ones first."""
    whole = max(parts, key=len)
    if len(whole) < 2:
        return
    unequal = len({len(part) for part in parts}) > 1
    yield from _contiguous(observed, whole, unequal)
    yield from _strided(observed, whole)


def _contiguous(observed: ObservedTree, whole: Positions, unequal: bool) -> Iterator[Cut]:
    """Yield cuts into contiguous parts; `unequal` says that other parts have other lengths."""
    length = len(whole)
    before = observed.axis.prefixes(whole)
    sizes = np.arange(1, length)
    ends = np.minimum(2 * sizes, length)
    second = before[ends] - before[sizes]
    front = (observed.are_nodes(before[1:length]) | (sizes == 1)) & (observed.are_nodes(second) | (ends - sizes == 1))
    # From the end: the last part, and the part before it.
    last, starts = before[length] - before[length - sizes], np.maximum(length - 2 * sizes, 0)
    following = before[length - sizes] - before[starts]
    back = (observed.are_nodes(last) | (sizes == 1)) & (observed.are_nodes(following) | (length - sizes - starts == 1))
    for span in sizes[front].tolist():
        count = -(-length // span)
        for order in _merge_orders(True):
            if span > 1:
                yield Cut(span=span, merge=order.name)
        if count > 2 and not unequal:
            for order in _merge_orders(False):
                yield Cut(span=span, merge=order.name, count=order.least(count))
        if unequal and count > 1:
            for order in (*_merge_orders(True), *_merge_orders(False)):
                if order.takes(count):
                    yield from (Cut(count=count, tile=tile, merge=order.name) for tile in _tiles(span))
        yield from _long_remainders(length, span)
    for span in sizes[back].tolist():
        if span > 1 and length % span:
            for order in _merge_orders(True):
                yield Cut(span=span, remainder="short-first", merge=order.name)
    yield from _spread_remainders(observed, before, length)


def _tiles(span: int) -> list[int]:
    return [tile for tile in range(1, span + 1) if span % tile == 0 and (tile & (tile - 1) == 0 or tile == span)]


def _long_remainders(length: int, span: int) -> Iterator[Cut]:
    """Yield cuts into parts of `span` whose last or first part is longer by the remainder."""
    for count in {length // span, length // span - 1} - {0, 1}:
        for tile in _tiles(span):
            if length // tile // count * tile == span:
                for remainder in ("long-last", "long-first"):
                    yield Cut(count=count, tile=tile, remainder=remainder)
                break


def _spread_remainders(observed: ObservedTree, before: npt.NDArray[np.uint64], length: int) -> Iterator[Cut]:
    """Yield cuts into parts of two lengths that differ by a tile, the longer ones first."""
    firsts = np.flatnonzero(observed.are_nodes(before[1:length])) + 1
    for long in firsts[:64].tolist():
        end = 0
        while end + long <= length and _sum_between(before, end, end + long) in observed.nodes:
            end += long
        remaining = length - end
        shorter = np.arange(2, min(long, remaining))
        for short in shorter[observed.are_nodes(before[end + shorter] - before[end])].tolist():
            count, tile = end // long + -(-remaining // short), long - short
            if Cut(count=count, tile=tile, remainder="spread").lengths(length)[: end // long + 1] == [
                *[long] * (end // long), short,
            ]:  # fmt: skip
                yield Cut(count=count, tile=tile, remainder="spread")


def _sum_between(before: npt.NDArray[np.uint64], low: int, high: int) -> int:
    """Return the code of the sum of positions low to high - 1 from prefix sums."""
    return (int(before[high]) - int(before[low])) & CODE_MASK


def _strided(observed: ObservedTree, whole: Positions) -> Iterator[Cut]:
    """Yield strided cuts, from the first part's first tile and the start of its second tile."""
    length = len(whole)
    layouts = []
    codes = observed.axis.codes[whole]
    for tile, count in _strided_layouts(observed, whole):
        owner = strided_owners(length, tile, count)
        if int(codes[owner == 0].sum(dtype=np.uint64)) not in observed.nodes:
            continue
        sums = np.zeros(count, dtype=np.uint64)
        np.add.at(sums, owner, codes)
        sizes = np.bincount(owner, minlength=count)
        if (observed.are_nodes(sums) | (sizes < 2)).all():
            layouts.append((tile, count))
    for tile, count in layouts:
        for order in (*_merge_orders(True), *_merge_orders(False)):
            if order.running_sum or (count > 2 and order.takes(count)):
                yield Cut(layout="strided", count=count, tile=tile, merge=order.name)
    for tile, count in layouts:
        for groups in _group_candidates(count):
            yield Cut(layout="strided", count=count, tile=tile, groups=groups)


def _strided_layouts(observed: ObservedTree, whole: Positions) -> list[tuple[int, int]]:
    """Return pairs of tile and number of parts: the first part's second tile starts after one tile of every part."""
    found: dict[tuple[int, int], None] = {}
    for places in observed.ancestors(whole):
        gaps = np.flatnonzero(np.diff(places) > 1)
        if len(gaps):
            tile, following = int(gaps[0]) + 1, int(places[gaps[0] + 1])
            if following % tile == 0:
                found[tile, following // tile] = None
    return list(found)


def _group_candidates(count: int) -> Iterator[tuple[Group, ...]]:
    """Yield candidate groups of parts: one or two chains of power-of-two lengths, and up to two halvings of those."""
    sizes = (2, 4, 8, 16, 32)
    for first, second in product(sizes, (1, *sizes)):
        if first * second > 2 * count:
            continue
        chains = (Group(count=first), *((Group(count=second),) if second > 1 else ()))
        for halves in range(3):
            yield (*chains, *(Group(count=2, merge="halves"),) * halves)
