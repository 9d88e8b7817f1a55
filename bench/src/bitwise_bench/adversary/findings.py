"""Folders with pairs of kernels that the checker calls Equal though they return different bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bitwise_bench.adversary.execution import run
from bitwise_bench.adversary.expressions import operations
from bitwise_bench.adversary.judging import canonical
from bitwise_bench.adversary.kernels import DTYPES, KernelText
from bitwise_bench.adversary.language import Language
from bitwise_bench.adversary.patterns import Array
from bitwise_bench.adversary.programs import STORES, Program, written
from bitwise_bench.adversary.scopes import Scope
from bitwise_bench.adversary.shrinking import BLOCKS, Witness
from bitwise_core.checker.analysis import Source
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.element_types import element_type


class WrongEqual(Protocol):
    """A pair of kernels that the checker calls Equal and that return different bytes."""

    def entry(self) -> dict[str, Any]:
        """Return the pair for a record."""

    def texts(self) -> Mapping[str, str]:
        """Return the texts of the files that show the pair: kernels, manifest, description."""

    def arrays(self) -> Mapping[str, Array]:
        """Return the contents of the buffers, empty where they are not kept."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A wrong Equal: both programs as text, the scope, the bytes of one thread, and the files of the two kernels.

    `confirmed`: the comparison of the two kernels, each in a text of its own, is Equal, and their bytes differ.
    """

    left: str
    right: str
    scope: str
    element: str
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
            "left": self.left, "right": self.right, "scope": self.scope, "element": self.element,
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
            f"`bitwise diff {left} {right} --manifest manifest.json --no-contraction-audit{flag}` says equal",
            f"({self.scope}). On `input.npz` the kernels return {self.values[0]} and {self.values[1]}",
            f"({self.element}).",
            f"The programs are `{self.left}` and `{self.right}`. The thread loads",
            "; ".join(f"{name}: {text}" for name, text in self.loaded.items()) + ".",
            ""
            if self.confirmed
            else "In texts of their own the kernels are not Equal: the pair needs a common kernel.",
        ]
        return {**self.files, "README.md": "\n".join(lines) + "\n"}

    def arrays(self) -> Mapping[str, Array]:
        """See `WrongEqual.arrays`."""
        return self.contents


def opcodes_of(left: Program, right: Program) -> frozenset[str]:
    """Return the operations of two programs."""
    return frozenset(node.opcode for program in (left, right) for node in operations(program.root))


def finding(seen: Witness, language: Language, scope: Scope) -> Finding:
    """Return the finding of a witness, with the block of the input that contains the sample."""
    block = seen.found.sample // language.threads
    kernels = [language.kernel([program]) for program in (seen.left, seen.right)]
    buffer = STORES[seen.left.store].buffer
    dtype = DTYPES[buffer]
    contents: dict[str, Array] = {}
    for kernel in kernels:
        for name, whole in language.inputs(kernel, BLOCKS, seen.seed, finite=scope.finite).items():
            contents[name] = whole.reshape(BLOCKS, -1)[block].copy()
    rows = []
    for kernel in kernels:
        one = run(kernel, language, 1, contents, finite=scope.finite)
        rows.append(canonical(one.results[0], dtype))
    places = np.argwhere(rows[0] != rows[1])
    sources = [
        Source(name, kernel.text, None if scope.options.every_launch else kernel.launch(1), kernel.launch(1).entry)
        for name, kernel in zip(("left", "right"), kernels, strict=True)
    ]
    verdict = compare(sources[0], sources[1], language.arch, scope.options).verdict
    lane = seen.found.sample % language.threads
    shown = places[places[:, 0] == lane] if len(places) else places
    lane, column = (int(each) for each in (shown[0] if len(shown) else places[0])) if len(places) else (lane, 0)
    digits = 2 * rows[0].dtype.itemsize
    values = tuple(f"0x{int(row[lane, column]):0{digits}x}" for row in rows)
    loaded = {}
    for name, bytes_of in contents.items():
        width = _element_bytes(kernels, name)
        patterns = bytes_of.view(f"u{width}").reshape(language.threads, -1)[lane]
        loaded[name] = " ".join(f"0x{int(each):0{2 * width}x}" for each in patterns)
    suffix = language.suffix
    launches = []
    for name, kernel in zip(("left", "right"), kernels, strict=True):
        launch = kernel.launch(1).model_copy(update={"file": name + suffix})
        arguments = [argument.short() for argument in launch.args]
        launches.append({"file": launch.file, "entry": launch.entry, "grid": 1, "block": language.threads,
                         "args": arguments})  # fmt: skip
    files = {
        "left" + suffix: kernels[0].text,
        "right" + suffix: kernels[1].text,
        "manifest.json": json.dumps({"kernels": launches}, indent=1) + "\n",
    }
    return Finding(
        written(seen.left),
        written(seen.right),
        scope.name,
        f"{buffer}, thread {lane}",
        (values[0], values[1]),
        loaded,
        opcodes_of(seen.left, seen.right),
        seen.right.source,
        bool(len(places)) and verdict.outcome is Outcome.EQUAL,
        seen.found.with_nan,
        files,
        _typed(contents, kernels),
    )


def _typed(contents: dict[str, Array], kernels: Sequence[KernelText]) -> dict[str, Array]:
    """Return the contents of all buffers as patterns of their elements; the outputs are zeros."""
    found = {}
    for kernel in kernels:
        for name in kernel.launch(1).buffers():
            whole = contents.get(name, np.zeros(kernel.bytes_of(name, 1), dtype=np.uint8))
            found[name] = whole.view(f"u{_element_bytes(kernels, name)}")
    return found


def _element_bytes(kernels: Sequence[KernelText], name: str) -> int:
    arguments = [argument for kernel in kernels for argument in kernel.launch(1).args if argument.buffer == name]
    return element_type(arguments[0].dtype).bytes


def write(found: WrongEqual, folder: Path) -> None:
    """Write the two kernels, a manifest, the input and a description into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in found.texts().items():
        (folder / name).write_text(text)
    if found.arrays():
        named: dict[str, Any] = dict(found.arrays())
        np.savez(folder / "input.npz", **named)
