"""PyTorch's operators that reduce rows, each with a function of the same arguments whose order is pinned.

The order of a row is a function of its length: see `row_functions`.  A function returns NotServed for a call that it
leaves out; `REDUCTIONS` names the operators that reduce and have none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bitwise_torch.batch_invariance.row_functions import (
    LONG,
    add_entries,
    in_memory,
    launch_of_columns,
    launch_of_normalisation_gradient,
    launch_of_normalised_rows,
    launch_of_softmax,
    launch_of_softmax_gradient,
    launch_of_sum,
    normalisation_gradient_rows,
    normalised_rows,
    prefix_sums,
    softmax_gradient_rows,
    softmax_rows,
    sum_column_products,
    sum_columns,
    sum_places,
    sum_rows,
)

if TYPE_CHECKING:
    import torch

REDUCTIONS = (
    "adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d", "_adaptive_avg_pool3d_backward",
    "adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward", "avg_pool2d_backward", "avg_pool3d",
    "avg_pool3d_backward", "batch_norm_backward", "_batch_norm_no_update", "batch_norm_stats",
    "_batch_norm_with_update", "binary_cross_entropy", "bincount", "_cholesky_solve_helper", "col2im", "_ctc_loss",
    "_ctc_loss_backward", "cudnn_batch_norm_backward", "_cummax_helper", "cumprod", "_embedding_bag",
    "_embedding_bag_backward", "_embedding_bag_dense_backward", "_embedding_bag_forward_only", "_fft_c2c",
    "_fft_c2r", "_fft_r2c", "fractional_max_pool2d_backward", "fractional_max_pool3d_backward", "_fused_dropout",
    "grid_sampler_2d_backward", "grid_sampler_3d_backward", "linalg__powsum", "linalg_cholesky_ex", "_linalg_det",
    "linalg_eig", "_linalg_eigh", "linalg_householder_product", "linalg_inv_ex", "linalg_ldl_factor_ex",
    "linalg_lstsq", "linalg_lu", "linalg_lu_factor_ex", "linalg_lu_solve", "linalg_qr", "_linalg_slogdet",
    "_linalg_solve_ex", "_linalg_svd", "_logcumsumexp", "max_pool2d_with_indices_backward",
    "max_pool3d_with_indices_backward", "multi_margin_loss", "multilabel_margin_loss_forward", "nansum",
    "_native_batch_norm_legit", "norm", "_pdist_forward", "prod", "put", "put_", "reflection_pad1d_backward",
    "reflection_pad2d_backward", "reflection_pad3d_backward", "renorm", "replication_pad1d_backward",
    "replication_pad2d_backward", "replication_pad3d_backward", "scatter_reduce", "scatter_reduce_",
    "segment_reduce", "_segment_reduce_backward", "trace", "unfold_backward", "_upsample_bicubic2d_aa_backward",
    "upsample_bicubic2d_backward", "_upsample_bilinear2d_aa_backward", "upsample_bilinear2d_backward",
    "upsample_linear1d_backward", "upsample_nearest1d_backward", "upsample_nearest2d_backward",
    "upsample_nearest3d_backward", "upsample_trilinear3d_backward",
)  # fmt: skip
"""Operators that add numbers, some with atomic additions, for which there is no pinned order: a mode warns of them.

Releases of PyTorch that lack some of them are supported.
"""

OVER_ROWS = {
    "nll_loss_forward": "the loss of a batch", "nll_loss2d_forward": "the loss of a batch",
    "embedding_dense_backward": "the gradient of a weight",
}  # fmt: skip
"""Operators whose result is a sum over the rows of a batch, so that it depends on the batch by nature."""

EXACT = ("all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "count_nonzero", "histc", "max", "min")
"""Operators that reduce and round nothing."""


class NotServed(Exception):
    """A call for which there is no pinned order; the text is the reason."""


class AddsNothing(Exception):
    """A call of an operator that may add numbers and here only moves them: PyTorch's kernel is exact."""


_Function = Callable[..., Any]


def result_into(value: Any, out: Any) -> Any:
    """Return a value, copied into an output where there is one."""
    if out is None:
        return value
    if tuple(out.shape) != tuple(value.shape):
        out.resize_(value.shape)
    return out.copy_(value)


def check_floats(*tensors: Any) -> None:
    """Raise NotServed unless all tensors are dense ones of fp32, fp16 or bf16."""
    import torch

    for each in tensors:
        if each is None:
            continue
        if each.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise NotServed(f"a tensor is of {each.dtype}; fp32, fp16 and bf16 are served")
        if each.is_nested or each.layout != torch.strided:
            raise NotServed("a tensor is nested or sparse; dense ones are served")


