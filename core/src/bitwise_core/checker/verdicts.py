"""The verdict on two kernels: equal, different, unproved or unknown, with what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from html import escape

from bitwise_core.checker.analysis import AnalysisResult, Options
from bitwise_core.execution.buffers import Array


class Outcome(StrEnum):
    """What is known of two kernels.

    EQUAL: proved.  DIFFERENT: a counterexample was found, and both kernels were run on it.  UNPROVED: both kernels
    were read completely and their canonical forms differ; two forms may still be one function.  UNKNOWN: the reading
    stopped.
    """

    EQUAL = "equal"
    DIFFERENT = "different"
    UNPROVED = "unproved"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Side:
    """The first node that differs, on one side: as an expression, its operation, and the lines behind it."""

    node: str
    operation: str
    line: int | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first divergence of two kernels: an output element, and the first node that differs, `depth` below it.

    `element` counts in elements of the stored `size` (bytes), `offset` in bytes of the buffer.  The sides are None
    where the trees could not be shown, for the reason in `why_not`.  `meaning` says in a sentence how the nodes differ.
    """

    element: str
    buffer: str
    offset: int
    size: int
    left: Side | None = None
    right: Side | None = None
    depth: int = 0
    why_not: str | None = None
    meaning: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Counterexample:
    """An input on which two kernels return different bytes: both were run on it.

    `arrays` holds every buffer before the launch, `path` the file they were written to, if any.  The element of the
    smallest index that differs holds the bit patterns `left` and `right` of `size` bytes each; `count` elements differ.
    `drawn` says how the input was drawn, `notes` what the runs rest on.
    """

    arrays: Mapping[str, Array]
    buffer: str
    index: int
    size: int
    left: int
    right: int
    count: int
    drawn: str
    notes: tuple[str, ...] = ()
    path: str | None = None

    @property
    def element(self) -> str:
        """The element's name, as in `Y[0]`."""
        return f"{self.buffer}[{self.index}]"

    @property
    def values(self) -> tuple[str, str]:
        """Both bit patterns in hexadecimal."""
        digits = 2 * self.size
        return f"0x{self.left:0{digits}x}", f"0x{self.right:0{digits}x}"

    @property
    def sentence(self) -> str:
        """What was seen, for people."""
        left, right = self.values
        return f"{self.element} is {left} and {right} (elements that differ: {self.count}; {self.drawn})"

    def __repr__(self) -> str:
        return f"Counterexample({self.sentence})"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer on two kernels.

    `divergence` is where canonical forms that differ part first; `counterexample` an input on which the bytes differ.
    """

    outcome: Outcome
    reason: str
    scope: str
    notes: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    divergence: Divergence | None = None
    counterexample: Counterexample | None = None

    def __repr__(self) -> str:
        return f"Verdict({', '.join(self.sentences())})"

    def _repr_html_(self) -> str:
        head, *rest = (escape(each) for each in self.sentences())
        return f"<b>{head}</b>" + "".join(f"<br>{each}" for each in rest)

    def sentences(self) -> tuple[str, ...]:
        """The answer in a few short lines: the outcome with its scope, the reason, the counterexample or divergence."""
        scope = "every launch" if self.scope == "every launch" else "this launch"
        found = [f"{self.outcome.value} for {scope}", self.reason[:300]]
        if self.counterexample is not None:
            found.append(self.counterexample.sentence)
        elif self.divergence is not None:
            found.append(f"first divergence at {self.divergence.element}")
        if self.conditions:
            found.append(f"if all values are {' and '.join(self.conditions)}")
        return tuple(found)


STANDING_NOTES = (
    "the launch's buffers do not overlap and no access leaves its buffer",
    "an integer computed from the bits of a NaN is not told from one of another NaN",
)
"""What every verdict for a launch rests on."""


def verdict(left: AnalysisResult, right: AnalysisResult, options: Options) -> Verdict:
    """The verdict on two readings made with the same buffers and options."""
    notes = tuple(dict.fromkeys((*left.notes, *right.notes, *STANDING_NOTES)))
    conditions = tuple(sorted(options.assume))
    for each in (left, right):
        if each.unknown is not None:
            return Verdict(Outcome.UNKNOWN, f"{each.name}: {each.unknown}", options.scope, notes, conditions)
    if left.large or right.large:
        reason = "large grids have no signatures; compare the kernels block by block"
        return Verdict(Outcome.UNKNOWN, reason, options.scope, notes, conditions)
    if left.signature == right.signature:
        reason = "every output element has the same canonical dependence tree"
        return Verdict(Outcome.EQUAL, reason, options.scope, notes, conditions)
    for each in (left, right):
        if each.program_only is not None:
            return Verdict(Outcome.UNKNOWN, f"{each.name}: {each.program_only}", options.scope, notes, conditions)
    return Verdict(Outcome.UNPROVED, "the canonical dependence trees differ", options.scope, notes, conditions)


def different(verdict: Verdict, seen: Counterexample) -> Verdict:
    """The verdict that a counterexample proves; it is of one launch, whatever scope was asked for."""
    return replace(
        verdict,
        outcome=Outcome.DIFFERENT,
        reason="a counterexample was found, and both kernels were run on it",
        scope="launch",
        notes=tuple(dict.fromkeys((*verdict.notes, *seen.notes))),
        counterexample=seen,
    )
