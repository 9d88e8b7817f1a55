"""Provenance: records how every term was computed, so that a hash leads back to its operation and operands.

The domain of terms keeps only hashes.  In a recorded run it has a `Recorder`: the code that makes a term reports its
operation and operands, and the recorder keeps references to the arrays.  The values of a recorded run carry their
recorder (`SymbolicVector.recorder`), since extraction and concatenation make terms as well and have no access to the
domain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

from bitwise_core.execution.values.sets.member_sets import MemberSets, RepeatedMembers
from bitwise_core.execution.values.symbolic_vector import SymbolicVector, Value
from bitwise_core.numerics import FloatFormat

AnyValue = TypeVar("AnyValue", bound=Value)

MAXIMUM_BYTES = 2 << 30
"""The limit on the hashes of a recorded run, in bytes; a run that exceeds it is aborted."""

SAME = "same"
"""The name of a step whose result is its operand in another form."""


class TooManyTerms(Exception):
    """A recorded run was aborted because it makes more terms than the recorder keeps."""


class HasLine(Protocol):
    """An object that has the current line of the text."""

    line: int


@dataclass(frozen=True, slots=True, eq=False)
class RecordedTerm:
    """Terms made by one operation: its name, the lanes of the result and of each operand, and the line of the text.

    The shapes of the operands broadcast to that of the result.
    """

    name: str
    result: SymbolicVector
    operands: tuple[SymbolicVector, ...]
    commutes: bool
    line: int


class Recorder:
    """The terms made so far, in order.  `line_source` is the machine that runs, `limit` the most bytes of hashes."""

    def __init__(self, limit: int = MAXIMUM_BYTES) -> None:
        self.limit = limit
        self.terms: list[RecordedTerm] = []
        self.line_source: HasLine | None = None
        self.bytes = 0

    def add(self, name: str, result: SymbolicVector, operands: Sequence[SymbolicVector], commutes: bool) -> None:
        """Record terms.  Raises TooManyTerms if they exceed the limit."""
        self.bytes += result.words.size * 8
        if self.bytes > self.limit:
            raise TooManyTerms("the block computes too many values to show its trees")
        line = self.line_source.line if self.line_source is not None else 0
        self.terms.append(RecordedTerm(name, result, tuple(operands), commutes, line))

    def mark(self, value: AnyValue) -> AnyValue:
        """Attach this recorder to a value and return the value."""
        for each in getattr(value, "parts", (value,)):
            if hasattr(each, "recorder"):
                each.recorder = self
        return value


Operands: TypeAlias = Callable[[], Sequence[SymbolicVector]] | Sequence[SymbolicVector]


@dataclass(frozen=True, slots=True)
class TermContext:
    """What the domain of terms provides to its rules.

    `finite`: numbers are assumed finite.  `recorder`: the recorder of a recorded run, else None.  `formats`: the
    formats of the buffers' elements, by the buffer's number, where the launch states them.  `member_sets`: the members
    of sets, where they are followed.  `repeated_members`: what was added to sets, where they are not.
    """

    finite: bool = False
    recorder: Recorder | None = None
    formats: Mapping[int, FloatFormat] = field(default_factory=dict)
    member_sets: MemberSets | None = None
    repeated_members: RepeatedMembers | None = None

    def note(self, name: str, result: SymbolicVector, operands: Operands, *, commutes: bool = False) -> SymbolicVector:
        """Report the operands of `result` to the recorder, if there is one, and return `result`."""
        if self.recorder is not None:
            self.recorder.add(name, result, operands() if callable(operands) else operands, commutes)
        return result
