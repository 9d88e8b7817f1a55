"""Functions of the rows of a tensor, in an order that is a function of a row's length alone.

Tensors on a GPU run the Triton kernels of `kernels/rows.py`; tensors on the CPU are evaluated in NumPy.  The rows are
those of the last axis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bitwise_torch.batch_invariance import row_evaluation
from bitwise_torch.batch_invariance.row_evaluation import lanes_of

if TYPE_CHECKING:
    import torch

_BLOCK = 1024
"""The numbers of a program of several short rows."""

_LONG = 65536
"""A longer row is summed in parts of this length, and then the sums of its parts."""


def sum_rows(x: torch.Tensor, dtype: torch.dtype, mean: bool = False) -> torch.Tensor:
    """Return the sums of the rows of x[..., n] in fp32, or their means, rounded to `dtype`: shape x.shape[:-1]."""
    import torch

    shape, length = x.shape[:-1], int(x.shape[-1])
    if length == 0 or x.numel() == 0:
        return torch.full(shape, float("nan") if mean else 0.0, dtype=dtype, device=x.device)
    if length > _LONG:
        parts = -(-length // _LONG)
        padded = torch.nn.functional.pad(x, (0, parts * _LONG - length))
        partial = sum_rows(padded.reshape(*shape, parts, _LONG), torch.float32)
        return _sums_of_short(partial.contiguous(), dtype, mean, length).reshape(shape)
    return _sums_of_short(_dense(x), dtype, mean, length).reshape(shape)


def _sums_of_short(x: torch.Tensor, dtype: torch.dtype, mean: bool, divisor: int) -> torch.Tensor:
    import torch

    rows, length = _rows(x)
    if x.device.type == "cpu":
        total = row_evaluation.sums(_floats(x))
        return _tensor(total / np.float32(divisor) if mean else total, dtype)
    out = torch.empty(rows, dtype=dtype, device=x.device)
    _launch("sum_of_rows", rows, length, (x, out, rows, length, float(divisor)), DIVIDE=mean)
    return out


def softmax_rows(x: torch.Tensor, dtype: torch.dtype, log: bool) -> torch.Tensor:
    """Return the softmax of each row of x[..., n] in fp32, or its logarithm, rounded to `dtype`."""
    import torch

    x = _dense(x)
    if x.numel() == 0:
        return torch.empty(x.shape, dtype=dtype, device=x.device)
    if x.device.type == "cpu":
        return _tensor(row_evaluation.softmax(_floats(x), log), dtype).reshape(x.shape)
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    rows, length = _rows(x)
    _launch("softmax_of_rows", rows, length, (x, out, rows, length), LOG=log)
    return out


def softmax_gradient_rows(gradient: torch.Tensor, y: torch.Tensor, dtype: torch.dtype, log: bool) -> torch.Tensor:
    """Return the gradient of `softmax_rows`, whose result is y[..., n]."""
    import torch

    gradient, y = _dense(gradient), _dense(y)
    if y.numel() == 0:
        return torch.empty(y.shape, dtype=dtype, device=y.device)
    if y.device.type == "cpu":
        return _tensor(row_evaluation.softmax_gradient(_floats(gradient), _floats(y), log), dtype).reshape(y.shape)
    out = torch.empty(y.shape, dtype=dtype, device=y.device)
    rows, length = _rows(y)
    _launch("softmax_gradient_of_rows", rows, length, (gradient, y, out, rows, length), LOG=log)
    return out


def normalised_rows(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, epsilon: float, centered: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (x - mean) scale weight + bias for the rows of x[..., n], in x's type, and the means and scales in fp32.

    The means are 0 unless `centered`.  `weight` and `bias` have n numbers.
    """
    import torch

    x = _dense(x)
    weight, bias = (None if each is None else _dense(each.reshape(-1)) for each in (weight, bias))
    rows, length = _rows(x)
    mean = torch.zeros(rows, dtype=torch.float32, device=x.device)
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    if x.numel() == 0:
        return torch.empty_like(x), mean, scale
    if x.device.type == "cpu":
        by, added = (None if each is None else _floats(each) for each in (weight, bias))
        found, average, factor = row_evaluation.normalised(_floats(x), by, added, epsilon, centered)
        return _tensor(found, x.dtype).reshape(x.shape), _tensor(average, mean.dtype), _tensor(factor, scale.dtype)
    out = torch.empty_like(x)
    given = (x, weight, bias, out, mean, scale, rows, length, float(length), float(epsilon))
    _launch("normalised_rows", rows, length, given, CENTERED=centered)
    return out, mean, scale


