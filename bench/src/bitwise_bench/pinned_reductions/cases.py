"""The benchmark suite: kernels, types, sizes, tuning spaces, and the pinned order of each.

The free and the pinned order are tuned over the same configurations. An order is one text for all configurations of a
kernel, a type and a size: the bits of adjacent elements in one load first, then those of separate registers, of lanes,
and of warps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
DTYPES = tuple(BYTES)

Configuration: TypeAlias = Mapping[str, int]


@dataclass(frozen=True)
class Tensor:
    """A buffer of `count` elements: an input with a kind of content, or an output."""

    name: str
    dtype: str
    count: int
    content: str = "normal"


@dataclass(frozen=True)
class Step:
    """One launch: the kernel's name, its arguments (tensor names and numbers), constants, options and grid."""

    kernel: str
    arguments: tuple[str | int, ...]
    constants: Mapping[str, Any]
    grid: tuple[int, ...]
    options: Mapping[str, int]


@dataclass(frozen=True)
class Case:
    """A kernel at one type and size. `steps` gives the launches of a configuration in an order, "" for the free one.

    `rewritten` kernels take no order; they are launched inside `pinned_reductions`. `checked` is the axis of the input
    whose float32 sums are the first output, or None if that is something else.
    """

    kernel: str
    dtype: str
    size: tuple[int, ...]
    tensors: tuple[Tensor, ...]
    configurations: tuple[Configuration, ...]
    order: str
    steps: Callable[[Configuration, str], list[Step]]
    rewritten: bool = False
    checked: int | None = None

    @property
    def name(self) -> str:
        """`kernel dtype size`, as in the record."""
        return f"{self.kernel} {self.dtype} {'x'.join(map(str, self.size))}"


