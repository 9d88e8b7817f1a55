"""PyTorch's norms, variances, and normalisations of groups and by known statistics.

They are composed of sums of rows and of element-wise operators.  Each is computed in fp32 and rounded once: a norm is
the root of a sum of squares, a variance the sum of the squared differences from the mean, divided by a count.  The
order of a sum is that of `row_functions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bitwise_torch.batch_invariance.row_functions import normalisation_gradient_rows, normalised_rows
from bitwise_torch.batch_invariance.row_operators import NotServed, check_floats, reduced, reduced_axes, result_into

if TYPE_CHECKING:
    import torch


def _vector_norm(
    x: Any, order: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Any:
    import torch

    check_floats(x)
    wanted = dtype or (x.dtype if out is None else out.dtype)
    if wanted not in (torch.float32, torch.float16, torch.bfloat16):
        raise NotServed(f"a norm in {wanted}; fp32, fp16 and bf16 are served")
    if float(order) not in (1.0, 2.0, math.inf):
        raise NotServed(f"a norm of order {order}; those of 1, 2 and infinity are served")
    wide = x.to(wanted).float()
    if float(order) == 2.0:
        squares = reduced(wide * wide, dim, keepdim, torch.float32, mean=False)
        return result_into(squares.sqrt().to(wanted), out)
    size = wide.abs()
    if float(order) == 1.0:
        return result_into(reduced(size, dim, keepdim, wanted, mean=False), out)
    return result_into(size.amax(reduced_axes(x, dim), keepdim).to(wanted), out)


def _norms(tensors: Sequence[Any], order: Any = 2, dtype: Any = None) -> list[Any]:
    return [_vector_norm(each, order, dtype=dtype) for each in tensors]


def _variance(x: torch.Tensor, dim: Any, correction: Any, keepdim: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the variance and the mean over some axes, in fp32."""
    import torch

    check_floats(x)
    mean = reduced(x, dim, True, torch.float32, mean=True)
    apart = x.float() - mean
    count = math.prod(int(x.shape[each]) for each in reduced_axes(x, dim))
    # A number in place of this tensor would be multiplied by its reciprocal on a GPU.
    divisor = torch.full((), max(0.0, count - (1.0 if correction is None else float(correction))), device=x.device)
    found = reduced(apart * apart, dim, keepdim, torch.float32, mean=False) / divisor
    return found, mean.reshape(found.shape)


def _var(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False, out: Any = None) -> Any:
    return result_into(_variance(x, dim, correction, keepdim)[0].to(x.dtype), out)


def _std(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False, out: Any = None) -> Any:
    return result_into(_variance(x, dim, correction, keepdim)[0].sqrt().to(x.dtype), out)


