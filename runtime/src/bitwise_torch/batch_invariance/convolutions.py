"""PyTorch's convolutions, whose outputs have one order for any number of sequences and positions.

An output is a sum over the input channels of its group and the places of the kernel.  With one channel for each group,
as in the causal convolutions of state-space models, the products of the places are added in fp32 one after the other.
Else the sum is a product of matrices (`products`), over the places of the first channel, the second one, and so on.
The bias is added to the rounded sum.

The gradient of the input has these orders, too: it is a convolution of the upstream gradient.  A transposed convolution
is such a gradient.  The gradients of the weight and of the bias are sums over a batch and its positions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bitwise_torch.batch_invariance.products import batch_product
from bitwise_torch.batch_invariance.row_operators import NotServed, check_floats, reduced, result_into

if TYPE_CHECKING:
    import torch

_Sizes = Sequence[int]


def _convolution(
    x: Any, weight: Any, bias: Any, stride: _Sizes, padding: _Sizes, dilation: _Sizes, transposed: bool,
    output_padding: _Sizes, groups: int, *, out: Any = None,
) -> Any:  # fmt: skip
    _check(x, weight)
    if transposed:
        jumps = zip(x.shape[2:], stride, padding, dilation, weight.shape[2:], output_padding, strict=True)
        sizes = [
            (int(size) - 1) * jump - 2 * pad + step * (int(places) - 1) + 1 + more
            for size, jump, pad, step, places, more in jumps
        ]  # fmt: skip
        found = _of_input(x, sizes, weight, stride, padding, dilation, groups)
    else:
        found = _convolved(_padded(x, padding, padding), weight, stride, dilation, groups)
    if bias is not None:
        found = found + bias.reshape(-1, *([1] * (x.dim() - 2)))
    return result_into(found, out)


def _gradients(
    upstream: Any, x: Any, weight: Any, bias_sizes: Any, stride: _Sizes, padding: _Sizes, dilation: _Sizes,
    transposed: bool, output_padding: _Sizes, groups: int, output_mask: Sequence[bool],
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Return the gradients of the input, the weight and the bias; those that the mask leaves out are None."""
    _check(x, weight)
    check_floats(upstream)
    of_input = of_weight = of_bias = None
    if output_mask[0] and transposed:
        of_input = _convolved(_padded(upstream, padding, padding), weight, stride, dilation, groups)
    elif output_mask[0]:
        of_input = _of_input(upstream, x.shape[2:], weight, stride, padding, dilation, groups)
    if output_mask[1]:
        slope, given = (x, upstream) if transposed else (upstream, x)
        of_weight = _of_weight(slope, _padded(given, padding, padding), weight, stride, dilation, groups)
    if output_mask[2]:
        of_bias = reduced(upstream, [0, *range(2, x.dim())], False, upstream.dtype, mean=False)
    return of_input, of_weight, of_bias


def _check(x: Any, weight: Any) -> None:
    """Raise NotServed for a convolution that is not computed here."""
    check_floats(x, weight)
    if x.dtype != weight.dtype:
        raise NotServed(f"an input of {x.dtype} and a weight of {weight.dtype}; one type is served")


def _padded(x: torch.Tensor, before: _Sizes, after: _Sizes) -> torch.Tensor:
    """Return x[n, c, ...] with so many zeros before and behind each of its last axes; a number below 0 cuts."""
    import torch

    widths = [each for pair in zip(before, after, strict=True) for each in pair]
    ordered = [each for axis in reversed(range(len(before))) for each in widths[2 * axis : 2 * axis + 2]]
    return torch.nn.functional.pad(x, ordered) if any(ordered) else x


def _counts(x: torch.Tensor, kernel: _Sizes, stride: _Sizes, dilation: _Sizes) -> list[int]:
    """Return the numbers of outputs along each axis of a padded x."""
    return [
        (int(size) - step * (int(places) - 1) - 1) // jump + 1
        for size, places, jump, step in zip(x.shape[2:], kernel, stride, dilation, strict=True)
    ]  # fmt: skip


def _parts(
    x: torch.Tensor, kernel: _Sizes, stride: _Sizes, dilation: _Sizes
) -> Iterator[tuple[tuple[int, ...], torch.Tensor]]:
    """Yield each place of a kernel, with the numbers of a padded x that it is multiplied by, one for each output."""
    counts = _counts(x, kernel, stride, dilation)
    for place in itertools.product(*map(range, kernel)):
        begins = [at * step for at, step in zip(place, dilation, strict=True)]
        axes = zip(begins, counts, stride, strict=True)
        spans = [slice(begin, begin + (count - 1) * jump + 1, jump) for begin, count, jump in axes]
        yield place, x[(slice(None), slice(None), *spans)]


