"""The summation tree of a callable, determined from its outputs.

A probe has +L and -L at two positions and a small r at every other position.  The values r that are lost are those that
the lowest common node of the two positions adds, so the number of lost values gives that node's size.  Adjacent pairs
determine a tree in which every node adds a contiguous range.  Any other tree follows from pairs with a common position
(a pivot), one round of probes after another.  The method is that of FPRev (https://github.com/peichenxie/FPRev).  The
resulting tree is checked on held-out pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bitwise_core.probing.instrument import MINUS, NOTHING, PLUS, SMALL, Codes, Instrument
from bitwise_core.probing.summation_tree import Integers, SumTree, canonical_tree, descendants, from_neighbours

MeasureSizes: TypeAlias = Callable[[Integers, Integers], Integers]

CHECKED_PAIRS = 512
"""The number of held-out pairs whose sizes a tree must predict."""


@dataclass(frozen=True)
class RevealedOrder:
    """The result of the probes: a tree that predicted all held-out pairs, or the reasons why there is none.

    `dropped` are the positions that reach no output.  `method` is the method that found the tree: `neighbours`, or
    `pivots`, which is tried where the first one fails; it is empty without a tree.  `unresolved` holds sentences on
    what could not be determined; the tree is None where there is one.
    """

    tree: SumTree | None
    dropped: tuple[int, ...]
    method: str
    unresolved: tuple[str, ...]
    probes: int
    launches: int


class _InconsistentProbes(Exception):
    """The probes' results are those of no tree."""


def reveal(subject: Instrument, seed: int = 0, method: str | None = None) -> RevealedOrder:
    """Determine the summation tree of every output of a subject.

    `method` restricts the search to `neighbours` or `pivots`.  For n positions, `neighbours` makes about 2 n probes and
    `pivots` about n log n more.  A probe with more small values than the subject's capacity is split into several.
    """
    random = np.random.default_rng(seed)

    def result(tree: SumTree | None, dropped: Integers, found_by: str, *sentences: str) -> RevealedOrder:
        return RevealedOrder(tree, tuple(dropped.tolist()), found_by, sentences, subject.probes, subject.launches)

    participating, dropped = _participating_positions(subject)
    if participating is None:
        return result(None, dropped, "", "a single small value does not return the same count in every output")
    if len(participating) < 3:
        return result(None, dropped, "", f"{len(participating)} positions reach the output; an order needs at least 3")
    measure = _subtree_sizes(subject, participating)
    try:
        adjacent = measure(participating[:-1], participating[1:])
        if (adjacent == 2).all():
            return result(
                None, dropped, "",
                "no small value is ever lost: the accumulator is wider than the values, or the sum is compensated",
            )  # fmt: skip
        sentence = "not every partial sum is over a contiguous range"
        if method != "pivots":
            tree = from_neighbours(participating, adjacent)
            if tree is not None:
                sentence = _check_on_held_out_pairs(measure, tree, random)
                if not sentence:
                    return result(tree, dropped, "neighbours")
        if method != "neighbours":
            tree = _from_pivots(measure, participating, random)
            sentence = _check_on_held_out_pairs(measure, tree, random)
            if not sentence:
                return result(tree, dropped, "pivots")
    except _InconsistentProbes as error:
        sentence = str(error)
    return result(None, dropped, "", sentence)


def _check_on_held_out_pairs(measure: MeasureSizes, tree: SumTree, random: np.random.Generator) -> str:
    """Compare a tree with probes of held-out pairs; return a sentence on the failure, empty if all were predicted."""
    first, second = _held_out_pairs(tree.leaves, random)
    wrong = int((measure(first, second) != tree.common_node_sizes(first, second)).sum())
    return f"the tree predicted only {len(first) - wrong} of {len(first)} held-out pairs" if wrong else ""


