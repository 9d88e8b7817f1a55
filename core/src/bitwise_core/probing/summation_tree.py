"""Trees of sums over the positions of one axis, and what their experiments would return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]

FUSED = 26
"""Bits that a node of more than two children keeps of its largest child."""


@dataclass(frozen=True)
class SumTree:
    """One output element's sum: positions of the axis as leaves, and nodes that add their children.

    A child is a position (0 or more) or a node (-1 for the first, -2 for the second, ...); nodes stand after their
    children, the last is the root.  A node of more than two children adds them in one step.  Children are kept in the
    order of their smallest position: an addition commutes.
    """

    nodes: tuple[tuple[int, ...], ...]

    @cached_property
    def leaves(self) -> Integers:
        """The positions that take part, ascending."""
        return np.array(sorted(child for node in self.nodes for child in node if child >= 0), dtype=np.int64)

    @cached_property
    def sizes(self) -> Integers:
        """How many positions each node adds."""
        sizes = np.zeros(len(self.nodes), dtype=np.int64)
        for number, node in enumerate(self.nodes):
            sizes[number] = sum(1 if child >= 0 else int(sizes[~child]) for child in node)
        return sizes

    @cached_property
    def _above(self) -> tuple[Integers, Integers, Integers]:
        """The node above each node, the depth of each node, and the node above each position (-1: none)."""
        above = np.full(len(self.nodes), -1, dtype=np.int64)
        of_leaf = np.full(int(self.leaves.max(initial=-1)) + 1, -1, dtype=np.int64)
        depth = np.zeros(len(self.nodes), dtype=np.int64)
        for number in range(len(self.nodes) - 1, -1, -1):
            for child in self.nodes[number]:
                if child >= 0:
                    of_leaf[child] = number
                else:
                    above[~child] = number
                    depth[~child] = depth[number] + 1
        return above, depth, of_leaf

    def joined(self, first: npt.ArrayLike, second: npt.ArrayLike) -> Integers:
        """How many positions the smallest node over each pair of positions adds."""
        above, depth, of_leaf = self._above
        left, right = of_leaf[np.asarray(first)], of_leaf[np.asarray(second)]
        while (apart := left != right).any():
            rise_left = apart & (depth[left] >= depth[right])
            rise_right = apart & (depth[right] >= depth[left])
            left, right = np.where(rise_left, above[left], left), np.where(rise_right, above[right], right)
        return np.asarray(self.sizes[left], dtype=np.int64)


def evaluate(tree: SumTree, values: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """The sums (rows,) of values (rows, length) in the tree's order, each node rounded once to the values' type.

    A node of more than two children is one step of a matrix unit: its values are cut off FUSED bits below the largest
    of them, and their sum is rounded once.
    """
    held: list[npt.NDArray[np.floating]] = []
    for node in tree.nodes:
        parts = [values[:, child] if child >= 0 else held[~child] for child in node]
        held.append(parts[0] + parts[1] if len(parts) == 2 else _together(np.stack(parts)))
    return held[-1]


def _together(parts: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    exact = parts.astype(np.float64)
    quantum = 2.0 ** (np.frexp(np.abs(exact).max(axis=0))[1] - FUSED)
    return np.asarray((np.trunc(exact / quantum) * quantum).sum(axis=0), dtype=parts.dtype)


def in_order(nodes: Sequence[Sequence[int]], root: int) -> SumTree:
    """The tree below a node, renumbered so that equal sums are equal records: children before parents, lowest first."""
    smallest: dict[int, int] = {}
    for number in reversed(below(nodes, root)):
        smallest[number] = min(child if child >= 0 else smallest[~child] for child in nodes[number])

    def place(child: int) -> int:
        return child if child >= 0 else smallest[~child]

    children = {number: sorted(nodes[number], key=place) for number in smallest}
    numbers: dict[int, int] = {}
    ordered: list[tuple[int, ...]] = []
    for number in reversed(below(children, root)):
        numbers[number] = len(ordered)
        ordered.append(tuple(child if child >= 0 else ~numbers[~child] for child in children[number]))
    return SumTree(tuple(ordered))


def below(nodes: Sequence[Sequence[int]] | Mapping[int, Sequence[int]], root: int) -> list[int]:
    """The nodes from a root down, parents first, in an order that the children's order alone decides."""
    visited: list[int] = []
    stack = [root]
    while stack:
        visited.append(stack.pop())
        stack.extend(~child for child in nodes[visited[-1]] if child < 0)
    return visited


def nested(content: object) -> SumTree:
    """The tree of nested sequences of positions: ((0, 1), (2, 3)) adds two pairs."""
    nodes: list[list[int]] = []

    def add(part: object) -> int:
        if isinstance(part, int):
            return part
        assert isinstance(part, Iterable)
        children = [add(each) for each in part]
        nodes.append(children)
        return ~(len(nodes) - 1)

    root = add(content)
    return in_order(nodes, ~root) if root < 0 else SumTree(())


def from_neighbours(leaves: Integers, joined: Integers) -> SumTree | None:
    """The tree whose every node adds neighbours, from how many positions each adjacent pair's smallest node adds.

    `joined` has one entry fewer than `leaves`.  None where no such tree returns those numbers.
    """
    nodes: list[list[int]] = []
    open_: list[tuple[int, list[int], int]] = []  # what a node adds, its children so far, where it begins
    current, begins = int(leaves[0]), 0

    def close(ends: int) -> bool:
        nonlocal current, begins
        adds, children, begins = open_.pop()
        children.append(current)
        nodes.append(children)
        current = ~(len(nodes) - 1)
        return adds == ends - begins

    for gap, adds in enumerate(joined.tolist()):
        while open_ and open_[-1][0] < adds:
            if not close(gap + 1):
                return None
        if open_ and open_[-1][0] == adds:
            open_[-1][1].append(current)
        else:
            open_.append((adds, [current], begins))
        current, begins = int(leaves[gap + 1]), gap + 1
    while open_:
        if not close(len(leaves)):
            return None
    return in_order(nodes, ~current) if current < 0 else None
