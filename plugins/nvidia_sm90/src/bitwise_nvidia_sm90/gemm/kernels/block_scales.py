"""The scales of blocks of k of a product, as a kernel of warpgroups has them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

BLOCK = 128
"""The values of k of a block, and the rows or columns that may share a scale."""
ROW_SCALES, COLUMN_SCALES = "SA", "SB"
SCALE_PARAMETERS = (ROW_SCALES, COLUMN_SCALES, "sa_row", "sa_k", "sb_column", "sb_k")
"""The parameters of a kernel with scales: two pointers or tensor maps, and strides in elements."""
Order: TypeAlias = Literal["product", "rows", "columns"]
_FEW_COLUMNS = 64
"""The most columns of a tile whose scales are loaded a stage ahead, which takes twice the registers."""
_BYTES, _LINE_BYTES = 4, 128
_LOADED = 4
"""The scales of columns in shared memory that a thread has in registers at once."""


@dataclass(frozen=True, slots=True)
class BlockScales:
    """The scales of a product: one for each `rows` rows of A, and for each `columns` columns of B: 1 or BLOCK.

    `order`: a sum is multiplied by the product of both scales, or by that of the rows or of the columns first.
    `pairs`: the scales of two neighbouring columns are loaded at once.  `mapped_rows`, `mapped_columns`: there is a
    tensor map of the scales of rows, or of columns, whose neighbours are neighbours in memory.
    """

    rows: int
    columns: int
    order: Order
    pairs: bool = False
    mapped_rows: bool = False
    mapped_columns: bool = False

    def shared_rows(self, block_m: int) -> bool:
        """Return whether all rows of a tile share a scale."""
        return self.rows % block_m == 0

    def shared_columns(self, block_n: int) -> bool:
        """Return whether all columns of a tile share a scale."""
        return self.columns % block_n == 0

    def columns_in_two(self, block_n: int) -> bool:
        """Return whether the columns of a tile lie in up to two blocks, of which each shares a scale."""
        return self.columns > 1 and not self.shared_columns(block_n)

    def common_columns(self, block_n: int) -> int:
        """Return the neighbouring columns that share a scale in every tile: tiles start at multiples of `block_n`."""
        return math.gcd(self.columns, block_n)

    def column_scales(self, block_n: int) -> int:
        """Return the scales of columns that a thread needs for a stage."""
        return 1 if self.shared_columns(block_n) else 2 if self.columns > 1 else block_n // 4

    def registers(self, block_m: int, block_n: int, own_rows: int) -> int:
        """Return the registers of a thread for the scales of a stage; `own_rows` are the rows of its consumer."""
        rows = 1 if self.shared_rows(block_m) else own_rows // 32
        columns = _LOADED if self.maps_columns(block_n) else self.column_scales(block_n)
        found = rows * (1 if self.maps_rows(block_m) else 2) + columns * (2 if self.columns_are_ahead(block_n) else 1)
        # Products of a scale of rows with each of two of columns, and those of the columns at hand.
        return found + (3 * rows if self.columns_in_two(block_n) else 0)

    def maps_rows(self, block_m: int) -> bool:
        """Return whether the scales of the rows of a stage are copied to shared memory with its operands."""
        return self.mapped_rows and not self.shared_rows(block_m)

    def maps_columns(self, block_n: int) -> bool:
        """Return whether the scales of the columns of a stage are copied to shared memory with its operands."""
        return self.mapped_columns and not self.shared_columns(block_n)

    def columns_are_ahead(self, block_n: int) -> bool:
        """Return whether the scales of columns are loaded to registers a stage ahead."""
        return self.columns > 1 or not (self.mapped_columns or block_n > _FEW_COLUMNS)

    def line(self, block_m: int, block_n: int) -> tuple[int, int]:
        """Return the bytes of the scales of columns, and of rows, of a stage in shared memory: whole lines of both."""
        columns = block_n if self.maps_columns(block_n) else 0
        rows = block_m if self.maps_rows(block_m) else 0
        return _whole_lines(columns), _whole_lines(rows)


def _whole_lines(scales: int) -> int:
    return -(-scales * _BYTES // _LINE_BYTES) * _LINE_BYTES
