"""Block-affine integers compared with NumPy on every block and thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitwise_core.checker.block_symmetry import block_affine
from bitwise_core.checker.block_symmetry.address_pass import AddressDomain
from bitwise_core.checker.block_symmetry.block_affine import BlockAffine, plain
from bitwise_core.checker.block_symmetry.grid import Column, Grid, Limits, NotSymmetric
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.numerics import operation

WIDTHS = {32: np.uint32, 64: np.uint64}
UFUNCS = [
    np.add, np.subtract, np.multiply, np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.minimum, np.maximum,
    np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal,
]  # fmt: skip


def numbers(bits: int) -> st.SearchStrategy[int]:
    edges = [0, 1, 63, 64, (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << bits) - 1]
    return st.one_of(st.integers(0, 300), st.integers(0, 40).map(lambda n: 64 * n), st.sampled_from(edges))


@st.composite
def operands(draw: st.DrawFn) -> tuple[Grid, int, list[Array], list[Array]]:
    """A grid of up to 6 blocks, a width, and columns and rows of two operands (a zero column is a plain array)."""
    bits = draw(st.sampled_from(sorted(WIDTHS)))
    blocks, threads = draw(st.integers(2, 6)), draw(st.sampled_from([1, 3]))
    columns, rows = [], []
    for _ in range(2):
        fixed = draw(st.booleans())
        column = [0] * blocks if fixed else draw(st.lists(numbers(bits), min_size=blocks, max_size=blocks))
        row = draw(st.lists(numbers(bits), min_size=threads, max_size=threads))
        columns.append(np.array(column, dtype=WIDTHS[bits]))
        rows.append(np.array([row], dtype=WIDTHS[bits]))
    return Grid(np.arange(blocks), Limits()), bits, columns, rows


def value(grid: Grid, column: Array, row: Array, *, signed: bool) -> object:
    if column.any():
        return plain(BlockAffine(grid, Column(column), row, signed))
    return row.view(f"i{row.itemsize}") if signed else row


def full_values(column: Array, row: Array, *, signed: bool) -> Array:
    total = column[:, None] + row
    return total.view(f"i{total.itemsize}") if signed else total


def expanded(grid: Grid, result: object, threads: int) -> Array:
    """The result in every active block and every thread."""
    count = grid.blocks.size
    if isinstance(result, BlockAffine):
        column = grid.active_values(result.column)[:, None]
        full = column if result.bits == 1 else (column + result.thread).view(result.dtype)
        return np.broadcast_to(full, (count, threads))
    return np.broadcast_to(np.asarray(result), (count, threads))


@given(operands(), st.sampled_from(UFUNCS), st.booleans())
def test_binary_functions_agree_with_numpy(
    case: tuple[Grid, int, list[Array], list[Array]], ufunc: np.ufunc, signed: bool
) -> None:
    grid, _, columns, rows = case
    values = [value(grid, column, row, signed=signed) for column, row in zip(columns, rows, strict=True)]
    result = block_affine.apply_ufunc(grid, ufunc, values)
    expected = ufunc(*(full_values(column, row, signed=signed) for column, row in zip(columns, rows, strict=True)))
    assert grid.blocks[0] == 0
    np.testing.assert_array_equal(expanded(grid, result, expected.shape[1]), expected[grid.blocks])


@given(operands(), st.sampled_from([np.floor_divide, np.remainder, np.left_shift, np.right_shift]), st.integers(1, 31))
def test_functions_of_a_uniform_number_agree_with_numpy(
    case: tuple[Grid, int, list[Array], list[Array]], ufunc: np.ufunc, by: int
) -> None:
    grid, bits, columns, rows = case
    amount = np.full((1, 1), by, dtype=WIDTHS[bits])
    result = block_affine.apply_ufunc(grid, ufunc, [value(grid, columns[0], rows[0], signed=False), amount])
    expected = ufunc(full_values(columns[0], rows[0], signed=False), amount)
    np.testing.assert_array_equal(expanded(grid, result, expected.shape[1]), expected[grid.blocks])


@given(operands(), st.sampled_from(["uint8", "int16", "uint32", "int32", "uint64", "int64"]), st.booleans())
def test_conversions_agree_with_numpy(case: tuple[Grid, int, list[Array], list[Array]], to: str, signed: bool) -> None:
    grid, _, columns, rows = case
    source = value(grid, columns[0], rows[0], signed=signed)
    result = source.astype(to)  # type: ignore[attr-defined]
    expected = full_values(columns[0], rows[0], signed=signed).astype(to)
    np.testing.assert_array_equal(expanded(grid, result, expected.shape[1]), expected[grid.blocks])


@given(operands(), st.lists(st.booleans(), min_size=3, max_size=3))
def test_selection_by_a_thread_mask_agrees_with_numpy(
    case: tuple[Grid, int, list[Array], list[Array]], mask: list[bool]
) -> None:
    grid, _, columns, rows = case
    values = [value(grid, column, row, signed=False) for column, row in zip(columns, rows, strict=True)]
    threads = rows[0].shape[1]
    chosen = np.array([mask[:threads]])
    result = block_affine.select(grid, chosen, *values)
    expected = np.where(
        chosen, *(full_values(column, row, signed=False) for column, row in zip(columns, rows, strict=True))
    )
    np.testing.assert_array_equal(expanded(grid, result, threads), expected[grid.blocks])


@given(operands(), st.sampled_from(["min.s", "max.u", "mulwide.s", "mulwide.u", "mulhi.u", "xor.b", "div.s", "rem.u"]))
def test_integer_operations_agree_with_their_evaluation(
    case: tuple[Grid, int, list[Array], list[Array]], name: str
) -> None:
    grid, bits, columns, rows = case
    if bits == 64 and "mul" in name:
        return
    meaning = operation(f"{name}{bits}")
    values = [value(grid, column, row, signed=False) for column, row in zip(columns, rows, strict=True)]
    numbers = [full_values(column, row, signed=False) for column, row in zip(columns, rows, strict=True)]
    if meaning.verb in ("div", "rem"):
        values[1] = numbers[1] = np.full((1, 1), 7, dtype=WIDTHS[bits])
    result = AddressDomain(grid).integer(meaning, values)  # type: ignore[arg-type]
    expected = np.broadcast_to(meaning.evaluate(*numbers), (len(columns[0]), rows[0].shape[1]))
    np.testing.assert_array_equal(expanded(grid, result, rows[0].shape[1]), expected[grid.blocks])


def test_misuse_as_an_array_raises() -> None:
    grid = Grid(np.arange(3), Limits())
    number = BlockAffine(grid, Column(np.arange(3, dtype=np.uint32)), np.zeros((1, 4), dtype=np.uint32))
    functions: tuple[Any, ...] = (bool, int, float, len, list, np.asarray, np.sort, np.sum)
    for misuse in (*functions, lambda n: n.flat, lambda n: n[0], lambda n: n.flags):
        with pytest.raises(NotSymmetric):
            misuse(number)


def test_a_boundary_mask_excludes_one_block() -> None:
    grid = Grid(np.arange(10), Limits())
    thread = np.arange(32, dtype=np.uint32)[None]
    index = BlockAffine(grid, Column(np.arange(10, dtype=np.uint32) * np.uint32(32)), thread)
    assert (index < np.uint32(300)).all()
    assert grid.blocks.tolist() == list(range(9))
    assert [each.tolist() for each in grid.excluded] == [[9]]


def test_a_grid_with_too_many_classes_is_rejected() -> None:
    grid = Grid(np.arange(100), Limits(classes=10))
    number = BlockAffine(grid, Column(np.arange(100, dtype=np.uint32)), np.arange(200, dtype=np.uint32)[None])
    with pytest.raises(NotSymmetric, match="more than 10 classes"):
        _ = number < np.uint32(100)


MAGIC = [-(-(1 << 32) // divisor) for divisor in (3, 6, 7, 25, 96, 641)]


@given(
    operands(),
    st.one_of(st.sampled_from(MAGIC), st.integers(1, (1 << 31) - 1)),
    st.booleans(),
    st.sampled_from([0, 3, 31]),
)
def test_high_products_with_a_number_agree_with_their_evaluation(
    case: tuple[Grid, int, list[Array], list[Array]], factor: int, signed: bool, shift: int
) -> None:
    grid, bits, columns, rows = case
    if bits == 64:
        return
    dtype = np.dtype("int32" if signed else "uint32")
    source = value(grid, columns[0], rows[0], signed=signed)
    by = np.full((1, 1), factor, dtype=dtype)
    wide = np.dtype("int64" if signed else "uint64")
    amount = wide.type(32 + shift if shift < 31 else 31)
    result = (source.astype(wide) * by.astype(wide)) >> amount  # type: ignore[attr-defined]
    expected = (full_values(columns[0], rows[0], signed=signed).astype(wide) * by.astype(wide)) >> amount
    np.testing.assert_array_equal(expanded(grid, result, expected.shape[1]), expected[grid.blocks])


def test_a_quotient_by_a_magic_number_is_evaluated_on_few_blocks() -> None:
    blocks, threads = np.arange(40, dtype=np.uint32), np.arange(256, dtype=np.uint32)[None]
    grid = Grid(np.arange(40), Limits(lanes=6 * 256))
    number = BlockAffine(grid, Column(blocks * np.uint32(512)), threads * np.uint32(2), True)
    product = number.astype("int64") * np.full((1, 1), 715827883, dtype=np.int64)
    found = (product >> np.int64(32)).astype("int32") >> np.int32(6)
    expected = (blocks[:, None] * 512 + threads * 2) // 384
    np.testing.assert_array_equal(expanded(grid, found, 256), expected[grid.blocks])
    # 2^32 / 1374389535 is no integer: every block has another product.
    other = BlockAffine(Grid(np.arange(40), Limits(lanes=6 * 256)), number.column, number.thread, True)
    with pytest.raises(NotSymmetric, match="too many blocks"):
        (other.astype("int64") * np.full((1, 1), 1374389535, dtype=np.int64)) >> np.int64(32)
