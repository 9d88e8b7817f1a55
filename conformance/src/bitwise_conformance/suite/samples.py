"""The folder of samples: kernels with their launches, and the expected results.

samples/
  known_failures.txt              ids of cases that fail, one per line, each with a reason (optional)
  <architecture>/
    <group>/manifest.json         the launches of the assembly files in the folder, on the same buffers
    <group>/<tensor>.npy          the contents of a buffer that the launches give
    <group>/expected.json         an `Expected`
    matrix_units/<row>.json       a `Vectors` for the row of that name
  profiles/<profile>.json         a `ProfileQueries` for the profile of that name
  launchers/<launcher>.json       a `LauncherRuns` for the launcher of that name
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from bitwise_core.checker.sources import Source, buffer_numbers
from bitwise_core.execution.launch import Launch, ManifestError, read_manifest
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.validated_records import first_fault

MATRIX_UNITS, PROFILES, LAUNCHERS = "matrix_units", "profiles", "launchers"
"""Folders of samples without kernels."""


class SampleError(ValueError):
    """A sample is invalid; the message names the file and what to change."""


def _words(value: Any) -> Any:
    """Parse bit patterns: hexadecimal words separated by blanks."""
    return tuple(int(word, 16) for word in value.split()) if isinstance(value, str) else value


Patterns = Annotated[tuple[int, ...], BeforeValidator(_words)]
Buffers = str | dict[str, str]
"""The bytes of buffers: the name of an .npz file with an array for each, or hexadecimal digits in memory order."""


class Record(BaseModel):
    """A record in a file of samples."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Run(Record):
    """One run of every kernel of a group on the same inputs.

    `source` names the device and its software; `before` holds every buffer before the launch, `after` the buffers after
    it, for each class in the order of `Expected.classes`.
    """

    source: str = Field(min_length=1)
    before: Buffers
    after: tuple[Buffers, ...]


class Change(Record):
    """A change of the text of a kernel: the first occurrence of `before` is replaced by `after`."""

    kernel: str
    before: str = Field(min_length=1)
    after: str


class Expected(Record):
    """The expected results of the kernels of a group.

    `classes` partitions the files of the manifest into equivalence classes.  `every_launch` partitions the files that
    are read for every launch: those of one class are Equal for every launch.  `trees` gives, for a file and an element
    (`y[0]`), the lines of the tree as `bitwise_core.ir.text` writes it.  `different` are changes that must not be
    Equal to the original, `equal` changes that must be.
    """

    classes: tuple[tuple[str, ...], ...]
    every_launch: tuple[tuple[str, ...], ...] = ()
    trees: dict[str, dict[str, tuple[str, ...]]] = Field(default_factory=dict)
    runs: tuple[Run, ...] = ()
    different: tuple[Change, ...] = ()
    equal: tuple[Change, ...] = ()

    @model_validator(mode="after")
    def _every_run_has_every_class(self) -> Expected:
        for run in self.runs:
            if len(run.after) != len(self.classes):
                raise ValueError(
                    f"a run has results for {len(run.after)} of {len(self.classes)} classes; `after` needs one for each"
                )
        return self


class Vectors(Record):
    """Operands and results of a matrix unit, as bit patterns: `result` is c + sum of a[k] b[k].

    If a and b have more elements than one instruction takes, instructions are chained through the accumulator.
    """

    source: str = Field(min_length=1)
    a: tuple[Patterns, ...] = Field(min_length=1)
    b: tuple[Patterns, ...]
    c: Patterns
    result: Patterns

    @model_validator(mode="after")
    def _all_are_as_many(self) -> Vectors:
        if (
            len({len(self.a), len(self.b), len(self.c), len(self.result)}) != 1
            or len(set(map(len, self.a + self.b))) != 1
        ):
            raise ValueError("a, b, c and result must have the same length, and so must every element of a and b")
        return self


class ProfileQuery(Record):
    """A configuration that a profile knows, and its descriptor in text form."""

    configuration: dict[str, Any]
    descriptor: str


class ProfileQueries(Record):
    """Some configurations that a profile knows."""

    known: tuple[ProfileQuery, ...] = Field(min_length=1)


class Operand(Record):
    """The type and the shape of a random operand."""

    dtype: str
    shape: tuple[int, ...]


class LauncherRun(Record):
    """A descriptor in text form, and the operands of its launch, generated from the seed."""

    descriptor: str
    operands: tuple[Operand, ...]
    seed: int = 1