def _held_out_pairs(leaves: Integers, random: np.random.Generator) -> tuple[Integers, Integers]:
    """Return pairs of different leaves: all pairs if there are at most `CHECKED_PAIRS`, else that many random ones."""
    if len(leaves) * (len(leaves) - 1) // 2 <= CHECKED_PAIRS:
        places, others = np.triu_indices(len(leaves), 1)
        return leaves[places], leaves[others]
    places = random.integers(0, len(leaves), size=CHECKED_PAIRS)
    others = (places + random.integers(1, len(leaves), size=CHECKED_PAIRS)) % len(leaves)
    return leaves[places], leaves[others]


def _participating_positions(subject: Instrument) -> tuple[Integers | None, Integers]:
    """Return the positions that reach the output, and those that do not; (None, empty) where the counts conflict."""
    length, capacity = subject.length, subject.capacity
    chunks = -(-length // capacity)

    def chunk_codes(low: int, high: int) -> Codes:
        chunk = np.arange(length) // capacity
        return np.where(chunk == np.arange(low, high)[:, None], SMALL, NOTHING).astype(np.int8)

    counts = subject.read(chunk_codes, chunks)
    positions, none = np.arange(length), np.array([], dtype=np.int64)
    if (counts < 0).any():
        return None, none
    if int(counts.sum()) == length:
        return positions, none

    def single_position_codes(low: int, high: int) -> Codes:
        return np.where(positions == np.arange(low, high)[:, None], SMALL, NOTHING).astype(np.int8)

    single = subject.read(single_position_codes, length)
    if not np.isin(single, (0, 1)).all() or int(single.sum()) != int(counts.sum()):
        return None, none
    return positions[single == 1], positions[single == 0]


def _subtree_sizes(subject: Instrument, leaves: Integers) -> MeasureSizes:
    """Return a function that measures how many positions the lowest common node of each pair of positions adds.

    The function raises _InconsistentProbes where an output is not a count or the outputs disagree.
    """
    chunks = -(-len(leaves) // subject.capacity)
    chunk_of = np.full(subject.length, -1, dtype=np.int64)
    chunk_of[leaves] = np.arange(len(leaves)) // subject.capacity

    def measure(first: Integers, second: Integers) -> Integers:
        def pair_codes(low: int, high: int) -> Codes:
            pair, chunk = np.divmod(np.arange(low, high), chunks)
            codes = np.where(chunk_of == chunk[:, None], SMALL, NOTHING).astype(np.int8)
            rows = np.arange(high - low)
            codes[rows, first[pair]], codes[rows, second[pair]] = PLUS, MINUS
            return codes

        counts = subject.read(pair_codes, len(first) * chunks)
        if (counts < 0).any():
            bad = int(np.flatnonzero(counts < 0)[0]) // chunks
            raise _InconsistentProbes(
                f"+L at {first[bad]} and -L at {second[bad]} do not return the same count in every output"
            )
        return np.asarray(len(leaves) - counts.reshape(-1, chunks).sum(axis=1), dtype=np.int64)

    return measure


def _from_pivots(measure: MeasureSizes, leaves: Integers, random: np.random.Generator) -> SumTree:
    """Return the tree, which may have any shape.

    In each round every unresolved set of siblings is assigned a random pivot, and is split by the sizes of the lowest
    common nodes of its members and the pivot.  Raises _InconsistentProbes.
    """
    nodes: list[list[int]] = []
    top: list[int] = []
    adds: list[int] = []
    # Each task is a set of positions, the union of some children of a node; the number of positions that the node adds
    # (`ceiling`); and the list of the node's children, to be extended.
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
                raise _InconsistentProbes(
                    "the probes contradict every tree: two values are added above the node that holds both"
                )
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
        raise _InconsistentProbes("the probes contradict every tree: there is more than one root")
    sizes: dict[int, int] = {}
    for number in reversed(descendants(nodes, ~top[0])):
        sizes[number] = sum(1 if child >= 0 else sizes[~child] for child in nodes[number])
    if any(sizes[number] != level for number, level in enumerate(adds)):
        raise _InconsistentProbes(
            "the probes contradict every tree: a node's size is not the number of values lost under it"
        )
    return canonical_tree(nodes, ~top[0])
