"""The lock file: a descriptor for each matrix product of a library, and the provenance of the descriptors.

The format is JSON with one entry on each line.  Reading checks every field and parses every descriptor.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StrictBool, StrictFloat, ValidationError, field_validator, model_validator

from bitwise_core.descriptors import Descriptor, DescriptorError, Epilogue, GEMMDesc
from bitwise_core.descriptors.problem import BiasedGEMM, BlockScaling, FinishedGEMM, GEMMProblem, Scaled
from bitwise_core.input_files import read_text
from bitwise_core.json_text import parse_json
from bitwise_core.output_files import write_text
from bitwise_core.plugins.profiles import LockableProfile, NotCovered
from bitwise_core.validated_records import ValidatedRecord, sentences
from bitwise_torch.locks.attention_entry import MAXIMUM_FORMS, PinnedAttention
from bitwise_torch.locks.library_operators import LibraryOperator
from bitwise_torch.locks.lock_error import LockError

FORMAT = "bitwise-lock"
VERSIONS = (1, 2, 3)
"""The versions that are read.  Version 1 has no operators, and only version 3 pins attention.

The last one is written where attention is pinned, else the one before, which earlier releases read.
"""


class Entry(ValidatedRecord):
    """A problem with either the text of its descriptor or, in `declined`, the reason why it has none.

    `rounded_first` is that of BiasedGEMM, and `onto_addend` its `onto_bias`; only a problem with a bias may set them.
    A problem with a finish has the other fields of FinishedGEMM: `steps`, a text, and `scaled`, `scale`,
    `widened_from`, `block_scaling` and `onto_addend`.
    """

    fault = LockError

    problem: GEMMProblem
    descriptor: str | None = None
    rounded_first: StrictBool = False
    steps: str | None = None
    scaled: Scaled = "none"
    scale: StrictFloat = 1.0
    widened_from: str | None = None
    block_scaling: BlockScaling = "none"
    onto_addend: StrictBool = False
    declined: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Entry:
        if (self.descriptor is None) == (self.declined is None):
            raise ValueError("an entry has exactly one of `descriptor` and `declined`, the reason why there is none")
        if self.rounded_first and (self.descriptor is None or self.problem.epilogue != "bias"):
            raise ValueError("rounded_first needs a descriptor and a problem with a bias: remove it")
        if (self.steps is not None) != (self.descriptor is not None and self.problem.finish is not None):
            raise ValueError("steps belong to a problem with a finish and a descriptor: give them there only")
        if self.steps is None:
            for name in ("scaled", "scale", "widened_from", "block_scaling"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} belongs to steps: remove it")
        if self.descriptor is None:
            return self
        if self.onto_addend and self.steps is None:
            if self.problem.epilogue != "bias":
                raise ValueError("onto_addend needs steps, or a problem with a bias: remove it")
            self.biased.finished()
        problem, desc = self.problem, parse_descriptor(self.descriptor)
        if self.steps is not None:
            finished = self._parsed()
            if (desc.k, *finished.operand_dtypes, finished.output_dtype) != (
                problem.k, problem.a, problem.b, problem.out,
            ):  # fmt: skip
                raise ValueError(f"the descriptor does not fit the problem {problem.words}: its k or its types differ")
            return self
        if (desc.k, desc.left_dtype, desc.right_dtype, desc.output_dtype) != (
            problem.k, problem.a, problem.b, problem.out,
        ):  # fmt: skip
            raise ValueError(f"the descriptor does not fit the problem {problem.words}: its k or its types differ")
        return self

    @cached_property
    def finished(self) -> FinishedGEMM | None:
        """The descriptor of a problem with a finish, None for another problem and for one without a descriptor."""
        return None if self.steps is None else self._parsed()

    def _parsed(self) -> FinishedGEMM:
        try:
            return FinishedGEMM(
                product=parse_descriptor(self.descriptor or ""), steps=Epilogue.from_text(self.steps or ""),
                scaled=self.scaled, scale=self.scale, widened_from=self.widened_from, block_scaling=self.block_scaling,
                onto_addend=self.onto_addend,
            )  # fmt: skip
        except DescriptorError as error:
            raise LockError(f"{self.problem.words} has steps that do not fit: {error}") from None

    @property
    def biased(self) -> BiasedGEMM:
        """The descriptor of a problem with a bias.  Raises LockError where the entry has none."""
        try:
            return BiasedGEMM(product=self.desc, rounded_first=self.rounded_first, onto_bias=self.onto_addend)
        except DescriptorError as error:
            raise LockError(f"{self.problem.words} has slices that are not added to a bias: {error}") from None

    @property
    def desc(self) -> GEMMDesc:
        """The descriptor.  Raises LockError where the entry has none."""
        if self.descriptor is None:
            raise LockError(f"{self.problem.words} is locked without a descriptor: {self.declined}")
        return parse_descriptor(self.descriptor)


class Lock(ValidatedRecord):
    """Entries of distinct problems, and their provenance: the library, its version, the device and the driver.

    Provenance is information only: a lock is replayed on any device that has a launcher for its descriptors.
    `attention` has the orders of pinned attention; it is None where attention is PyTorch's.
    """

    fault = LockError

    format: str = FORMAT
    version: int = VERSIONS[-2]
    provenance: Mapping[str, str] = Field(default_factory=dict)
    entries: tuple[Entry, ...] = ()
    operators: tuple[LibraryOperator, ...] = ()
    attention: Annotated[tuple[PinnedAttention, ...], Field(max_length=MAXIMUM_FORMS)] | None = None

    @field_validator("entries")
    @classmethod
    def _unique_problems(cls, value: tuple[Entry, ...]) -> tuple[Entry, ...]:
        seen: set[GEMMProblem] = set()
        for each in value:
            if each.problem in seen:
                raise ValueError(f"{each.problem.words} has two entries: remove one")
            seen.add(each.problem)
        return value

    @field_validator("operators")
    @classmethod
    def _unique_calls(cls, value: tuple[LibraryOperator, ...]) -> tuple[LibraryOperator, ...]:
        calls = Counter((each.operator, each.arguments) for each in value)
        repeated = next((name for (name, _), count in calls.items() if count > 1), None)
        if repeated is not None:
            raise ValueError(f"{repeated} is listed twice with equal arguments: remove one")
        return value

    @field_validator("attention")
    @classmethod
    def _unique_heads(cls, value: tuple[PinnedAttention, ...] | None) -> tuple[PinnedAttention, ...] | None:
        counts = Counter(each.heads for each in value or ())
        repeated = next((each for each in value or () if counts[each.heads] > 1), None)
        if repeated is not None:
            raise ValueError(f"{repeated.words} is listed twice: remove one")
        return value

    @model_validator(mode="after")
    def _version_fits(self) -> Lock:
        if self.operators and self.version == VERSIONS[0]:
            raise ValueError(f"version {VERSIONS[0]} has no operators: write the lock again")
        if self.attention is not None and self.version != VERSIONS[-1]:
            raise ValueError(f"attention is pinned in version {VERSIONS[-1]}, and the lock has {self.version}")
        return self

    @cached_property
    def by_heads(self) -> Mapping[tuple[str, int, int], PinnedAttention]:
        """The orders of pinned attention by the type and the widths of heads."""
        return {each.heads: each for each in self.attention or ()}

    @cached_property
    def undetermined(self) -> Mapping[str, str]:
        """The operators that are left to PyTorch and whose runs may differ on one GPU, with the reason."""
        return {each.operator: each.undetermined for each in self.operators if each.undetermined is not None}

    @cached_property
    def by_call(self) -> Mapping[tuple[str, str], LibraryOperator]:
        """The operators that PyTorch computes, by name and arguments."""
        return {(each.operator, each.arguments): each for each in self.operators}

    @cached_property
    def by_problem(self) -> Mapping[GEMMProblem, Entry]:
        """The entries by their problems."""
        return {each.problem: each for each in self.entries}

    def entry(self, problem: GEMMProblem) -> Entry:
        """Return the entry of a problem.  Raises LockError where there is none."""
        entry = self.by_problem.get(problem)
        if entry is None:
            origin = ", ".join(self.provenance[name] for name in ("library", "device") if name in self.provenance)
            size = f"{len(self.entries)} products{f' of {origin}' if origin else ''}"
            raise LockError(
                f"{problem.words} is not in the lock ({size}): "
                'record it, or let the library compute it with missing="pass" (`bitwise lock apply --pass`)'
            )
        return entry

    def descriptor(self, problem: GEMMProblem) -> GEMMDesc:
        """Return the descriptor of a problem.  Raises LockError where the lock has none."""
        return self.entry(problem).desc

    @property
    def declined(self) -> int:
        """The number of entries without a descriptor."""
        return sum(each.descriptor is None for each in self.entries)

    def to_text(self) -> str:
        """Return the file's text; `from_text` returns an equal lock for it."""
        head = json.dumps({"format": self.format, "version": self.version, "provenance": dict(self.provenance)})
        parts = [
            f'"{name}": [\n' + ",\n".join(_line(each) for each in records) + "\n]"
            for name, records in (
                ("entries", self.entries),
                ("operators", self.operators),
                ("attention", self.attention or ()),
            )
            if records or name == "entries" or (name == "attention" and self.attention is not None)
        ]
        return ", ".join((head[:-1], *parts)) + "}\n"

    @classmethod
    def from_text(cls, text: str, name: str = "the lock") -> Lock:
        """Return the lock of a file's text.  Raises LockError; its message begins with `name`."""
        try:
            content = parse_json(text)
        except ValueError as error:
            raise LockError(
                f"{name}: this is not complete JSON ({error}); the file may be truncated: write it again"
            ) from None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise LockError(f'{name}: this is not a lock file; a lock file has "format": "{FORMAT}"')
        version = content.get("version")
        if type(version) is not int or version not in VERSIONS:
            raise LockError(
                f"{name}: the lock file has version {version!r:.40} and this bitwise reads versions "
                f"{VERSIONS[0]} to {VERSIONS[-1]}: write the lock again, or install the bitwise that wrote the file"
            )
        try:
            return cls.model_validate(content)
        except DescriptorError as error:
            raise LockError(f"{name}: {error}") from None
        except ValidationError as error:
            raise LockError(f"{name}: {sentences(error, 'lock')}") from None

    def write(self, path: Path | str) -> None:
        """Write the file.  Raises LockError where it cannot be written."""
        try:
            write_text(path, self.to_text())
        except OSError as error:
            raise LockError(f"{path}: cannot be written ({error.strerror})") from None


