"""The division of few rows of attention among programs, and the choice among divisions; they decide no bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

CHUNK = 512
"""The keys of a chunk of every descriptor that has a kernel."""


@dataclass(frozen=True, slots=True)
class Division:
    """How programs divide the work: each has a chunk of a row (`split`) or a whole row, in tiles of so many blocks.

    A multiprocessor has room for `resident` programs, each with `stages` slots in memory.  Programs of one warp are
    `alone`; where tiles have four blocks, each of four warps has one.
    """

    split: bool
    blocks: int
    resident: int
    stages: int
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a launch: `rows` times at most 16 packed rows that share keys, of which `heads` are real.

    Each has up to `keys` keys of `depth` and values of `width` components, in 16 bits; `ragged` says that the lengths
    may differ.
    """

    rows: int
    keys: int
    heads: int
    depth: int
    width: int
    ragged: bool

    @property
    def chunks(self) -> int:
        """The chunks of a row."""
        return -(-self.keys // CHUNK)


@dataclass(frozen=True, slots=True)
class Branch:
    """A choice by a number of `MEASURES`: `below` where it is at most `limit`, else `above`."""

    measure: str
    limit: float
    below: Choice
    above: Choice


Choice: TypeAlias = Division | Branch


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices for heads of a width: of rows of equal lengths and of others, and those of at most one chunk."""

    equal: Choice
    ragged: Choice
    equal_chunk: Choice
    ragged_chunk: Choice

    def of(self, work: Work) -> Choice:
        """Return the choice for a work."""
        if work.chunks == 1:
            return self.ragged_chunk if work.ragged else self.equal_chunk
        return self.ragged if work.ragged else self.equal

    def divisions(self) -> set[Division]:
        """Return all divisions that may be chosen."""
        found, left = set[Division](), [self.equal, self.ragged, self.equal_chunk, self.ragged_chunk]
        while left:
            each = left.pop()
            if isinstance(each, Branch):
                left += [each.below, each.above]
            else:
                found.add(each)
        return found


MEASURES: Mapping[str, Callable[[Work, int], float]] = {
    "rows": lambda work, processors: work.rows / processors,
    "parts": lambda work, processors: work.rows * work.chunks / processors,
    "keys": lambda work, processors: work.keys,
}
"""What branches compare, of a work on a GPU with so many multiprocessors."""


def division_of(work: Work, processors: int, choices: Choices) -> Division:
    """Return the division that is chosen for a work on a GPU with so many multiprocessors."""
    found = choices.of(work)
    while isinstance(found, Branch):
        found = found.below if MEASURES[found.measure](work, processors) <= found.limit else found.above
    return found