def reduced_axes(x: torch.Tensor, dim: Any) -> list[int]:
    """Return the axes that an argument names, ascending: all for None and for an empty list."""
    given = [] if dim is None else [dim] if isinstance(dim, int) else list(dim)
    return sorted({each % max(x.dim(), 1) for each in given}) if given else list(range(x.dim()))


def reduced(x: torch.Tensor, dim: Any, keepdim: bool, dtype: Any, mean: bool) -> torch.Tensor:
    """Return the sum or the mean over some axes, of a dtype, None for that of x.  Raises NotServed."""
    if dtype is not None and dtype.is_floating_point and not (x.is_floating_point() or x.is_complex()):
        x = x.to(dtype)
    check_floats(x)
    axes = reduced_axes(x, dim)
    wanted = x.dtype if dtype is None else dtype
    if not wanted.is_floating_point or wanted.itemsize > 4:
        raise NotServed(f"a result of {wanted}; fp32, fp16 and bf16 are served")
    if x.dim() == 0:
        return sum_rows(x.reshape(1), wanted, mean, ())
    shape = [1 if each in axes else size for each, size in enumerate(x.shape) if keepdim or each not in axes]
    if axes == [x.dim() - 1]:
        order = in_memory(x)
        if order is None:
            return sum_rows(x, wanted, mean, shape)
        found = sum_rows(x.permute(order), wanted, mean).permute([order.index(each) for each in range(x.dim() - 1)])
        return found[..., None] if keepdim else found
    columns = _columns(x, axes)
    if columns is not None:
        return sum_columns(columns, wanted, mean, shape)
    places = _places(x, axes)
    if places is not None:
        return sum_places(places, wanted, mean, shape)
    length = math.prod(int(x.shape[each]) for each in axes)
    kept = [each for each in range(x.dim()) if each not in axes]
    moved = x.permute(*kept, *axes).reshape(*(x.shape[each] for each in kept), length)
    return sum_rows(moved, wanted, mean, shape)


def _columns(x: torch.Tensor, axes: list[int]) -> torch.Tensor | None:
    """Return a dense x as a view[o, n, c] whose second axis is the reduced ones; None where they are not that."""
    first, last = (axes[0], axes[-1]) if axes else (0, -1)
    length = math.prod(int(x.shape[each]) for each in axes)
    together = last - first == len(axes) - 1 and 0 <= last < x.dim() - 1
    if not together or not x.numel() or length > LONG or not x.is_contiguous():
        return None
    return x.view(math.prod(x.shape[:first]), length, -1)


def _places(x: torch.Tensor, axes: list[int]) -> torch.Tensor | None:
    """Return an x on a GPU whose first axes are reduced as a view[a, b, c] with a dense last axis; None for others."""
    count = len(axes)
    if x.is_cpu or not x.numel() or axes != list(range(count)) or count == x.dim() or x.data_ptr() % 16:
        return None
    sizes = [(int(x.shape[each]), int(x.stride(each))) for each in axes if x.shape[each] != 1]
    dense = x[(0,) * count].is_contiguous()
    if not dense or len(sizes) > 2 or math.prod(size for size, _ in sizes) > LONG:
        return None
    (a, outer), (b, inner) = [(1, 0)] * (2 - len(sizes)) + sizes
    columns = math.prod(x.shape[count:])
    return x.as_strided((a, b, columns), (outer, inner, 1))


def _sum(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None) -> Any:
    """Sums; of integers and booleans they are exact, and PyTorch's."""
    return result_into(reduced(x, dim, keepdim, dtype if out is None else dtype or out.dtype, mean=False), out)


def _mean(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None) -> Any:
    return result_into(reduced(x, dim, keepdim, dtype if out is None else dtype or out.dtype, mean=True), out)


def _cumsum(x: Any, dim: int, *, dtype: Any = None, out: Any = None) -> Any:
    """Prefix sums: each number is added to the sum of those before it, in fp32; each sum is rounded to its type."""
    wanted = dtype or (x.dtype if out is None else out.dtype)
    if not wanted.is_floating_point or wanted.itemsize > 4:
        raise NotServed(f"a result of {wanted}; fp32, fp16 and bf16 are served")
    if not (x.is_floating_point() or x.is_complex()):
        x = x.to(wanted)
    check_floats(x)
    return result_into(prefix_sums(x if x.dim() else x.reshape(1), dim, wanted).reshape(x.shape), out)


