"""Answers of cuBLASLt's heuristic over all numbers of rows: recorded in a file, or from the library on this GPU.

The file is JSON with one series on each line, compressed if its name ends in `.xz`. A series has the fields of a query
that do not depend on M, and runs of equal answers: `firsts`, the first M of each, and `answers`, the numbers of their
configurations, null if the library has none.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, fields, replace
from importlib.resources import as_file, files
from itertools import groupby, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError, model_validator

from bitwise_core.input_files import open_file
from bitwise_core.json_text import parse_json
from bitwise_core.output_files import write_file
from bitwise_core.validated_records import sentences
from bitwise_cublas_profiles.invariance.row_limit import MAXIMUM_ROWS
from bitwise_cublas_profiles.library import Library
from bitwise_cublas_profiles.query import Answer, Configuration, CublasError, GemmQuery

FORMAT, VERSION = "bitwise-cublas-answers", 1
MAXIMUM_BYTES = 64 << 20
"""The longest text of a file that is read."""

_ATTRIBUTES = tuple(each.name for each in fields(Configuration))
_COLUMNS = (*_ATTRIBUTES, "workspace")

Number = Annotated[StrictInt, Field(ge=-1, lt=1 << 40)]
Natural = Annotated[StrictInt, Field(ge=0, lt=1 << 40)]
Size = Annotated[StrictInt, Field(ge=1, lt=1 << 31)]
Rows = Annotated[StrictInt, Field(ge=1, le=MAXIMUM_ROWS)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Key(_Strict):
    """The fields of a query that a series of answers belongs to: all but M, of dense operands without a batch."""

    n: Size
    k: Size
    a: str
    c: str
    compute: Literal["fp32", "tf32"]
    transposes: Literal["NN", "NT"]
    epilogue: Literal["none", "bias"]
    workspace: Natural
    reductions: Annotated[StrictInt, Field(ge=0, le=7)] | None

    @classmethod
    def of(cls, query: GemmQuery) -> Key:
        """The key of a query. Raises CublasError for one that a file has no field for."""
        plain = GemmQuery(
            query.m, query.n, query.k, query.a, query.a, query.c, query.compute, transpose_b=query.transpose_b,
            epilogue=query.epilogue, workspace=query.workspace, reductions=query.reductions,
        )  # fmt: skip
        if plain != query or query.epilogue not in ("none", "bias"):
            raise CublasError(f"{query.description}: answers are recorded for dense operands of one type without batch")
        return cls(
            n=query.n, k=query.k, a=query.a, c=query.c, compute=query.compute, transposes=query.transposes,
            epilogue=query.epilogue, workspace=query.workspace, reductions=query.reductions,
        )  # fmt: skip


class _Series(Key):
    last: Rows
    firsts: Annotated[tuple[Rows, ...], Field(min_length=1)]
    answers: tuple[Natural | None, ...]

    @model_validator(mode="after")
    def _consistent(self) -> _Series:
        if len(self.firsts) != len(self.answers):
            raise ValueError("firsts and answers have different lengths: each run has one of each")
        if self.firsts[0] != 1 or any(one >= other for one, other in pairwise((*self.firsts, self.last + 1))):
            raise ValueError("firsts ascends from 1 to at most last")
        if any(one == other for one, other in pairwise(self.answers)):
            raise ValueError("two neighbouring runs have the same answer: make them one run")
        return self


class _Content(_Strict):
    format: Literal["bitwise-cublas-answers"]
    version: Literal[1]
    provenance: Mapping[str, str]
    columns: tuple[str, ...]
    configurations: tuple[tuple[Number, ...], ...]
    series: tuple[_Series, ...]

    @model_validator(mode="after")
    def _consistent(self) -> _Content:
        if self.columns != _COLUMNS:
            raise ValueError(f"columns is {', '.join(_COLUMNS)}")
        if any(len(each) != len(_COLUMNS) for each in self.configurations):
            raise ValueError(f"each configuration has {len(_COLUMNS)} numbers")
        for each in self.series:
            if any(answer is not None and answer >= len(self.configurations) for answer in each.answers):
                raise ValueError(f"a series of N={each.n} K={each.k} has the number of no configuration")
        for name in ("library", "capability", "device"):
            if name not in self.provenance:
                raise ValueError(f"the provenance lacks {name}")
        return self


@dataclass(frozen=True, slots=True)
class Run:
    """The same answer for M from `first` to `last`; None if the library has no algorithm."""

    first: int
    last: int
    answer: Answer | None


@dataclass(frozen=True)
class Answers:
    """Series of answers of one library on one GPU: runs in ascending M from 1, by key.

    `provenance` has at least `library` (a version such as 13.1.0), `capability` and `device`.
    """

    provenance: Mapping[str, str]
    series: Mapping[Key, tuple[Run, ...]]

    def runs(self, query: GemmQuery, last: int) -> tuple[Run, ...]:
        """The runs of a query up to M = last. Raises CublasError if they are not recorded."""
        found = self.series.get(Key.of(query))
        if found is None or found[-1].last < last:
            origin = f"cuBLASLt {self.provenance['library']} on {self.provenance['device']}"
            why = f"only up to M = {found[-1].last} " if found else ""
            raise CublasError(
                f"N={query.n} K={query.k} {query.a} {query.transposes} {query.epilogue} with a workspace of "
                f"{query.workspace} bytes is {'recorded ' + why if found else 'not recorded '}for {origin}: ask the "
                "library with --live on a machine with that GPU, or give a file with --answers"
            )
        return tuple(replace(run, last=min(run.last, last)) for run in found if run.first <= last)


def ask_library(library: Library, query: GemmQuery, last: int) -> tuple[Run, ...]:
    """The library's answers to a query for M from 1 to last, on the current GPU. Raises CublasError."""
    rows = range(1, last + 1)
    return runs_of(zip(rows, library.answers(query, rows), strict=True))


