"""Inputs on which two trees differ, found on the trees alone: many contents of memory are tried at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from bitwise_core import numerics
from bitwise_core.checker.comparison import DivergenceTrace
from bitwise_core.checker.counterexamples.memory_contents import (
    SAMPLES,
    Place,
    Samples,
    elsewhere,
    fed_back,
    near,
    with_special,
)
from bitwise_core.checker.expression_trees import build_tree
from bitwise_core.execution.buffers import Array, ElementType
from bitwise_core.execution.simulation import matrix_units
from bitwise_core.ir.evaluation import Values, evaluate_many
from bitwise_core.ir.nodes import Load, Node, descendants
from bitwise_core.numerics.mma import MmaSpec, multiply_accumulate

Different = Callable[[Array, Array], Array]
"""In which contents of memory two results count as different."""

_FEEDBACK = 2
"""So often a result is taken from an element under the nodes where the trees part, so that rounding shows."""

_FRUITLESS = 24
"""After so many draws on which the nodes where the trees part agree, whole trees are tried on any draw."""


@dataclass(frozen=True, slots=True)
class Trees:
    """Two trees of an element, the nodes where they part, and the elements that they load.

    `near` are those under the nodes where they part, `private` those that one tree alone loads.
    """

    roots: tuple[Node, Node]
    parting: tuple[Node, Node]
    all: tuple[Place, ...]
    near: tuple[Place, ...]
    private: tuple[Place, ...]


def trees_of(parted: DivergenceTrace, forms: Mapping[str, ElementType]) -> Trees | None:
    """The trees where an element's kernels part, or None where they are too large or load what has no name."""
    built = [build_tree(each, root) for each, root in zip(parted.replays, parted.roots, strict=True)]
    if not all(each.complete for each in built):
        return None
    sides = zip(parted.replays, (parted.parting.left, parted.parting.right), strict=True)
    below = [build_tree(each, part.scalar).root for each, part in sides]
    roots = built[0].root, built[1].root
    loaded = [places(root, forms=forms) for root in roots]
    close = places(*below, forms=forms)
    if loaded[0] is None or loaded[1] is None or close is None:
        return None
    every, alone = sorted(loaded[0] | loaded[1]), sorted(loaded[0] ^ loaded[1])
    return Trees(roots, (below[0], below[1]), tuple(every), tuple(sorted(close)), tuple(alone))


def places(*roots: Node, forms: Mapping[str, ElementType]) -> set[Place] | None:
    """The elements that trees load; None where a buffer is not one of the launch's."""
    found: set[Place] = set()
    for root in roots:
        for node in descendants(root):
            if isinstance(node, Load):
                form = forms.get(node.buffer)
                if form is None:
                    return None
                first, last = node.offset // form.bytes, (node.offset + node.bits // 8 - 1) // form.bytes
                found.update((node.buffer, index) for index in range(first, last + 1))
    return found


class Evaluator:
    """The values of trees on contents of memory, as the architecture computes them."""

    def __init__(self, parted: DivergenceTrace, forms: Mapping[str, ElementType]) -> None:
        known = parted.replays[0].ready.arch.bits
        self._functions = {} if known is None else known.functions
        self._units = {**matrix_units(parted.replays[0].ready), **matrix_units(parted.replays[1].ready)}
        self._forms = forms

    def values(self, root: Node, samples: Samples) -> Values:
        """One value for each content of memory.  Raises numeric.Unevaluable where a tree has no arithmetic."""

        def memory(buffer: str, offset: int, bits: int) -> Values:
            return _loaded(samples, self._forms[buffer].bytes, buffer, offset, bits)

        # What is undefined reaches no result that is stored, or else the run that confirms is refused.
        found = evaluate_many(root, memory, self._step, None, self._approximate, 0)
        return np.broadcast_to(found, (SAMPLES,))

    def _approximate(self, name: str, operands: tuple[Values, ...]) -> Values:
        function = self._functions.get(name)
        if function is None:
            raise numerics.Unevaluable(f"{name} has no arithmetic here")
        return function(*operands)

    def _step(self, name: str, accumulator: Values, left: tuple[Values, ...], right: tuple[Values, ...]) -> Values:
        unit: MmaSpec | None = self._units.get(name)
        if unit is None:
            raise numerics.Unevaluable(f"the matrix step {name} has no row here")
        a, b = (np.stack([np.broadcast_to(each, (SAMPLES,)) for each in side], axis=-1) for side in (left, right))
        c = np.broadcast_to(accumulator, (SAMPLES,))[:, None, None]
        result: Values = multiply_accumulate(unit, a[:, None], b[..., None], c)
        return result.reshape(SAMPLES)


