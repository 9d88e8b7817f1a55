"""Functions of the rows of a tensor, in an order that is a function of a row's length alone.

Tensors on a GPU run the Triton kernels of `kernels/rows.py`; tensors on the CPU are evaluated in NumPy.  The rows are
those of the last axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bitwise_torch.batch_invariance import row_evaluation
from bitwise_torch.batch_invariance.row_evaluation import lanes_of
from bitwise_torch.dispatch_cache import output_allocator

if TYPE_CHECKING:
    import torch

LONG = 65536
"""A longer row is summed in parts of this length, and then the sums of its parts."""

_BLOCK = 1024
"""The numbers of a program of several short rows."""

_COLUMNS, _COLUMN_LANES = 64, 128
"""The columns of a program of sums of columns, and its lanes."""

_SERIES = 32
"""The series of a program of prefix sums."""

_WIDENED = 8192
"""The numbers of a program that widens heads."""

_MOST_PROGRAMS = 65535
"""The number of programs that the last axis of a grid may have."""


def sum_rows(
    x: torch.Tensor, dtype: torch.dtype, mean: bool = False, shape: Sequence[int] | None = None
) -> torch.Tensor:
    """Return the sums of the rows of x[..., n] in fp32, or their means, rounded to `dtype`: shape x.shape[:-1].

    `shape` is another shape of as many numbers.
    """
    import torch

    length = int(x.shape[-1])
    shape = x.shape[:-1] if shape is None else shape
    if length == 0 or x.numel() == 0:
        return torch.full(shape, float("nan") if mean else 0.0, dtype=dtype, device=x.device)
    x = _dense(x)
    if length <= LONG:
        return _sums(x, length, dtype, mean, length, shape)
    parts = _sums(x, LONG, torch.float32, False, length, (int(x.numel()) // length, -(-length // LONG)))
    return _sums(parts, int(parts.shape[1]), dtype, mean, length, shape)


def _sums(
    x: torch.Tensor, part: int, dtype: torch.dtype, mean: bool, divisor: int, shape: Sequence[int]
) -> torch.Tensor:
    """Return the sums of parts of `part` numbers of the rows of a dense x, divided by `divisor` with `mean`."""
    import torch

    rows, length = _rows(x)
    parts = -(-length // part)
    if x.is_cpu:
        padded = np.pad(_floats(x), ((0, 0), (0, parts * part - length)))
        total = row_evaluation.sums(padded.reshape(-1, part))
        return _tensor(total / np.float32(divisor) if mean else total, dtype).reshape(shape)
    out = torch.empty(shape, dtype=dtype, device=x.device)
    sizes, warps = geometry(part)
    grid = (-(-rows // sizes["ROWS"]), parts, 1)
    launch("sum_of_rows", grid, (x, out, rows, length, part, float(divisor)), (mean, *sizes.values()), warps)
    return out


def sum_columns(x: torch.Tensor, dtype: torch.dtype, mean: bool, shape: Sequence[int]) -> torch.Tensor:
    """Return the sums over the second axis of a dense x[o, n, c] in fp32, or their means, rounded to `dtype`.

    Their order is that of `sum_rows` for rows of n numbers; n is at most LONG.  `shape` is that of the result.
    """
    import torch

    count, rows = (int(each) for each in x.shape[:2])
    if x.is_cpu or x.numel() == 0 or count > _MOST_PROGRAMS:
        return sum_rows(x.transpose(1, 2), dtype, mean, shape)
    lanes = max(lanes_of(rows), _COLUMN_LANES)
    return _sums_of_lanes(_dense(x), lanes, torch.empty(shape, dtype=dtype, device=x.device), float(rows), mean)


def sum_places(x: torch.Tensor, dtype: torch.dtype, mean: bool, shape: Sequence[int]) -> torch.Tensor:
    """Return the sums over the first two axes of x[a, b, c] on a GPU, whose last axis is dense, as `sum_columns` does.

    Their order is that of the rows of x[a b, c]; a b is at most LONG.
    """
    import torch

    rows = int(x.shape[0]) * int(x.shape[1])
    lanes = max(lanes_of(rows), _COLUMN_LANES)
    out = torch.empty(shape, dtype=dtype, device=x.device)
    return _sums_of_lanes(x, lanes, out, float(rows), mean, apart=True)


def _sums_of_lanes(
    x: torch.Tensor, lanes: int, out: torch.Tensor, divisor: float, mean: bool, apart: bool = False
) -> torch.Tensor:
    """Leave the sums over the second axis of x[o, n, c], whose order has so many lanes, in `out`, and return it.

    With `apart`, they are those over the first two axes.
    """
    import torch

    while lanes > _COLUMN_LANES:
        shape = 1 if apart else int(x.shape[0]), lanes // _COLUMN_LANES, int(x.shape[2])
        parts = torch.empty(shape, dtype=torch.float32, device=x.device)
        _launch_columns(x, parts, divisor, False, lanes, apart)
        x, lanes, apart = parts, lanes // _COLUMN_LANES, False
    _launch_columns(x, out, divisor, mean, _COLUMN_LANES, apart)
    return out


def sum_column_products(
    gradient: torch.Tensor, x: torch.Tensor, mean: torch.Tensor | None, scale: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Return the sums of gradient[r, c] ((x[r, c] - mean[r]) scale[r]) over r, in the order of `sum_rows`.

    Differences, products and sums are in fp32, and rounded to `dtype` at the end.  `mean` may be None for 0.
    """
    import torch

    rows, columns = (int(each) for each in x.shape)
    mean, scale = (None if each is None else _dense(each.reshape(-1).float()) for each in (mean, scale))
    assert scale is not None
    if x.is_cpu or x.numel() == 0 or rows > LONG:
        y = x.float() if mean is None else x.float() - mean[:, None]
        return sum_rows((gradient.float() * (y * scale[:, None])).t(), dtype, False, (columns,))
    lanes = max(lanes_of(rows), _COLUMN_LANES)
    parts = lanes // _COLUMN_LANES
    out = torch.empty(columns, dtype=dtype, device=x.device)
    target = out if parts == 1 else torch.empty((1, parts, columns), dtype=torch.float32, device=x.device)
    given = (_dense(gradient), _dense(x), mean, scale, target, rows, columns)
    launch(
        "sum_of_column_products", (-(-columns // _COLUMNS), parts, 1), given, tuple(column_geometry(lanes).values()), 4
    )
    return out if parts == 1 else _sums_of_lanes(target, parts, out, float(rows), False)


def prefix_sums(x: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """Return the sums of the numbers of x[...] up to each one along an axis, added in ascending order in fp32.

    Each sum is rounded to `dtype`.
    """
    import torch

    dim %= x.dim()
    if x.numel() == 0:
        return torch.empty(x.shape, dtype=dtype, device=x.device)
    length, columns = int(x.shape[dim]), math.prod(int(each) for each in x.shape[dim + 1 :])
    x = _dense(x)
    if x.is_cpu:
        numbers = x.detach().float().reshape(-1, length, columns).numpy()
        return torch.from_numpy(row_evaluation.prefix_sums(numbers)).to(dtype).reshape(x.shape)
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    series = int(x.numel()) // length
    launch("prefix_sums", (-(-series // _SERIES), 1, 1), (x, out, series, length, columns), (_SERIES,), 1)
    return out


def softmax_rows(x: torch.Tensor, dtype: torch.dtype, log: bool) -> torch.Tensor:
    """Return the softmax of each row of x[..., n] in fp32, or its logarithm, rounded to `dtype`."""
    import torch

    x = _dense(x)
    if x.numel() == 0:
        return torch.empty(x.shape, dtype=dtype, device=x.device)
    if x.is_cpu:
        return _tensor(row_evaluation.softmax(_floats(x), log), dtype).reshape(x.shape)
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    rows, length = _rows(x)
    _launch("softmax_of_rows", rows, length, (x, out, rows, length), (log,))
    return out


def softmax_gradient_rows(gradient: torch.Tensor, y: torch.Tensor, dtype: torch.dtype, log: bool) -> torch.Tensor:
    """Return the gradient of `softmax_rows`, whose result is y[..., n]."""
    import torch

    gradient, y = _dense(gradient), _dense(y)
    if y.numel() == 0:
        return torch.empty(y.shape, dtype=dtype, device=y.device)
    if y.is_cpu:
        return _tensor(row_evaluation.softmax_gradient(_floats(gradient), _floats(y), log), dtype).reshape(y.shape)
    out = torch.empty(y.shape, dtype=dtype, device=y.device)
    rows, length = _rows(y)
    _launch("softmax_gradient_of_rows", rows, length, (gradient, y, out, rows, length), (log,))
    return out


def normalised_rows(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, epsilon: float, centered: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (x - mean) scale weight + bias for the rows of x[..., n], in x's type, and the means and scales in fp32.

    Unless `centered`, the means are 0, and those that are returned are undefined.  `weight` and `bias` have n numbers.
    """
    import torch

    x = _dense(x)
    weight, bias = (None if each is None else _dense(each.reshape(-1)) for each in (weight, bias))
    rows, length = _rows(x)
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    mean = torch.empty_like(scale) if centered else scale
    if x.numel() == 0:
        return torch.empty_like(x), mean, scale
    if x.is_cpu:
        by, added = (None if each is None else _floats(each) for each in (weight, bias))
        found, average, factor = row_evaluation.normalised(_floats(x), by, added, epsilon, centered)
        return _tensor(found, x.dtype).reshape(x.shape), _tensor(average, mean.dtype), _tensor(factor, scale.dtype)
    out = torch.empty_like(x)
    given = (x, weight, bias, out, mean, scale, rows, length, float(length), float(epsilon))
    _launch("normalised_rows", rows, length, given, (centered,))
    return out, mean, scale


def normalisation_gradient_rows(
    gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor | None, mean: torch.Tensor | None,
    scale: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """Return the gradient of `normalised_rows` for x[..., n], in x's type; `mean` and `scale` have a number a row.

    `mean` is None for rows that are not centered.
    """
    import torch

    gradient, x = _dense(gradient), _dense(x)
    scale = _dense(scale.reshape(-1).float())
    centered, mean = mean is not None, scale if mean is None else _dense(mean.reshape(-1).float())
    weight = None if weight is None else _dense(weight.reshape(-1))
    if x.numel() == 0:
        return torch.empty_like(x)
    if x.is_cpu:
        factors = None if weight is None else _floats(weight)
        means, scales = (_floats(each.reshape(-1, 1)) for each in (mean, scale))
        means = means if centered else np.zeros_like(means)
        found = row_evaluation.normalisation_gradient(_floats(gradient), _floats(x), factors, means, scales, centered)
        return _tensor(found, x.dtype).reshape(x.shape)
    out = torch.empty_like(x)
    rows, length = _rows(x)
    given = (gradient, x, weight, mean, scale, out, rows, length, float(length))
    _launch("normalisation_gradient_of_rows", rows, length, given, (centered,))
    return out


def first_of_rows(x: torch.Tensor) -> torch.Tensor:
    """Return the place of the first true element of each row of a boolean x[..., n], or n, in int32."""
    import torch

    length = int(x.shape[-1])
    if x.is_cpu or x.numel() == 0:
        first = x.int().argmax(-1) if length else x.sum(-1)
        return torch.where(x.any(-1), first, length).int()
    out = torch.empty(x.shape[:-1], dtype=torch.int32, device=x.device)
    x = _dense(x)
    rows, _ = _rows(x)
    _launch("first_of_rows", rows, length, (x, out, rows, length), ())
    return out


def extents_of_rows(x: torch.Tensor) -> torch.Tensor:
    """Return [3, ...]: the place of the first true element of each row of a boolean x[..., n], the place behind the
    last one, and their number, in int32; n, 0 and 0 for a row without one.
    """
    import torch

    length = int(x.shape[-1])
    if x.is_cpu or x.numel() == 0:
        return torch.stack([first_of_rows(x), length - first_of_rows(x.flip(-1)), x.sum(-1, dtype=torch.int32)])
    out = torch.empty((3, *x.shape[:-1]), dtype=torch.int32, device=x.device)
    x = _dense(x)
    rows, _ = _rows(x)
    _launch("extents_of_rows", rows, length, (x, out, rows, length), ())
    return out


def widened_heads(x: torch.Tensor, width: int) -> torch.Tensor:
    """Return heads x[sequences, heads, places, depth] with zeros behind their components, of a width; no gradients."""
    import torch

    if x.is_cpu or x.dim() != 4 or not x.numel() or x.stride(3) != 1 or x.data_ptr() % 16 or x.is_neg():
        return torch.nn.functional.pad(x, (0, width - int(x.shape[-1])))
    sequences, heads, places, depth = (int(each) for each in x.shape)
    out = torch.empty((sequences, heads, places, width), dtype=x.dtype, device=x.device)
    rows, lanes = sequences * heads * places, lanes_of(width)
    numbers = rows, heads, places, *(int(each) for each in x.stride()[:3]), depth, width
    height = _WIDENED // lanes
    launch("widened_rows", (-(-rows // height), 1, 1), (x, out, *numbers), (height, lanes), 4)
    return out


def add_entries(out: torch.Tensor, index: torch.Tensor, source: torch.Tensor, alpha: float) -> None:
    """Add alpha times each row of source[e, n] to the row of the dense out[t, n] that index[e] names.

    The rows of one index are added in ascending order in fp32 and rounded once.
    """
    import torch

    if source.numel() == 0:
        return
    ascending, order = torch.sort(index.long(), stable=True)
    source = _dense(source)
    entries, length = (int(each) for each in source.shape)
    if out.is_cpu:
        total = _floats(out).copy()
        row_evaluation.added_entries(ascending.numpy(), order.numpy(), _floats(source), total, alpha)
        out.copy_(torch.from_numpy(total))
        return
    torch._assert_async(((ascending[:1] >= 0) & (ascending[-1:] < out.shape[0])).all())
    lanes = min(lanes_of(length), 1024)
    given = (ascending, order, source, out, entries, int(out.shape[0]), length, alpha)
    launch("added_entries", (entries, -(-length // lanes), 1), given, (lanes,), 4 if lanes > 128 else 1)


def _dense(x: torch.Tensor) -> torch.Tensor:
    """Return a dense tensor whose address is a multiple of 16, as memory that torch allocates has."""
    x = x.contiguous()
    return x.clone() if x.data_ptr() % 16 else x


def in_memory(x: torch.Tensor) -> tuple[int, ...] | None:
    """Return the axes of a tensor in the order of its memory, if its rows are dense there, and in another order."""
    if x.is_contiguous() or x.dim() < 3 or x.stride(-1) != 1:
        return None
    axes = (*sorted(range(x.dim() - 1), key=x.stride, reverse=True), x.dim() - 1)
    return axes if x.permute(axes).is_contiguous() else None


def _rows(x: torch.Tensor) -> tuple[int, int]:
    length = int(x.shape[-1])
    return (int(x.numel()) // length if length else 0), length


def geometry(length: int) -> tuple[dict[str, int], int]:
    """Return the last constants of a kernel of rows, functions of their length, and the warps of a program."""
    lanes = lanes_of(length)
    sizes = {"ROWS": max(1, _BLOCK // lanes), "LANES": lanes, "STEPS": lanes.bit_length() - 1, "HELD": length <= lanes}
    return sizes, min(max(4, lanes // 512), 8 if length <= lanes else 16)


def column_geometry(lanes: int) -> dict[str, int]:
    """Return the last constants of the kernel of columns for a number of lanes."""
    groups = _COLUMN_LANES // 8
    return {"GROUPS": groups, "STEPS": groups.bit_length() - 1, "COLUMNS": _COLUMNS, "LANES": lanes}


def _launch(name: str, rows: int, length: int, arguments: tuple[Any, ...], first: tuple[bool, ...]) -> None:
    """Launch a kernel of rows; `first` are its constants before those of `geometry`."""
    sizes, warps = geometry(length)
    launch(name, (-(-rows // sizes["ROWS"]), 1, 1), arguments, (*first, *sizes.values()), warps)


def launch_of_sum(x: torch.Tensor, out: torch.Tensor, mean: bool) -> Callable[..., None] | None:
    """Return the launch of sums of rows that ran, a function of the addresses of x and out; None for several ones."""
    rows, length = _rows(x)
    if length > LONG or not _is_plain(x.permute(in_memory(x) or tuple(range(x.dim())))):
        return None
    sizes, _ = geometry(length)
    grid = (-(-rows // sizes["ROWS"]), 1, 1)
    numbers = rows, length, length, float(length)
    return _repetition("sum_of_rows", grid, (x, out), numbers, (mean, *sizes.values()))


def launch_of_columns(
    x: torch.Tensor, out: torch.Tensor, mean: bool, apart: bool = False
) -> Callable[..., None] | None:  # fmt: skip
    """Return the launch of sums of the columns of x[o, n, c] that ran in one or two kernels; see `launch_of_sum`.

    With `apart`, they are those of `sum_places`.
    """
    import torch

    count, rows, columns = (int(each) for each in x.shape)
    if apart:
        count, rows = 1, count * rows
    lanes = max(lanes_of(rows), _COLUMN_LANES)
    groups = lanes // _COLUMN_LANES
    if not (apart or _is_plain(x)) or count > _MOST_PROGRAMS or groups > _COLUMN_LANES:
        return None
    if groups == 1:
        return _repetition("sum_of_columns", *_columns_call(x, out, float(rows), mean, lanes, apart))
    parts = torch.empty((count, groups, columns), dtype=torch.float32, device=x.device)
    first = _repetition("sum_of_columns", *_columns_call(x, parts, float(rows), False, lanes, apart))
    second = _repetition("sum_of_columns", *_columns_call(parts, out, float(rows), mean, _COLUMN_LANES))
    return None if first is None or second is None else _in_two_launches(first, second, parts)


def launch_of_softmax(x: torch.Tensor, out: torch.Tensor, log: bool) -> Callable[..., None] | None:
    """Return the launch of a softmax that ran, or of its logarithm; see `launch_of_sum`."""
    if not _is_plain(x):
        return None
    rows, length = _rows(x)
    sizes, _ = geometry(length)
    grid = (-(-rows // sizes["ROWS"]), 1, 1)
    return _repetition("softmax_of_rows", grid, (x, out), (rows, length), (log, *sizes.values()))


def launch_of_softmax_gradient(
    gradient: torch.Tensor, y: torch.Tensor, out: torch.Tensor, log: bool
) -> Callable[..., None] | None:
    """Return the launch of the gradient of a softmax that ran, by the addresses of all tensors; see `launch_of_sum`."""
    if not _is_plain(gradient) or not _is_plain(y):
        return None
    rows, length = _rows(y)
    sizes, _ = geometry(length)
    grid = (-(-rows // sizes["ROWS"]), 1, 1)
    return _repetition("softmax_gradient_of_rows", grid, (gradient, y, out), (rows, length), (log, *sizes.values()))


def launch_of_normalised_rows(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, results: Sequence[torch.Tensor],
    length: int, epsilon: float,
) -> Callable[..., None] | None:  # fmt: skip
    """Return the launch of `normalised_rows` that ran on rows of a length, by the addresses of all tensors that exist.

    `results` are the normalised rows, the means unless they are not centered, and the scales; see `launch_of_sum`.
    """
    centered, rows = len(results) == 3, int(x.numel()) // length
    given = (x, weight, bias, results[0], results[1] if centered else None, results[-1])
    if not all(each is None or _is_plain(each) for each in given):
        return None
    sizes, _ = geometry(length)
    grid = (-(-rows // sizes["ROWS"]), 1, 1)
    tensors = (x, weight, bias, results[0], results[1], results[-1])
    numbers = rows, length, float(length), float(epsilon)
    run = _repetition("normalised_rows", grid, tensors, numbers, (centered, *sizes.values()))
    places = _places(given)
    return None if run is None else _on_addresses([(run, (*places[:4], places[4 if centered else 5], places[5]))])


def launch_of_normalisation_gradient(
    gradient: torch.Tensor, x: torch.Tensor, mean: torch.Tensor | None, scale: torch.Tensor,
    weight: torch.Tensor | None, bias: torch.Tensor | None, results: Sequence[torch.Tensor | None], length: int,
) -> Callable[..., None] | None:  # fmt: skip
    """Return the launch of the gradients of a normalisation that ran on rows of a length.

    It is a function of the addresses of all tensors that exist.  `results` are the gradients of the input, of the
    weight and of the bias, each of which may be None; see `launch_of_sum`.
    """
    import torch

    given = (gradient, x, mean, scale, weight, bias, *results)
    if not all(each is None or _is_plain(each) for each in given):
        return None
    if {each.dtype for each in (mean, scale) if each is not None} != {torch.float32}:
        return None
    of_input, of_weight, of_bias = results
    at_gradient, at_x, at_mean, at_scale, at_weight, _, *at_results = _places(given)
    rows = int(x.numel()) // length
    launches: list[tuple[Callable[..., None] | None, tuple[int | None, ...]]] = []
    if of_input is not None:
        sizes, _ = geometry(length)
        grid = (-(-rows // sizes["ROWS"]), 1, 1)
        tensors = (gradient, x, weight, scale if mean is None else mean, scale, of_input)
        constants = (mean is not None, *sizes.values())
        run = _repetition("normalisation_gradient_of_rows", grid, tensors, (rows, length, float(length)), constants)
        at_means = at_scale if mean is None else at_mean
        launches.append((run, (at_gradient, at_x, at_weight, at_means, at_scale, at_results[0])))
    if of_weight is not None:
        run = _launch_of_column_products(gradient, x, mean, scale, of_weight, length)
        launches.append((run, (at_gradient, at_x, at_mean, at_scale, at_results[1])))
    if of_bias is not None:
        run = launch_of_columns(gradient.view(1, rows, length), of_bias, False)
        launches.append((run, (at_gradient, at_results[2])))
    runs = [(run, places) for run, places in launches if run is not None]
    return _on_addresses(runs) if len(runs) == len(launches) else None


def _places(tensors: Sequence[torch.Tensor | None]) -> list[int | None]:
    """Return the place of each tensor among those that exist, None for one that does not.

    Two tensors of a call may be one, and two in a later call.
    """
    numbered = itertools.count()
    return [None if each is None else next(numbered) for each in tensors]


def _on_addresses(runs: Sequence[tuple[Callable[..., None], tuple[int | None, ...]]]) -> Callable[..., None]:
    """Return the launches of some kernels, each on the addresses at some places, None for no place."""

    def launch(*addresses: int) -> None:
        for run, places in runs:
            run(*[None if place is None else addresses[place] for place in places])

    return launch


def _launch_of_column_products(
    gradient: torch.Tensor, x: torch.Tensor, mean: torch.Tensor | None, scale: torch.Tensor, out: torch.Tensor,
    columns: int,
) -> Callable[..., None] | None:  # fmt: skip
    """Return the launch of `sum_column_products` that ran, by the addresses of gradient, x, mean, scale and out."""
    import torch

    rows = int(x.numel()) // columns
    lanes = max(lanes_of(rows), _COLUMN_LANES)
    parts = lanes // _COLUMN_LANES
    if rows > LONG:
        return None
    target = out if parts == 1 else torch.empty((1, parts, columns), dtype=torch.float32, device=x.device)
    grid = (-(-columns // _COLUMNS), parts, 1)
    constants = tuple(column_geometry(lanes).values())
    tensors = (gradient, x, mean, scale, target)
    first = _repetition("sum_of_column_products", grid, tensors, (rows, columns), constants)
    if parts == 1 or first is None:
        return first
    second = _repetition("sum_of_columns", *_columns_call(target, out, float(rows), False, _COLUMN_LANES))
    return None if second is None else _in_two_launches(first, second, target)


def _in_two_launches(
    first: Callable[..., None], second: Callable[..., None], between: torch.Tensor
) -> Callable[..., None]:
    """Return the launch of two kernels, the second of which reads what the first leaves in memory like `between`."""
    import torch

    allocate = output_allocator(between)
    device = torch.empty(0, device=between.device)

    def launch(*addresses: int | None) -> None:
        *operands, at_out = addresses
        memory = allocate(device)
        at = memory.data_ptr()
        first(*operands, at)
        second(at, at_out)

    return launch


def _is_plain(x: torch.Tensor) -> bool:
    """Return whether kernels read a tensor on a GPU without a copy."""
    return not x.is_cpu and bool(x.numel()) and x.is_contiguous() and x.data_ptr() % 16 == 0


def _repetition(
    name: str, grid: tuple[int, int, int], tensors: tuple[torch.Tensor | None, ...], numbers: tuple[Any, ...],
    constants: tuple[Any, ...],
) -> Callable[..., None] | None:  # fmt: skip
    """Return the launch of a kernel that ran, a function of the addresses of its tensors, None for one that is None.

    It calls what Triton's own launch calls, without the current device and hooks, which take half of its time.
    """
    import torch

    assert tensors[0] is not None
    index = tensors[0].get_device()
    compiled = _compiled.get((name, index, constants, *map(_specialisation, (*tensors, *numbers))))
    if compiled is None:
        return None
    current = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
    stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream)
    run, middle = _launcher_of(compiled)
    before = compiled.function, *middle, compiled.packed_metadata, None, None, None
    rest = *numbers, *constants
    x_blocks, y_blocks, z_blocks = grid

    def launch(*addresses: int | None) -> None:
        if current() == index:
            run(x_blocks, y_blocks, z_blocks, stream(index), *before, *addresses, *rest)
        else:
            with torch.cuda.device(index):
                run(x_blocks, y_blocks, z_blocks, stream(index), *before, *addresses, *rest)

    return launch


def _launcher_of(compiled: Any) -> tuple[Callable[..., None], tuple[Any, ...]]:
    """Return the function that launches a compiled kernel, and its arguments between the function and the metadata.

    It is that in C of Triton 3.6 where the kernel needs no scratch memory, and else Triton's own launcher, which
    allocates it and calls the former.
    """
    import triton

    launcher = compiled.run
    scratch = getattr(launcher, "global_scratch_size", 1) or getattr(launcher, "profile_scratch_size", 1)
    if scratch or not triton.__version__.startswith("3.6."):
        return launcher, ()
    return launcher.launch, (launcher.launch_cooperative_grid, launcher.launch_pdl, None, None)


def _current_stream(device: int) -> int:
    import torch

    return int(torch.cuda.current_stream(device).cuda_stream)


def _columns_call(
    x: torch.Tensor, out: torch.Tensor, divisor: float, mean: bool, lanes: int, apart: bool = False
) -> tuple[tuple[int, int, int], tuple[torch.Tensor, torch.Tensor], tuple[Any, ...], tuple[Any, ...]]:
    """Return the grid of `sum_of_columns`, its tensors, numbers and constants."""
    count, rows, columns = (int(each) for each in x.shape)
    steps: tuple[int | None, ...] = None, None, None
    if apart:
        steps = rows, int(x.stride(0)), int(x.stride(1))
        count, rows = 1, count * rows
    grid = (-(-columns // _COLUMNS), lanes // _COLUMN_LANES, count)
    return grid, (x, out), (rows, columns, divisor, *steps), (mean, *column_geometry(lanes).values())


def _launch_columns(
    x: torch.Tensor, out: torch.Tensor, divisor: float, mean: bool, lanes: int, apart: bool = False
) -> None:  # fmt: skip
    grid, tensors, numbers, constants = _columns_call(x, out, divisor, mean, lanes, apart)
    launch("sum_of_columns", grid, (*tensors, *numbers), constants, 4)


def launch(
    name: str, grid: tuple[int, int, int], arguments: tuple[Any, ...], constants: tuple[Any, ...], warps: int
) -> None:
    """Launch a kernel of `kernels/rows.py` for tensors of one device, dense and aligned to 16 bytes.

    `constants` are the values of its constants in order.  What Triton compiled is kept by all that it specialises on.
    """
    import torch

    index = arguments[0].get_device()
    current = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
    if current() != index:
        with torch.cuda.device(index):
            launch(name, grid, arguments, constants, warps)
            return
    key = (name, index, constants, *map(_specialisation, arguments))
    compiled = _compiled.get(key)
    if compiled is not None:
        compiled[grid](*arguments, *constants)
        return
    from bitwise_torch.batch_invariance.kernels import rows as kernels

    kernel = getattr(kernels, name)
    names = kernel.arg_names[len(arguments) :]
    _compiled[key] = kernel[grid](
        *arguments, **dict(zip(names, constants, strict=True)), num_warps=warps, enable_fp_fusion=False
    )


_compiled: dict[Any, Any] = {}


def _specialisation(argument: Any) -> Any:
    """Return what of an argument decides the compiled kernel: a type, or a class of numbers."""
    if argument is None or isinstance(argument, float):
        return None
    if isinstance(argument, int):
        return argument == 1, argument % 16 == 0, argument < 1 << 31
    return argument.dtype


def _floats(x: torch.Tensor) -> row_evaluation.Floats:
    """Return the rows of a tensor on the CPU as an fp32 matrix."""
    found: row_evaluation.Floats = x.detach().float().reshape(-1, int(x.shape[-1])).numpy()
    return found


def _tensor(values: row_evaluation.Floats, dtype: torch.dtype) -> torch.Tensor:
    """Return the numbers in a dtype; a column becomes a vector."""
    import torch

    found = torch.from_numpy(np.ascontiguousarray(values))
    return (found.reshape(-1) if found.shape[1] == 1 else found).to(dtype)
