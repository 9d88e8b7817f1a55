"""Pairs of programs that the checker calls Equal though they return different bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitwise_bench.adversary.execution import run
from bitwise_bench.adversary.expressions import operations
from bitwise_bench.adversary.folders import INPUT, MANIFEST, Element, element_of, manifest, typed
from bitwise_bench.adversary.instruction_sets.language import Language
from bitwise_bench.adversary.judging import canonical
from bitwise_bench.adversary.kernels import DTYPES
from bitwise_bench.adversary.patterns import Array
from bitwise_bench.adversary.programs import STORES, Program, written
from bitwise_bench.adversary.scopes import Scope
from bitwise_bench.adversary.shrinking import BLOCKS, Witness
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.sources import Source
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.buffers import element_types


@dataclass(frozen=True, slots=True)
class Finding:
    """A wrong Equal: both programs as text, the scope, the bytes of one thread, and the files of the two kernels.

    `context` holds the programs with which the pair shares its kernels: left stores the pair in order, right exchanged.
    Without them each kernel holds one program.  `confirmed`: the comparison of the two kernels is Equal, and their
    bytes differ.
    """

    left: str
    right: str
    context: tuple[str, ...]
    scope: str
    element: Element
    thread: int
    values: tuple[str, str]
    loaded: dict[str, str]
    opcodes: frozenset[str]
    source: str
    confirmed: bool
    with_nan: bool
    files: Mapping[str, str]
    contents: Mapping[str, Array]

    def entry(self) -> dict[str, Any]:
        """Return the finding for a record, without its files."""
        return {
            "left": self.left, "right": self.right, "context": list(self.context), "scope": self.scope,
            "element": f"{self.element.buffer}, thread {self.thread}", "place": self.element.entry(),
            "values": list(self.values), "loaded": self.loaded, "source": self.source, "confirmed": self.confirmed,
            "with NaN": self.with_nan,
        }  # fmt: skip

    def texts(self) -> Mapping[str, str]:
        """See `WrongEqual.texts`."""
        flag = {"finite": " --assume finite", "every launch": " --every-launch"}.get(self.scope, "")
        left, right = (name for name in self.files if name.startswith(("left", "right")))
        lines = [
            "# Equal by verdict, different by bytes",
            "",
            f"`bitwise diff {left} {right} --manifest {MANIFEST} --no-contraction-audit{flag}` says equal",
            f"({self.scope}). On `{INPUT}` the kernels return {self.values[0]} and {self.values[1]}",
            f"({self.element.buffer}[{self.element.index}], thread {self.thread}).",
            f"The programs are `{self.left}` and `{self.right}`. The thread loads",
            "; ".join(f"{name}: {text}" for name, text in self.loaded.items()) + ".",
        ]
        if self.context:
            lines += [
                "Left stores the first one before the second, right after it, both after these programs:",
                *(f"- `{each}`" for each in self.context),
            ]
        if not self.confirmed:
            lines.append("The comparison of the two files does not say so: only the analysis of one kernel does.")
        return {**self.files, "README.md": "\n".join(lines) + "\n"}

    def arrays(self) -> Mapping[str, Array]:
        """See `WrongEqual.arrays`."""
        return self.contents


def opcodes_of(left: Program, right: Program) -> frozenset[str]:
    """Return the operations of two programs."""
    return frozenset(node.opcode for program in (left, right) for node in operations(program.root))


def finding(seen: Witness, language: Language, scope: Scope) -> Finding:
    """Return the finding of a witness, with the block of the input that contains the sample."""
    block, lane = divmod(seen.found.sample, language.threads)
    pair = (seen.left, seen.right)
    number = len(seen.context)
    kernels = [
        language.kernel([*seen.context, *each])
        for each in ((pair, pair[::-1]) if seen.context else ([seen.left], [seen.right]))
    ]
    buffer = STORES[seen.left.store].buffer
    contents: dict[str, Array] = {}
    for kernel in kernels:
        for name, whole in language.inputs(kernel, BLOCKS, seen.seed, finite=scope.finite).items():
            contents[name] = whole.reshape(BLOCKS, -1)[block].copy()
    rows = []
    for kernel in kernels:
        one = run(kernel, language, 1, contents, finite=scope.finite)
        rows.append(canonical(one.results[number], DTYPES[buffer]))
    places = np.argwhere(rows[0] != rows[1])
    launches = [kernel.launch(1) for kernel in kernels]
    sources = [
        Source(name, kernel.text, None if scope.options.every_launch else launch, launch.entry)
        for name, kernel, launch in zip(("left", "right"), kernels, launches, strict=True)
    ]
    verdict = compare(sources[0], sources[1], language.arch, scope.options).verdict
    shown = places[places[:, 0] == lane] if len(places) else places
    lane, column = (int(each) for each in (shown[0] if len(shown) else places[0])) if len(places) else (lane, 0)
    digits = 2 * rows[0].dtype.itemsize
    values = tuple(f"0x{int(row[lane, column]):0{digits}x}" for row in rows)
    types = element_types(launches)
    loaded = {}
    for name, bytes_of in contents.items():
        width = types[name].bytes
        patterns = bytes_of.view(f"u{width}").reshape(language.threads, -1)[lane]
        loaded[name] = " ".join(f"0x{int(each):0{2 * width}x}" for each in patterns)
    names = ["left" + language.suffix, "right" + language.suffix]
    files = dict(zip(names, (kernel.text for kernel in kernels), strict=True))
    arrays: dict[str, Array] = {}
    for kernel, launch in zip(kernels, launches, strict=True):
        zeros = {name: np.zeros(kernel.bytes_of(name, 1), dtype=np.uint8) for name in launch.buffers()}
        arrays |= typed(launch, zeros | contents)
    return Finding(
        written(seen.left),
        written(seen.right),
        tuple(written(each) for each in seen.context),
        scope.name,
        element_of(kernels[0], number, lane, column),
        lane,
        (values[0], values[1]),
        loaded,
        opcodes_of(seen.left, seen.right),
        seen.right.source,
        bool(len(places)) and verdict.outcome is Outcome.EQUAL,
        seen.found.with_nan,
        {**files, MANIFEST: manifest(dict(zip(names, launches, strict=True)))},
        arrays,
    )
