"""Inputs on which two trees differ, found on the trees alone: many contents of memory are tried at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from bitwise_core import numeric
from bitwise_core.buffers import Array, Form
from bitwise_core.difference import Parted
from bitwise_core.engine.execution import matrix_units
from bitwise_core.engine.trees import build_tree
from bitwise_core.mma import MmaSpec, multiply_accumulate
from bitwise_core.search.values import ORDER_REVEALING, draw
from bitwise_core.tree.evaluate import Values, evaluate_many
from bitwise_core.tree.nodes import Load, Node, descendants

SAMPLES = 256
"""Contents of memory tried at once."""

Place = tuple[str, int]
"""An element: its buffer, and its index in elements of the buffer's width."""


@dataclass(frozen=True, slots=True)
class Trees:
    """Two trees of an element, the elements that they load, and those under the nodes where they part."""

    roots: tuple[Node, Node]
    all: tuple[Place, ...]
    near: frozenset[Place]


def trees_of(parted: Parted, forms: Mapping[str, Form]) -> Trees | None:
    """The trees where an element's kernels part, or None where they are too large or load what has no name."""
    built = [build_tree(each, root) for each, root in zip(parted.replays, parted.roots, strict=True)]
    if not all(each.complete for each in built):
        return None
    sides = zip(parted.replays, (parted.parting.left, parted.parting.right), strict=True)
    below = [build_tree(each, part.scalar).root for each, part in sides]
    roots = built[0].root, built[1].root
    loaded, near = places(roots, forms), places(below, forms)
    return None if loaded is None or near is None else Trees(roots, tuple(sorted(loaded)), frozenset(near))


def places(roots: Iterable[Node], forms: Mapping[str, Form]) -> set[Place] | None:
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


def search(
    trees: Trees,
    parted: Parted,
    forms: Mapping[str, Form],
    different: Callable[[Array, Array], Array],
    random: np.random.Generator,
    deadline: float,
) -> dict[Place, int] | None:
    """Patterns of elements on which the trees differ, or None where none was found in time.

    `different` says in which samples two results differ.  Raises numeric.Unevaluable where a tree has no arithmetic.
    """
    known = parted.replays[0].ready.arch.bits
    functions = {} if known is None else known.functions
    units = {**matrix_units(parted.replays[0].ready), **matrix_units(parted.replays[1].ready)}
    suffix = f"@{parted.replays[0].ready.arch.name}"

    def approximate(name: str, operands: tuple[Values, ...]) -> Values:
        function = functions.get(name) or functions.get(name + suffix)
        if function is None:
            raise numeric.Unevaluable(f"{name} has no arithmetic here")
        return function(*operands)

    while time.monotonic() < deadline:
        drawn = _samples(trees, forms, random)

        def memory(buffer: str, offset: int, bits: int, drawn: Mapping[Place, Array] = drawn) -> Values:
            return _loaded(drawn, forms[buffer].bytes, buffer, offset, bits)

        results = [evaluate_many(root, memory, _unit(units), None, approximate) for root in trees.roots]
        count = np.broadcast_shapes((SAMPLES,), *(each.shape for each in results))
        found = np.flatnonzero(different(*(np.broadcast_to(each, count) for each in results)))
        if found.size:
            return {place: int(patterns[found[0]]) for place, patterns in drawn.items()}
    return None


def _samples(trees: Trees, forms: Mapping[str, Form], random: np.random.Generator) -> dict[Place, Array]:
    """Patterns of every element, one for each sample: telling ones near the parting, usual ones elsewhere."""
    about, elsewhere = random.choice(ORDER_REVEALING), random.choice(["normal", "normal", "zeros", "cancelling"])
    found: dict[Place, Array] = {}
    for near in (True, False):
        mine = [place for place in trees.all if (place in trees.near) == near]
        for buffer in {place[0] for place in mine}:
            chosen = [place for place in mine if place[0] == buffer]
            kind = about if near else elsewhere
            values = draw(forms[buffer], SAMPLES * len(chosen), kind, random, None).reshape(len(chosen), SAMPLES)
            found.update(zip(chosen, values, strict=True))
    return found


def _loaded(drawn: Mapping[Place, Array], width: int, buffer: str, offset: int, bits: int) -> Values:
    """What a load sees of the elements that lie there."""
    kind = numeric.storage(bits) if bits <= 64 else np.dtype(object)
    first, last = offset // width, (offset + bits // 8 - 1) // width
    total = np.zeros(SAMPLES, dtype=object if bits > 64 or (last - first + 1) * width > 8 else np.uint64)
    for index in range(first, last + 1):
        part = drawn[buffer, index].astype(total.dtype)
        low = 8 * width * (index - first)
        total = total | (part << (low if total.dtype.hasobject else np.uint64(low)))
    low = 8 * (offset - first * width)
    total = total >> (low if total.dtype.hasobject else np.uint64(low))
    mask = (1 << bits) - 1
    return (total & (mask if total.dtype.hasobject else np.uint64(mask & (2**64 - 1)))).astype(kind)


def _unit(units: Mapping[str, MmaSpec]) -> Callable[[str, Values, tuple[Values, ...], tuple[Values, ...]], Values]:
    def step(name: str, accumulator: Values, left: tuple[Values, ...], right: tuple[Values, ...]) -> Values:
        unit = units.get(name)
        if unit is None:
            raise numeric.Unevaluable(f"the matrix step {name} has no row here")
        spread = [np.stack([np.broadcast_to(each, (SAMPLES,)) for each in side], axis=-1) for side in (left, right)]
        c = np.broadcast_to(accumulator, (SAMPLES,))[:, None, None]
        result: Values = multiply_accumulate(unit, spread[0][:, None], spread[1][..., None], c)
        return result.reshape(SAMPLES)

    return step
