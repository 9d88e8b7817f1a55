"""Two kernels executed on the same input, and the counterexample if their output bytes differ."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bitwise_core.checker.analysis import MAXIMUM_LANES
from bitwise_core.checker.trees.divergence import DivergenceTrace
from bitwise_core.checker.verdicts import Counterexample
from bitwise_core.execution.concrete import LANES_PER_BATCH, PreparedLaunch
from bitwise_core.execution.determined_runs import may_wait, simulate_determined
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.element_types import Array, ElementType
from bitwise_core.execution.finite_patterns import replace_non_finite
from bitwise_core.execution.launch import offset_at
from bitwise_core.execution.races.undetermined import Nondeterministic
from bitwise_core.execution.simulation import SimulationResult, simulate, simulate_batch
from bitwise_core.execution.thread_numbers import block_of
from bitwise_core.numerics import FLOAT_FORMATS, FloatFormat, nan_of, storage

MAXIMUM_WHOLE_LANES = MAXIMUM_LANES >> 3
"""Of launches with more threads, only the blocks that store the divergent element are executed."""

MAXIMUM_RUN_SHARE = 0.1
"""The same holds for launches of which one run would take more than this share of the time limit."""

PARTIAL_LAUNCH = "only the blocks that store {element} were executed; other elements may differ too"
"""The note of a launch that was not executed in full."""


@dataclass(frozen=True, slots=True)
class NotFound:
    """Why no counterexample was found: a sentence, and the number of runs of both kernels."""

    sentence: str
    runs: int = 0


Blocks = tuple[list[int] | None, list[int] | None]


@dataclass(slots=True)
class KernelPair:
    """Two kernels, the element types of their buffers, and the bytes of each buffer that are known to be accessed.

    `blocks` are the blocks of each kernel to execute (None: all).  If not all are executed, `only` is the element to
    compare: its buffer, byte offset and size in bytes.  `finite`: inputs are made finite, and inputs on which a value
    overflows are rejected.  Buffers whose contents the launches give hold these in every run.  `determined` says of
    each kernel whether its result is proved to be determined: it is then run in one order of its threads where they
    race.  `alone`: inputs are run one by one.
    """

    kernels: tuple[PreparedLaunch, PreparedLaunch]
    forms: Mapping[str, ElementType]
    blocks: Blocks = (None, None)
    only: tuple[str, int, int] | None = None
    finite: bool = False
    determined: tuple[bool, bool] = (False, False)
    alone: bool = False
    sizes: dict[str, int] = field(default_factory=dict)
    runs: int = 0

    def run(self, contents: Mapping[str, Array], drawn: str) -> Counterexample | None:
        """Run both kernels on the same bytes, with zeros beyond them; a counterexample if the outputs differ.

        Raises Unsupported.
        """
        contents = self._prepared(contents)
        return self._compared(contents, drawn, self._execute(contents, self.blocks))

    def run_together(
        self, inputs: Sequence[tuple[Mapping[str, Array], str]]
    ) -> Iterator[Counterexample | Unsupported | None]:
        """Run both kernels on several inputs, each as `run` does, or the error of an input that could not be run.

        The buffers have the same sizes in all inputs.
        """
        if len(inputs) > 1 and self._runs_together():
            contents = [self._prepared(each) for each, _ in inputs]
            try:
                by_kernel = [
                    simulate_batch(
                        kernel,
                        [{name: each[name] for name in kernel.launch.buffers()} for each in contents],
                        open_ended=True,
                        blocks=blocks,
                        finite=self.finite,
                    )
                    for kernel, blocks in zip(self.kernels, self.blocks, strict=True)
                ]
            except Nondeterministic:
                self.alone = True
            except Unsupported:
                pass  # one input may be to blame, and the others can be run alone
            else:
                for each, (_, drawn), *simulations in zip(contents, inputs, *by_kernel, strict=True):
                    yield self._compared(each, drawn, simulations)
                return
        for given, drawn in inputs:
            try:
                yield self.run(given, drawn)
            except Unsupported as error:
                yield error

    def _runs_together(self) -> bool:
        waits = any(known and may_wait(each) for each, known in zip(self.kernels, self.determined, strict=True))
        return not waits and not self.alone

    def _prepared(self, contents: Mapping[str, Array]) -> dict[str, Array]:
        """The bytes of every buffer as they are run."""
        if self.finite:
            contents = {name: self._made_finite(name, content) for name, content in contents.items()}
        return self._with_given(contents)

    def _compared(
        self, contents: Mapping[str, Array], drawn: str, simulations: list[SimulationResult]
    ) -> Counterexample | None:
        """The counterexample if the outputs of both kernels differ after a run on these bytes."""
        self.runs += 1
        for name, size in self._accessed_bytes(simulations).items():
            self.sizes[name] = max(self.sizes.get(name, 0), size)
        padded = {name: zero_extended(content, self.sizes[name]) for name, content in contents.items()}
        for name, before in padded.items():
            after = [
                zero_extended(each.after[name], before.size) if name in each.after else before for each in simulations
            ]
            width = self.forms[name].bytes
            left, right = (each.view(np.dtype(f"uint{8 * width}")) for each in after)
            indices = np.flatnonzero(self.differ(name, left, right))
            if self.only is not None:
                buffer, offset, size = self.only
                inside = (indices * width >= offset) & (indices * width < offset + size)
                indices = indices[inside & (buffer == name)]
            if indices.size:
                index = int(indices[0])
                difference = name, index, width, int(left[index]), int(right[index]), int(indices.size), drawn
                return self._counterexample(padded, difference, simulations)
        return None

    def _with_given(self, contents: Mapping[str, Array]) -> dict[str, Array]:
        """The bytes of every buffer, with those that the launches give."""
        given = {name: each for kernel in self.kernels for name, each in kernel.launch.given().items()}
        return {name: given[name].patterns if name in given else each for name, each in contents.items()}

    def _made_finite(self, name: str, content: Array) -> Array:
        form = self.forms[name].format
        return content if form is None else replace_non_finite(content, form)

    def measure(self) -> None:
        """Set `sizes` from a run of the first and the last block, which nearly always access the last bytes.

        Raises Unsupported.
        """
        nothing = {name: np.zeros(0, dtype=np.uint8) for name in self.forms}
        self.sizes = self._accessed_bytes(self._execute(self._with_given(nothing), self._first_and_last_blocks()))

    def _first_and_last_blocks(self) -> Blocks:
        first, second = (sorted({0, each.launch.blocks - 1}) for each in self.kernels)
        return first, second

    def _execute(self, contents: Mapping[str, Array], chosen: Blocks) -> list[SimulationResult]:
        simulations = []
        for place, (each, blocks) in enumerate(zip(self.kernels, chosen, strict=True)):
            own = {name: contents[name] for name in each.launch.buffers()}
            simulations.append(self._simulate(place, own, blocks))
        return simulations

    def _simulate(self, place: int, contents: Mapping[str, Array], blocks: list[int] | None) -> SimulationResult:
        kernel = self.kernels[place]
        # Without the other blocks, memory through which blocks communicate has other contents.
        if self.only is None and self.determined[place]:
            return simulate_determined(kernel, contents, open_ended=True, finite=self.finite, blocks=blocks)
        return simulate(kernel, contents, open_ended=True, blocks=blocks, finite=self.finite)

    def _accessed_bytes(self, simulations: list[SimulationResult]) -> dict[str, int]:
        """The bytes of each buffer that these runs accessed, rounded up to whole elements, at least one."""
        found = {}
        for name, form in self.forms.items():
            size = max((each.after[name].size for each in simulations if name in each.after), default=0)
            found[name] = max(1, -(-size // form.bytes)) * form.bytes
        return found

    def _counterexample(
        self,
        contents: Mapping[str, Array],
        difference: tuple[str, int, int, int, int, int, str],
        simulations: list[SimulationResult],
    ) -> Counterexample:
        prepared = [note for each in self.kernels for note in each.notes]
        notes = dict.fromkeys((*prepared, *(note for each in simulations for note in each.notes)))
        if self.only is not None:
            notes[PARTIAL_LAUNCH.format(element=f"{difference[0]}[{difference[1]}]")] = None
            try:
                reached = self._accessed_bytes(self._execute(contents, self._first_and_last_blocks()))
            except Unsupported:
                reached = {}
            contents = {name: zero_extended(content, reached.get(name, 0)) for name, content in contents.items()}
        arrays = {}
        for name, content in contents.items():
            kind = self.forms[name].kind
            arrays[name] = content if kind is None else content.view(kind)
        form = self.forms[difference[0]].format
        return Counterexample(arrays, *difference, tuple(notes), format=None if form is None else form.name)

    def differ(self, name: str, left: Array, right: Array) -> Array:
        """Which elements differ, with all NaNs equal; for an unknown type, which bytes differ in every format."""
        form = self.forms[name].format
        unequal = np.asarray(left != right)
        if not unequal.any():
            return unequal
        if form is not None:
            return unequal & ~(nan_of(left, form) & nan_of(right, form))
        if self.forms[name].kind is None:
            for each in _BYTE_FORMATS:
                unequal &= ~_both_nan(left, right, each)
        return unequal


_BYTE_FORMATS = tuple(each for each in FLOAT_FORMATS.values() if each.bits in (8, 16, 32, 64))


def _both_nan(left: Array, right: Array, form: FloatFormat) -> Array:
    """Which bytes belong to a word that is a NaN of the format in both arrays."""
    size = form.bits // 8
    whole = left.size // size * size
    words = [each[:whole].view(storage(form.bits)) for each in (left, right)]
    found = np.zeros(left.size, dtype=np.bool_)
    found[:whole] = np.repeat(nan_of(words[0], form) & nan_of(words[1], form), size)
    return found


def zero_extended(content: Array, size: int) -> Array:
    """The bytes, padded with zeros to a size."""
    if content.size >= size:
        return content
    found = np.zeros(size, dtype=np.uint8)
    found[: content.size] = content
    return found


def make_pair(
    kernels: tuple[PreparedLaunch, PreparedLaunch],
    forms: Mapping[str, ElementType],
    trace: DivergenceTrace | None,
    seconds: float,
    finite: bool = False,
    determined: tuple[bool, bool] = (False, False),
) -> KernelPair:
    """The pair with the blocks to execute: all, or where that takes too long those that store the divergent element.

    For `determined` see `KernelPair`.  Raises Unsupported where the launches are too large and no divergent element is
    known.
    """
    lanes = max(each.launch.blocks * each.threads for each in kernels)
    whole = KernelPair(kernels, forms, finite=finite, determined=determined)
    if lanes <= LANES_PER_BATCH:
        return whole
    if trace is None or None in trace.element.threads:
        if lanes > MAXIMUM_WHOLE_LANES:
            raise Unsupported("the launches are too large to be executed in full, and no divergent element is known")
        return whole
    element = trace.element
    left, right = ([block_of(int(thread or 0))] for thread in element.threads)
    name = trace.buffer
    offset = offset_at(element.address)
    partial = KernelPair(kernels, forms, (left, right), (name, offset, element.size), finite)
    if lanes > MAXIMUM_WHOLE_LANES:
        return partial
    start = time.monotonic()
    try:
        partial.run({name: np.zeros(0, dtype=np.uint8) for name in forms}, "")
    except Unsupported:
        return whole
    return partial if (time.monotonic() - start) * lanes / LANES_PER_BATCH > MAXIMUM_RUN_SHARE * seconds else whole
