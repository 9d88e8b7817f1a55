"""Audit of shapes that drop values of k: the prediction from the heuristic result, and its check with ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bitwise_core.input_files import read_text
from bitwise_cublas_profiles.dropped_k import DroppedK, dropped_k
from bitwise_cublas_profiles.query import DTYPES, CublasError, GemmQuery, HeuristicResult, gemm_query

_LINE = re.compile(r"(?P<m>\d{1,10})[\s,x]+(?P<n>\d{1,10})[\s,x]+(?P<k>\d{1,10})(?:[\s,]+(?P<dtype>\w+))?\s*\Z")


class Heuristic(Protocol):
    """A loaded library as the audit uses it."""

    def heuristic(self, query: GemmQuery, count: int = 1) -> tuple[HeuristicResult, ...]:
        """Heuristic results, best first."""
        ...


@dataclass(frozen=True, slots=True)
class Finding:
    """The audit of one shape: the heuristic result, the prediction, and what a run on ones returned.

    `error` says why there is no result, or why it could not be run. `counted` is the number of values of k in the sum,
    the minimum over all output elements; None if it was not run.
    """

    query: GemmQuery
    result: HeuristicResult | None
    dropped_k: DroppedK | None
    error: str | None = None
    counted: int | None = None

    @property
    def confirmed(self) -> bool | None:
        """Whether the run on ones matches the prediction; None without a run or a prediction."""
        if self.counted is None or self.dropped_k is None or self.dropped_k.count is None:
            return None
        return self.counted == self.query.k - self.dropped_k.count

    def record(self) -> dict[str, object]:
        """The finding as a JSON object."""
        query = self.query
        return {
            "m": query.m, "n": query.n, "k": query.k, "a": query.a, "b": query.b, "c": query.c,
            "compute": query.compute,
            "configuration": self.result.configuration.record() if self.result else None,
            "workspace": self.result.workspace if self.result else None,
            "dropped": self.dropped_k.count if self.dropped_k else None,
            "verdict": self.dropped_k.verdict if self.dropped_k else "no result",
            "reason": self.dropped_k.reason if self.dropped_k else self.error,
            "counted": self.counted,
            "error": self.error,
            "confirmed": self.confirmed,
        }  # fmt: skip


def audit(
    library: Heuristic,
    queries: Iterable[GemmQuery],
    count_ones: Callable[[GemmQuery, HeuristicResult], int] | None = None,
) -> Iterator[Finding]:
    """One finding for each query, in order. `count_ones` runs the result on ones and returns the smallest output.

    A query that the library cannot serve yields a finding with an error.
    """
    for query in queries:
        try:
            result = library.heuristic(query)[0]
        except CublasError as error:
            yield Finding(query, None, None, error=str(error))
            continue
        predicted = dropped_k(query.k, result.configuration)
        try:
            counted = count_ones(query, result) if count_ones is not None else None
        except CublasError as error:
            yield Finding(query, result, predicted, error=str(error))
            continue
        yield Finding(query, result, predicted, counted=counted)


def read_shapes(path: Path, dtype: str = "fp16", out: str | None = None, **options: Any) -> list[GemmQuery]:
    """The queries of a file with a line `M N K` or `M N K dtype` each, separated by spaces, commas or x.

    Empty lines and text after # are ignored. Raises CublasError with the line's number for anything else.
    """
    text = read_text(path, CublasError)
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        content = line.split("#")[0].strip()
        if not content:
            continue
        matched = _LINE.match(content)
        if matched is None:
            raise CublasError(f"{path}:{number}: {content!r} is not of the form M N K or M N K dtype")
        given = matched["dtype"] or dtype
        if given not in DTYPES:
            raise CublasError(f"{path}:{number}: {given!r} is not an operand type; choose one of {', '.join(DTYPES)}")
        try:
            found.append(gemm_query(int(matched["m"]), int(matched["n"]), int(matched["k"]), given, out, **options))
        except CublasError as error:
            raise CublasError(f"{path}:{number}: {error}") from None
    if not found:
        raise CublasError(f"{path}: there is no shape; write one M N K to a line")
    return found