def normalisation_gradient_rows(
    gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor | None, mean: torch.Tensor, scale: torch.Tensor,
    centered: bool,
) -> torch.Tensor:  # fmt: skip
    """Return the gradient of `normalised_rows` for x[..., n], in x's type; `mean` and `scale` have a number a row."""
    import torch

    gradient, x = _dense(gradient), _dense(x)
    mean, scale = _dense(mean.reshape(-1).float()), _dense(scale.reshape(-1).float())
    weight = None if weight is None else _dense(weight.reshape(-1))
    if x.numel() == 0:
        return torch.empty_like(x)
    if x.device.type == "cpu":
        factors = None if weight is None else _floats(weight)
        means, scales = (_floats(each.reshape(-1, 1)) for each in (mean, scale))
        found = row_evaluation.normalisation_gradient(_floats(gradient), _floats(x), factors, means, scales, centered)
        return _tensor(found, x.dtype).reshape(x.shape)
    out = torch.empty_like(x)
    rows, length = _rows(x)
    given = (gradient, x, weight, mean, scale, out, rows, length, float(length))
    _launch("normalisation_gradient_of_rows", rows, length, given, CENTERED=centered)
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
    if out.device.type == "cpu":
        total = _floats(out).copy()
        row_evaluation.added_entries(ascending.numpy(), order.numpy(), _floats(source), total, alpha)
        out.copy_(torch.from_numpy(total))
        return
    torch._assert_async(((ascending[:1] >= 0) & (ascending[-1:] < out.shape[0])).all())
    from bitwise_torch.batch_invariance.kernels.rows import added_entries

    lanes = min(lanes_of(length), 1024)
    with torch.cuda.device(out.device):
        added_entries[(entries, -(-length // lanes))](
            ascending, order, source, out, entries, int(out.shape[0]), length, alpha, LANES=lanes,
            num_warps=4 if lanes > 128 else 1,            enable_fp_fusion=False,
        )  # fmt: skip


def _dense(x: torch.Tensor) -> torch.Tensor:
    """Return a dense tensor without gradients whose address is a multiple of 16, as memory that torch allocates has."""
    x = x.detach().contiguous()
    return x.clone() if x.data_ptr() % 16 else x


def _rows(x: torch.Tensor) -> tuple[int, int]:
    length = int(x.shape[-1])
    return (int(x.numel()) // length if length else 0), length


def geometry(length: int) -> tuple[dict[str, int], int]:
    """Return the constants of a kernel of rows, functions of their length, and the warps of a program."""
    lanes = lanes_of(length)
    return {"ROWS": max(1, _BLOCK // lanes), "LANES": lanes, "STEPS": lanes.bit_length() - 1}, 8 if lanes > 2048 else 4


def _launch(name: str, rows: int, length: int, arguments: tuple[Any, ...], **constants: Any) -> None:
    """Launch a kernel of rows."""
    import torch

    from bitwise_torch.batch_invariance.kernels import rows as kernels

    sizes, warps = geometry(length)
    with torch.cuda.device(arguments[0].device):
        getattr(kernels, name)[(-(-rows // sizes["ROWS"]),)](
            *arguments, **constants, **sizes, num_warps=warps, enable_fp_fusion=False
        )


def _floats(x: torch.Tensor) -> row_evaluation.Floats:
    """Return the rows of a tensor on the CPU as an fp32 matrix."""
    found: row_evaluation.Floats = x.float().reshape(-1, int(x.shape[-1])).numpy()
    return found


def _tensor(values: row_evaluation.Floats, dtype: torch.dtype) -> torch.Tensor:
    """Return the numbers in a dtype; a column becomes a vector."""
    import torch

    found = torch.from_numpy(np.ascontiguousarray(values))
    return (found.reshape(-1) if found.shape[1] == 1 else found).to(dtype)
