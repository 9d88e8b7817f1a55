"""Remembers how every term came about, for the replay that shows real trees; off unless a recorder is active.

The domain of terms keeps hashes only.  While a recorder is active, whoever makes a term says from what; the
recorder keeps references to the arrays, and afterwards any hash leads back to its operation and operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from bitwise_core.machine.lanes import Lanes

MAXIMUM_BYTES = 2 << 30
"""A replay that makes more terms than this many bytes of hashes is given up."""

SAME = "same"
"""The name of a step whose result is its operand under another form."""


class TooManyTerms(Exception):
    """The replay was given up: it makes more terms than are kept."""


class Placed(Protocol):
    """What knows the line of the text that runs."""

    line: int


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """Terms made at once: their operation's name, the lanes of the result and of each operand, the line of the text.

    The operands' shapes broadcast to the result's.
    """

    name: str
    result: Lanes
    operands: tuple[Lanes, ...]
    commutes: bool
    line: int


class Recorder:
    """What was made, in order.  `place` is the machine that runs."""

    def __init__(self) -> None:
        self.made: list[Made] = []
        self.place: Placed | None = None
        self.bytes = 0

    def add(self, name: str, result: Lanes, operands: Sequence[Lanes], commutes: bool) -> None:
        """Remembers terms.  Raises TooManyTerms where they are too many to be kept."""
        self.bytes += result.words.size * 8
        if self.bytes > MAXIMUM_BYTES:
            raise TooManyTerms("the block makes too many values for its trees to be shown")
        line = self.place.line if self.place is not None else 0
        self.made.append(Made(name, result, tuple(operands), commutes, line))


active: Recorder | None = None
"""The recorder of the replay that is going on; None costs nothing."""


Operands: TypeAlias = "Callable[[], Sequence[Lanes]] | Sequence[Lanes]"


def note(name: str, result: Lanes, operands: Operands, *, commutes: bool = False) -> Lanes:
    """Gives `result` back, after telling the active recorder, if any, from what it was made."""
    if active is not None:
        active.add(name, result, operands() if callable(operands) else operands, commutes)
    return result


@contextmanager
def recording() -> Iterator[Recorder]:
    """Makes a recorder the active one."""
    global active
    before, active = active, Recorder()
    try:
        yield active
    finally:
        active = before
