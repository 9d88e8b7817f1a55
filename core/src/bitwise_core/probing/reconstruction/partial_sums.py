"""Which sums of positions a descriptor makes, as numbers that are compared with those of a tree that was read off.

Every position has a random code of 64 bits, and a node is the sum of its positions' codes: a tree is the set of its
nodes, for no two of its nodes add the same positions.
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
"""A node: the sum of its positions' codes, and how many they are; (0, 0) for a part without positions."""

MASK = (1 << 64) - 1
EMPTY: Sum = (0, 0)


@dataclass(frozen=True)
class Axis:
    """`codes` of the positions 0 to length - 1, and one more of 0, which a zero that fills an instruction up has."""

    codes: Codes

    @classmethod
    def of(cls, length: int) -> Axis:
        """An axis of some length."""
        found = np.random.default_rng(length).integers(1, 1 << 63, size=length + 1, dtype=np.uint64) << np.uint64(1)
        found[length] = 0
        return cls(found)

    def sum(self, positions: Positions) -> Sum:
        """What a node of these positions is."""
        return int(self.codes[positions].sum(dtype=np.uint64)), len(positions)

    def prefixes(self, positions: Positions) -> Codes:
        """The sums of the first 0, 1, 2, ... of them."""
        return np.concatenate([[np.uint64(0)], np.cumsum(self.codes[positions], dtype=np.uint64)])

    def nodes_of_tree(self, tree: SumTree) -> dict[int, int]:
        """The nodes of a tree, each with how many nodes there are in it."""
        sums: list[int] = []
        within: list[int] = []
        codes = self.codes.tolist()
        for node in tree.nodes:
            sums.append(sum(codes[child] if child >= 0 else sums[~child] for child in node) & MASK)
            within.append(1 + sum(within[~child] for child in node if child < 0))
        return dict(zip(sums, within, strict=True))


def joined(one: Sum, other: Sum) -> Sum:
    """The node over two others."""
    return (one[0] + other[0]) & MASK, one[1] + other[1]


def merged(cut: Cut, parts: list[Sum]) -> tuple[Sum, list[Sum]]:
    """The whole of a cut's parts, and every node made on the way to it."""
    made: list[Sum] = []

    def plus(one: Sum, other: Sum) -> Sum:
        made.append(joined(one, other))
        return made[-1]

    return cut.part_steps(len(parts)).run(parts, EMPTY, plus), made


def walk_nodes(axis: Axis, spec: MmaSpec | None, fast: bool, taken: Positions) -> tuple[Sum, set[int]]:
    """The whole of a walk of instructions that take these positions, (count, native k), and its nodes.

    `spec` is the matrix unit's row, None for scalar arithmetic; `fast` says that the accumulator enters its sum, as in
    the arithmetic of every row but those that add it last.
    """
    codes = axis.codes[taken]
    present = (taken >= 0).astype(np.int64)
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
    """The nodes of any output element's sum."""
    nodes: set[int] = set()

    def visit(part: Part) -> Sum:
        if not len(part.positions):
            return EMPTY
        if part.cut is None:
            total, found = walk_nodes(axis, spec, desc.use_fast_accum, instructions(desc, part.positions))
            nodes.update(found)
            return total
        whole, made = merged(part.cut, [visit(each) for each in part.parts])
        nodes.update(number for number, count in made if count >= 2)
        return whole

    visit(parts_of(desc))
    return frozenset(nodes)