def _line(record: Entry | LibraryOperator | PinnedAttention) -> str:
    return json.dumps(record.model_dump(mode="json", exclude_defaults=True), separators=(",", ":"))


def read_lock(path: Path | str) -> Lock:
    """Return the lock of a file.  Raises LockError."""
    return Lock.from_text(read_text(path, LockError), str(path))


@lru_cache(maxsize=65536)
def parse_descriptor(text: str) -> GEMMDesc:
    """Return the descriptor of a text; the result is cached, so equal texts are one record.  Raises LockError."""
    try:
        return GEMMDesc.from_text(text)
    except DescriptorError as error:
        raise LockError(f"{text!r} is not a descriptor of a matrix product: {error}") from None


Finding = GEMMDesc | BiasedGEMM | FinishedGEMM | str
"""The result for a problem: a descriptor, one with a bias or with steps, or the reason why there is none."""


def finding_of(profile: LockableProfile, problem: GEMMProblem, **options: Any) -> Finding:
    """Return what a library's profile says of a problem; `options` are those of its `describe_problem`."""
    try:
        desc = profile.describe_problem(problem, **options)
    except NotCovered as error:
        return str(error)
    return finding_in(desc)


def finding_in(desc: Descriptor | BiasedGEMM | FinishedGEMM) -> Finding:
    """Return what a library computes as it is in a lock."""
    if isinstance(desc, GEMMDesc | BiasedGEMM | FinishedGEMM):
        return desc
    return f"the library computes it as a {type(desc).__name__}, and a lock holds a GEMMDesc"


