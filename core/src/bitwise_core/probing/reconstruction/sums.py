"""The descriptor of a sum from its outputs: the revealed tree as folds over digits of the index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_core.descriptors import DescriptorError, Digit, Fold, ReductionDesc
from bitwise_core.descriptors.evaluation import evaluate_reduction
from bitwise_core.descriptors.merge_orders import MERGE_ORDERS
from bitwise_core.numerics import Bits
from bitwise_core.probing import ProbeError, RevealedOrder, SumTree, reduction_instrument, reveal
from bitwise_core.probing.elimination import normal_draw, wide_draw
from bitwise_core.probing.operand_arrays import NUMPY, TYPES, OperandArrays, patterns_of
from bitwise_core.probing.reconstruction.products import DRAWS_PER_KIND, SPREAD_BINADES, Reconstruction

COMPARED_ROWS = 64
"""The number of rows for which candidates are evaluated."""


def reconstruct_sum(
    function: Callable[[Any], Any], rows: int, length: int, dtype: str = "float32", *, arrays: OperandArrays = NUMPY,
    seed: int = 0, draws: int = DRAWS_PER_KIND,
) -> Reconstruction:  # fmt: skip
    """Reconstruct the ReductionDesc of `y = function(x)`; the arguments are those of `reduction_instrument`.

    Raises ProbeError.
    """
    revealed = reveal(reduction_instrument(function, rows, length, dtype, arrays=arrays), seed)
    if revealed.tree is None:
        return Reconstruction(revealed, None, unresolved=revealed.unresolved)
    if len(revealed.tree.leaves) != length:
        return Reconstruction(
            revealed, None, unresolved=("no descriptor omits values: the sum is over some of the positions only",)
        )
    folds = folds_of(revealed.tree)
    if folds is None:
        return Reconstruction(
            revealed,
            None,
            unresolved=("no descriptor has this order: it is not a sequence of folds over index digits",),
        )
    output = TYPES.get(arrays.name(function(arrays.of_doubles(np.ones((rows, length)), dtype))))
    if output is None:
        raise ProbeError("descriptors do not support the output's type")
    candidates = list(_typed_descriptors(folds, length, TYPES[dtype], output))

    def call(x: npt.NDArray[np.float64]) -> Bits:
        return arrays.to_patterns(function(arrays.of_doubles(x, dtype)))

    return _eliminate_descriptors(revealed, candidates, call, (rows, length), dtype, seed, draws)


def folds_of(tree: SumTree) -> tuple[Fold, ...] | None:
    """Return the folds that produce a tree over all indices; None where no folds produce it."""
    parents = {child: (~number, node) for number, node in enumerate(tree.nodes) for child in node}
    items = {int(leaf): int(leaf) for leaf in tree.leaves}
    folds = []
    while len(items) > 1:
        for fold in _candidate_folds(tree, items, parents):
            contracted = _contract(fold, items, parents)
            if contracted is not None:
                break
        else:
            return None
        folds.append(fold)
        items = contracted
    return tuple(folds)


Parents = dict[int, tuple[int, tuple[int, ...]]]


def _sibling(child: int, parents: Parents) -> tuple[int, int] | None:
    """Return a child's parent and its only sibling; None for the root, and where the parent has more children."""
    found = parents.get(child)
    if found is None or len(found[1]) != 2:
        return None
    node, (one, other) = found
    return node, other if one == child else one


def _candidate_folds(tree: SumTree, items: dict[int, int], parents: Parents) -> Iterator[Fold]:
    """Yield the folds that the running sums which contain index 0 allow."""
    for added in _chains(tree, items, parents):
        for order in MERGE_ORDERS.values():
            if not order.running_sum:
                continue
            sequence = order.steps(len(added)).sequence
            # An addition commutes: the lower of the first two indices is assigned the lower place.
            first = sorted(added[:2], reverse=sequence[0] > sequence[1])
            offsets = [0] * len(added)
            for place, offset in zip(sequence, [*first, *added[2:]], strict=True):
                offsets[place] = offset
            fold = None if offsets[0] else _fold_of_offsets(offsets, order.name)
            if fold is not None:
                yield fold


def _chains(tree: SumTree, items: dict[int, int], parents: Parents) -> Iterator[list[int]]:
    """Yield the indices of a running sum in the order of addition: up to index 0, then as far as the sum continues."""
    index = {child: place for place, child in items.items()}
    found = _sibling(items[0], parents)
    if found is None:
        return
    current, other = found
    before: list[int] = []  # the indices that are added before index 0, in reverse order
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
    while (found := _sibling(current, parents)) is not None and found[1] in index:
        current = found[0]
        added = [*added, index[found[1]]]
    yield added


def _fold_of_offsets(offsets: list[int], order: str) -> Fold | None:
    """Return the smallest fold whose running sum starts with these offsets; None if there is none."""
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


def _contract(fold: Fold, items: dict[int, int], parents: Parents) -> dict[int, int] | None:
    """Return the sums after a fold, as nodes by index; None where the tree has other sums."""
    found: dict[int, int] = {}
    taken = 0
    for base in sorted(items):
        if any(base // digit.stride % digit.count for digit in fold.digits):
            continue
        members = [items[base + offset] for offset in fold.offsets if base + offset in items]
        taken += len(members)
        current = members[0]
        for other in members[1:]:
            pair = _sibling(current, parents)
            if pair is None or pair[1] != other:
                return None
            current = pair[0]
        found[base] = current
    return found if taken == len(items) else None


def _typed_descriptors(folds: tuple[Fold, ...], length: int, dtype: str, output: str) -> Iterator[ReductionDesc]:
    for accumulator in dict.fromkeys(("fp64" if dtype == "fp64" else "fp32", dtype, output)):
        for start in ("first", "zero"):
            made = (folds[0].model_copy(update={"start": start}), *folds[1:])
            try:
                yield ReductionDesc(
                    length=length, dtype=dtype, accumulator_dtype=accumulator, output_dtype=output, folds=made
                )
            except DescriptorError:
                continue


def _eliminate_descriptors(
    revealed: RevealedOrder, candidates: list[ReductionDesc], call: Callable[[npt.NDArray[np.float64]], Bits],
    shape: tuple[int, int], dtype: str, seed: int, draws: int,
) -> Reconstruction:  # fmt: skip
    random = np.random.default_rng((seed, 2))
    remaining, rejected = list(candidates), []
    chosen = np.unique(np.linspace(0, shape[0] - 1, COMPARED_ROWS).astype(int))
    kinds = [(kind, number) for number in range(draws) for kind in ("flat", "wide")]
    for kind, number in [*kinds, ("minus zeros", 0)]:
        if kind == "minus zeros":
            x = np.full(shape, -0.0)
        elif kind == "flat":
            x = normal_draw(random, shape)
        else:
            x = wide_draw(random, shape, SPREAD_BINADES[TYPES[dtype]])
        expected = call(x)[chosen].tobytes()
        for desc in list(remaining):
            if evaluate_reduction(desc, patterns_of(x[chosen], dtype)).tobytes() != expected:
                remaining.remove(desc)
                rejected.append((desc, kind, number))
    if len(remaining) == 1:
        return Reconstruction(revealed, remaining[0], tuple(remaining), (), tuple(rejected))
    survivors = (
        f"{len(remaining)} descriptors of this order return" if remaining else "no descriptor of this order returns"
    )
    return Reconstruction(revealed, None, tuple(remaining), (f"{survivors} its bytes",), tuple(rejected))
