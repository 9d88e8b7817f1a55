"""The descriptor of a sum from the bits of its outputs alone: a tree read off, folded digit by digit of the index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_core.descriptors import DescriptorError, Digit, Fold, ReductionDesc
from bitwise_core.descriptors.evaluation import evaluate_reduction
from bitwise_core.descriptors.merge_orders import MERGE_ORDERS
from bitwise_core.numerics import Bits
from bitwise_core.probing import ProbeError, Revealed, SumTree, reduction_instrument, reveal
from bitwise_core.probing.elimination import normal_draw, wide_draw
from bitwise_core.probing.operand_arrays import NUMPY, TYPES, OperandArrays, patterns_of
from bitwise_core.probing.reconstruction.products import DRAWS, SPREAD, Reconstruction

COMPARED = 64
"""Rows that candidates are evaluated for."""


def reconstruct_sum(
    function: Callable[[Any], Any], rows: int, length: int, dtype: str = "float32", *, arrays: OperandArrays = NUMPY,
    seed: int = 0, draws: int = DRAWS,
) -> Reconstruction:  # fmt: skip
    """The ReductionDesc of `y = function(x)`; the arguments are those of `probe.reduction_subject`.

    Raises ProbeError.
    """
    revealed = reveal(reduction_instrument(function, rows, length, dtype, arrays=arrays), seed)
    if revealed.tree is None:
        return Reconstruction(revealed, None, open=revealed.open)
    if len(revealed.tree.leaves) != length:
        return Reconstruction(revealed, None, open=("a sum of some of the values only has no descriptor",))
    folds = folds_of(revealed.tree)
    if folds is None:
        return Reconstruction(revealed, None, open=("no descriptor has this order: it is no folding of index digits",))
    output = TYPES.get(arrays.name(function(arrays.of_doubles(np.ones((rows, length)), dtype))))
    if output is None:
        raise ProbeError("the output's type has no descriptor")
    listed = list(_typed(folds, length, TYPES[dtype], output))
    return _separated(revealed, listed, lambda x: arrays.to_patterns(function(arrays.of_doubles(x, dtype))),
                      (rows, length), dtype, seed, draws)  # fmt: skip


def folds_of(tree: SumTree) -> tuple[Fold, ...] | None:
    """The folds that a tree over all indices is made by; None where no such folds make it."""
    above = {child: (~number, node) for number, node in enumerate(tree.nodes) for child in node}
    items = {int(leaf): int(leaf) for leaf in tree.leaves}
    folds = []
    while len(items) > 1:
        for fold in _folds(tree, items, above):
            contracted = _contracted(fold, items, above)
            if contracted is not None:
                break
        else:
            return None
        folds.append(fold)
        items = contracted
    return tuple(folds)


Above = dict[int, tuple[int, tuple[int, ...]]]


def _sibling(child: int, above: Above) -> tuple[int, int] | None:
    """The node over a child and the one other child that it has; None for a root, or a node of more."""
    found = above.get(child)
    if found is None or len(found[1]) != 2:
        return None
    node, (one, other) = found
    return node, other if one == child else one


def _folds(tree: SumTree, items: dict[int, int], above: Above) -> Iterator[Fold]:
    """The folds that the running sum over index 0 may show."""
    for added in _chains(tree, items, above):
        for order in MERGE_ORDERS.values():
            if not order.running_sum:
                continue
            sequence = order.steps(len(added)).sequence
            # An addition commutes: of the first two the lower index has the lower place.
            first = sorted(added[:2], reverse=sequence[0] > sequence[1])
            offsets = [0] * len(added)
            for place, offset in zip(sequence, [*first, *added[2:]], strict=True):
                offsets[place] = offset
            fold = None if offsets[0] else _decoded(offsets, order.name)
            if fold is not None:
                yield fold


def _chains(tree: SumTree, items: dict[int, int], above: Above) -> Iterator[list[int]]:
    """Indices of a running sum over index 0 in the order they are added: up to index 0, and as far as the sum goes."""
    index = {child: place for place, child in items.items()}
    found = _sibling(items[0], above)
    if found is None:
        return
    current, other = found
    before: list[int] = []  # what is added before index 0, the last first
    while other not in index:
        node = tree.nodes[~other]
        mine = [child for child in node if child in index]
        if len(node) != 2 or not mine:
            return
        before.append(index[mine[0]])
        other = node[0] if node[1] == mine[0] else node[1]
    added = [index[other], *reversed(before), 0]
    if before:
        yield added
    while (found := _sibling(current, above)) is not None and found[1] in index:
        current = found[0]
        added = [*added, index[found[1]]]
    yield added


def _decoded(offsets: list[int], order: str) -> Fold | None:
    """A fold whose chain takes these offsets, of the group that lacks the fewest."""
    digits: list[Digit] = []
    places = [0]
    while len(places) < len(offsets):
        stride = offsets[len(places)]
        run = 1
        while run * len(places) < len(offsets) and offsets[run * len(places)] == run * stride:
            run += 1
        if stride < 1 or run < 2:
            return None
        digits.insert(0, Digit(stride=stride, count=run))
        places = [low + each * stride for each in range(run) for low in places]
    if places[: len(offsets)] != offsets:
        return None
    first, *within = digits
    return Fold(stride=first.stride, count=first.count, order=order,
                within=tuple(within))  # fmt: skip


def _contracted(fold: Fold, items: dict[int, int], above: Above) -> dict[int, int] | None:
    """What is left after a fold: index and node of every sum; None where the tree has other sums."""
    found: dict[int, int] = {}
    taken = 0
    for base in sorted(items):
        if any(base // digit.stride % digit.count for digit in fold.digits):
            continue
        members = [items[base + offset] for offset in fold.offsets if base + offset in items]
        taken += len(members)
        current = members[0]
        for other in members[1:]:
            pair = _sibling(current, above)
            if pair is None or pair[1] != other:
                return None
            current = pair[0]
        found[base] = current
    return found if taken == len(items) else None


def _typed(folds: tuple[Fold, ...], length: int, dtype: str, output: str) -> Iterator[ReductionDesc]:
    for accumulator in dict.fromkeys(("fp64" if dtype == "fp64" else "fp32", dtype, output)):
        for start in ("first", "zero"):
            made = (folds[0].model_copy(update={"start": start}), *folds[1:])
            try:
                yield ReductionDesc(
                    length=length, dtype=dtype, accumulator_dtype=accumulator, output_dtype=output, folds=made
                )
            except DescriptorError:
                continue


def _separated(
    revealed: Revealed, listed: list[ReductionDesc], called: Callable[[npt.NDArray[np.float64]], Bits],
    shape: tuple[int, int], dtype: str, seed: int, draws: int,
) -> Reconstruction:  # fmt: skip
    random = np.random.default_rng((seed, 2))
    left, parted = list(listed), []
    chosen = np.unique(np.linspace(0, shape[0] - 1, COMPARED).astype(int))
    kinds = [(kind, number) for number in range(draws) for kind in ("flat", "wide")]
    for kind, number in [*kinds, ("minus zeros", 0)]:
        x = (
            np.full(shape, -0.0) if kind == "minus zeros"
            else normal_draw(random, shape) if kind == "flat" else wide_draw(random, shape, SPREAD[TYPES[dtype]])
        )  # fmt: skip
        expected = called(x)[chosen].tobytes()
        for desc in list(left):
            if evaluate_reduction(desc, patterns_of(x[chosen], dtype)).tobytes() != expected:
                left.remove(desc)
                parted.append((desc, kind, number))
    if len(left) == 1:
        return Reconstruction(revealed, left[0], tuple(left), (), tuple(parted))
    many = f"{len(left)} descriptors" if left else "no descriptor"
    return Reconstruction(revealed, None, tuple(left), (f"{many} of this order return its bytes",), tuple(parted))
