"""The k axis of a descriptor: its parts, and the loop over k of each innermost part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from bitwise_core.descriptors.cuts import Cut, Positions
from bitwise_core.descriptors.gemm import GEMMDesc, Share

FILL = -1
"""The position of a zero that fills a short instruction."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of the k axis: `cut` splits it into `parts`; an innermost part has `cut` None.

    `tail` is its share of the tail, with FILL for zeros.
    """

    positions: Positions
    cut: Cut | None
    parts: tuple[Part, ...]
    tail: Positions = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def empty(self) -> bool:
        """Whether the part sums nothing: its value is +0."""
        return not len(self.positions) and not len(self.tail)


def parts_of(desc: GEMMDesc) -> Part:
    """Return the whole k axis of a descriptor, with all its parts."""
    return _part(desc.positions(), desc.tail_positions(), desc.k_cuts, desc.tail.shares if desc.tail else ())


def _part(positions: Positions, tail: Positions, cuts: tuple[Cut, ...], shares: tuple[Share, ...]) -> Part:
    if not cuts or not (len(positions) or len(tail)):
        return Part(positions, None, (), tail)
    parts = cuts[0].parts(positions)
    tails = _shared(shares[0], tail, len(parts)) if len(tail) else [tail] * len(parts)
    inner = (_part(*each, cuts[1:], shares[1:]) for each in zip(parts, tails, strict=True))
    return Part(positions, cuts[0], tuple(inner), tail)


def _shared(share: Share, tail: Positions, count: int) -> list[Positions]:
    """Return the share of each of `count` parts in a tail."""
    if share.tile is None:
        return [tail if part == share.part else tail[:0] for part in range(count)]
    rounds = -(-len(tail) // (share.tile * count))
    filled = np.full((rounds, count, share.tile), FILL, dtype=np.int64)
    filled.reshape(-1)[: len(tail)] = tail
    return [filled[:, part].reshape(-1) for part in range(count)]


def innermost_parts(part: Part) -> Iterator[Part]:
    """Yield the innermost parts, in order."""
    if part.cut is None:
        yield part
    for each in part.parts:
        yield from innermost_parts(each)


def iterations(desc: GEMMDesc, part: Part, tile: int = 0) -> list[Positions]:
    """Return the positions of each iteration of the loop over an innermost part, in execution order.

    The rotation of the output tile of number `tile` names the first full iteration to run.  The short iteration stays
    where `short_iteration` says, before or after all others; where k is permuted it is filled with FILL.  The tail is
    the last one.
    """
    after = [part.tail] if len(part.tail) else []
    step, positions = desc.k_loop_step, part.positions
    if step is None or not len(positions):
        return [positions, *after]
    short = len(positions) % step
    at_start = short if desc.short_iteration == "first" else 0
    rest = positions[:short] if at_start else positions[len(positions) - short :]
    full = positions[at_start : at_start + len(positions) - short].reshape(-1, step)
    order = desc.iteration_permutation
    if order:
        full = full[:, list(order)]
        rest = np.concatenate([rest, np.full(step - short, FILL)])[list(order)]
    rotation = desc.iteration_rotation
    first = rotation.first(tile, len(full)) if rotation is not None and len(full) else 0
    found = list(np.roll(full, -first, axis=0) if first else full)
    if not short:
        return [*found, *after]
    return [rest, *found] if at_start else [*found, rest, *after]


def instructions(desc: GEMMDesc, part: Part, tile: int = 0) -> Positions:
    """Return the positions that each instruction of an innermost part takes, for an output tile.

    Shape (count, native k), FILL for a zero; (k, 1) on scalar paths.
    """
    native = 1 if desc.instruction is None else desc.instruction.k
    group = desc.instruction_k
    if native == group == 1:
        return np.concatenate(iterations(desc, part, tile)).reshape(-1, 1)
    found = []
    for iteration in iterations(desc, part, tile):
        count = -(-len(iteration) // group)
        filled = np.full((count, native), FILL, dtype=np.int64)
        whole = len(iteration) // group * group
        filled[: whole // group, :group] = iteration[:whole].reshape(-1, group)
        if whole < len(iteration):
            filled[-1, : len(iteration) - whole] = iteration[whole:]
        found.append(filled)
    return np.concatenate(found)


def tile_number(desc: GEMMDesc, row: int, column: int) -> int:
    """Return the number of the output tile of an element, which decides where its loops start; 0 without rotation."""
    rotation = desc.iteration_rotation
    if rotation is None:
        return 0
    return (row if rotation.axis == "rows" else column) // rotation.tile
