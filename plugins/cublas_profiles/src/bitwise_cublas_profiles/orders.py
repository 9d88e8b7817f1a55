"""The tree of sums that a descriptor says, to be held against one that was read off a library's outputs."""

from __future__ import annotations

import hashlib
import json

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.walk import FILL, Part, instructions, parts_of
from bitwise_core.probe.sums import SumTree, in_order

Child = int | None
"""A position, a node (as SumTree counts them), or None for a part without positions: adding +0 orders nothing."""


def tree_of(desc: GEMMDesc) -> SumTree:
    """The tree of any output element's sum; an instruction's products and its accumulator join in one node."""
    nodes: list[list[int]] = []
    root = _part(desc, parts_of(desc), nodes)
    return in_order(nodes, ~root) if root is not None and root < 0 else SumTree(())


def digest(tree: SumTree) -> str:
    """Digits that tell a tree from another."""
    return hashlib.sha256(json.dumps(tree.nodes, separators=(",", ":")).encode()).hexdigest()[:16]


def _part(desc: GEMMDesc, part: Part, nodes: list[list[int]]) -> Child:
    if not len(part.positions):
        return None
    if part.cut is not None:
        found = [_part(desc, each, nodes) for each in part.parts]
        return part.cut.part_steps(len(found)).run(found, None, lambda one, other: _node([one, other], nodes))
    current: Child = None
    for instruction in instructions(desc, part.positions).tolist():
        group = [position for position in instruction if position != FILL]
        current = _node([current, *group], nodes)
    return current


def _node(children: list[Child], nodes: list[list[int]]) -> Child:
    real = [child for child in children if child is not None]
    if len(real) < 2:
        return real[0] if real else None
    nodes.append(real)
    return ~(len(nodes) - 1)