def _cumsum_in_place(x: Any, dim: int, *, dtype: Any = None) -> Any:
    return x.copy_(_cumsum(x, dim, dtype=dtype or x.dtype))


def _of_loss(name: str) -> _Function:
    """Return a loss of each number, which is PyTorch's, and its sum or mean over all."""

    def loss(x: Any, target: Any, reduction: int = 1, *options: Any, out: Any = None) -> Any:
        import torch

        if not reduction:
            raise AddsNothing
        check_floats(x, target)
        return result_into(reduced(getattr(torch.ops.aten, name)(x, target, 0, *options), None, False, None,
                                   mean=reduction == 1), out)  # fmt: skip

    return loss


def _of_softmax(log: bool) -> _Function:
    def softmax(x: Any, dim: int, half_to_float: bool = False, *, out: Any = None) -> Any:
        check_floats(x)
        import torch

        dtype = torch.float32 if half_to_float else x.dtype
        if x.dim() == 0:
            return result_into(softmax_rows(x.reshape(1), dtype, log).reshape(()), out)
        return result_into(softmax_rows(x.movedim(dim, -1), dtype, log).movedim(-1, dim), out)

    return softmax


def _of_softmax_gradient(log: bool) -> _Function:
    def gradient(upstream: Any, y: Any, dim: int, input_dtype: Any, *, grad_input: Any = None, out: Any = None) -> Any:
        check_floats(upstream, y)
        target = grad_input if grad_input is not None else out
        if y.dim() == 0:
            found = softmax_gradient_rows(upstream.reshape(1), y.reshape(1), input_dtype, log).reshape(())
        else:
            found = softmax_gradient_rows(upstream.movedim(dim, -1), y.movedim(dim, -1), input_dtype, log)
            found = found.movedim(-1, dim)
        return result_into(found, target)

    return gradient


def _row_length(shape: Sequence[int]) -> int:
    return math.prod(int(each) for each in shape)


