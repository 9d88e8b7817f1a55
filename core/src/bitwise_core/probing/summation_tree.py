"""Summation trees over the positions of one axis, and the results that probes of them return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]

FUSED_STEP_BITS = 26
"""Bits below the largest child's exponent that a node of more than two children keeps."""


@dataclass(frozen=True)
class SumTree:
    """The sum of one output element: positions of the axis as leaves, and nodes that add their children.

    A child is a position (0 or more) or a node (-1 for the first, -2 for the second, ...).  Nodes are in topological
    order, children first; the last node is the root.  A node of more than two children adds them in one step.  Children
    are sorted by their smallest position, since an addition commutes.
    """

    nodes: tuple[tuple[int, ...], ...]

    @cached_property
    def leaves(self) -> Integers:
        """The positions in the sum, ascending."""
        return np.array(sorted(child for node in self.nodes for child in node if child >= 0), dtype=np.int64)

    @cached_property
    def sizes(self) -> Integers:
        """The number of positions that each node adds."""
        sizes = np.zeros(len(self.nodes), dtype=np.int64)
        for number, node in enumerate(self.nodes):
            sizes[number] = sum(1 if child >= 0 else int(sizes[~child]) for child in node)
        return sizes

    @cached_property
    def _parents(self) -> tuple[Integers, Integers, Integers]:
        """The parent of each node, the depth of each node, and the parent of each position (-1: none)."""
        parent = np.full(len(self.nodes), -1, dtype=np.int64)
        leaf_parent = np.full(int(self.leaves.max(initial=-1)) + 1, -1, dtype=np.int64)
        depth = np.zeros(len(self.nodes), dtype=np.int64)
        for number in range(len(self.nodes) - 1, -1, -1):
            for child in self.nodes[number]:
                if child >= 0:
                    leaf_parent[child] = number
                else:
                    parent[~child] = number
                    depth[~child] = depth[number] + 1
        return parent, depth, leaf_parent

    def common_node_sizes(self, first: npt.ArrayLike, second: npt.ArrayLike) -> Integers:
        """Return how many positions the lowest common node of each pair of positions adds."""
        parent, depth, leaf_parent = self._parents
        left, right = leaf_parent[np.asarray(first)], leaf_parent[np.asarray(second)]
        while (different := left != right).any():
            ascend_left = different & (depth[left] >= depth[right])
            ascend_right = different & (depth[right] >= depth[left])
            left, right = np.where(ascend_left, parent[left], left), np.where(ascend_right, parent[right], right)
        return np.asarray(self.sizes[left], dtype=np.int64)


def evaluate(tree: SumTree, values: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Return the sums (rows,) of values (rows, length) in the tree's order, each node rounded once to the values' type.

    A node of more than two children is one step of a matrix unit: its terms are truncated FUSED_STEP_BITS bits below
    the exponent of the largest term, and their sum is rounded once.
    """
    sums: list[npt.NDArray[np.floating]] = []
    for node in tree.nodes:
        terms = [values[:, child] if child >= 0 else sums[~child] for child in node]
        sums.append(terms[0] + terms[1] if len(terms) == 2 else _fused_sum(np.stack(terms)))
    return sums[-1]


def _fused_sum(terms: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Return the sums (rows,) of terms (count, rows) as a matrix unit adds them in one step."""
    exact = terms.astype(np.float64)
    quantum = 2.0 ** (np.frexp(np.abs(exact).max(axis=0))[1] - FUSED_STEP_BITS)
    return np.asarray((np.trunc(exact / quantum) * quantum).sum(axis=0), dtype=terms.dtype)


def canonical_tree(nodes: Sequence[Sequence[int]], root: int) -> SumTree:
    """Return the tree below a node, renumbered so that equal sums are equal records.

    Children precede parents, and siblings are sorted by their smallest position.
    """
    smallest: dict[int, int] = {}
    for number in reversed(descendants(nodes, root)):
        smallest[number] = min(child if child >= 0 else smallest[~child] for child in nodes[number])

    def place(child: int) -> int:
        return child if child >= 0 else smallest[~child]

    children = {number: sorted(nodes[number], key=place) for number in smallest}
    numbers: dict[int, int] = {}
    ordered: list[tuple[int, ...]] = []
    for number in reversed(descendants(children, root)):
        numbers[number] = len(ordered)
        ordered.append(tuple(child if child >= 0 else ~numbers[~child] for child in children[number]))
    return SumTree(tuple(ordered))


def descendants(nodes: Sequence[Sequence[int]] | Mapping[int, Sequence[int]], root: int) -> list[int]:
    """Return the nodes below a root and the root, parents first, in an order determined by the order of children."""
    visited: list[int] = []
    stack = [root]
    while stack:
        visited.append(stack.pop())
        stack.extend(~child for child in nodes[visited[-1]] if child < 0)
    return visited


def from_nested(content: object) -> SumTree:
    """Return the tree of nested sequences of positions: ((0, 1), (2, 3)) adds two pairs."""
    nodes: list[list[int]] = []

    def add(part: object) -> int:
        if isinstance(part, int):
            return part
        assert isinstance(part, Iterable)
        children = [add(each) for each in part]
        nodes.append(children)
        return ~(len(nodes) - 1)

    root = add(content)
    return canonical_tree(nodes, ~root) if root < 0 else SumTree(())


def from_neighbours(leaves: Integers, sizes: Integers) -> SumTree | None:
    """Return the tree in which every node adds a contiguous range of leaves.

    `sizes` has one entry for each pair of adjacent leaves: how many positions their lowest common node adds.  None
    where no such tree has these sizes.
    """
    nodes: list[list[int]] = []
    open_nodes: list[tuple[int, list[int], int]] = []  # the size of a node, its children so far, its first leaf
    current, start = int(leaves[0]), 0

    def close(end: int) -> bool:
        """Close the innermost open node before leaf number `end`; return whether it has its size."""
        nonlocal current, start
        size, children, start = open_nodes.pop()
        children.append(current)
        nodes.append(children)
        current = ~(len(nodes) - 1)
        return size == end - start

    for pair, size in enumerate(sizes.tolist()):
        while open_nodes and open_nodes[-1][0] < size:
            if not close(pair + 1):
                return None
        if open_nodes and open_nodes[-1][0] == size:
            open_nodes[-1][1].append(current)
        else:
            open_nodes.append((size, [current], start))
        current, start = int(leaves[pair + 1]), pair + 1
    while open_nodes:
        if not close(len(leaves)):
            return None
    return canonical_tree(nodes, ~current) if current < 0 else None
