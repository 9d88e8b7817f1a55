"""The lock file: one descriptor for each matrix product of a library, with where and of what it was taken.

JSON, an entry a line.  Reading checks every field; a descriptor that does not parse is a mistake of the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from bitwise_core.descriptors import DescriptorError, GEMMDesc
from bitwise_core.descriptors.problem import BiasedGEMM, GEMMProblem
from bitwise_core.descriptors.record import sentences
from bitwise_core.errors import BitwiseError

FORMAT, VERSION = "bitwise-lock", 1


class LockError(BitwiseError, ValueError):
    """A lock file that cannot be used, or a product that a lock has nothing for: the message says what to do."""


class Entry(BaseModel):
    """A problem and its descriptor's text, or why it has none: exactly one of the two.

    `rounded_first` is that of BiasedProduct, for problems with a bias alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    problem: GEMMProblem
    descriptor: str | None = None
    rounded_first: bool = False
    declined: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Entry:
        if (self.descriptor is None) == (self.declined is None):
            raise ValueError("an entry has a descriptor, or says in `declined` why it has none: exactly one of them")
        if self.rounded_first and (self.descriptor is None or self.problem.epilogue != "bias"):
            raise ValueError("rounded_first goes with a descriptor of a problem with a bias: leave it out")
        if self.descriptor is None:
            return self
        asked, desc = self.problem, parsed(self.descriptor)
        if (desc.k, desc.left_dtype, desc.right_dtype, desc.output_dtype) != (asked.k, asked.a, asked.b, asked.out):
            raise ValueError(f"the descriptor is not of the problem {asked.words}: its k or its types are others")
        return self

    @property
    def desc(self) -> GEMMDesc:
        """The descriptor.  Raises LockError where the entry has none."""
        if self.descriptor is None:
            raise LockError(f"{self.problem.words} is locked without a descriptor: {self.declined}")
        return parsed(self.descriptor)


class Lock(BaseModel):
    """All entries, each problem once, and `provenance`: the library, its version, the device and the driver, in words.

    Provenance decides nothing: a lock is replayed on whatever device has a launcher for its descriptors.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: str = FORMAT
    version: int = VERSION
    provenance: Mapping[str, str] = Field(default_factory=dict)
    entries: tuple[Entry, ...] = ()

    @field_validator("entries")
    @classmethod
    def _once(cls, value: tuple[Entry, ...]) -> tuple[Entry, ...]:
        seen: set[GEMMProblem] = set()
        for each in value:
            if each.problem in seen:
                raise ValueError(f"{each.problem.words} stands there twice: leave one out")
            seen.add(each.problem)
        return value

    @cached_property
    def by_problem(self) -> Mapping[GEMMProblem, Entry]:
        """The entries by their problems."""
        return {each.problem: each for each in self.entries}

    @cached_property
    def of_tensors(self) -> dict[Any, GEMMDesc]:
        """What products of tensors were found to be, kept by whoever looks problems of tensors up."""
        return {}

    def entry(self, problem: GEMMProblem) -> Entry:
        """The entry of a problem.  Raises LockError where there is none."""
        found = self.by_problem.get(problem)
        if found is None:
            where = ", ".join(
                self.provenance.get(name, "") for name in ("library", "device") if name in self.provenance
            )
            raise LockError(
                f"{problem.words} is not in the lock ({len(self.entries)} products{f' of {where}' if where else ''}): "
                "record it, or let it pass by an explicit choice"
            )
        return found

    def described(self, problem: GEMMProblem) -> GEMMDesc:
        """The descriptor of a problem.  Raises LockError where the lock has none."""
        return self.entry(problem).desc

    @property
    def declined(self) -> int:
        """How many entries have no descriptor."""
        return sum(each.descriptor is None for each in self.entries)

    def to_text(self) -> str:
        """The file's text; `from_text` reads it back to an equal lock."""
        head = json.dumps({"format": self.format, "version": self.version, "provenance": dict(self.provenance)})
        lines = (
            json.dumps(each.model_dump(mode="json", exclude_defaults=True), separators=(",", ":"))
            for each in self.entries
        )
        return f'{head[:-1]}, "entries": [\n' + ",\n".join(lines) + "\n]}\n"

    @classmethod
    def from_text(cls, text: str, name: str = "the lock") -> Lock:
        """The lock of a file's text.  Raises LockError, beginning with `name`, for anything else."""
        try:
            content = json.loads(text)
        except ValueError as error:
            raise LockError(f"{name}: this is no whole JSON ({error}); was it cut off? Write it again") from None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise LockError(f'{name}: this is no lock file; one says "format": "{FORMAT}"')
        if content.get("version") != VERSION:
            raise LockError(
                f"{name}: a lock file of version {content.get('version')!r}; this bitwise reads version {VERSION}: "
                "write the lock again with it, or install the bitwise that wrote the file"
            )
        try:
            return cls(**content)
        except DescriptorError as error:
            raise LockError(f"{name}: {error}") from None
        except ValidationError as error:
            raise LockError(f"{name}: {sentences(error, 'lock')}") from None

    def write(self, path: Path | str) -> None:
        """Writes the file.  Raises LockError where it cannot be written."""
        try:
            Path(path).write_text(self.to_text(), encoding="utf-8")
        except OSError as error:
            raise LockError(f"{path}: cannot be written ({error.strerror})") from None


def read_lock(path: Path | str) -> Lock:
    """The lock of a file.  Raises LockError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise LockError(f"{path}: cannot be read ({why})") from None
    return Lock.from_text(text, str(path))


@lru_cache(maxsize=65536)
def parsed(text: str) -> GEMMDesc:
    """The descriptor of a text, kept: the same text is the same record.  Raises LockError."""
    try:
        return GEMMDesc.from_text(text)
    except DescriptorError as error:
        raise LockError(f"{text!r} is no descriptor of a product: {error}") from None


What = GEMMDesc | BiasedGEMM | str
"""What is found of a problem: a descriptor, one with a bias, or why there is none."""


def locked(found: Iterable[tuple[GEMMProblem, What]], provenance: Mapping[str, str]) -> Lock:
    """The lock of problems, each with its descriptor, or with a sentence on why there is none.

    A problem that comes twice with different descriptors is declined: its key does not tell the two apart.
    """
    return Lock(provenance=dict(provenance), entries=tuple(_merged(found)))


def _merged(found: Iterable[tuple[GEMMProblem, What]]) -> Iterator[Entry]:
    entries: dict[GEMMProblem, What] = {}
    for problem, what in found:
        if problem in entries and entries[problem] != what:
            what = "it ran with several descriptors, which its shapes, types and strides do not tell apart"
        entries[problem] = what
    for problem, what in entries.items():
        fields: dict[str, Any]
        if isinstance(what, BiasedGEMM):
            fields = {"descriptor": what.product.to_text(), "rounded_first": what.rounded_first}
        else:
            fields = {"declined": what} if isinstance(what, str) else {"descriptor": what.to_text()}
        yield Entry(problem=problem, **fields)