def _var_mean(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return tuple(each.to(x.dtype) for each in _variance(x, dim, correction, keepdim))


def _std_mean(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    variance, mean = _variance(x, dim, correction, keepdim)
    return variance.sqrt().to(x.dtype), mean.to(x.dtype)


def _group_norm(
    x: Any, weight: Any, bias: Any, sequences: int, channels: int, places: int, groups: int, epsilon: float
) -> Any:
    """Return the normalised groups, with a mean and a scale for each group of a sequence, of the type of x."""
    check_floats(x, weight, bias)
    if not x.numel():
        raise NotServed("groups without numbers; groups of at least one number are served")
    rows = x.reshape(sequences * groups, -1).float()
    found, mean, scale = normalised_rows(rows, None, None, float(epsilon), centered=True)
    found = found.reshape(sequences, channels, places)
    if weight is not None:
        found = found * weight.float().reshape(1, -1, 1)
    if bias is not None:
        found = found + bias.float().reshape(1, -1, 1)
    statistics = (each.reshape(sequences, groups).to(x.dtype) for each in (mean, scale))
    return found.to(x.dtype).reshape(x.shape), *statistics


def _group_norm_gradient(
    upstream: Any, x: Any, mean: Any, scale: Any, weight: Any, sequences: int, channels: int, places: int, groups: int,
    mask: Sequence[bool],
) -> Any:  # fmt: skip
    """Return the gradients of the input, the weight and the bias; those of the latter sum over sequences."""
    check_floats(upstream, x, weight)
    slope = upstream.reshape(sequences, channels, places).float()
    rows = x.reshape(sequences * groups, -1).float()
    average, factor = (each.float().reshape(-1, 1) for each in (mean, scale))
    of_input = of_weight = of_bias = None
    if mask[0]:
        scaled = slope if weight is None else slope * weight.float().reshape(1, -1, 1)
        of_rows = normalisation_gradient_rows(scaled.reshape(rows.shape), rows, None, average, factor)
        of_input = of_rows.to(x.dtype).reshape(x.shape)
    if mask[1]:
        y = ((rows - average) * factor).reshape(slope.shape)
        of_weight = reduced(slope * y, [0, 2], False, x.dtype, mean=False)
    if mask[2]:
        of_bias = reduced(slope, [0, 2], False, x.dtype, mean=False)
    return of_input, of_weight, of_bias


def _of_channels(x: Any, values: Any) -> Any:
    """Return a number for each channel in fp32, which broadcasts to x[n, c, ...]."""
    return values.float().reshape(-1, *([1] * (x.dim() - 2)))


def _inverse_root(variance: Any, epsilon: float) -> Any:
    """Return 1 / sqrt(variance + epsilon) in fp32."""
    import torch

    root = (variance.float() + epsilon).sqrt()
    return torch.ones_like(root) / root


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, epsilon: float
) -> Any:
    """Return (x - mean) scale weight + bias by the statistics of channels that a module has learned.

    The statistics of the batch, which are two more results in training, are empty.
    """
    check_floats(x, weight, bias, mean, variance)
    _check_known(training or mean is None or variance is None)
    found = (x.float() - _of_channels(x, mean)) * _of_channels(x, _inverse_root(variance, epsilon))
    found = found if weight is None else found * _of_channels(x, weight)
    found = found if bias is None else found + _of_channels(x, bias)
    return found.to(x.dtype), x.new_empty(0), x.new_empty(0)


def _check_known(of_batch: bool) -> None:
    """Raise NotServed for statistics of a batch."""
    if of_batch:
        raise NotServed(
            "the statistics of a batch depend on it by nature; those that a module has learned are served, after "
            "module.eval()"
        )


def _batch_norm_of_cudnn(*arguments: Any) -> Any:
    found = _batch_norm(*arguments)
    return *found, arguments[0].new_empty(0)


def _batch_norm_gradient(
    upstream: Any, x: Any, weight: Any, mean: Any, variance: Any, batch_mean: Any, batch_scale: Any, training: bool,
    epsilon: float, mask: Sequence[bool],
) -> Any:  # fmt: skip
    """Return the gradients of the input, the weight and the bias; those of the latter sum over a batch."""
    import torch

    check_floats(upstream, x, weight, mean, variance)
    _check_known(training or mean is None or variance is None)
    slope, scale = upstream.float(), _of_channels(x, _inverse_root(variance, epsilon))
    axes = [0, *range(2, x.dim())]
    kind = torch.float32 if weight is None else weight.dtype
    of_input = of_weight = of_bias = None
    if mask[0]:
        factor = scale if weight is None else scale * _of_channels(x, weight)
        of_input = (slope * factor).to(x.dtype)
    if mask[1]:
        of_weight = reduced(slope * ((x.float() - _of_channels(x, mean)) * scale), axes, False, kind, mean=False)
    if mask[2]:
        of_bias = reduced(slope, axes, False, kind, mean=False)
    return of_input, of_weight, of_bias


def _rows_of(v: Any, dim: int) -> Any:
    """Return a weight with one row of numbers in fp32 for each place of its first or last axis."""
    return v.float().movedim(dim, 0).reshape(v.shape[dim], -1)


def _weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    """Return v g / |v|, where each row of a weight has a norm, and the norms in fp32."""
    import torch

    check_floats(v, g)
    rows = _rows_of(v, dim)
    norms = reduced(rows * rows, 1, False, torch.float32, mean=False).sqrt().reshape(g.shape)
    return (v.float() * (g.float() / norms)).to(v.dtype), norms


def _weight_norm_gradient(slope: Any, v: Any, g: Any, norms: Any, dim: int) -> Any:
    """Return the gradients of v and g of `_weight_norm`."""
    import torch

    check_floats(slope, v, g, norms)
    sums = reduced(_rows_of(slope, dim) * _rows_of(v, dim), 1, False, torch.float32, mean=False).reshape(norms.shape)
    of_v = (slope.float() - v.float() * (sums / (norms * norms))) * (g.float() / norms)
    return of_v.to(v.dtype), (sums / norms).to(g.dtype)


SPREADS: dict[str, Callable[..., Any]] = {
    "linalg_vector_norm": _vector_norm, "_foreach_norm": _norms, "var": _var, "std": _std, "var_mean": _var_mean,
    "std_mean": _std_mean, "native_group_norm": _group_norm, "native_group_norm_backward": _group_norm_gradient,
    "native_batch_norm": _batch_norm, "cudnn_batch_norm": _batch_norm_of_cudnn,
    "native_batch_norm_backward": _batch_norm_gradient, "_weight_norm_interface": _weight_norm,
    "_weight_norm_interface_backward": _weight_norm_gradient,
}  # fmt: skip
"""By the name of an operator in the namespace `aten`: the function that computes all of its overloads."""
