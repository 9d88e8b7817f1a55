"""The first divergence of two dependence trees, and what it says in a sentence for whoever compiled the kernels."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import repeat

from bitwise_core.checker.provenance import Part, Provenance, Scalar
from bitwise_core.execution.launch import POINTER_SHIFT
from bitwise_core.execution.values import mma_steps
from bitwise_core.numerics import UnknownOperation, operation

_LEAVES = {"load": "a value from memory", "constant": "a constant", "undefined": "an undefined value"}
_NOUNS = {
    "add": "sum",
    "sub": "difference",
    "mul": "product",
    "div": "quotient",
    "sqrt": "square root",
    "fma": "fused multiply-add",
    "convert": "conversion",
    "max": "maximum",
    "min": "minimum",
    "rcp": "reciprocal",
    "rsqrt": "reciprocal square root",
    "ex2": "power of two",
    "lg2": "logarithm",
}
_ROUNDS = ("rn", "rz", "rd", "ru", "rna")
_DEPTH, _WIDTH = 2, 4
MAXIMUM_STEPS = 1 << 20


@dataclass(frozen=True, slots=True)
class DivergentNodes:
    """The first nodes at which two trees diverge, one of each tree, and their distance from the root."""

    left: Part
    right: Part
    depth: int


def first_divergence(left: Provenance, root_left: Scalar, right: Provenance, root_right: Scalar) -> DivergentNodes:
    """The result of a descent into the first operands that differ, while operation and number of operands agree.

    Commuting operands are matched by their hashes first.  Where the operands that differ are loads or constants, the
    divergent node is the one that uses them.
    """
    here = DivergentNodes(left.part(root_left), right.part(root_right), 0)
    for depth in range(1, MAXIMUM_STEPS):
        pair = _differing(here.left, here.right)
        if pair is None:
            return here
        below = DivergentNodes(left.part(pair[0]), right.part(pair[1]), depth)
        if below.left.name in _LEAVES and below.right.name in _LEAVES:
            return here
        # A load has no line of its own: it gets the line of its use.
        here = DivergentNodes(_lined(below.left, here.left), _lined(below.right, here.right), depth)
    return here


def _lined(part: Part, user: Part) -> Part:
    return part if part.line else replace(part, line=user.line)


def _differing(left: Part, right: Part) -> tuple[Scalar, Scalar] | None:
    """The first operands that differ, or None where the nodes themselves do."""
    if left.name != right.name or len(left.operands) != len(right.operands) or left.name in _LEAVES:
        return None
    hashes = [[operand.hash for operand in part.operands] for part in (left, right)]
    rest: list[list[int]] = []
    for mine, others in ((hashes[0], hashes[1]), (hashes[1], hashes[0])):
        unmatched = [others[place] for place in left.commuting]
        kept = []
        for place in left.commuting:
            if mine[place] in unmatched:
                unmatched.remove(mine[place])
            else:
                kept.append(place)
        rest.append(kept)
    for place in range(len(left.operands)):
        if place not in left.commuting and hashes[0][place] != hashes[1][place]:
            return left.operands[place], right.operands[place]
        if place in left.commuting and rest[0] and rest[1] and place == rest[0][0]:
            return left.operands[rest[0][0]], right.operands[rest[1][0]]
    return None


def address_text(replay: Provenance, address: int, size: int) -> str:
    """An element of a buffer as `X[offset/size]`, both in bytes."""
    return f"{buffer_name(replay, address >> POINTER_SHIFT)}[{address & ((1 << POINTER_SHIFT) - 1)}/{size}]"


def buffer_name(replay: Provenance, number: int) -> str:
    """The name of a buffer by its number."""
    return next((name for name, each in replay.buffers.items() if each == number), f"buffer {number}")


def number_text(number: int, bits: int, form: str) -> str:
    """A bit pattern as a number in the format `form`, in hexadecimal for other formats."""
    kinds = {"fp64": "<d", "fp32": "<f", "fp16": "<e"}
    if form in kinds and struct.calcsize(kinds[form]) * 8 == bits:
        return repr(struct.unpack(kinds[form], number.to_bytes(bits // 8, "little"))[0])
    return f"{number:#x}"


def _formats(part: Part) -> Iterable[str]:
    """The formats in which an operation reads its operands; the operands of a set all have one."""
    try:
        known = operation(part.name).operands
    except UnknownOperation:
        return repeat("")
    return (form.name for form in (known if len(part.operands) == len(known) else repeat(known[0])))


def expression_text(replay: Provenance, part: Part, form: str = "", depth: int = _DEPTH) -> str:
    """A value as an expression of a few levels; `form` is the format of the operation that uses it."""
    scalar = part.scalar
    if part.name == "load":
        return address_text(replay, scalar.first, scalar.bits // 8)
    if part.name == "constant":
        return number_text(scalar.first, scalar.bits, form)
    if part.name == "undefined":
        return "an undefined value"
    name = part.name.removeprefix(mma_steps.MATRIX).split("@")[0]
    if depth == 0:
        return "[…]" if name == mma_steps.VECTOR else f"{name}(…)"
    shown = [
        expression_text(replay, replay.part(each), read_as, depth - 1)
        for each, read_as in zip(part.operands[:_WIDTH], _formats(part), strict=False)
    ]
    if len(part.operands) > _WIDTH:
        shown.append(f"… {len(part.operands) - _WIDTH} more")
    return f"[{', '.join(shown)}]" if name == mma_steps.VECTOR else f"{name}({', '.join(shown)})"


def divergence_sentence(left: str, right: str, left_name: str, right_name: str) -> str:
    """How two kernels differ at their divergent nodes, whose operations are `left` and `right`."""
    sides = ((left, left_name), (right, right_name))
    both = ((sides[0], sides[1]), (sides[1], sides[0]))
    if left.startswith(mma_steps.MATRIX) and right.startswith(mma_steps.MATRIX):
        if left == right:
            return _other_operands(left, left_name, right_name)
        steps = f"{left_name} by steps of {_unit(left)}, {right_name} by steps of {_unit(right)}"
        return f"they multiply on matrix units that round differently: {steps}"
    for (one, name), (other, other_name) in both:
        if one.startswith(mma_steps.MATRIX):
            return f"{name} adds products up in a matrix unit ({_unit(one)}), {other_name} {_does(other)}"
        if ".ftz" in one and _plain(one) == _plain(other) and ".ftz" not in other:
            what = _noun(one)
            return f"{name} flushes subnormal numbers to zero in this {what}, {other_name} keeps them"
    if left == right:
        return _other_operands(left, left_name, right_name)
    for (one, name), (other, other_name) in both:
        if one.startswith("fma.") and not other.startswith(("fma.", "select")) and other not in _LEAVES:
            return f"{name} rounds a product and a sum once (a fused multiply-add), {other_name} {_does(other)}"
    return f"{left_name} {_does(left)}, {right_name} {_does(right)}"


def _other_operands(operation: str, left_name: str, right_name: str) -> str:
    return f"{left_name} and {right_name} both take {_bare(operation)}, of other operands or in another order"


def _bare(operation: str) -> str:
    return operation.removeprefix(mma_steps.MATRIX).split("@")[0]


def _plain(operation: str) -> str:
    return _bare(operation).replace(".ftz", "")


def _unit(operation: str) -> str:
    return operation.removeprefix(mma_steps.MATRIX).strip()


def _noun(operation: str) -> str:
    return _NOUNS.get(operation.split(".")[0], operation.split(".")[0])


def _does(operation: str) -> str:
    """What a kernel computes at a node, as a verb and its object."""
    if operation in _LEAVES:
        return f"has {_LEAVES[operation]} there"
    name, _, owner = operation.partition("@")
    if owner and (".approx" in name or ".full" in name):
        return f"takes {owner}'s own approximation of the {_noun(name)} ({name})"
    if owner:
        return f"takes an operation that is {owner}'s own ({name})"
    if name == "select":
        return "chooses between two values (select)"
    if name.startswith("fma."):
        return f"takes one {_noun(name)} after another ({name})"
    if any(each in name.split(".") for each in _ROUNDS) and name.split(".")[0] in _NOUNS:
        return f"rounds the {_noun(name)} by itself ({name})"
    return f"takes {name}"
