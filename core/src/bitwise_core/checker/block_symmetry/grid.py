"""The blocks of one address pass as columns of numbers, and the active blocks, for which the pass is still valid.

A pass starts with all its blocks active and is narrowed to blocks with the same control flow: where a decision differs
between blocks, the blocks that differ from the reference block are excluded, and other passes execute them.  The first
block is the reference and always remains active.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.values.symbolic_vector import Array


class NotSymmetric(Exception):
    """The blocks could not be proved to be translations of each other; the kernel may still have a result."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.line = reason, line

    def __str__(self) -> str:
        return self.reason if self.line is None else f"{self.reason} at line {self.line}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the work of a proof."""

    classes: int = 256
    """Classes of blocks with different control flow or accesses."""
    lanes: int = 1 << 23
    """Values on which one instruction may be evaluated: distinct blocks times threads."""
    grid_blocks: int = 1 << 26
    """Blocks of a grid."""
    ranges: int = 1 << 23
    """Contiguous byte ranges that the blocks of a grid may access in one buffer."""
    blocks: int = 1024
    """Blocks that a comparison may execute in full."""


class Column:
    """One number for every block of a pass, shape (blocks,); undefined for excluded blocks."""

    __slots__ = ("_bounds", "values")

    def __init__(self, values: Array) -> None:
        self.values = values
        self._bounds: tuple[int, int, int] | None = None


class Grid:
    """The blocks of one pass.

    `numbers` are the block numbers, `active` the positions of the active blocks, always with position 0 (None: all).
    `excluded` are groups of block numbers that other passes must execute.
    """

    def __init__(self, numbers: Array, limits: Limits) -> None:
        self.numbers, self.limits = numbers, limits
        self.active: Array | None = None
        self.version = 0
        self.excluded: list[Array] = []
        self._derived: dict[Hashable, tuple[Column, tuple[Column, ...]]] = {}
        self._distinct_rows: dict[tuple[int, ...], tuple[int, Array, Array, tuple[Column, ...]]] = {}

    @property
    def blocks(self) -> Array:
        """The numbers of the active blocks."""
        return self.numbers if self.active is None else self.numbers[self.active]

    def active_values(self, column: Column) -> Array:
        """The values of a column in the active blocks; the reference block is first."""
        return column.values if self.active is None else column.values[self.active]

    def bounds(self, column: Column) -> tuple[int, int]:
        """The minimum and maximum of a column over the active blocks."""
        found = column._bounds
        if found is None or found[0] != self.version:
            values = self.active_values(column)
            found = column._bounds = (self.version, int(values.min()), int(values.max()))
        return found[1], found[2]

    def constant(self, column: Column) -> bool:
        """Whether a column has the same value in all active blocks."""
        low, high = self.bounds(column)
        return low == high

    def derived(self, key: Hashable, make: Callable[[], Array], *columns: Column) -> Column:
        """The column that `make` computes from `columns`, cached by `key` and the identity of `columns`."""
        cache_key = (key, *(id(column) for column in columns))
        found = self._derived.get(cache_key)
        if found is None:
            found = self._derived[cache_key] = (Column(make()), columns)
        return found[0]

    def narrow(self, keys: Array) -> None:
        """Exclude the active blocks whose key differs from that of the reference; one key for each active block."""
        same = keys == keys[0]
        if same.all():
            return
        blocks = self.blocks
        others, inverse = np.unique(keys[~same], return_inverse=True)
        if len(self.excluded) + len(others) > self.limits.classes:
            limit = self.limits.classes
            raise NotSymmetric(f"the grid has more than {limit} classes of blocks with different control flow")
        order = np.argsort(inverse, kind="stable")
        rest = blocks[~same][order]
        ends = np.cumsum(np.bincount(inverse))
        self.excluded.extend(np.split(rest, ends[:-1]))
        kept = np.flatnonzero(same)
        self.active = kept if self.active is None else self.active[kept]
        self.version += 1

    def column_of_active(self, values: Array) -> Column:
        """A column from one number for each active block."""
        if self.active is None:
            return Column(values)
        values_of_all = np.zeros(self.numbers.shape, dtype=values.dtype)
        values_of_all[self.active] = values
        return Column(values_of_all)

    def distinct(self, columns: Sequence[Column]) -> tuple[Array, Array]:
        """The positions of the distinct rows of these columns, and the row number of each, over the active blocks."""
        key = tuple(id(column) for column in columns)
        found = self._distinct_rows.get(key)
        if found is None or found[0] != self.version:
            first, inverse = distinct_rows([self.active_values(column) for column in columns])
            found = self._distinct_rows[key] = (self.version, first, inverse, tuple(columns))
        return found[1], found[2]


def distinct_rows(columns: Sequence[Array]) -> tuple[Array, Array]:
    """The position of the first occurrence of each distinct row, and the row number of each position."""
    count = columns[0].shape[0]
    first, inverse = np.zeros(1, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for column in columns:
        if (column == column[0]).all():
            continue
        _, position, own = np.unique(column, return_index=True, return_inverse=True)
        if len(first) == 1:
            first, inverse = position, own
            continue
        _, first, inverse = np.unique(inverse * len(position) + own, return_index=True, return_inverse=True)
    return first, inverse