def lock_of(
    findings: Iterable[tuple[GEMMProblem, Finding]], provenance: Mapping[str, str],
    operators: Iterable[LibraryOperator] = (), attention: Iterable[PinnedAttention] | None = None,
) -> Lock:  # fmt: skip
    """Return the lock of problems with their findings, of operators that PyTorch computes, and of pinned attention.

    A problem that occurs with different descriptors is declined: its shapes, types and strides do not determine one.
    """
    pinned = None if attention is None else tuple(attention)
    return Lock(
        version=version_of(pinned), provenance=dict(provenance), entries=tuple(_entries(findings)),
        operators=tuple(operators), attention=pinned,
    )  # fmt: skip


def version_of(attention: tuple[PinnedAttention, ...] | None) -> int:
    """Return the version of a lock with pinned attention, or without."""
    return VERSIONS[-2 if attention is None else -1]


def _entries(findings: Iterable[tuple[GEMMProblem, Finding]]) -> Iterator[Entry]:
    by_problem: dict[GEMMProblem, Finding] = {}
    for problem, finding in findings:
        if problem in by_problem and by_problem[problem] != finding:
            finding = "it ran with several descriptors, which its shapes, types and strides do not distinguish"
        by_problem[problem] = finding
    for problem, finding in by_problem.items():
        fields: dict[str, Any]
        if isinstance(finding, FinishedGEMM):
            fields = {
                "descriptor": finding.product.to_text(), "steps": finding.steps.to_text(), "scaled": finding.scaled,
                "scale": finding.scale, "widened_from": finding.widened_from, "block_scaling": finding.block_scaling,
                "onto_addend": finding.onto_addend,
            }  # fmt: skip
        elif isinstance(finding, BiasedGEMM):
            fields = {
                "descriptor": finding.product.to_text(), "rounded_first": finding.rounded_first,
                "onto_addend": finding.onto_bias,
            }  # fmt: skip
        else:
            fields = {"declined": finding} if isinstance(finding, str) else {"descriptor": finding.to_text()}
        yield Entry(problem=problem, **fields)
