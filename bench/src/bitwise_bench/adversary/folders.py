"""Folders with pairs of kernels that the checker calls Equal though they return different bytes, and their replay."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bitwise_bench.adversary.judging import canonical
from bitwise_bench.adversary.kernels import DTYPES, KernelText
from bitwise_bench.adversary.patterns import Array
from bitwise_bench.adversary.scopes import SCOPES
from bitwise_core import api
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.errors import BitwiseError
from bitwise_core.execution.buffers import element_types
from bitwise_core.execution.element_types import element_type
from bitwise_core.execution.launch import Launch

MANIFEST, RECORD, INPUT = "manifest.json", "finding.json", "input.npz"


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a buffer: its index from the start of the buffer, and its type."""

    buffer: str
    index: int
    dtype: str

    def entry(self) -> dict[str, Any]:
        """Return the element as a JSON value."""
        return {"buffer": self.buffer, "index": self.index, "dtype": self.dtype}

    def value(self, buffer: Array) -> str:
        """Return the pattern of the element in the contents of its buffer, in hexadecimal; one for all NaNs."""
        pattern = canonical(np.ascontiguousarray(buffer).view(np.uint8), self.dtype)[self.index]
        return f"0x{int(pattern):0{2 * pattern.itemsize}x}"


def element_of(kernel: KernelText, number: int, sample: int, column: int) -> Element:
    """Return where the program `number` of a kernel stores the element `column` of a sample, a thread of a block."""
    place = kernel.places[number]
    dtype = DTYPES[place.buffer]
    block, lane = divmod(sample, kernel.threads)
    row = (block * kernel.stores[place.buffer] + place.slot) * kernel.threads + lane
    return Element(place.buffer, row * (place.size // element_type(dtype).bytes) + column, dtype)


class WrongEqual(Protocol):
    """A pair of kernels that the checker calls Equal and that return different bytes."""

    def entry(self) -> dict[str, Any]:
        """Return the pair for a record: `scope` names the scope, `place` is the entry of the `Element` that differs."""

    def texts(self) -> Mapping[str, str]:
        """Return the texts of the files that show the pair: left and right, `MANIFEST`, a description if any."""

    def arrays(self) -> Mapping[str, Array]:
        """Return the contents of all buffers, as patterns of their elements."""


def manifest(launches: Mapping[str, Launch]) -> str:
    """Return the text of the manifest of files with their launches."""
    entries = []
    for name, launch in launches.items():
        stated = launch.model_dump(exclude={"args", "file"}, exclude_none=True)
        entries.append({"file": name, **stated, "args": [argument.short() for argument in launch.args]})
    return json.dumps({"kernels": entries}, indent=1) + "\n"


def typed(launch: Launch, contents: Mapping[str, Array]) -> dict[str, Array]:
    """Return bytes of the buffers of a launch as patterns of their elements."""
    types = element_types([launch])
    return {name: contents[name].view(f"u{form.bytes}") for name, form in types.items()}


def write(found: WrongEqual, folder: Path) -> None:
    """Write the two kernels, the manifest, the record, the input and a description into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in found.texts().items():
        (folder / name).write_text(text)
    (folder / RECORD).write_text(json.dumps(found.entry(), indent=1) + "\n")
    named: dict[str, Any] = dict(found.arrays())
    np.savez(folder / INPUT, **named)


class ReplayError(Exception):
    """A folder that cannot be replayed, as a sentence."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The verdict on the kernels of a folder, and the patterns of the element that differed, from their execution."""

    verdict: Outcome
    values: tuple[str, str]

    @property
    def wrong(self) -> bool:
        """Whether the kernels are Equal and return different bytes."""
        return self.verdict is Outcome.EQUAL and self.values[0] != self.values[1]

    def __str__(self) -> str:
        same = "the same bytes" if self.values[0] == self.values[1] else "different bytes"
        return f"{self.verdict.value}, {same} ({self.values[0]} and {self.values[1]})"


def replay(folder: Path) -> Replayed:
    """Compare and execute the kernels of a folder that `write` has written.  Raises ReplayError."""
    try:
        record = json.loads((folder / RECORD).read_text())
        scope, element = SCOPES[record["scope"]], Element(**record["place"])
        files = [each["file"] for each in json.loads((folder / MANIFEST).read_text())["kernels"]]
        left, right = (folder / name for name in files)
        with np.load(folder / INPUT) as arrays:
            buffers = dict(arrays)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReplayError(f"{folder}: is no folder that --found has written ({error})") from None
    try:
        launch = None if scope.options.every_launch else folder / MANIFEST
        verdict = api.compare(
            left,
            right,
            launch,
            assume=scope.options.assume,
            audit_contraction=scope.options.audit_contraction,
            search_seconds=0,
            cache=False,
        )
        after = [
            api.run(each, buffers, folder / MANIFEST, audit_contraction=scope.options.audit_contraction)
            for each in (left, right)
        ]
        first, second = (element.value(each[element.buffer]) for each in after)
    except (BitwiseError, KeyError, IndexError) as error:
        raise ReplayError(f"{folder}: cannot be replayed: {error}") from None
    return Replayed(verdict.outcome, (first, second))
