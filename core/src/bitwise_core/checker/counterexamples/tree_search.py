"""Search for inputs on which two trees differ, by evaluating the trees on many memory contents at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from bitwise_core import numerics
from bitwise_core.checker.counterexamples.memory_contents import (
    SAMPLES,
    ElementIndex,
    Samples,
    contents_elsewhere,
    contents_near_divergence,
    contents_with_special,
    with_feedback,
)
from bitwise_core.checker.trees.divergence import DivergenceTrace
from bitwise_core.checker.trees.expression_trees import build_tree
from bitwise_core.execution.element_types import Array, ElementType
from bitwise_core.execution.simulation import matrix_units
from bitwise_core.ir.evaluation import Values, evaluate_many
from bitwise_core.ir.nodes import Load, Node, descendants
from bitwise_core.numerics.mma import MatrixUnit, OpenArithmetic, step_results

Different = Callable[[Array, Array], Array]
"""The memory contents on which two results differ."""

_FEEDBACK_ROUNDS = 2
"""The number of times that a result is subtracted from an element below the divergent nodes, to expose rounding."""

_MAXIMUM_FRUITLESS = 24
"""After this many draws on which the divergent nodes agree, whole trees are evaluated on every draw."""


@dataclass(frozen=True, slots=True)
class Trees:
    """The two trees of an element, their divergent nodes, and the elements that they load.

    `all` are the elements that either tree loads, `near` those loaded below the divergent nodes, `private` those that
    only one tree loads.
    """

    roots: tuple[Node, Node]
    divergent: tuple[Node, Node]
    all: tuple[ElementIndex, ...]
    near: tuple[ElementIndex, ...]
    private: tuple[ElementIndex, ...]


def build_trees(trace: DivergenceTrace, forms: Mapping[str, ElementType]) -> Trees | None:
    """Build the trees of a divergent element; None where they are too large or load from an unnamed buffer."""
    built = [build_tree(each, root) for each, root in zip(trace.provenances, trace.roots, strict=True)]
    if not all(each.complete for each in built):
        return None
    sides = zip(trace.provenances, (trace.nodes.left, trace.nodes.right), strict=True)
    below = [build_tree(each, node.scalar).root for each, node in sides]
    roots = built[0].root, built[1].root
    loaded = [loaded_elements(root, forms=forms) for root in roots]
    near_elements = loaded_elements(*below, forms=forms)
    if loaded[0] is None or loaded[1] is None or near_elements is None:
        return None
    every, exclusive = sorted(loaded[0] | loaded[1]), sorted(loaded[0] ^ loaded[1])
    return Trees(roots, (below[0], below[1]), tuple(every), tuple(sorted(near_elements)), tuple(exclusive))


def loaded_elements(*roots: Node, forms: Mapping[str, ElementType]) -> set[ElementIndex] | None:
    """The elements that trees load; None where a buffer is not a buffer of the launch."""
    found: set[ElementIndex] = set()
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
    """Evaluates trees on memory contents.

    Matrix steps are those of both kernels, approximate functions those of the architecture of the left kernel.
    """

    def __init__(self, trace: DivergenceTrace, forms: Mapping[str, ElementType]) -> None:
        simulation = trace.provenances[0].ready.arch.bits
        self._functions = {} if simulation is None else simulation.functions
        self._units = {**matrix_units(trace.provenances[0].ready), **matrix_units(trace.provenances[1].ready)}
        self._forms = forms

    def values(self, root: Node, samples: Samples) -> Values:
        """The value of a tree on each memory content, shape (SAMPLES,).

        Raises numerics.Unevaluable where an operation of the tree cannot be evaluated.
        """

        def memory(buffer: str, offset: int, bits: int) -> Values:
            return _loaded(samples, self._forms[buffer].bytes, buffer, offset, bits)

        # An undefined value reaches no stored result; otherwise the run that confirms the input is rejected.
        found = evaluate_many(root, memory, self._step, None, self._approximate, 0)
        return np.broadcast_to(found, (SAMPLES,))

    def _approximate(self, name: str, operands: tuple[Values, ...]) -> Values:
        function = self._functions.get(name)
        if function is None:
            raise numerics.Unevaluable(f"the operation {name} has no evaluation")
        return function(*operands)

    def _step(self, name: str, accumulator: Values, left: tuple[Values, ...], right: tuple[Values, ...]) -> Values:
        unit: MatrixUnit | None = self._units.get(name)
        if unit is None:
            raise numerics.Unevaluable(f"the matrix step {name} has no matrix-unit row")
        a, b = (np.stack([np.broadcast_to(each, (SAMPLES,)) for each in side], axis=-1) for side in (left, right))
        c = np.broadcast_to(accumulator, (SAMPLES,))[:, None, None]
        try:
            result: Values = step_results(unit, a[:, None], b[..., None], c)
        except OpenArithmetic as error:
            raise numerics.Unevaluable(str(error)) from None
        return result.reshape(SAMPLES)


def candidates(
    trees: Trees,
    evaluator: Evaluator,
    forms: Mapping[str, ElementType],
    form: numerics.FloatFormat | None,
    different: Different,
    random: np.random.Generator,
    deadline: float,
) -> Iterator[dict[ElementIndex, int] | bool]:
    """Generate patterns of elements on which the trees differ, until the deadline.

    The last value generated says whether the divergent nodes differed on any memory content.  `form` is the format of
    the results of the trees, None where it is not a floating-point format.  Raises numerics.Unevaluable where an
    operation cannot be evaluated.
    """
    near_elements = frozenset(trees.near)
    rest = [element for element in trees.all if element not in near_elements]
    at_roots = trees.divergent == trees.roots
    nodes_differed, fruitless, round_number = False, 0, 0
    while time.monotonic() < deadline:
        round_number += 1
        if trees.private and round_number % 2:
            found, _ = _first_difference(
                trees, evaluator, different, contents_with_special(trees.all, trees.private, forms, random)
            )
            if found is not None:
                yield found
            continue
        drawn: Samples = contents_near_divergence(trees.near, forms, random)
        if not at_roots and (nodes_differed or fruitless < _MAXIMUM_FRUITLESS):
            columns = np.flatnonzero(_nodes_differ(*(evaluator.values(node, drawn) for node in trees.divergent)))
            if not columns.size:
                fruitless += 1
                continue
            nodes_differed = True
            if random.random() < 0.8:
                chosen = random.choice(columns, SAMPLES)
                drawn = {element: patterns[chosen] for element, patterns in drawn.items()}
        samples: Samples = {**drawn, **contents_elsewhere(rest, forms, random, drawn)}
        found, results = _first_difference(trees, evaluator, different, samples)
        for _ in range(_FEEDBACK_ROUNDS):
            if found is not None or form is None or results.dtype != numerics.storage(form.bits):
                break
            samples = with_feedback(samples, results, form, trees.near or trees.all, forms, random)
            found, results = _first_difference(trees, evaluator, different, samples)
        if found is not None:
            yield found
    yield nodes_differed


def _first_difference(
    trees: Trees, evaluator: Evaluator, different: Different, samples: Samples
) -> tuple[dict[ElementIndex, int] | None, Values]:
    """The first memory content on which the trees differ (None: none), and the results of the left tree on all."""
    left, right = (evaluator.values(root, samples) for root in trees.roots)
    found = np.flatnonzero(different(left, right))
    if not found.size:
        return None, left
    return {element: int(patterns[found[0]]) for element, patterns in samples.items()}, left


def _nodes_differ(left: Values, right: Values) -> Array:
    """The memory contents on which two nodes differ; two NaNs of a usual format of their width are equal."""
    unequal = np.asarray(left != right)
    if left.dtype != right.dtype or left.dtype.hasobject:
        return unequal
    for name in ("fp64", "fp32", "fp16", "bf16"):
        form = numerics.FLOAT_FORMATS[name]
        if form.bits == 8 * left.dtype.itemsize:
            unequal &= ~(numerics.nan_of(left, form) & numerics.nan_of(right, form))
    return unequal


def _loaded(samples: Samples, width: int, buffer: str, offset: int, bits: int) -> Values:
    """The value of a load, from the patterns of the elements at its address."""
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
