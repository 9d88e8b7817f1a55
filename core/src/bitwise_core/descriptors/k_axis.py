"""The k axis of a descriptor: its parts, and the loop over k of each innermost part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bitwise_core.descriptors.cuts import Cut, Positions
from bitwise_core.descriptors.gemm import GEMMDesc

FILL = -1
"""The position of a zero that fills a short instruction."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of the k axis: `cut` splits it into `parts`; an innermost part has `cut` None."""

    positions: Positions
    cut: Cut | None
    parts: tuple[Part, ...]


def parts_of(desc: GEMMDesc) -> Part:
    """Return the whole k axis of a descriptor, with all its parts."""
    return _part(desc.positions(), desc.k_cuts)


def _part(positions: Positions, cuts: tuple[Cut, ...]) -> Part:
    if not cuts or not len(positions):
        return Part(positions, None, ())
    return Part(positions, cuts[0], tuple(_part(each, cuts[1:]) for each in cuts[0].parts(positions)))


def innermost_parts(part: Part) -> Iterator[Part]:
    """Yield the innermost parts, in order."""
    if part.cut is None:
        yield part
    for each in part.parts:
        yield from innermost_parts(each)


def iterations(desc: GEMMDesc, positions: Positions, first: int = 0) -> list[Positions]:
    """Return the positions of each iteration of the loop over an innermost part, in execution order.

    The full iteration of number `first`, modulo their count, is the first full one to run.  The short iteration stays
    where `short_iteration` says, before or after all others; where k is permuted it is filled with FILL.
    """
    step = desc.k_loop_step
    if step is None or not len(positions):
        return [positions]
    short = len(positions) % step
    at_start = short if desc.short_iteration == "first" else 0
    rest = positions[:short] if at_start else positions[len(positions) - short :]
    full = positions[at_start : at_start + len(positions) - short].reshape(-1, step)
    order = desc.iteration_permutation
    if order:
        full = full[:, list(order)]
        rest = np.concatenate([rest, np.full(step - short, FILL)])[list(order)]
    found = list(np.roll(full, -first % len(full), axis=0)) if len(full) else []
    if not short:
        return found
    return [rest, *found] if at_start else [*found, rest]


def instructions(desc: GEMMDesc, positions: Positions, first: int = 0) -> Positions:
    """Return the positions that each instruction takes, (count, native k), FILL for a zero; (k, 1) on scalar paths."""
    native = 1 if desc.instruction is None else desc.instruction.k
    group = desc.instruction_k
    found = []
    for iteration in iterations(desc, positions, first):
        count = -(-len(iteration) // group)
        filled = np.full((count, native), FILL, dtype=np.int64)
        whole = len(iteration) // group * group
        filled[: whole // group, :group] = iteration[:whole].reshape(-1, group)
        if whole < len(iteration):
            filled[-1, : len(iteration) - whole] = iteration[whole:]
        found.append(filled)
    return np.concatenate(found)


def first_iteration(desc: GEMMDesc, row: int, column: int) -> int:
    """Return the iteration at which an output element's loop starts, not yet modulo the number of full iterations."""
    rotation = desc.iteration_rotation
    if rotation is None:
        return 0
    place = row if rotation.axis == "rows" else column
    return place // rotation.tile % rotation.period * rotation.step
