"""A sentence on why two trees differ, from the nodes at which they first diverge."""

from __future__ import annotations

from collections.abc import Sequence

from bitwise_core.checker.trees.divergence import DivergentNodes, divergence_sentence, expression_text, number_text
from bitwise_core.checker.trees.provenance import Definition, Provenance, Scalar
from bitwise_core.checker.trees.sum_orders import compared_sums, different_terms
from bitwise_core.checker.trees.sums_of_values import is_addition, is_part_of_sum, summation

DISTANCE = 2
"""How many levels below an addition the trees may diverge so that different terms of its sum explain it."""


def explanation(
    nodes: DivergentNodes, provenances: tuple[Provenance, Provenance], names: tuple[str, str]
) -> tuple[str, int]:  # fmt: skip
    """Return how two kernels differ, in a sentence without a full stop, and the depth of the nodes that show it.

    The outermost sums of the same terms that hold the first divergent nodes explain it by their order; else the terms
    of the innermost sums, or the operands that differ, or else the operations.
    """
    path = nodes.path
    found: str | None
    for first, last in sums_on_path(path):
        sums = [summation(provenance, each.scalar) for provenance, each in zip(provenances, path[first], strict=True)]
        if sums[0] is None or sums[1] is None:
            continue
        found = compared_sums(sums[0], sums[1], names)
        if found is not None:
            both = all(is_addition(each) for each in path[last])
            return found, last if both else max(first, last - 1)
        if len(path) - 1 - last <= DISTANCE:
            found = different_terms(sums[0], sums[1], names)
        if found is not None:
            return found, last
    left, right = nodes.left, nodes.right
    found = _different_operand(left, right, provenances, names) if left.name == right.name else None
    return found or divergence_sentence(left.name, right.name, *names), nodes.depth


def sums_on_path(path: Sequence[tuple[Definition, Definition]]) -> list[tuple[int, int]]:
    """Return the first and the last place of each run of additions on the way to a divergence, the outermost first.

    Conversions between additions belong to a run.  At the divergence itself, one addition suffices.
    """
    found: list[tuple[int, int]] = []
    inside = False
    for place, pair in enumerate(path):
        adds = (any if place == len(path) - 1 else all)(is_addition(each) for each in pair)
        if adds:
            found = [*found[:-1], (found[-1][0], place)] if inside else [*found, (place, place)]
            inside = True
        elif not all(is_part_of_sum(each) for each in pair):
            inside = False
    return found


def _different_operand(
    left: Definition, right: Definition, provenances: tuple[Provenance, Provenance], names: tuple[str, str]
) -> str | None:
    """Return a sentence on the only operand in which two nodes of one operation differ."""
    operands = [[each.hash for each in node.operands] for node in (left, right)]
    own = [
        [scalar for scalar, key in zip(node.operands, keys, strict=True) if key not in others]
        for node, keys, others in ((left, operands[0], operands[1]), (right, operands[1], operands[0]))
    ]
    if len(own[0]) != 1 or len(own[1]) != 1:
        return None
    texts = [_text(provenance, scalars[0]) for provenance, scalars in zip(provenances, own, strict=True)]
    name = left.name.partition("@")[0].removeprefix("matrix ")
    return f"both compute {name}; {names[0]} takes {texts[0]} where {names[1]} takes {texts[1]}"


def _text(provenance: Provenance, scalar: Scalar) -> str:
    definition = provenance.definition(scalar)
    if definition.name == "constant":
        return f"the constant {number_text(scalar.first, scalar.bits, f'fp{scalar.bits}')}"
    return expression_text(provenance, definition, "", 1)
