"""The scales of blocks of 128 values of k of a product, as the kernels of warpgroups take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bitwise_nvidia_sm90.gemm.kernels.block_scales import BLOCK, BlockScales, Order
from bitwise_nvidia_sm90.gemm.matrix_layouts import ALIGNMENT, MatrixMap

_BYTES, _PAIR_BYTES = 4, 8


@dataclass(frozen=True, slots=True, eq=False)
class BlockScaling:
    """Scales of A and of B: for each block of k a column and a row of fp32 with any strides.

    A has a scale for each row, or one for each BLOCK of them; so has B for its columns.  `left_first`: a sum is
    multiplied by the scale of A alone, then by that of B and added; otherwise by their product.
    """

    scales_a: Any
    scales_b: Any
    left_first: bool

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of kernels."""
        (row, a_k), (b_k, column) = self.scales_a.stride(), self.scales_b.stride()
        return {
            "SA": self.scales_a, "SB": self.scales_b, "sa_row": row, "sa_k": a_k, "sb_column": column, "sb_k": b_k,
        }  # fmt: skip

    def scales(self, m: int, n: int, transposed: bool) -> BlockScales:
        """Return the scales as a kernel of warpgroups has them, of the transposed product if so."""
        given = [(self.scales_a, self.scales_a.stride(), m), (self.scales_b, self.scales_b.stride()[::-1], n)]
        shared = [
            BLOCK if int(each.shape[axis]) < length else 1 for axis, (each, _, length) in enumerate(given)
        ]  # fmt: skip
        mapped = [
            own == 1 and step == 1 and line * _BYTES % ALIGNMENT == 0 and line >= length
            and int(each.data_ptr()) % ALIGNMENT == 0
            for own, (each, (step, line), length) in zip(shared, given, strict=True)
        ]  # fmt: skip
        if transposed:
            given, shared, mapped = given[::-1], shared[::-1], mapped[::-1]
        across, (step, line), columns = given[1]
        pairs = step == 1 and line % 2 == 0 and columns % 2 == 0 and int(across.data_ptr()) % _PAIR_BYTES == 0
        order: Order = "product" if not self.left_first else "columns" if transposed else "rows"
        return BlockScales(shared[0], shared[1], order, pairs and shared[1] == 1, mapped[0], mapped[1])

    def map_of_rows(self, block_m: int, transposed: bool) -> MatrixMap:
        """Return the tensor map of the scales of rows, of the transposed product if so, for tiles of `block_m`."""
        return self._map(block_m, of_a=not transposed)

    def map_of_columns(self, block_n: int, transposed: bool) -> MatrixMap:
        """Return the tensor map of the scales of columns, of the transposed product if so, for tiles of `block_n`."""
        return self._map(block_n, of_a=transposed)

    def _map(self, side: int, *, of_a: bool) -> MatrixMap:
        scales = self.scales_a if of_a else self.scales_b
        shape, strides = tuple(int(each) for each in scales.shape), tuple(scales.stride())
        if of_a:  # a line of the map has the scales of a block of k
            shape, strides = shape[::-1], strides[::-1]
        return MatrixMap(scales, (shape[0], shape[1]), (strides[0], strides[1]), (1, side))