def runs_of(answers: Iterable[tuple[int, Answer | None]]) -> tuple[Run, ...]:
    """Runs of equal answers, from answers in ascending M without gaps."""
    found = []
    for answer, members in groupby(answers, key=lambda each: each[1]):
        rows = [row for row, _ in members]
        found.append(Run(rows[0], rows[-1], answer))
    return tuple(found)


def to_text(answers: Answers) -> str:
    """The text of a file; `from_text` returns equal answers for it."""
    numbers: dict[Answer, int] = {}
    lines = []
    for key, runs in answers.series.items():
        listed = [None if each.answer is None else numbers.setdefault(each.answer, len(numbers)) for each in runs]
        record = {**key.model_dump(), "last": runs[-1].last, "firsts": [each.first for each in runs], "answers": listed}
        lines.append(json.dumps(record, separators=(",", ":")))
    head = {
        "format": FORMAT, "version": VERSION, "provenance": dict(answers.provenance), "columns": _COLUMNS,
        "configurations": [[*astuple(each.configuration), each.workspace] for each in numbers],
    }  # fmt: skip
    return f'{json.dumps(head)[:-1]}, "series": [\n' + ",\n".join(lines) + "\n]}\n"


def from_text(text: str, name: str) -> Answers:
    """The answers of a file's text. Raises CublasError; its message begins with `name`."""
    try:
        content = parse_json(text)
    except ValueError as error:
        raise CublasError(f"{name}: this is not complete JSON ({error}); record it again") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CublasError(f'{name}: this is not a file of answers; it has "format": "{FORMAT}"')
    if content.get("version") != VERSION:
        raise CublasError(
            f"{name}: the file has version {content.get('version')!r} and this bitwise reads version {VERSION}: record "
            "it again"
        )
    try:
        checked = _Content(**content)
    except ValidationError as error:
        raise CublasError(f"{name}: {sentences(error, 'answers')}") from None
    except TypeError as error:
        raise CublasError(f"{name}: {error}") from None
    known = [Answer(Configuration(*each[:-1]), each[-1]) for each in checked.configurations]
    series: dict[Key, tuple[Run, ...]] = {}
    for each in checked.series:
        key = Key(**{field: getattr(each, field) for field in Key.model_fields})
        if key in series:
            raise CublasError(f"{name}: N={key.n} K={key.k} has two series of one query: remove one")
        ends = [*(first - 1 for first in each.firsts[1:]), each.last]
        series[key] = tuple(
            Run(first, last, None if number is None else known[number])
            for first, last, number in zip(each.firsts, ends, each.answers, strict=True)
        )
    return Answers(dict(checked.provenance), series)


def write(answers: Answers, path: Path) -> None:
    """Write a file as a whole. Raises CublasError if it cannot be written."""
    text = to_text(answers).encode()
    content = lzma.compress(text, preset=9) if path.suffix == ".xz" else text
    try:
        write_file(path, lambda file: file.write(content))
    except OSError as error:
        raise CublasError(f"{path}: cannot be written ({error.strerror})") from None


def read(path: Path) -> Answers:
    """The answers of a file. Raises CublasError."""
    try:
        with open_file(path, CublasError) as stored, lzma.open(stored) if path.suffix == ".xz" else stored as file:
            content = file.read(MAXIMUM_BYTES + 1)
    except OSError as error:
        raise CublasError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (lzma.LZMAError, EOFError) as error:
        raise CublasError(f"{path}: is not compressed by xz ({error})") from None
    if len(content) > MAXIMUM_BYTES:
        raise CublasError(f"{path}: has more than {MAXIMUM_BYTES >> 20} MiB of text; at most that is read")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise CublasError(f"{path}: cannot be read (it is not text)") from None
    return from_text(text, str(path))


def shipped() -> Iterator[Answers]:
    """The answers that are part of this distribution."""
    folder = files("bitwise_cublas_profiles").joinpath("answers")
    if not folder.is_dir():
        return
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        if each.name.endswith((".json", ".json.xz")):
            with as_file(each) as path:
                yield read(path)


def as_record(answer: Answer | None) -> dict[str, Any] | None:
    """An answer as a JSON object."""
    return None if answer is None else {**answer.configuration.record(), "workspace": answer.workspace}