class LauncherRuns(Record):
    """Launches that a launcher must support."""

    runs: tuple[LauncherRun, ...] = Field(min_length=1)


RecordT = TypeVar("RecordT", bound=Record)


def read_record(kind: type[RecordT], path: Path) -> RecordT:
    """Read a file of samples.  Raises SampleError."""
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SampleError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise SampleError(f"{path}: {error}") from None
    except ValidationError as error:
        raise SampleError(f"{path}: {first_fault(error)}") from None


@dataclass(frozen=True)
class Group:
    """Kernels of one architecture that are launched on the same buffers.  Its files are read on first access."""

    arch: str
    folder: Path

    @property
    def id(self) -> str:
        """Architecture and folder, a part of the ids of cases."""
        return f"{self.arch}-{self.folder.name}"

    @cached_property
    def launches(self) -> dict[str, Launch]:
        """The launch of every file.  Raises SampleError."""
        try:
            kernels = read_manifest(self.folder / "manifest.json").kernels
        except ManifestError as error:
            raise SampleError(str(error)) from None
        found = {launch.file: launch for launch in kernels}
        if len(found) < len(kernels) or not kernels:
            raise SampleError(f"{self.folder / 'manifest.json'}: must list at least one file, and each file once")
        return found

    @cached_property
    def expected(self) -> Expected:
        """The content of expected.json.  Raises SampleError, also where its files are not those of the manifest."""
        path = self.folder / "expected.json"
        found = read_record(Expected, path)
        named = list(chain.from_iterable(found.classes))
        if sorted(named) != sorted(self.launches):
            raise SampleError(f"{path}: classes: must list every file of the manifest once: {', '.join(self.launches)}")
        others = [*chain.from_iterable(found.every_launch), *found.trees]
        others += [each.kernel for each in (*found.different, *found.equal)]
        for name in others:
            if name not in self.launches:
                raise SampleError(f"{path}: the manifest has no file {name!r}; it has {', '.join(self.launches)}")
        return found

    @cached_property
    def fault(self) -> str | None:
        """The fault of the files of the group, None if there is none."""
        try:
            files = [*self.launches, *(file for each in self.expected.classes for file in each)]
        except SampleError as error:
            return str(error)
        missing = [file for file in files if not (self.folder / file).is_file()]
        return f"{self.folder}: has no file {missing[0]}" if missing else None

    @property
    def buffers(self) -> dict[str, int]:
        """The numbers of the buffers of all launches."""
        return buffer_numbers({name for launch in self.launches.values() for name in launch.buffers()})

    def class_of(self, file: str) -> int:
        """Return the index of the class of a file."""
        return next(number for number, files in enumerate(self.expected.classes) if file in files)

    def text(self, file: str) -> str:
        """Return the text of a kernel.  Raises SampleError."""
        try:
            return (self.folder / file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SampleError(f"{self.folder / file}: cannot be read ({error})") from None

    def source(self, file: str) -> Source:
        """Return a kernel as a Source for the checker."""
        return Source(file, self.text(file), self.launches[file])

    def contents(self, given: Buffers) -> dict[str, Array]:
        """Return the bytes of buffers.  Raises SampleError."""
        if isinstance(given, str):
            try:
                with np.load(self.folder / given, allow_pickle=False) as file:
                    return {name: np.ascontiguousarray(file[name]).reshape(-1).view(np.uint8) for name in file.files}
            except (OSError, ValueError) as error:
                raise SampleError(f"{self.folder / given}: cannot be read ({error})") from None
        try:
            return {name: np.frombuffer(bytes.fromhex(digits), np.uint8) for name, digits in given.items()}
        except ValueError:
            raise SampleError(f"{self.folder / 'expected.json'}: write bytes as hexadecimal digits") from None


@dataclass(frozen=True)
class Kernel:
    """One kernel of a group."""

    group: Group
    file: str

    @property
    def id(self) -> str:
        """Architecture, group and file."""
        return f"{self.group.id}-{self.file}"


def groups(samples: Path, arch: str) -> list[Group]:
    """Return the groups of an architecture, sorted by name."""
    if not (samples / arch).is_dir():
        return []
    folders = sorted(each for each in (samples / arch).iterdir() if each.is_dir() and each.name != MATRIX_UNITS)
    return [Group(arch, each) for each in folders]