def _statistics(values: torch.Tensor, x: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return the numbers of rows in the shape of an input, with 1 for each normalised axis."""
    kept = x.dim() - len(shape)
    return values.reshape(*x.shape[:kept], *([1] * len(shape)))


def _layer_norm(x: Any, shape: Any, weight: Any, bias: Any, epsilon: float) -> Any:
    check_floats(x, weight, bias)
    found, mean, scale = normalised_rows(x.reshape(-1, _row_length(shape)), weight, bias, epsilon, centered=True)
    return found.reshape(x.shape), _statistics(mean, x, shape), _statistics(scale, x, shape)


def default_epsilon() -> float:
    """Return the number that PyTorch's RMSNorm of fp32, fp16 and bf16 adds to a mean of squares where none is given.

    It computes in fp32: see `_fused_rms_norm` in `torch/_decomp/decompositions.py`.
    """
    import torch

    return float(torch.finfo(torch.float32).eps)


def _rms_norm(x: Any, shape: Any, weight: Any, epsilon: float | None) -> Any:
    check_floats(x, weight)
    used = default_epsilon() if epsilon is None else epsilon
    found, _, scale = normalised_rows(x.reshape(-1, _row_length(shape)), weight, None, used, centered=False)
    return found.reshape(x.shape), _statistics(scale, x, shape)


def _gradients(
    upstream: Any, x: Any, shape: Any, mean: Any, scale: Any, weight: Any, bias: Any, mask: Sequence[bool]
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Return the gradients of a normalisation for its input, weight and bias; those of the latter sum over rows.

    `mean` is None for one that is not centered.
    """
    check_floats(upstream, x, weight, bias)
    length = _row_length(shape)
    g, rows = upstream.reshape(-1, length), x.reshape(-1, length)
    of_input = of_weight = of_bias = None
    if mask[0]:
        of_input = normalisation_gradient_rows(g, rows, weight, mean, scale).reshape(x.shape)
    if mask[1] and weight is not None:
        of_weight = sum_column_products(g, rows, mean, scale, weight.dtype).reshape(weight.shape)
    if len(mask) > 2 and mask[2] and bias is not None:
        of_bias = reduced(g, 0, False, bias.dtype, mean=False).reshape(bias.shape)
    return of_input, of_weight, of_bias


def _layer_norm_gradient(
    upstream: Any, x: Any, shape: Any, mean: Any, scale: Any, weight: Any, bias: Any, mask: Sequence[bool]
) -> Any:
    return _gradients(upstream, x, shape, mean, scale, weight, bias, mask)


def _rms_norm_gradient(upstream: Any, x: Any, shape: Any, scale: Any, weight: Any, mask: Sequence[bool]) -> Any:
    return _gradients(upstream, x, shape, None, scale, weight, None, mask)[:2]


def _index_add_into(target: Any, dim: int, index: Any, source: Any, alpha: Any) -> Any:
    """Add entries into a tensor, and return it."""
    check_floats(target, source)
    if target.dim() == 0 or index.dim() > 1:
        raise NotServed("a tensor without axes, or an index with several; an axis and a vector of indices are served")
    dim %= target.dim()
    moved = target.movedim(dim, 0)
    dense = moved.reshape(moved.shape[0], -1).contiguous()
    add_entries(dense, index.reshape(-1), source.movedim(dim, 0).reshape(int(index.numel()), -1), float(alpha))
    if dense.data_ptr() != target.data_ptr():
        moved.copy_(dense.reshape(moved.shape))
    return target


def _index_add(x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1, out: Any = None) -> Any:
    check_floats(x, source)
    return result_into(_index_add_into(x.clone(), dim, index, source, alpha), out)


def _index_add_in_place(x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    return _index_add_into(x, dim, index, source, alpha)


def _scatter_add_in_place(x: Any, dim: int, index: Any, source: Any) -> Any:
    """Add each number of a source to the one that its index names along an axis, in ascending order of its place."""
    import torch

    check_floats(x, source)
    if x.dim() == 0 or index.dim() != x.dim():
        raise NotServed("a tensor without axes, or an index of other axes; equal numbers of axes are served")
    dim %= x.dim()
    part = source[tuple(slice(0, int(each)) for each in index.shape)].movedim(dim, -1)
    places, step = index.movedim(dim, -1).long(), int(x.shape[dim])
    shape = [int(each) for at, each in enumerate(x.shape) if at != dim]
    for axis in reversed(range(len(shape))):
        line = torch.arange(int(places.shape[axis]), device=x.device) * step
        places = places + line.reshape(-1, *([1] * (places.dim() - 1 - axis)))
        step *= shape[axis]
    dense = x.movedim(dim, -1).contiguous()
    add_entries(dense.view(-1, 1), places.reshape(-1), part.reshape(-1, 1), 1.0)
    if dense.data_ptr() != x.data_ptr():
        x.movedim(dim, -1).copy_(dense)
    return x


def _scatter_add(x: Any, dim: int, index: Any, source: Any, *, out: Any = None) -> Any:
    return result_into(_scatter_add_in_place(x.clone(), dim, index, source), out)


def _index_put_in_place(x: Any, indices: Any, values: Any, accumulate: bool = False, unsafe: bool = False) -> Any:
    """Add values at indices, in ascending order of their place; masks are read, which waits for the device."""
    import torch

    if not accumulate:
        raise AddsNothing
    check_floats(x, values)
    named: list[tuple[int, Any]] = []
    axis = 0
    for each in indices:
        parts = () if each is None else each.nonzero(as_tuple=True) if each.dtype == torch.bool else (each.long(),)
        named += [(axis + place, part) for place, part in enumerate(parts)]
        axis += len(parts) or 1
    if not named or any(
        each is not None and each.dtype not in (torch.int64, torch.int32, torch.bool) for each in indices
    ):
        raise NotServed("indices that are no integers and no masks; these are served")
    axes, places = [axis for axis, _ in named], torch.broadcast_tensors(*(each for _, each in named))
    sizes, kept = [int(x.shape[each]) for each in axes], [each for each in range(x.dim()) if each not in axes]
    place = torch.zeros_like(places[0])
    for each, size in zip(places, sizes, strict=True):
        place = place * size + torch.where(each < 0, each + size, each)
    # The axes of indices that lie beside each other are those of the values in their place, and else the first ones.
    front = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    rest = [int(x.shape[each]) for each in kept]
    source = values.expand(*rest[:front], *place.shape, *rest[front:])
    source = source.movedim([front + each for each in range(place.dim())], list(range(place.dim())))
    moved, length = x.permute(*axes, *kept), math.prod(rest)
    dense = moved.contiguous()
    add_entries(dense.view(-1, length), place.reshape(-1), source.reshape(-1, length), 1.0)
    if dense.data_ptr() != x.data_ptr():
        moved.copy_(dense)
    return x


def _topk(
    x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, *, values: Any = None, indices: Any = None
) -> Any:
    """The first k of a stable sort: equal numbers in the order of their places, whatever the number of rows."""
    import torch

    if x.dim() == 0:
        raise NotServed("a tensor without axes; an axis is served")
    found = torch.sort(x, dim=dim, descending=largest, stable=True)
    best, places = (each.narrow(dim, 0, k).contiguous() for each in found)
    return result_into(best, values), result_into(places, indices)


ROW_OPERATORS: dict[str, _Function] = {
    "sum": _sum, "mean": _mean, "_softmax": _of_softmax(False), "_log_softmax": _of_softmax(True),
    "_softmax_backward_data": _of_softmax_gradient(False), "_log_softmax_backward_data": _of_softmax_gradient(True),
    "native_layer_norm": _layer_norm, "native_layer_norm_backward": _layer_norm_gradient,
    "_fused_rms_norm": _rms_norm, "_fused_rms_norm_backward": _rms_norm_gradient, "index_add": _index_add,
    "index_add_": _index_add_in_place, "scatter_add": _scatter_add, "scatter_add_": _scatter_add_in_place,
    "_index_put_impl_": _index_put_in_place, "topk": _topk, "cumsum": _cumsum, "cumsum_": _cumsum_in_place,
    **{name: _of_loss(name) for name in ("mse_loss", "smooth_l1_loss", "huber_loss")},
}  # fmt: skip
"""By the name of an operator in the namespace `aten`: the function that computes all of its overloads."""


NORMALISATIONS = (
    "native_layer_norm", "native_layer_norm_backward", "_fused_rms_norm", "_fused_rms_norm_backward",
)  # fmt: skip
"""Operators that normalise rows, with several results, and their gradients."""


def operands_and_rest(arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the tensors of a call, and what else decides it, with a mark in the place of each tensor."""
    import torch

    operands = tuple(each for each in arguments if isinstance(each, torch.Tensor))
    rest = tuple(
        ... if isinstance(each, torch.Tensor) else tuple(each) if isinstance(each, list) else each
        for each in arguments
    )  # fmt: skip
    return operands, rest


def launch_of_normalisation(
    name: str, arguments: tuple[Any, ...], results: Sequence[Any]
) -> Callable[..., None] | None:  # fmt: skip
    """Return the launch of a call of NORMALISATIONS that ran, by the addresses of its tensors and of its results."""
    if name == "native_layer_norm_backward":
        upstream, x, shape, mean, scale, weight, bias, _ = arguments
        return launch_of_normalisation_gradient(
            upstream, x, mean, scale, weight, bias, results, _row_length(shape)
        )  # fmt: skip
    if name == "_fused_rms_norm_backward":
        upstream, x, shape, scale, weight, _ = arguments
        return launch_of_normalisation_gradient(
            upstream, x, None, scale, weight, None, (*results, None), _row_length(shape)
        )  # fmt: skip
    x, shape, weight, *more = arguments
    bias, epsilon = more if name == "native_layer_norm" else (None, *more)
    return launch_of_normalised_rows(
        x, weight, bias, results, _row_length(shape), default_epsilon() if epsilon is None else epsilon
    )  # fmt: skip


_SOFTMAX_GRADIENTS = ("_softmax_backward_data", "_log_softmax_backward_data")


def launch_of_rows(name: str, arguments: tuple[Any, ...], out: Any) -> Callable[..., None] | None:
    """Return the launch of a sum, a mean, or a softmax of the last axis or its gradient, that left its result in `out`.

    It is a function of the addresses of the tensors and of the result.  It is None where a tensor was copied.
    """
    x = arguments[0]
    if name in ("sum", "mean"):
        if not x.is_floating_point() or not x.dim():
            return None
        axes = reduced_axes(x, arguments[1] if len(arguments) > 1 else None)
        if axes == [x.dim() - 1]:
            return launch_of_sum(x, out, name == "mean")
        columns = _columns(x, axes)
        if columns is not None:
            return launch_of_columns(columns, out, name == "mean")
        places = _places(x, axes)
        return None if places is None else launch_of_columns(places, out, name == "mean", apart=True)
    if name in ("_softmax", "_log_softmax") and x.dim() and arguments[1] % x.dim() == x.dim() - 1:
        return launch_of_softmax(x, out, name == "_log_softmax")
    if name in _SOFTMAX_GRADIENTS and x.dim() and arguments[2] % x.dim() == x.dim() - 1:
        return launch_of_softmax_gradient(x, arguments[1], out, name == _SOFTMAX_GRADIENTS[1])
    return None
