"""ninetoothed: kernels of tensors of tiles, from an arrangement and an application."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import stub
from bitwise_bench.public_kernels.tensors import Tensors

_TILE, _DEPTH = 32, 16

ntl: Any = None
"""The package's language, once a kernel is made."""


def _one_row(x: Any, y: Any, output: Any) -> tuple[Any, ...]:
    return tuple(each.tile((64,)) for each in (x, y, output))


# The package compiles the source of the functions without types, and accepts none there.
def _added(x, y, output):  # type: ignore[no-untyped-def]
    output = x + y  # noqa: F841


def _whole_rows(x: Any, output: Any) -> tuple[Any, ...]:
    return tuple(each.tile((1, 128)) for each in (x, output))


def _softmax(x, output):  # type: ignore[no-untyped-def]
    wide = ntl.cast(x, ntl.float32)
    powers = ntl.exp(wide - ntl.max(wide))
    output = powers / ntl.sum(powers)  # noqa: F841


def _product_tiles(x: Any, y: Any, output: Any) -> tuple[Any, ...]:
    out = output.tile((_TILE, _TILE))
    left = x.tile((_TILE, _DEPTH)).tile((1, -1)).expand((-1, out.shape[1]))
    left.dtype = left.dtype.squeeze(0)
    right = y.tile((_DEPTH, _TILE)).tile((-1, 1)).expand((out.shape[0], -1))
    right.dtype = right.dtype.squeeze(1)
    return left, right, out


def _product(x, y, output):  # type: ignore[no-untyped-def]
    total = ntl.zeros(output.shape, dtype=ntl.float32)
    for k in range(x.shape[0]):
        total += ntl.dot(x[k], y[k])
    output = total


def _made(arrangement: Any, application: Any, ranks: tuple[int, ...], **settings: Any) -> Any:
    # The compiler for other languages needs files that are not Python; kernels that are called here do not.
    if "ninetoothed.aot" not in sys.modules:
        names = ("aot", "_DTYPE_TO_INDEX", "_HEADER_PATH", "_INDENTATION", "_MACRO_MAPPING", "_generate_launch_func",
                 "_KernelLaunchError", "_load_launch_func")  # fmt: skip
        stub("ninetoothed.aot", **dict.fromkeys(names))
        del sys.modules["ninetoothed"]
    library = import_module("ninetoothed")
    globals()["ntl"] = import_module("ninetoothed.language")
    return library.make(arrangement, application, tuple(library.Tensor(rank, **settings) for rank in ranks))


def sums(t: Tensors) -> None:
    """Call sums of vectors."""
    kernel = _made(_one_row, _added, (1, 1, 1))
    for dtype in ("float32", "bfloat16"):
        t.call(kernel, t.normal(300, dtype=dtype), t.normal(300, dtype=dtype), t.empty(300, dtype=dtype))


def rows(t: Tensors) -> None:
    """Call the softmax of rows, in fp32 and in fp16."""
    kernel = _made(_whole_rows, _softmax, (2, 2), other=float("-inf"))
    for dtype in ("float32", "float16"):
        t.call(kernel, t.normal(9, 100, dtype=dtype), t.empty(9, 100, dtype=dtype))


def products(t: Tensors) -> None:
    """Call products of matrices, of whole tiles and of others."""
    kernel = _made(_product_tiles, _product, (2, 2, 2))
    for rows_of, inner, columns, dtype in ((64, 96, 64, "float16"), (50, 70, 40, "float32")):
        t.call(kernel, t.normal(rows_of, inner, dtype=dtype), t.normal(inner, columns, dtype=dtype),
               t.empty(rows_of, columns, dtype=dtype))  # fmt: skip


CASES = {each.__name__: each for each in (sums, rows, products)}
