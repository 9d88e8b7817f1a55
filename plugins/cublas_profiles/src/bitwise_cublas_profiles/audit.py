"""Which shapes lose values: the heuristic's answer judged, and the judgement proved with ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bitwise_cublas_profiles.question import DTYPES, Answer, CublasError, Question, question
from bitwise_cublas_profiles.tail import Tail, tail

_LINE = re.compile(r"(?P<m>\d{1,10})[\s,x]+(?P<n>\d{1,10})[\s,x]+(?P<k>\d{1,10})(?:[\s,]+(?P<dtype>\w+))?\s*\Z")


class Asks(Protocol):
    """What can be asked: a loaded library."""

    def ask(self, asked: Question, count: int = 1) -> tuple[Answer, ...]:
        """The answers, best first."""
        ...


@dataclass(frozen=True, slots=True)
class Finding:
    """One shape of an audit: what was answered and judged, and with ones what came back.

    `error` says why there is no answer, or why it could not be run.  `counted` are the values of k that the sum held,
    the smallest over all output elements, None where nothing was run.
    """

    asked: Question
    answer: Answer | None
    tail: Tail | None
    error: str | None = None
    counted: int | None = None

    @property
    def confirmed(self) -> bool | None:
        """Whether ones returned what was judged; None where nothing was run or judged."""
        if self.counted is None or self.tail is None or self.tail.dropped is None:
            return None
        return self.counted == self.asked.k - self.tail.dropped

    def record(self) -> dict[str, object]:
        """As JSON has it."""
        asked = self.asked
        return {
            "m": asked.m, "n": asked.n, "k": asked.k, "a": asked.a, "b": asked.b, "c": asked.c,
            "compute": asked.compute,
            "configuration": self.answer.configuration.record() if self.answer else None,
            "workspace": self.answer.workspace if self.answer else None,
            "dropped": self.tail.dropped if self.tail else None,
            "verdict": self.tail.verdict if self.tail else "no answer",
            "reason": self.tail.reason if self.tail else self.error,
            "counted": self.counted,
            "error": self.error,
            "confirmed": self.confirmed,
        }  # fmt: skip


def audit(
    library: Asks, questions: Iterable[Question], count_ones: Callable[[Question, Answer], int] | None = None
) -> Iterator[Finding]:
    """One finding a question, in order; `count_ones` runs the answer on ones and returns the smallest output.

    A question that the library cannot answer is a finding with an error, and stops nothing.
    """
    for asked in questions:
        try:
            answer = library.ask(asked)[0]
        except CublasError as error:
            yield Finding(asked, None, None, error=str(error))
            continue
        judged = tail(asked.k, answer.configuration)
        try:
            counted = count_ones(asked, answer) if count_ones is not None else None
        except CublasError as error:
            yield Finding(asked, answer, judged, error=str(error))
            continue
        yield Finding(asked, answer, judged, counted=counted)


def read_shapes(path: Path, dtype: str = "fp16", out: str | None = None, **options: Any) -> list[Question]:
    """The questions of a file, a line each: `M N K` or `M N K dtype`, with spaces, commas or x between them.

    Empty lines and what follows # are skipped.  Raises CublasError with the line's number for anything else.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise CublasError(f"{path}: cannot be read ({why})") from None
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
            raise CublasError(f"{path}:{number}: {given!r} is no type of operands; there are {', '.join(DTYPES)}")
        try:
            found.append(question(int(matched["m"]), int(matched["n"]), int(matched["k"]), given, out, **options))
        except CublasError as error:
            raise CublasError(f"{path}:{number}: {error}") from None
    if not found:
        raise CublasError(f"{path}: holds no shape; write a line M N K for each")
    return found
