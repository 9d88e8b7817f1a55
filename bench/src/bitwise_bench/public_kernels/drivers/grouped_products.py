"""grouped-mm-bf16: products of groups of matrices in four layouts, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def _product(t: Tensors, first: tuple[int, ...], second: tuple[int, ...], ends: list[int] | None) -> None:
    function = import_module("grouped_mm_bf16.api").grouped_mm
    operands = [t.normal(*size, dtype="bfloat16", grad=True) for size in (first, second)]
    found = t.call(function, *operands, None if ends is None else t.of(ends, "int32"))
    if found is not None:
        t.call(t.backward, found)


def matrices(t: Tensors) -> None:
    """Call the product of two stacks of matrices."""
    _product(t, (3, 48, 64), (3, 64, 80), None)


def ragged_rows(t: Tensors) -> None:
    """Call the product of groups of rows with a stack of matrices."""
    _product(t, (136, 64), (4, 64, 96), [40, 40, 99, 136])


def ragged_columns(t: Tensors) -> None:
    """Call the product of a stack of matrices with groups of columns."""
    _product(t, (3, 72, 64), (64, 144), [56, 80, 144])


def ragged_sums(t: Tensors) -> None:
    """Call the product over groups of summed rows."""
    _product(t, (64, 192), (192, 80), [64, 112, 192])


CASES = {each.__name__: each for each in (matrices, ragged_rows, ragged_columns, ragged_sums)}
