"""The summation tree of a descriptor, for comparison with one inferred from a library's outputs."""

from __future__ import annotations

import hashlib
import json

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.k_axis import FILL, Part, instructions, parts_of
from bitwise_core.probing.summation_tree import SumTree, canonical_tree

Child = int | None
"""A position, a node (numbered as in SumTree), or None for a part without positions: adding +0 does not affect the
order.
"""


def tree_of(desc: GEMMDesc) -> SumTree:
    """The tree of one output element's sum. An instruction's products and its accumulator join in one node."""
    nodes: list[list[int]] = []
    root = _part(desc, parts_of(desc), nodes)
    return canonical_tree(nodes, ~root) if root is not None and root < 0 else SumTree(())


def digest(tree: SumTree) -> str:
    """A short hash of a tree."""
    return hashlib.sha256(json.dumps(tree.nodes, separators=(",", ":")).encode()).hexdigest()[:16]


def _part(desc: GEMMDesc, part: Part, nodes: list[list[int]]) -> Child:
    if not len(part.positions):
        return None
    if part.cut is not None:
        found = [_part(desc, each, nodes) for each in part.parts]
        return part.cut.part_steps(len(found)).run(found, None, lambda one, other: _node([one, other], nodes))
    current: Child = None
    for instruction in instructions(desc, part).tolist():
        group = [position for position in instruction if position != FILL]
        current = _node([current, *group], nodes)
    return current


def _node(children: list[Child], nodes: list[list[int]]) -> Child:
    real = [child for child in children if child is not None]
    if len(real) < 2:
        return real[0] if real else None
    nodes.append(real)
    return ~(len(nodes) - 1)
