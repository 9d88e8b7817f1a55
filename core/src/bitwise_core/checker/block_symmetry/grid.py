"""The blocks of one address pass as columns of numbers, and the subset of them that the pass is still valid for.

A pass starts with all of its blocks and narrows to those that take the same control flow: where a decision differs
between blocks, the blocks that differ from the first one are set aside for passes of their own.  The first block is
the reference and always stays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.values.symbolic_vector import Array


class NotSymmetric(Exception):
    """The blocks could not be proved to be translations of one another; the kernel may still have a result."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.line = reason, line

    def __str__(self) -> str:
        return self.reason if self.line is None else f"{self.reason} at line {self.line}"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much work a proof may cost."""

    parts: int = 256
    """Parts of a grid with different control flow or accesses."""
    lanes: int = 1 << 23
    """Numbers that one instruction may be evaluated on, over distinct blocks and threads."""
    numbers: int = 1 << 26
    """Blocks of a grid."""
    spans: int = 1 << 23
    """Contiguous byte ranges that a grid may store."""
    blocks: int = 1024
    """Blocks that a comparison may run in full."""


class Column:
    """One number for every block of a pass, shape (blocks,); undefined for blocks that were set aside."""

    __slots__ = ("_bounds", "values")

    def __init__(self, values: Array) -> None:
        self.values = values
        self._bounds: tuple[int, int, int] | None = None


class Grid:
    """The blocks of one pass.  `active` are the positions of the blocks still in it, None for all; position 0 stays."""

    def __init__(self, numbers: Array, limits: Limits) -> None:
        self.numbers, self.limits = numbers, limits
        self.active: Array | None = None
        self.version = 0
        self.aside: list[Array] = []
        self._memo: dict[Hashable, tuple[Column, tuple[Column, ...]]] = {}
        self._factors: dict[tuple[int, ...], tuple[int, Array, Array, tuple[Column, ...]]] = {}

    @property
    def blocks(self) -> Array:
        """The numbers of the blocks still in the pass."""
        return self.numbers if self.active is None else self.numbers[self.active]

    def on(self, column: Column) -> Array:
        """The column's numbers in the blocks still in the pass; the reference is first."""
        return column.values if self.active is None else column.values[self.active]

    def bounds(self, column: Column) -> tuple[int, int]:
        """The least and greatest number of a column over the blocks still in the pass."""
        found = column._bounds
        if found is None or found[0] != self.version:
            values = self.on(column)
            found = column._bounds = (self.version, int(values.min()), int(values.max()))
        return found[1], found[2]

    def constant(self, column: Column) -> bool:
        """Whether the blocks still in the pass agree."""
        low, high = self.bounds(column)
        return low == high

    def derived(self, key: Hashable, make: Callable[[], Array], *columns: Column) -> Column:
        """The column that `make` computes from `columns`, identified by `key`; repeated, it is the same object."""
        full = (key, *(id(column) for column in columns))
        found = self._memo.get(full)
        if found is None:
            found = self._memo[full] = (Column(make()), columns)
        return found[0]

    def narrow(self, keys: Array) -> None:
        """Keeps the blocks whose key is the reference's; `keys` has one number for each block still in the pass."""
        same = keys == keys[0]
        if same.all():
            return
        blocks = self.blocks
        others, inverse = np.unique(keys[~same], return_inverse=True)
        if len(self.aside) + len(others) > self.limits.parts:
            raise NotSymmetric(f"the grid falls into more than {self.limits.parts} parts that act differently")
        order = np.argsort(inverse, kind="stable")
        rest = blocks[~same][order]
        ends = np.cumsum(np.bincount(inverse))
        self.aside.extend(np.split(rest, ends[:-1]))
        kept = np.flatnonzero(same)
        self.active = kept if self.active is None else self.active[kept]
        self.version += 1

    def spread(self, values: Array) -> Column:
        """A column from one number for each block still in the pass."""
        if self.active is None:
            return Column(values)
        full = np.zeros(self.numbers.shape, dtype=values.dtype)
        full[self.active] = values
        return Column(full)

    def distinct(self, columns: Sequence[Column]) -> tuple[Array, Array]:
        """One place for each distinct row of the columns, and each block's row; of blocks still in the pass."""
        key = tuple(id(column) for column in columns)
        found = self._factors.get(key)
        if found is None or found[0] != self.version:
            first, inverse = distinct_rows([self.on(column) for column in columns])
            found = self._factors[key] = (self.version, first, inverse, tuple(columns))
        return found[1], found[2]


def distinct_rows(columns: Sequence[Array]) -> tuple[Array, Array]:
    """The place of the first of each distinct row, and for each place the number of its row."""
    count = columns[0].shape[0]
    first, inverse = np.zeros(1, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for column in columns:
        if (column == column[0]).all():
            continue
        _, place, own = np.unique(column, return_index=True, return_inverse=True)
        if len(first) == 1:
            first, inverse = place, own
            continue
        _, first, inverse = np.unique(inverse * len(place) + own, return_index=True, return_inverse=True)
    return first, inverse
