"""Two kernels run on the same bytes, and what is seen where the bytes that they leave differ."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bitwise_core.checker.analysis import MAXIMUM_LANES
from bitwise_core.checker.comparison import DivergenceTrace
from bitwise_core.checker.verdicts import Counterexample
from bitwise_core.execution.assumptions import replace_non_finite
from bitwise_core.execution.buffers import Array, ElementType
from bitwise_core.execution.concrete import LANES_PER_BATCH, PreparedLaunch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import POINTER_SHIFT
from bitwise_core.execution.machine import THREAD_SHIFT
from bitwise_core.execution.simulation import SimulationResult, simulate
from bitwise_core.numerics import FLOAT_FORMATS, FloatFormat, nan_of, storage

WHOLE_LANES = MAXIMUM_LANES >> 3
"""Launches of more threads are not run whole: the blocks that store the element where the kernels part are."""

WHOLE_SHARE = 0.1
"""Nor are those of which one run takes more than this share of the time."""

FEW_BLOCKS = "of the input's launches only the blocks that store {element} were run; others may leave other bytes too"
"""The note of a launch that was not run whole."""


@dataclass(frozen=True, slots=True)
class NotFound:
    """Why no counterexample was found: a sentence, and how often both kernels were run."""

    sentence: str
    runs: int = 0


Blocks = tuple[list[int] | None, list[int] | None]


@dataclass(slots=True)
class Pair:
    """Two kernels, their buffers' forms, and how many bytes of each are accessed as far as is known.

    Where not all blocks are run, `only` is the element that is looked at: its buffer, offset and bytes.
    Where `finite`, inputs are made finite, and those on which a number overflows are refused.
    """

    kernels: tuple[PreparedLaunch, PreparedLaunch]
    forms: Mapping[str, ElementType]
    blocks: Blocks = (None, None)
    only: tuple[str, int, int] | None = None
    finite: bool = False
    sizes: dict[str, int] = field(default_factory=dict)
    runs: int = 0

    def run(self, contents: Mapping[str, Array], drawn: str) -> Counterexample | None:
        """Runs both kernels on the same bytes, zeros beyond them.  Raises Unsupported."""
        if self.finite:
            contents = {name: self._made_finite(name, content) for name, content in contents.items()}
        done = self._executed(contents, self.blocks)
        self.runs += 1
        for name, size in self._reached(done).items():
            self.sizes[name] = max(self.sizes.get(name, 0), size)
        padded = {name: extended(content, self.sizes[name]) for name, content in contents.items()}
        for name, before in padded.items():
            after = [extended(each.after[name], before.size) if name in each.after else before for each in done]
            width = self.forms[name].bytes
            left, right = (each.view(np.dtype(f"uint{8 * width}")) for each in after)
            places = np.flatnonzero(self.differ(name, left, right))
            if self.only is not None:
                buffer, offset, size = self.only
                inside = (places * width >= offset) & (places * width < offset + size)
                places = places[inside & (buffer == name)]
            if places.size:
                place = int(places[0])
                seen = name, place, width, int(left[place]), int(right[place]), int(places.size), drawn
                return self._counterexample(padded, seen, done)
        return None

    def _made_finite(self, name: str, content: Array) -> Array:
        form = self.forms[name].format
        return content if form is None else replace_non_finite(content, form)

    def measure(self) -> None:
        """Learns from the first and the last block, which nearly always tell it, how far the launches reach.

        Raises Unsupported.
        """
        nothing = {name: np.zeros(0, dtype=np.uint8) for name in self.forms}
        self.sizes = self._reached(self._executed(nothing, self._ends()))

    def _ends(self) -> Blocks:
        first, second = (sorted({0, each.launch.blocks - 1}) for each in self.kernels)
        return first, second

    def _executed(self, contents: Mapping[str, Array], chosen: Blocks) -> list[SimulationResult]:
        done = []
        for each, blocks in zip(self.kernels, chosen, strict=True):
            mine = {name: contents[name] for name in each.launch.buffers()}
            done.append(simulate(each, mine, open_ended=True, blocks=blocks, finite=self.finite))
        return done

    def _reached(self, done: list[SimulationResult]) -> dict[str, int]:
        """How many bytes of each buffer runs accessed, in whole elements and one at least."""
        found = {}
        for name, form in self.forms.items():
            size = max((each.after[name].size for each in done if name in each.after), default=0)
            found[name] = max(1, -(-size // form.bytes)) * form.bytes
        return found

    def _counterexample(
        self,
        contents: Mapping[str, Array],
        seen: tuple[str, int, int, int, int, int, str],
        done: list[SimulationResult],
    ) -> Counterexample:
        notes = dict.fromkeys(note for each in done for note in each.notes)
        if self.only is not None:
            notes[FEW_BLOCKS.format(element=f"{seen[0]}[{seen[1]}]")] = None
            try:
                reached = self._reached(self._executed(contents, self._ends()))
            except Unsupported:
                reached = {}
            contents = {name: extended(content, reached.get(name, 0)) for name, content in contents.items()}
        typed = {}
        for name, content in contents.items():
            kind = self.forms[name].kind
            typed[name] = content if kind is None else content.view(kind)
        return Counterexample(typed, *seen, tuple(notes))

    def differ(self, name: str, left: Array, right: Array) -> Array:
        """Which elements differ, two NaNs counted as one; of an unknown type, which bytes differ in every format."""
        form = self.forms[name].format
        unequal = np.asarray(left != right)
        if not unequal.any():
            return unequal
        if form is not None:
            return unequal & ~(nan_of(left, form) & nan_of(right, form))
        if self.forms[name].kind is None:
            for each in _ANY_FORMAT:
                unequal &= ~_both_nan(left, right, each)
        return unequal


_ANY_FORMAT = tuple(each for each in FLOAT_FORMATS.values() if each.bits in (8, 16, 32, 64))


def _both_nan(left: Array, right: Array, form: FloatFormat) -> Array:
    """Which bytes belong to a word that is a NaN of the format on both sides."""
    size = form.bits // 8
    whole = left.size // size * size
    words = [each[:whole].view(storage(form.bits)) for each in (left, right)]
    found = np.zeros(left.size, dtype=np.bool_)
    found[:whole] = np.repeat(nan_of(words[0], form) & nan_of(words[1], form), size)
    return found


def extended(content: Array, size: int) -> Array:
    """Bytes with zeros beyond them up to a size."""
    if content.size >= size:
        return content
    found = np.zeros(size, dtype=np.uint8)
    found[: content.size] = content
    return found


def pair_of(
    kernels: tuple[PreparedLaunch, PreparedLaunch],
    forms: Mapping[str, ElementType],
    parted: DivergenceTrace | None,
    seconds: float,
    finite: bool = False,
) -> Pair:
    """The pair as it is run: whole launches, or where that takes too long the blocks of the element that parts.

    Raises Unsupported where the launches are too large and no such element is known.
    """
    lanes = max(each.launch.blocks * each.threads for each in kernels)
    if lanes <= LANES_PER_BATCH:
        return Pair(kernels, forms, finite=finite)
    if parted is None or None in parted.element.threads:
        if lanes > WHOLE_LANES:
            raise Unsupported("the launches are too large to be run whole, and no element is known in which they part")
        return Pair(kernels, forms, finite=finite)
    element = parted.element
    left, right = ([int(thread or 0) >> THREAD_SHIFT] for thread in element.threads)
    name = parted.buffer
    offset = element.address & ((1 << POINTER_SHIFT) - 1)
    few = Pair(kernels, forms, (left, right), (name, offset, element.size), finite)
    if lanes > WHOLE_LANES:
        return few
    start = time.monotonic()
    try:
        few.run({name: np.zeros(0, dtype=np.uint8) for name in forms}, "")
    except Unsupported:
        return Pair(kernels, forms, finite=finite)
    return (
        few
        if (time.monotonic() - start) * lanes / LANES_PER_BATCH > WHOLE_SHARE * seconds
        else Pair(kernels, forms, finite=finite)
    )
