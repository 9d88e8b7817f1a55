"""The layout pass: where to perform the steps of a pinned reduction.

With a pinned order the layout does not affect bits, so it is chosen for speed: pairs in registers first, then in lanes,
with whole reductions inside a warp. A reduction may move once, before any of its steps, to a layout that has the rest
of the axis in registers and lanes. It moves to the cheapest such layout by this table, in issue slots of a warp, if
that costs at most four fifths of the present layout.

    a sum in registers                          1 for each pair
    a sum across lanes                          5 for each value (a shuffle and a sum)
    a sum across warps                          8 for each value (stored and loaded), and two barriers
    a move                                      4 for each value before and after, and a barrier
    a barrier                                  40
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bitwise_triton.reductions.order import Pair

ADD, SHUFFLE, SHARED, BARRIER = 1, 4, 4, 40
# Largest relative cost of a move: the table ignores what the compiler overlaps.
REQUIRED_GAIN = 0.8
# Limits of a move: values held by a thread afterwards, and bytes through shared memory.
MAXIMUM_VALUES, MAXIMUM_BYTES = 64, 32768

Basis: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """A linear layout: the basis vector of each bit of the register, lane, warp and block index."""

    registers: tuple[Basis, ...]
    lanes: tuple[Basis, ...]
    warps: tuple[Basis, ...]
    blocks: tuple[Basis, ...] = ()


@dataclass(frozen=True)
class LayoutChoice:
    """The choice for a reduction: `move` is the layout to convert to before step `before`, or None to keep the present
    layout.

    `reason` is a clause that says why it is kept. `current_cost` and `cost` are the costs without and with the move.
    """

    current_cost: int
    cost: int
    before: int = 0
    move: Layout | None = None
    reason: str = ""


@dataclass(frozen=True)
class _Target:
    """A layout for the remaining steps: the place of each step, values held of other axes, and the number of register
    steps.

    `registers` None keeps the other axes in place.
    """

    places: tuple[str, ...]
    kept: int
    registers: int | None


def choose_layout(layout: Layout, shape: Sequence[int], axis: int, steps: Sequence[Pair], size: int) -> LayoutChoice:
    """The layout for `steps` over `axis` of a tensor of `shape` in `layout`; an element has `size` bytes.

    Extents are powers of two, and the steps fold the whole axis.
    """
    bits = _folded(steps)
    where = _where(layout, shape, axis)
    if where is None:
        return LayoutChoice(0, 0, reason="its layout does not permute the index bits")
    if "block" in where:
        return LayoutChoice(0, 0, reason="its axis spans several blocks")
    places = tuple(where[bit] for bit in bits)
    kept = 1 << sum(not basis[axis] for basis in layout.registers)
    current_cost = _cost(places, kept)
    if "warp" not in places:
        return LayoutChoice(current_cost, current_cost, reason="each reduction is inside one warp")
    others = math.prod(shape) // shape[axis]
    words, least, chosen = max(1, size // 4), REQUIRED_GAIN * current_cost, None
    refused = (least, "no move is cheaper")
    for number in range(len(steps)):
        held = _values(places[number:], kept)
        spent = current_cost - _cost(places[number:], kept) + BARRIER + SHARED * held
        for move in _moves(layout, others, len(steps) - number, kept):
            values = _values(move.places, move.kept)
            cost = spent + SHARED * values + _cost(move.places, move.kept)
            if move.registers is not None:
                cost += BARRIER + SHARED * (move.kept + kept)
            if cost >= least:
                continue
            if values * words > MAXIMUM_VALUES:
                refused = min(refused, (cost, "a move would spill registers"))
            elif (others << (len(steps) - number)) * size > MAXIMUM_BYTES:
                refused = min(refused, (cost, "a move needs too much shared memory"))
            else:
                least, chosen = cost, (number, move)
    if chosen is None:
        return LayoutChoice(current_cost, current_cost, reason=refused[1])
    number, move = chosen
    return LayoutChoice(current_cost, int(least), number, _layout(layout, shape, axis, steps[number:], move.registers))


def covers(layout: Layout, shape: Sequence[int]) -> bool:
    """Whether a layout whose basis vectors have a single bit each reaches every element of a tensor of `shape`."""
    rank = len(shape)
    bits = {
        tuple(1 << bit if place == axis else 0 for place in range(rank))
        for axis in range(rank)
        for bit in range(shape[axis].bit_length() - 1)
    }
    return bits <= {*layout.registers, *layout.lanes, *layout.warps, *layout.blocks}


def _folded(steps: Sequence[Pair]) -> list[int]:
    """The bit that each step folds."""
    left = list(range(len(steps)))
    return [left.pop(step.position) for step in steps]


def _where(layout: Layout, shape: Sequence[int], axis: int) -> list[str] | None:
    """The place of each bit of the axis; None if a basis vector has several bits."""
    places = ["none"] * (shape[axis].bit_length() - 1)
    for name, bases in (
        ("register", layout.registers),
        ("lane", layout.lanes),
        ("warp", layout.warps),
        ("block", layout.blocks),
    ):
        for basis in bases:
            here = basis[axis]
            if here & (here - 1) or (here and any(part for place, part in enumerate(basis) if place != axis)):
                return None
            if here:
                places[here.bit_length() - 1] = name
    return None if "none" in places else places


def _values(places: Sequence[str], kept: int) -> int:
    """Number of values that a thread holds before the steps at `places`."""
    return kept << places.count("register")


def _cost(places: Sequence[str], kept: int) -> int:
    total, values = 0, _values(places, kept)
    for where in places:
        if where == "register":
            values //= 2
            total += ADD * values
        elif where == "lane":
            total += (SHUFFLE + ADD) * values
        else:
            total += 2 * BARRIER + 2 * SHARED * values
    return total


def _moves(layout: Layout, others: int, count: int, kept: int) -> Iterator[_Target]:
    """Targets for the last `count` steps and `others` elements of other axes: first in registers, then in lanes."""
    yield _Target(("register",) * count, kept, None)
    room = 1 << (len(layout.lanes) + len(layout.warps))
    for lanes in range(min(count, len(layout.lanes)) + 1):
        registers = count - lanes
        yield _Target(("register",) * registers + ("lane",) * lanes, max(1, (others << lanes) // room), registers)


def _layout(layout: Layout, shape: Sequence[int], axis: int, steps: Sequence[Pair], count: int | None) -> Layout:
    """The layout of the remaining axis with `count` steps in registers and the other axes spread over lanes, then
    warps.

    Without `count` the other axes stay in place, and the whole reduction is in registers.
    """
    rank = len(shape)

    def basis(place: int, bit: int) -> Basis:
        return tuple(1 << bit if here == place else 0 for here in range(rank))

    nothing: Basis = (0,) * rank
    folded = [basis(axis, bit) for bit in _folded(steps)]
    if count is None:
        held = [one for one in layout.registers if not one[axis]]
        lanes, warps = (tuple(nothing if one[axis] else one for one in part) for part in (layout.lanes, layout.warps))
        return Layout((*folded, *held), lanes, warps, layout.blocks)
    spread = folded[count:] + [
        basis(place, bit)
        for place in reversed(range(rank))
        if place != axis
        for bit in range(shape[place].bit_length() - 1)
    ]
    first, second = len(layout.lanes), len(layout.lanes) + len(layout.warps)
    spread += [nothing] * (second - len(spread))
    return Layout(
        (*folded[:count], *spread[second:]), tuple(spread[:first]), tuple(spread[first:second]), layout.blocks
    )
