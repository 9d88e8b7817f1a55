"""Rounds on loops: classes of the analysis of every launch or of one launch, and their bytes for several counts."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bitwise_bench.adversary.device import Device
from bitwise_bench.adversary.execution import run
from bitwise_bench.adversary.expressions import Expression, nodes, substituted
from bitwise_bench.adversary.folders import MANIFEST, Element, element_of, manifest, typed
from bitwise_bench.adversary.judging import Difference, canonical, difference
from bitwise_bench.adversary.kernels import BUFFERS, DTYPES, KernelText
from bitwise_bench.adversary.language import Language
from bitwise_bench.adversary.loops import STORE_OF, LoopProgram, loop_kernel
from bitwise_bench.adversary.pair_shrinking import shrunk_pair
from bitwise_bench.adversary.patterns import Array
from bitwise_bench.adversary.programs import STORES
from bitwise_bench.adversary.scopes import Scope
from bitwise_core.checker.analysis import Session
from bitwise_core.checker.sources import Source
from bitwise_core.execution.domains.domain import Unsupported

ROWS = (3, 1, 2, 0, 6)
"""The numbers of rows for which programs that are Equal for every launch are executed, that of one launch first."""
BLOCKS = 4


@dataclass(frozen=True, slots=True)
class LoopPair:
    """Two loops that the checker calls Equal, and an input for which they return different bytes."""

    left: LoopProgram
    right: LoopProgram
    scope: str
    rows: int
    sample: int
    element: Element
    values: tuple[str, str]
    with_nan: bool
    contents: Mapping[str, Array]

    def entry(self) -> dict[str, Any]:
        """Return the pair for a record."""
        return {
            "left": self.left.text_key(), "right": self.right.text_key(), "scope": self.scope,
            "element": f"thread {self.sample} of {BLOCKS} blocks, {self.rows} rows", "place": self.element.entry(),
            "values": list(self.values), "loaded": {}, "source": "loops", "confirmed": True, "with NaN": self.with_nan,
        }  # fmt: skip

    def arrays(self) -> Mapping[str, Array]:
        """See `WrongEqual.arrays`."""
        return self.contents

    def texts(self) -> Mapping[str, str]:
        """See `WrongEqual.texts`."""
        kernels = {
            name: loop_kernel(program, self.rows)
            for name, program in (("left.ptx", self.left), ("right.ptx", self.right))
        }
        launches = {name: kernel.launch(BLOCKS) for name, kernel in kernels.items()}
        return {**{name: kernel.text for name, kernel in kernels.items()}, MANIFEST: manifest(launches)}


def analysed(
    programs: Sequence[LoopProgram], language: Language, scope: Scope
) -> tuple[list[Hashable | None], list[str]]:
    """Return the form of each program, None where its analysis stopped, and the reasons of those."""
    forms: list[Hashable | None] = []
    reasons = []
    for program in programs:
        kernel = loop_kernel(program, ROWS[0])
        launch = kernel.launch(1)
        session = Session(BUFFERS, scope.options)
        source = Source("kernel", kernel.text, None if scope.options.every_launch else launch, launch.entry)
        result = session.analyse(source, language.arch)
        if result.malformed or result.failed:
            raise RuntimeError(f"the adversary wrote a loop that the analysis rejects: {result.unknown}")
        if result.signature is None:
            forms.append(None)
            reasons.append(str(result.unknown))
        else:
            forms.append((launch.buffers(), result.signature))
            if result.program_only is not None:
                reasons.append(f"program only: {result.program_only}")
    return forms, reasons


@dataclass(frozen=True, slots=True)
class Results:
    """The bytes of a program for each number of rows, the samples with a NaN, and those that count."""

    bytes_of: Mapping[int, Array]
    nans: Mapping[int, Array]
    allowed: Mapping[int, Array | None]


def executed(program: LoopProgram, language: Language, scope: Scope, seed: int) -> Results:
    """Execute a program for each number of rows.  Raises Unsupported."""
    bytes_of, nans, allowed = {}, {}, {}
    for rows in ROWS if scope.options.every_launch else ROWS[:1]:
        kernel = loop_kernel(program, rows)
        contents = language.inputs(kernel, BLOCKS, seed, finite=scope.finite)
        found = run(kernel, language, BLOCKS, contents, finite=scope.finite)
        bytes_of[rows], nans[rows], allowed[rows] = found.results[0], found.nans[0], found.allowed[0]
    return Results(bytes_of, nans, allowed)


def executed_on_device(program: LoopProgram, language: Language, scope: Scope, seed: int, device: Device) -> Results:
    """Execute a program on a GPU for each number of rows."""
    found = {}
    for rows in ROWS if scope.options.every_launch else ROWS[:1]:
        kernel: KernelText = loop_kernel(program, rows)
        contents = language.inputs(kernel, BLOCKS, seed, finite=scope.finite)
        found[rows] = device.run(kernel, language, BLOCKS, contents)[0]
    return Results(found, dict.fromkeys(found, np.zeros(0, dtype=bool)), dict.fromkeys(found))


def pair_difference(left: Results, right: Results, kind: str) -> tuple[int, Difference] | None:
    """Return the number of rows and the sample in which two programs differ, the most serious one."""
    dtype = DTYPES[STORES[STORE_OF[kind]].buffer]
    found: list[tuple[int, Difference]] = []
    for rows, first in left.bytes_of.items():
        one, two = left.allowed[rows], right.allowed[rows]
        allowed = None if one is None or two is None else one & two
        nans = left.nans[rows] | right.nans[rows]
        seen = difference(first, right.bytes_of[rows], dtype, allowed, nans if nans.size else None)
        if seen is not None:
            found.append((rows, seen))
    return min(found, key=lambda each: (each[1].covered, each[1].with_nan), default=None)


def wrong_pair(
    left: LoopProgram, right: LoopProgram, language: Language, scope: Scope, seed: int, *, with_nan: bool
) -> LoopPair | None:
    """Return the pair if the checker calls it Equal and its bytes differ; unless `with_nan`, without a NaN."""
    forms, _ = analysed((left, right), language, scope)
    if forms[0] is None or forms[0] != forms[1]:
        return None
    try:
        results = [executed(each, language, scope, seed) for each in (left, right)]
    except Unsupported:
        return None
    found = pair_difference(results[0], results[1], left.kind)
    if found is None or found[1].covered or (found[1].with_nan and not with_nan):
        return None
    rows, seen = found
    dtype = DTYPES[STORES[STORE_OF[left.kind]].buffer]
    shown = [canonical(each.bytes_of[rows][seen.sample : seen.sample + 1], dtype)[0] for each in results]
    column = int(np.flatnonzero(shown[0] != shown[1])[0])
    values = hex(int(shown[0][column])), hex(int(shown[1][column]))
    kernel = loop_kernel(left, rows)
    element = element_of(kernel, 0, seen.sample, column)
    launch = kernel.launch(BLOCKS)
    contents = {name: np.zeros(kernel.bytes_of(name, BLOCKS), dtype=np.uint8) for name in launch.buffers()}
    contents |= language.inputs(kernel, BLOCKS, seed, finite=scope.finite)
    return LoopPair(left, right, scope.name, rows, seen.sample, element, values, seen.with_nan, typed(launch, contents))


def shrunk(pair: LoopPair, language: Language, scope: Scope, seed: int, most: int = 150) -> LoopPair:
    """Return a smaller pair after at most `most` attempts."""

    def wrong(known: LoopPair, left: LoopProgram, right: LoopProgram) -> LoopPair | None:
        return wrong_pair(left, right, language, scope, seed, with_nan=known.with_nan)

    return shrunk_pair(pair, lambda each: _smaller(each.left, each.right), wrong, most)


def _smaller(left: LoopProgram, right: LoopProgram) -> Iterator[tuple[LoopProgram, LoopProgram]]:
    for shape in ({"order": "up"}, {"test": "bottom"}, {"first": 0}, {"steps": 1}):
        plain = [replace(each, **shape) for each in (left, right)]
        if plain[0] != left and plain[1] != right:
            yield plain[0], plain[1]
        if plain[0] != left:
            yield plain[0], right
        if plain[1] != right:
            yield left, plain[1]
    for node in {node for each in left.expressions for node in nodes(each)}:
        for made in node.inner:
            if made.width == node.width:
                first, second = (_substituted(each, node, made) for each in (left, right))
                if first != left and second != right:
                    yield first, second
    for number, program in enumerate((left, right)):
        for node in {node for each in program.expressions for node in nodes(each)}:
            for made in node.inner:
                if made.width == node.width:
                    changed = _substituted(program, node, made)
                    yield (changed, right) if number == 0 else (left, changed)


def _substituted(program: LoopProgram, old: Expression, new: Expression) -> LoopProgram:
    return replace(
        program,
        updates=tuple(substituted(each, old, new) for each in program.updates),
        result=substituted(program.result, old, new),
    )
