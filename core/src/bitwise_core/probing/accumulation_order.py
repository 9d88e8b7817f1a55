"""The order of a sum, from experiments alone.

With +L and -L at two positions and r everywhere else, what is lost is what the smallest node over the two positions
adds: the count of lost values is that node's size.  Adjacent pairs name every node of a tree that adds neighbours; any
other tree follows from pairs with a common position, one round of experiments after another (the method is that of
FPRev, https://github.com/peichenxie/FPRev).  Either is then held against fresh pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bitwise_core.probing.instrument import MINUS, NOTHING, PLUS, SMALL, Codes, Instrument
from bitwise_core.probing.summation_tree import Integers, SumTree, below, from_neighbours, in_order

Measure: TypeAlias = Callable[[Integers, Integers], Integers]

CHECKS = 512
"""Fresh pairs that a tree must foretell."""


@dataclass(frozen=True)
class Revealed:
    """What the experiments say: a tree that foretold every fresh pair, or why there is none.

    `dropped` are positions that reach no output.  `walk` is which walk found the tree: `neighbours`, or `pivots` for
    sums of others, which are tried where the first foretold a pair wrongly.
    `open` holds sentences on what is not settled; the tree is None where there is one.
    """

    tree: SumTree | None
    dropped: tuple[int, ...]
    walk: str
    open: tuple[str, ...]
    probes: int
    launches: int


class _Inconsistent(Exception):
    """The experiments belong to no tree."""


def reveal(subject: Instrument, seed: int = 0, walk: str | None = None) -> Revealed:
    """The tree behind every output of a subject; `walk` allows one of the two walks only.

    Costs about 2 probes a position for a sum of neighbours and its logarithm more for any other; a probe of more
    positions than the subject's capacity is made in several.
    """
    random = np.random.default_rng(seed)

    def finish(tree: SumTree | None, dropped: Integers, how: str, *sentences: str) -> Revealed:
        return Revealed(tree, tuple(dropped.tolist()), how, sentences, subject.probes, subject.launches)

    nothing = np.array([], dtype=np.int64)
    taking_part, dropped = _taking_part(subject)
    if taking_part is None:
        return finish(None, nothing, "", "single small values do not come back as one count from every output")
    if len(taking_part) < 3:
        return finish(None, dropped, "", f"{len(taking_part)} positions reach the output; an order needs at least 3")
    measure = _measure(subject, taking_part)
    try:
        adjacent = measure(taking_part[:-1], taking_part[1:])
        if (adjacent == 2).all():
            return finish(
                None, dropped, "",
                "no small value is ever lost: the accumulator is wider than the values, or the sum is compensated",
            )  # fmt: skip
        sentence = "the sums are not of neighbours"
        if walk != "pivots":
            tree = from_neighbours(taking_part, adjacent)
            if tree is not None:
                sentence = _checked(measure, tree, random)
                if not sentence:
                    return finish(tree, dropped, "neighbours")
        if walk != "neighbours":
            tree = _from_pivots(measure, taking_part, random)
            sentence = _checked(measure, tree, random)
            if not sentence:
                return finish(tree, dropped, "pivots")
    except _Inconsistent as error:
        sentence = str(error)
    return finish(None, dropped, "", sentence)


def _checked(measure: Measure, tree: SumTree, random: np.random.Generator) -> str:
    """What is wrong with a tree, held against fresh pairs; nothing where it foretold all of them."""
    first, second = _fresh_pairs(tree.leaves, random)
    wrong = int((measure(first, second) != tree.joined(first, second)).sum())
    return f"the tree foretold {len(first) - wrong} of {len(first)} fresh pairs only" if wrong else ""


def _fresh_pairs(leaves: Integers, random: np.random.Generator) -> tuple[Integers, Integers]:
    """Pairs of two different leaves: all of them where they are few."""
    if len(leaves) * (len(leaves) - 1) // 2 <= CHECKS:
        places, others = np.triu_indices(len(leaves), 1)
        return leaves[places], leaves[others]
    places = random.integers(0, len(leaves), size=CHECKS)
    others = (places + random.integers(1, len(leaves), size=CHECKS)) % len(leaves)
    return leaves[places], leaves[others]


def _taking_part(subject: Instrument) -> tuple[Integers | None, Integers]:
    """The positions that reach the output, and those that do not; None where no such thing can be said."""
    length, capacity = subject.length, subject.capacity
    pieces = -(-length // capacity)

    def pieces_of_the_axis(low: int, high: int) -> Codes:
        piece = np.arange(length) // capacity
        return np.where(piece == np.arange(low, high)[:, None], SMALL, NOTHING).astype(np.int8)

    counts = subject.read(pieces_of_the_axis, pieces)
    everything, nothing = np.arange(length), np.array([], dtype=np.int64)
    if (counts < 0).any():
        return None, nothing
    if int(counts.sum()) == length:
        return everything, nothing

    def one_position(low: int, high: int) -> Codes:
        return np.where(everything == np.arange(low, high)[:, None], SMALL, NOTHING).astype(np.int8)

    alone = subject.read(one_position, length)
    if not np.isin(alone, (0, 1)).all() or int(alone.sum()) != int(counts.sum()):
        return None, nothing
    return everything[alone == 1], everything[alone == 0]


def _measure(subject: Instrument, leaves: Integers) -> Measure:
    """How many positions the smallest node over each pair adds.  Raises _Inconsistent where no count comes back."""
    pieces = -(-len(leaves) // subject.capacity)
    piece_of = np.full(subject.length, -1, dtype=np.int64)
    piece_of[leaves] = np.arange(len(leaves)) // subject.capacity

    def measure(first: Integers, second: Integers) -> Integers:
        def make(low: int, high: int) -> Codes:
            pair, piece = np.divmod(np.arange(low, high), pieces)
            codes = np.where(piece_of == piece[:, None], SMALL, NOTHING).astype(np.int8)
            rows = np.arange(high - low)
            codes[rows, first[pair]], codes[rows, second[pair]] = PLUS, MINUS
            return codes

        counts = subject.read(make, len(first) * pieces)
        if (counts < 0).any():
            bad = int(np.flatnonzero(counts < 0)[0]) // pieces
            raise _Inconsistent(f"+L at {first[bad]} and -L at {second[bad]} do not return one count from every output")
        return np.asarray(len(leaves) - counts.reshape(-1, pieces).sum(axis=1), dtype=np.int64)

    return measure


def _from_pivots(measure: Measure, leaves: Integers, random: np.random.Generator) -> SumTree:
    """Any tree: in each round every unresolved set of siblings takes a pivot, and is cut by what the pivot joins at.

    Raises _Inconsistent.
    """
    nodes: list[list[int]] = []
    top: list[int] = []
    adds: list[int] = []
    # Sets of positions, each a union of children of a node that adds `ceiling` positions, and that node's children.
    tasks: list[tuple[Integers, int, list[int]]] = [(leaves, len(leaves) + 1, top)]
    while tasks:
        pivots = [int(random.choice(members)) for members, _, _ in tasks]
        others = [members[members != pivot] for (members, _, _), pivot in zip(tasks, pivots, strict=True)]
        first = np.repeat(np.array(pivots, dtype=np.int64), [len(each) for each in others])
        measured = measure(first, np.concatenate(others)) if len(first) else first
        ends = np.cumsum([len(each) for each in others])[:-1]
        following: list[tuple[Integers, int, list[int]]] = []
        for (_, ceiling, siblings), pivot, rest, joined in zip(
            tasks, pivots, others, np.split(measured, ends), strict=True
        ):
            if (joined > ceiling).any():
                raise _Inconsistent("the experiments belong to no tree: two values meet above a node that adds both")
            current = pivot
            for level in np.unique(joined[joined < ceiling]).tolist():
                nodes.append([current])
                adds.append(level)
                following.append((rest[joined == level], level, nodes[-1]))
                current = ~(len(nodes) - 1)
            siblings.append(current)
            if (joined == ceiling).any():
                following.append((rest[joined == ceiling], ceiling, siblings))
        tasks = following
    if len(top) != 1 or top[0] >= 0:
        raise _Inconsistent("the experiments belong to no tree: there is more than one root")
    sizes: dict[int, int] = {}
    for number in reversed(below(nodes, ~top[0])):
        sizes[number] = sum(1 if child >= 0 else sizes[~child] for child in nodes[number])
    if any(sizes[number] != level for number, level in enumerate(adds)):
        raise _Inconsistent("the experiments belong to no tree: a node adds other than what is lost under it")
    return in_order(nodes, ~top[0])
