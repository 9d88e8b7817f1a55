"""Provenance: how every term of a replay came about, so that a hash leads back to its operation and operands.

The domain of terms keeps hashes only.  In a replay it has a `Recorder`: whoever makes a term says from what, and the
recorder keeps references to the arrays.  Values of a replay carry their recorder (`SymbolicVector.recorder`), since to
extract and to join values makes terms too and has no domain at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from bitwise_core.execution.values.symbolic_vector import SymbolicVector, Value

AnyValue = TypeVar("AnyValue", bound=Value)

MAXIMUM_BYTES = 2 << 30
"""A replay that makes more terms than this many bytes of hashes is given up."""

SAME = "same"
"""The name of a step whose result is its operand under another form."""


class TooManyTerms(Exception):
    """The replay was given up: it makes more terms than are kept."""


class HasLine(Protocol):
    """What knows the line of the text that runs."""

    line: int


@dataclass(frozen=True, slots=True, eq=False)
class RecordedTerm:
    """Terms made at once: their operation's name, the lanes of the result and of each operand, the line of the text.

    The operands' shapes broadcast to the result's.
    """

    name: str
    result: SymbolicVector
    operands: tuple[SymbolicVector, ...]
    commutes: bool
    line: int


class Recorder:
    """What was made, in order.  `place` is the machine that runs."""

    def __init__(self) -> None:
        self.made: list[RecordedTerm] = []
        self.place: HasLine | None = None
        self.bytes = 0

    def add(self, name: str, result: SymbolicVector, operands: Sequence[SymbolicVector], commutes: bool) -> None:
        """Remembers terms.  Raises TooManyTerms where they are too many to be kept."""
        self.bytes += result.words.size * 8
        if self.bytes > MAXIMUM_BYTES:
            raise TooManyTerms("the block makes too many values for its trees to be shown")
        line = self.place.line if self.place is not None else 0
        self.made.append(RecordedTerm(name, result, tuple(operands), commutes, line))

    def mark(self, value: AnyValue) -> AnyValue:
        """Gives a value back that carries this recorder."""
        for each in getattr(value, "parts", (value,)):
            if hasattr(each, "recorder"):
                each.recorder = self
        return value


Operands: TypeAlias = Callable[[], Sequence[SymbolicVector]] | Sequence[SymbolicVector]


@dataclass(frozen=True, slots=True)
class TermContext:
    """What a domain of terms hands to its rules.

    `finite`: all values are assumed finite.  `recorder` is that of a replay.
    """

    finite: bool = False
    recorder: Recorder | None = None

    def note(self, name: str, result: SymbolicVector, operands: Operands, *, commutes: bool = False) -> SymbolicVector:
        """Gives `result` back, after telling the recorder, if there is one, from what it was made."""
        if self.recorder is not None:
            self.recorder.add(name, result, operands() if callable(operands) else operands, commutes)
        return result