def candidates(
    trees: Trees,
    evaluator: Evaluator,
    forms: Mapping[str, ElementType],
    form: numerics.FloatFormat | None,
    different: Different,
    random: np.random.Generator,
    deadline: float,
) -> Iterator[dict[Place, int] | bool]:
    """Patterns of elements on which the trees differ, as they are found; at last whether the nodes below ever did.

    `form` is the format of the trees' results, None where it is no floating-point one.
    Raises numeric.Unevaluable where a tree has no arithmetic.
    """
    close = frozenset(trees.near)
    rest = [place for place in trees.all if place not in close]
    alone = trees.parting == trees.roots
    told, fruitless, turn = False, 0, 0
    while time.monotonic() < deadline:
        turn += 1
        if trees.private and turn % 2:
            found, _ = _told_by(trees, evaluator, different, with_special(trees.all, trees.private, forms, random))
            if found is not None:
                yield found
            continue
        drawn: Samples = near(trees.near, forms, random)
        if not alone and (told or fruitless < _FRUITLESS):
            columns = np.flatnonzero(_nodes_differ(*(evaluator.values(node, drawn) for node in trees.parting)))
            if not columns.size:
                fruitless += 1
                continue
            told = True
            if random.random() < 0.8:
                chosen = random.choice(columns, SAMPLES)
                drawn = {place: patterns[chosen] for place, patterns in drawn.items()}
        samples: Samples = {**drawn, **elsewhere(rest, forms, random, drawn)}
        found, results = _told_by(trees, evaluator, different, samples)
        for _ in range(_FEEDBACK):
            if found is not None or form is None or results.dtype != numerics.storage(form.bits):
                break
            samples = fed_back(samples, results, form, trees.near or trees.all, forms, random)
            found, results = _told_by(trees, evaluator, different, samples)
        if found is not None:
            yield found
    yield told


def _told_by(
    trees: Trees, evaluator: Evaluator, different: Different, samples: Samples
) -> tuple[dict[Place, int] | None, Values]:
    """The first of the contents on which the trees differ, and what the left one gives on all of them."""
    left, right = (evaluator.values(root, samples) for root in trees.roots)
    found = np.flatnonzero(different(left, right))
    if not found.size:
        return None, left
    return {place: int(patterns[found[0]]) for place, patterns in samples.items()}, left


def _nodes_differ(left: Values, right: Values) -> Array:
    """In which contents two nodes differ, where two NaNs of the usual formats of their width do not."""
    unequal = np.asarray(left != right)
    if left.dtype != right.dtype or left.dtype.hasobject:
        return unequal
    for name in ("fp64", "fp32", "fp16", "bf16"):
        form = numerics.FLOAT_FORMATS[name]
        if form.bits == 8 * left.dtype.itemsize:
            unequal &= ~(numerics.nan_of(left, form) & numerics.nan_of(right, form))
    return unequal


def _loaded(samples: Samples, width: int, buffer: str, offset: int, bits: int) -> Values:
    """What a load sees of the elements that lie there."""
    first, last = offset // width, (offset + bits // 8 - 1) // width
    if first == last and bits == 8 * width:
        return samples[buffer, first]
    kind = numerics.storage(bits) if bits <= 64 else np.dtype(object)
    wide = bits > 64 or (last - first + 1) * width > 8
    total = np.zeros(SAMPLES, dtype=object if wide else np.uint64)
    for index in range(first, last + 1):
        low = 8 * width * (index - first)
        total = total | (samples[buffer, index].astype(total.dtype) << (low if wide else np.uint64(low)))
    low = 8 * (offset - first * width)
    total = total >> (low if wide else np.uint64(low))
    mask = (1 << bits) - 1
    return (total & (mask if wide else np.uint64(mask))).astype(kind)