def row_order(itemsize: int, warps: int, chain: int | None = None) -> str:
    """An order for rows: the elements of a 16-byte load, separate registers, lanes, and the bits of up to `warps`
    warps.
    """
    vector = (16 // itemsize).bit_length() - 1
    lanes = vector + 5
    held = lanes + warps.bit_length() - 1
    start, end = ("", "") if chain is None else (f"chain({chain}:), ", chain)
    apart = "" if chain == held else f"outer_tree({held}:{end}), "
    return f"{start}inner_tree(:{vector}), {apart}inner_tree({vector}:{lanes}), inner_tree"


def _space(**choices: Sequence[int]) -> tuple[Configuration, ...]:
    found: list[dict[str, int]] = [{}]
    for name, values in choices.items():
        found = [{**one, name: value} for one in found for value in values]
    return tuple(found)


def _options(configuration: Configuration) -> dict[str, int]:
    return {name: value for name, value in configuration.items() if not name.isupper()}


def _constants(configuration: Configuration) -> dict[str, Any]:
    return {name: value for name, value in configuration.items() if name.isupper()}


def _blocks(count: int, block: int) -> int:
    return -(-count // block)


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()


def long_rows(
    kernel: str, dtype: str, rows: int, columns: int, content: str = "normal", checked: int | None = None
) -> Case:
    """Rows read tile by tile, of at least 1024 (2048 in 16 bits) elements."""
    totals = 4096 // BYTES[dtype]
    space = [
        one
        for one in _space(ROW_BLOCK=(1, 2), BLOCK=(totals, 2 * totals, 4 * totals), num_warps=(4, 8))
        if one["BLOCK"] <= _power(columns) and one["ROW_BLOCK"] * one["BLOCK"] <= 4 * totals
    ]

    def steps(configuration: Configuration, order: str) -> list[Step]:
        constants = {**_constants(configuration), "ORDER": order}
        constants["TOTALS"] = totals if order else constants["BLOCK"]
        constants |= {"PIECE": constants["TOTALS"]} if kernel == "row_sum" else {}
        grid = (_blocks(rows, constants["ROW_BLOCK"]),)
        return [Step(kernel, ("x", "y", rows, columns), constants, grid, _options(configuration))]

    tensors = (Tensor("x", dtype, rows * columns, content), Tensor("y", "fp32", rows, "out"))
    order = row_order(BYTES[dtype], 4, totals.bit_length() - 1)
    return Case(kernel, dtype, (rows, columns), tensors, tuple(space), order, steps, checked=checked)


def whole_sum(dtype: str, count: int) -> Case:
    """The sum of one axis in chunks of 32768 elements, and of the chunk sums."""
    chunk = 32768
    inner = long_rows("row_sum", dtype, count // chunk, chunk)
    totals = 4096 // BYTES[dtype]

    def steps(configuration: Configuration, order: str) -> list[Step]:
        [first] = inner.steps(configuration, order)
        last = {"ROW_BLOCK": 1, "BLOCK": totals, "PIECE": totals, "TOTALS": totals, "ORDER": order}
        return [
            Step("row_sum", ("x", "part", *first.arguments[2:]), first.constants, first.grid, first.options),
            Step("row_sum", ("part", "y", 1, count // chunk), last, (1,), {"num_warps": 4}),
        ]

    tensors = (
        Tensor("x", dtype, count),
        Tensor("part", "fp32", count // chunk, "out"),
        Tensor("y", "fp32", 1, "out"),
    )
    return Case("sum_1d", dtype, (count,), tensors, inner.configurations, inner.order, steps)


def column_sums(kernel: str, dtype: str, matrices: int, rows: int, columns: int) -> Case:
    """Columns of a stack of matrices."""
    kept = 32
    space = _space(ROW_BLOCK=(32, 64, 128), BLOCK=(64, 128), num_warps=(4, 8))

    def steps(configuration: Configuration, order: str) -> list[Step]:
        constants = {**_constants(configuration), "ORDER": order}
        constants["PIECE"] = constants["TOTALS"] = kept if order else constants["ROW_BLOCK"]
        grid = (_blocks(columns, constants["BLOCK"]), matrices)
        return [Step("column_sum", ("x", "y", rows, columns), constants, grid, _options(configuration))]

    count = matrices * rows * columns
    tensors = (Tensor("x", dtype, count), Tensor("y", "fp32", matrices * columns, "out"))
    size = (rows, columns) if matrices == 1 else (matrices, rows, columns)
    checked = 0 if matrices == 1 else None
    return Case(kernel, dtype, size, tensors, space, "chain(5:), 4, inner_tree", steps, checked=checked)


def whole_rows(kernel: str, dtype: str, rows: int, columns: int) -> Case:
    """Rows that fit one program."""
    block = _power(columns)
    rows_at_once = (1, 2, 4) if block <= 2048 else (1, 2) if block <= 4096 else (1,)
    warps = (4, 8) if block <= 4096 else (4, 8, 16)
    inputs = {
        "softmax": ("x",),
        "layer_norm": ("x", "w", "b"),
        "rms_norm": ("x", "w"),
        "welford_rows": ("x",),
    }[kernel]
    result = Tensor("y", "fp32", 2 * rows, "out")
    if kernel != "welford_rows":
        result = Tensor("y", dtype, rows * columns, "out")
    tensors = (*(Tensor(n, dtype, rows * columns if n == "x" else columns) for n in inputs), result)

    def steps(configuration: Configuration, order: str) -> list[Step]:
        constants = {**_constants(configuration), "BLOCK": block, "ORDER": order}
        if kernel == "welford_rows":
            constants["EVEN"] = columns == block
        grid = (_blocks(rows, constants["ROW_BLOCK"]),)
        return [Step(kernel, (*inputs, "y", rows, columns), constants, grid, _options(configuration))]

    space = _space(ROW_BLOCK=rows_at_once, num_warps=warps)
    order = row_order(BYTES[dtype], 4 if block <= 2048 else 8)
    return Case(kernel, dtype, (rows, columns), tensors, space, order, steps)


def backward(dtype: str, rows: int, columns: int) -> Case:
    """Gradients of a layer norm's weight and bias: sums of 256 rows each, and the sums of those."""
    chunk, kept = 256, 32
    chunks = rows // chunk

    def steps(configuration: Configuration, order: str) -> list[Step]:
        constants = {**_constants(configuration), "CHUNK": chunk, "ORDER": order}
        constants["TOTALS"] = kept if order else constants["ROW_BLOCK"]
        grid = (_blocks(columns, constants["BLOCK"]), chunks)
        inputs = ("dy", "x", "mean", "scale", "dws", "dbs", rows, columns)
        last = {"ROW_BLOCK": kept, "BLOCK": 64, "PIECE": kept, "TOTALS": kept, "ORDER": order}
        end = (_blocks(columns, 64), 1)
        return [
            Step("layer_norm_backward", inputs, constants, grid, _options(configuration)),
            Step("column_sum", ("dws", "dw", chunks, columns), last, end, {"num_warps": 4}),
            Step("column_sum", ("dbs", "db", chunks, columns), last, end, {"num_warps": 4}),
        ]

    tensors = (
        Tensor("dy", dtype, rows * columns),
        Tensor("x", dtype, rows * columns),
        Tensor("mean", "fp32", rows),
        Tensor("scale", "fp32", rows),
        Tensor("dws", "fp32", chunks * columns, "out"),
        Tensor("dbs", "fp32", chunks * columns, "out"),
        Tensor("dw", "fp32", columns, "out"),
        Tensor("db", "fp32", columns, "out"),
    )
    space = _space(ROW_BLOCK=(32, 64), BLOCK=(64, 128), num_warps=(4, 8))
    # The loads of a warp span four rows of 16-bit or two rows of 32-bit elements.
    order = "chain(5:), outer_tree" if dtype == "fp32" else "chain(5:), 4, inner_tree"
    return Case("layer_norm_backward", dtype, (rows, columns), tensors, space, order, steps)


def gemm(dtype: str, m: int, n: int, k: int) -> Case:
    """A GEMM with column sums of its tiles of 128 rows."""

    def steps(configuration: Configuration, order: str) -> list[Step]:
        constants = {**_constants(configuration), "BM": 128, "ORDER": order}
        grid = (_blocks(m, 128) * _blocks(n, constants["BN"]),)
        return [
            Step("gemm_column_sum", ("a", "b", "c", "y", m, n, k), constants, grid, _options(configuration)),
        ]

    tensors = (
        Tensor("a", dtype, m * k),
        Tensor("b", dtype, k * n),
        Tensor("c", dtype, m * n, "out"),
        Tensor("y", "fp32", m // 128 * n, "out"),
    )
    depth = 32 if dtype == "fp32" else 64
    space = _space(BN=(64, 128), BK=(depth,), num_warps=(4, 8), num_stages=(3, 4))
    return Case("gemm_column_sum", dtype, (m, n, k), tensors, space, "3, 6, inner_tree", steps)


def inductor(dtype: str, rows: int, columns: int) -> Case:
    """A sum as TorchInductor writes it, pinned by rewriting."""
    block = _power(columns)

    def steps(configuration: Configuration, order: str) -> list[Step]:
        constants = {**_constants(configuration), "R0_BLOCK": block}
        grid = (_blocks(rows, constants["XBLOCK"]),)
        return [Step("inductor_sum", ("x", "y", rows, columns), constants, grid, _options(configuration))]

    space = _space(XBLOCK=(1, 2, 4) if block <= 2048 else (1, 2), num_warps=(4, 8))
    tensors = (Tensor("x", dtype, rows * columns), Tensor("y", "fp32", rows, "out"))
    order = row_order(BYTES[dtype], 4 if block <= 2048 else 8)
    return Case("inductor_sum", dtype, (rows, columns), tensors, space, order, steps, rewritten=True)


def suite() -> list[Case]:
    """Every case, with the sizes of each kernel in ascending order: 13 kernels, 3 types, 3 sizes."""
    row_sizes = ((16384, 1024), (8192, 4096), (4096, 8192))
    long_sizes = ((8192, 4096), (4096, 16384), (1024, 65536))
    column_sizes = ((256, 65536), (1024, 65536), (4096, 16384))
    stack_sizes = ((16, 256, 8192), (64, 128, 8192), (32, 1024, 2048))
    gemm_sizes = ((4096, 4096, 512), (4096, 4096, 2048), (8192, 2048, 1024))
    backward_sizes = ((4096, 4096), (8192, 4096), (8192, 8192))
    found: list[Case] = []
    for place in range(3):
        for dtype in DTYPES:
            found += [
                whole_sum(dtype, 1 << (24 + place)),
                long_rows("row_sum", dtype, *long_sizes[place], checked=1),
                column_sums("column_sum", dtype, 1, *column_sizes[place]),
                column_sums("middle_sum", dtype, *stack_sizes[place]),
                long_rows("row_product", dtype, *long_sizes[place], content="near one"),
                long_rows("row_maximum", dtype, *long_sizes[place]),
                *(whole_rows(name, dtype, *row_sizes[place]) for name in ("softmax", "layer_norm", "rms_norm")),
                whole_rows("welford_rows", dtype, *row_sizes[place]),
                backward(dtype, *backward_sizes[place]),
                gemm(dtype, *gemm_sizes[place]),
                inductor(dtype, *row_sizes[place]),
            ]
    return found
