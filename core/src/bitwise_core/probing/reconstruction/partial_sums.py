"""The partial sums of a descriptor, as codes that are compared with those of a revealed tree.

Every position has a random 64-bit code, and the code of a node is the sum of its positions' codes modulo 2^64.  A tree
is represented by the set of its nodes' codes, since no two of its nodes add the same positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core.descriptors import Cut, GEMMDesc
from bitwise_core.descriptors.cuts import Positions
from bitwise_core.descriptors.k_axis import Part, instructions, parts_of
from bitwise_core.numerics.mma import FusedSum, MmaSpec
from bitwise_core.probing import SumTree

Codes: TypeAlias = npt.NDArray[np.uint64]
Sum: TypeAlias = tuple[int, int]
"""A node: the sum of its positions' codes and their number; (0, 0) for a part without positions."""

CODE_MASK = (1 << 64) - 1
EMPTY_SUM: Sum = (0, 0)


@dataclass(frozen=True)
class Axis:
    """An axis: the `codes` of positions 0 to length - 1, then the code 0 of a zero that pads an instruction."""

    codes: Codes

    @classmethod
    def of(cls, length: int) -> Axis:
        """Return an axis of `length` positions."""
        codes = np.random.default_rng(length).integers(1, 1 << 63, size=length + 1, dtype=np.uint64) << np.uint64(1)
        codes[length] = 0
        return cls(codes)

    def sum(self, positions: Positions) -> Sum:
        """Return the node that adds these positions."""
        return int(self.codes[positions].sum(dtype=np.uint64)), len(positions)

    def prefixes(self, positions: Positions) -> Codes:
        """Return the codes of the sums of the first 0, 1, 2, ... of these positions."""
        return np.concatenate([[np.uint64(0)], np.cumsum(self.codes[positions], dtype=np.uint64)])

    def nodes_of_tree(self, tree: SumTree) -> dict[int, int]:
        """Return the codes of a tree's nodes, each with the number of nodes in its subtree."""
        sums: list[int] = []
        subtree_nodes: list[int] = []
        codes = self.codes.tolist()
        for node in tree.nodes:
            sums.append(sum(codes[child] if child >= 0 else sums[~child] for child in node) & CODE_MASK)
            subtree_nodes.append(1 + sum(subtree_nodes[~child] for child in node if child < 0))
        return dict(zip(sums, subtree_nodes, strict=True))


def joined(left: Sum, right: Sum) -> Sum:
    """Return the node that adds two nodes."""
    return (left[0] + right[0]) & CODE_MASK, left[1] + right[1]


def merged(cut: Cut, parts: list[Sum]) -> tuple[Sum, list[Sum]]:
    """Return the sum of a cut's parts, and every node of the merge."""
    nodes: list[Sum] = []

    def add(left: Sum, right: Sum) -> Sum:
        nodes.append(joined(left, right))
        return nodes[-1]

    return cut.part_steps(len(parts)).run(parts, EMPTY_SUM, add), nodes


def k_loop_nodes(axis: Axis, spec: MmaSpec | None, fast: bool, positions: Positions) -> tuple[Sum, set[int]]:
    """Return the total and the nodes of a loop over k whose instructions take `positions` (count, native k).

    A position of -1 is padding.  `spec` is the matrix unit's row, None for scalar arithmetic.  `fast` says that the
    accumulator is a term of the instruction's sum, which holds for every row except those that add it last.
    """
    codes = axis.codes[positions]
    present = (positions >= 0).astype(np.int64)
    groups = spec.groups if spec is not None else ((0,),)
    steps = np.stack([codes[:, list(group)].sum(axis=1, dtype=np.uint64) for group in groups], axis=1)
    counts = np.stack([present[:, list(group)].sum(axis=1) for group in groups], axis=1)
    nodes: set[int] = set()

    def add(sums: Codes, sizes: npt.NDArray[np.int64]) -> None:
        nodes.update(sums[sizes >= 2].tolist())

    rule = spec.arithmetic if spec is not None else None
    if not fast or (isinstance(rule, FusedSum) and rule.accumulator_last):
        steps, counts = np.cumsum(steps, axis=1, dtype=np.uint64), np.cumsum(counts, axis=1)
        add(steps, counts)
        steps, counts = steps[:, -1:], counts[:, -1:]
    totals, sizes = np.cumsum(steps.reshape(-1), dtype=np.uint64), np.cumsum(counts.reshape(-1))
    add(totals, sizes)
    return (int(totals[-1]), int(sizes[-1])), nodes


def nodes_of(axis: Axis, desc: GEMMDesc, spec: MmaSpec | None) -> frozenset[int]:
    """Return the codes of the nodes of an output element's sum; they are the same for all elements."""
    nodes: set[int] = set()

    def visit(part: Part) -> Sum:
        if part.empty:
            return EMPTY_SUM
        if part.cut is None:
            total, found = k_loop_nodes(axis, spec, desc.use_fast_accum, instructions(desc, part))
            nodes.update(found)
            return total
        whole, made = merged(part.cut, [visit(each) for each in part.parts])
        nodes.update(number for number, count in made if count >= 2)
        return whole

    visit(parts_of(desc))
    return frozenset(nodes)