def _patches(x: torch.Tensor, kernel: _Sizes, stride: _Sizes, dilation: _Sizes, groups: int) -> torch.Tensor:
    """Return what makes each output of a padded x, as [groups, outputs, k]; k are the channels, and then the places."""
    sequences, channels = int(x.shape[0]), int(x.shape[1])
    counts, own = _counts(x, kernel, stride, dilation), channels // groups
    jumps = [each * jump for each, jump in zip(x.stride()[2:], stride, strict=True)]
    steps = [each * step for each, step in zip(x.stride()[2:], dilation, strict=True)]
    shape = (groups, sequences, *counts, own, *map(int, kernel))
    strides = (x.stride(1) * own, x.stride(0), *jumps, x.stride(1), *steps)
    windows = x.as_strided(shape, strides, x.storage_offset())
    return windows.reshape(groups, sequences * math.prod(counts), own * math.prod(map(int, kernel)))


def _convolved(x: torch.Tensor, weight: torch.Tensor, stride: _Sizes, dilation: _Sizes, groups: int) -> torch.Tensor:
    """Return the convolution of a padded x[n, c, ...] with a weight[o, c / groups, ...], of the type of x."""
    sequences, channels, outputs = int(x.shape[0]), int(x.shape[1]), int(weight.shape[0])
    kernel, own = weight.shape[2:], outputs // groups
    counts = _counts(x, kernel, stride, dilation)
    if min((sequences, channels, outputs, *kernel, *counts)) < 1:
        raise NotServed("a convolution without numbers; one of at least one number is served")
    if channels == groups:
        total: Any = None
        for place, part in _parts(x, kernel, stride, dilation):
            factors = weight[(slice(None), 0, *place)].float().reshape(-1, *([1] * len(kernel)))
            product = part.float().repeat_interleave(own, 1) * factors
            total = product if total is None else total + product
        found: torch.Tensor = total.to(x.dtype)
        return found
    factors = weight.reshape(groups, own, -1).transpose(1, 2)
    rows = batch_product(_patches(x, kernel, stride, dilation, groups), factors, x.dtype)
    return rows.reshape(groups, sequences, -1, own).permute(1, 0, 3, 2).reshape(sequences, outputs, *counts)


def _of_input(
    upstream: torch.Tensor, sizes: _Sizes, weight: torch.Tensor, stride: _Sizes, padding: _Sizes, dilation: _Sizes,
    groups: int,
) -> torch.Tensor:  # fmt: skip
    """Return the gradient of an input of some sizes: the convolution of the upstream gradient, spread by the stride,
    with flipped kernels.
    """
    kernel = [int(each) for each in weight.shape[2:]]
    axes = len(kernel)
    spread = upstream
    if any(each != 1 for each in stride):
        counts = [(int(size) - 1) * jump + 1 for size, jump in zip(upstream.shape[2:], stride, strict=True)]
        spread = upstream.new_zeros((*upstream.shape[:2], *counts))
        spread[(slice(None), slice(None), *(slice(None, None, jump) for jump in stride))] = upstream
    reach = [step * (places - 1) for step, places in zip(dilation, kernel, strict=True)]
    before = [far - pad for far, pad in zip(reach, padding, strict=True)]
    spans = zip(sizes, spread.shape[2:], before, reach, strict=True)
    after = [int(size) + far - int(own) - first for size, own, first, far in spans]
    outputs, own = int(weight.shape[0]) // groups, int(weight.shape[1])
    turned = weight.reshape(groups, outputs, own, *kernel).transpose(1, 2)
    turned = turned.reshape(groups * own, outputs, *kernel).flip(*range(2, 2 + axes))
    return _convolved(_padded(spread, before, after), turned, [1] * axes, dilation, groups)


def _of_weight(
    upstream: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, stride: _Sizes, dilation: _Sizes, groups: int
) -> torch.Tensor:
    """Return the gradient of the weight, for a padded x."""
    import torch

    kernel, own = weight.shape[2:], int(weight.shape[0]) // groups
    if int(x.shape[1]) == groups:
        axes, slope = [0, *range(2, x.dim())], upstream.float()
        sums = [
            reduced(slope * part.float().repeat_interleave(own, 1), axes, False, weight.dtype, mean=False)
            for _, part in _parts(x, kernel, stride, dilation)
        ]  # fmt: skip
        return torch.stack(sums, -1).reshape(weight.shape)
    slopes = upstream.reshape(upstream.shape[0], groups, own, -1).permute(1, 2, 0, 3).reshape(groups, own, -1)
    found = batch_product(slopes, _patches(x, kernel, stride, dilation, groups), weight.dtype)
    return found.reshape(weight.shape)


CONVOLUTIONS: dict[str, Callable[..., Any]] = {"convolution": _convolution, "convolution_backward": _gradients}
"""By the name of an operator in the namespace `aten`: the function that computes all of its overloads."""
