"""PyTorch's average pools, whose outputs are means of windows in the order of a row of their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bitwise_torch.batch_invariance.row_operators import NotServed, check_floats, reduced, result_into

if TYPE_CHECKING:
    import torch


def _average_pool(
    x: Any, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,), ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None, *, out: Any = None,
) -> Any:  # fmt: skip
    """Return the sums of windows, in fp32, over the count of their numbers."""
    import torch

    check_floats(x)
    if ceil_mode:
        raise NotServed("a pool with ceil_mode, whose last windows are incomplete; one without it is served")
    sizes = _pair(kernel)
    jumps, pads = _pair(stride) if len(stride) else sizes, _pair(padding)
    padded = torch.nn.functional.pad(x, (pads[1], pads[1], pads[0], pads[0])) if any(pads) else x
    total = _sums_of_windows(padded, sizes, jumps)
    count = math.prod(sizes) if divisor_override is None else divisor_override
    divisor = torch.full((), float(count), device=x.device)
    if any(pads) and not count_include_pad and divisor_override is None:
        inside = torch.nn.functional.pad(torch.ones_like(x), (pads[1], pads[1], pads[0], pads[0]))
        divisor = _sums_of_windows(inside, sizes, jumps)
    return result_into((total / divisor).to(x.dtype), out)


def _pair(sizes: Sequence[int]) -> tuple[int, int]:
    return int(sizes[0]), int(sizes[-1])


def _sums_of_windows(x: torch.Tensor, sizes: tuple[int, int], jumps: tuple[int, int]) -> torch.Tensor:
    """Return the sums of the windows of x[..., h, w] in fp32."""
    import torch

    windows = x.unfold(-2, sizes[0], jumps[0]).unfold(-2, sizes[1], jumps[1])
    return reduced(windows.contiguous(), [windows.dim() - 2, windows.dim() - 1], False, torch.float32, mean=False)


def _adaptive_average_pool(x: Any, output_size: Sequence[int], *, out: Any = None) -> Any:
    """Return the means of as many windows along each of the last two axes as `output_size` says."""
    import torch

    check_floats(x)
    rows, columns = ([_window(place, int(count), int(size)) for place in range(int(count))]
                     for count, size in zip(output_size, x.shape[-2:], strict=True))  # fmt: skip
    axes = [x.dim() - 2, x.dim() - 1]
    means = [
        reduced(x[..., low:high, left:right].contiguous(), axes, False, x.dtype, mean=True)
        for low, high in rows for left, right in columns
    ]  # fmt: skip
    if not means:
        return result_into(x.new_empty((*x.shape[:-2], *map(int, output_size))), out)
    return result_into(torch.stack(means, -1).reshape(*x.shape[:-2], *map(int, output_size)), out)


def _window(place: int, count: int, size: int) -> tuple[int, int]:
    """Return the begin and the end of one of so many windows of an axis; see PyTorch's AdaptiveAveragePooling.cpp."""
    return place * size // count, -(-(place + 1) * size // count)


POOLS: dict[str, Callable[..., Any]] = {
    "avg_pool2d": _average_pool, "_adaptive_avg_pool2d": _adaptive_average_pool,
}  # fmt: skip
"""By the name of an operator in the namespace `aten`: the function that computes all of its overloads."""
