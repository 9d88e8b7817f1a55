"""Where two dependence trees part, and a few words about a value."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import repeat

from bitwise_core.engine.replay import Part, Replay, Scalar
from bitwise_core.machine import matrix
from bitwise_core.machine.launch import POINTER_SHIFT
from bitwise_core.numeric import UnknownOperation, operation

_LEAVES = ("load", "constant", "undefined")
_DEPTH, _WIDTH = 2, 4
MAXIMUM_STEPS = 1 << 20


@dataclass(frozen=True, slots=True)
class Parting:
    """The first node where two trees part, on each side, and its distance from the root."""

    left: Part
    right: Part
    depth: int


def part_trees(left: Replay, root_left: Scalar, right: Replay, root_right: Scalar) -> Parting:
    """Descends while operation and number of operands agree, into the first pair of operands that differ.

    Operands that may change places are matched by their hashes first.  Where two operands differ that are no more than
    loads or numbers, the node is the one that takes them.
    """
    here = Parting(left.part(root_left), right.part(root_right), 0)
    for depth in range(1, MAXIMUM_STEPS):
        pair = _differing(here.left, here.right)
        if pair is None:
            return here
        below = Parting(left.part(pair[0]), right.part(pair[1]), depth)
        if below.left.name in _LEAVES and below.right.name in _LEAVES:
            return here
        # A load has no line of its own: the one that takes it speaks for it.
        here = Parting(_lined(below.left, here.left), _lined(below.right, here.right), depth)
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


def address_text(replay: Replay, address: int, size: int) -> str:
    """A place in a buffer as `X[offset/size]`, both in bytes."""
    return f"{buffer_name(replay, address >> POINTER_SHIFT)}[{address & ((1 << POINTER_SHIFT) - 1)}/{size}]"


def buffer_name(replay: Replay, number: int) -> str:
    """The name of a buffer by its number."""
    return next((name for name, each in replay.buffers.items() if each == number), f"buffer {number}")


def number_text(number: int, bits: int, form: str) -> str:
    """A pattern as a number of its format where that is a common one, else in hexadecimal."""
    kinds = {"fp64": "<d", "fp32": "<f", "fp16": "<e"}
    if form in kinds and struct.calcsize(kinds[form]) * 8 == bits:
        return repr(struct.unpack(kinds[form], number.to_bytes(bits // 8, "little"))[0])
    return f"{number:#x}"


def _formats(part: Part) -> Iterable[str]:
    """The formats in which an operation reads its operands; of a set all are one."""
    try:
        known = operation(part.name).operands
    except UnknownOperation:
        return repeat("")
    return (form.name for form in (known if len(part.operands) == len(known) else repeat(known[0])))


def words(replay: Replay, part: Part, form: str = "", depth: int = _DEPTH) -> str:
    """A value as an expression of a few levels; `form` is the format in which its user reads it."""
    scalar = part.scalar
    if part.name == "load":
        return address_text(replay, scalar.first, scalar.bits // 8)
    if part.name == "constant":
        return number_text(scalar.first, scalar.bits, form)
    if part.name == "undefined":
        return "an undefined value"
    name = part.name.removeprefix(matrix.MATRIX).split("@")[0]
    if depth == 0:
        return "[…]" if name == matrix.VECTOR else f"{name}(…)"
    shown = [
        words(replay, replay.part(each), read_as, depth - 1)
        for each, read_as in zip(part.operands[:_WIDTH], _formats(part), strict=False)
    ]
    if len(part.operands) > _WIDTH:
        shown.append(f"… {len(part.operands) - _WIDTH} more")
    return f"[{', '.join(shown)}]" if name == matrix.VECTOR else f"{name}({', '.join(shown)})"
