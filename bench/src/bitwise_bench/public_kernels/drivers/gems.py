"""FlagGems: operators of PyTorch written in Triton."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors

_ONE_INPUT = ("exp", "sigmoid", "tanh", "erf", "rsqrt", "silu", "gelu", "log_sigmoid", "softplus", "elu", "glu", "abs")
_TWO_INPUTS = ("add", "mul", "sub", "true_divide", "floor_divide", "remainder", "minimum", "maximum", "lt", "eq")
_ROWS = ("amax", "argmax", "argmin", "all_dim", "any_dim", "sum_dim", "mean_dim", "prod_dim", "max_dim", "min_dim")
_LISTS = ("amax", "sum_dim", "mean_dim", "var_mean")
_WHOLE = ("sum", "mean", "prod", "max", "min", "amax", "argmax", "all", "any", "count_nonzero")


def _ops() -> Any:
    # Without a GPU the package does not find its vendor.
    os.environ.setdefault("GEMS_VENDOR", "nvidia")
    return import_module("flag_gems")


def pointwise(t: Tensors) -> None:
    """Call functions of one tensor."""
    x = t.normal(20, 500, dtype="float16")
    for name in _ONE_INPUT:
        t.call(getattr(_ops(), name), x)


def binary(t: Tensors) -> None:
    """Call functions of two tensors."""
    x, y = t.normal(20, 500), t.normal(20, 500)
    for name in _TWO_INPUTS:
        t.call(getattr(_ops(), name), x, y)


def ternary(t: Tensors) -> None:
    """Call functions of three tensors, and of scalars."""
    f, (x, y, z) = _ops(), (t.normal(20, 500) for _ in range(3))
    t.call(f.addcmul, x, y, z, value=0.5)
    t.call(f.addcdiv, x, y, z, value=0.5)
    t.call(f.lerp_tensor, x, y, z)
    t.call(f.where_self, x > 0, y, z)
    t.call(f.clamp, x, -0.5, 0.5)
    t.call(f.pow_tensor_scalar, x, 3.0)
    t.call(f.pow_tensor_tensor, x.abs(), y)
    t.call(f.masked_fill, x, y > 0, 1.5)


def gradients(t: Tensors) -> None:
    """Call gradients of activations."""
    f, x, y = _ops(), t.normal(20, 500, dtype="bfloat16"), t.normal(20, 500, dtype="bfloat16")
    for name in ("silu_backward", "gelu_backward", "sigmoid_backward", "tanh_backward"):
        t.call(getattr(f, name), x, y)


def rows(t: Tensors) -> None:
    """Call reductions over rows."""
    for name in _ROWS:
        t.call(getattr(_ops(), name), t.normal(24, 1200), [1] if name in _LISTS else 1)


def columns(t: Tensors) -> None:
    """Call reductions over columns."""
    for name in ("argmax", "sum_dim", "max_dim", "prod_dim", "mean_dim", "amax"):
        t.call(getattr(_ops(), name), t.normal(300, 40), [0] if name in _LISTS else 0)


def whole(t: Tensors) -> None:
    """Call reductions over all elements."""
    for name in _WHOLE:
        t.call(getattr(_ops(), name), t.normal(40, 1000))


def moments(t: Tensors) -> None:
    """Call variances and norms."""
    f = _ops()
    t.call(f.var_mean, t.normal(24, 1000), [1])
    t.call(f.std, t.normal(24, 1000), [1])
    t.call(f.var_mean, t.normal(24, 1000))
    for order in (1, 2, float("inf")):
        t.call(f.vector_norm, t.normal(24, 1000), order, [1])
    t.call(f.vector_norm, t.normal(24, 1000), 2)


def softmaxes(t: Tensors) -> None:
    """Call softmaxes and their gradients, over rows and over columns."""
    f = _ops()
    for shape, dim in (((24, 700), 1), ((24, 30, 40), 1)):
        x, g = t.normal(*shape, dtype="bfloat16"), t.normal(*shape, dtype="bfloat16")
        t.call(f.softmax, x, dim)
        t.call(f.softmax_backward, g, x.softmax(dim), dim, x.dtype)
        t.call(f.log_softmax, x, dim)
        t.call(f.log_softmax_backward, g, x.log_softmax(dim), dim, x.dtype)


def layer_norms(t: Tensors) -> None:
    """Call layer norms and their gradients."""
    f = _ops()
    for width in (512, 5000):
        x, g, w, b = (t.normal(*shape) for shape in ((24, width), (24, width), (width,), (width,)))
        t.call(f.layer_norm, x, [width], w, b)
        mean, rstd = x.mean(1), x.var(1).rsqrt()
        t.call(f.layer_norm_backward, g, x, [width], mean, rstd, w, b, [True, True, True])
        t.call(f.rms_norm_forward, x, [width], w)
        t.call(f.rms_norm_backward, g, x, rstd, [width], w)


def group_norms(t: Tensors) -> None:
    """Call group norms and batch norms, and their gradients."""
    f, x, g = _ops(), t.normal(4, 16, 10, 10), t.normal(4, 16, 10, 10)
    w, b = t.normal(16), t.normal(16)
    t.call(f.group_norm, x, w, b, 4, 16, 100, 4)
    t.call(f.group_norm_backward, g, x, t.normal(4, 4), t.uniform(4, 4, low=0.5), w, 4, 16, 100, 4, [True, True, True])
    t.call(f.batch_norm, x, w, b, t.normal(16), t.uniform(16), True)
    t.call(f.batch_norm_backward, g, x, w, t.normal(16), t.uniform(16), t.normal(16), t.uniform(16), True, 1e-5,
           [True, True, True])  # fmt: skip


def products(t: Tensors) -> None:
    """Call matrix products."""
    f = _ops()
    for dtype in ("float16", "float32"):
        a, b = t.normal(64, 96, dtype=dtype), t.normal(96, 128, dtype=dtype)
        t.call(f.mm, a, b)
        t.call(f.addmm, t.normal(128, dtype=dtype), a, b)
        t.call(f.bmm, t.normal(2, 64, 96, dtype=dtype), t.normal(2, 96, 64, dtype=dtype))
        t.call(f.mv, a, t.normal(96, dtype=dtype))
        t.call(f.dot, t.normal(3000, dtype=dtype), t.normal(3000, dtype=dtype))


def scans(t: Tensors) -> None:
    """Call cumulative sums and extrema."""
    f = _ops()
    for shape, dim in (((24, 500), 1), ((200, 24), 0), ((2, 5000), 1)):
        t.call(f.cumsum, t.normal(*shape), dim)
        t.call(f.normed_cumsum, t.uniform(*shape), dim)
        t.call(f.cummax, t.normal(*shape), dim)
        t.call(f.cummin, t.normal(*shape), dim)


def losses(t: Tensors) -> None:
    """Call losses."""
    f, x, target = _ops(), t.normal(24, 500), t.integers(0, 500, 24)
    t.call(f.nll_loss_forward, x, target)
    t.call(f.mse_loss, x, t.normal(24, 500))
    t.call(f.cross_entropy_loss, t.normal(24, 500, grad=True), target)


def indexing(t: Tensors) -> None:
    """Call lookups and scatters."""
    f, x, rows = _ops(), t.normal(200, 64), t.integers(0, 200, 30)
    t.call(f.embedding, x, rows)
    t.call(f.embedding_backward, t.normal(30, 64), rows, 200)
    t.call(f.index_select, x, 0, rows)
    t.call(f.gather, x, 0, t.integers(0, 200, 30, 64))
    t.call(f.scatter, x, 0, t.integers(0, 200, 30, 64), t.normal(30, 64))
    t.call(f.index_add, x, 0, rows, t.normal(30, 64))
    t.call(f.index_put, x, [rows], t.normal(30, 64))


def ordering(t: Tensors) -> None:
    """Call sorting and selection."""
    f = _ops()
    t.call(f.topk, t.normal(8, 300), 5)
    t.call(f.sort, t.normal(4, 200))
    t.call(f.isin, t.integers(0, 50, 300), t.integers(0, 50, 20))
    t.call(f.nonzero, t.integers(0, 2, 500))


def shapes(t: Tensors) -> None:
    """Call operators that move elements."""
    f, x = _ops(), t.normal(30, 40)
    t.call(f.triu, x)
    t.call(f.diag, x)
    t.call(f.flip, x, [0])
    t.call(f.repeat, x, (2, 3))
    t.call(f.cat, [x, t.normal(10, 40)], 0)
    t.call(f.stack, [x, t.normal(30, 40)], 0)
    t.call(f.kron, t.normal(4, 5), t.normal(6, 3))
    t.call(f.trace, t.normal(50, 50))


def convolutions(t: Tensors) -> None:
    """Call convolutions and pools."""
    f, x = _ops(), t.normal(2, 8, 16, 16)
    t.call(f.conv2d, x, t.normal(16, 8, 3, 3), None, 1, 1)
    t.call(f.conv1d, t.normal(2, 8, 50), t.normal(16, 8, 3))
    t.call(f.avg_pool2d, x, 3, 2)
    t.call(f.max_pool2d_with_indices, x, 3, 2)
    t.call(f.upsample_nearest2d, x, (32, 32))
    t.call(f._upsample_bicubic2d_aa, x, (24, 24), False)


def attention(t: Tensors) -> None:
    """Call attention and its gradient."""
    f = _ops()
    q, k, v = (t.normal(1, 4, 128, 64, dtype="bfloat16", grad=True) for _ in range(3))
    t.backward(f.scaled_dot_product_attention(q, k, v, is_causal=True))


def weight_norms(t: Tensors) -> None:
    """Call weight norms."""
    f, v, g = _ops(), t.normal(64, 200), t.normal(64, 1)
    t.call(f.weight_norm_interface, v, g, 0)
    t.call(f.weight_norm_interface_backward, t.normal(64, 200), v, g, t.uniform(64, low=1.0, high=2.0), 0)


def fused(t: Tensors) -> None:
    """Call fused norms, gated units and rotary embeddings."""
    f, x, r = _ops(), t.normal(24, 512, dtype="bfloat16"), t.normal(24, 512, dtype="bfloat16")
    w = t.normal(512, dtype="bfloat16")
    t.call(f.fused_add_rms_norm, x.clone(), r.clone(), (512,), w)
    t.call(f.skip_layer_norm, x, r, (512,), w, w)
    t.call(f.silu_and_mul, x, r)
    t.call(f.gelu_and_mul, x, r)
    q, k = t.normal(24, 4, 64, dtype="bfloat16"), t.normal(24, 2, 64, dtype="bfloat16")
    t.call(f.apply_rotary_pos_emb, q, k, t.normal(100, 32, dtype="bfloat16"), t.normal(100, 32, dtype="bfloat16"),
                           t.integers(0, 100, 24))  # fmt: skip


def random_numbers(t: Tensors) -> None:
    """Call dropout."""
    t.call(_ops().dropout, t.normal(24, 500), 0.3, True)


CASES: dict[str, Driver] = {
    each.__name__: each
    for each in (
        *(pointwise, binary, ternary, gradients, rows, columns, whole, moments, softmaxes, layer_norms, group_norms),
        *(products, scans, losses, indexing, ordering, shapes, convolutions, attention, weight_norms, fused),
        random_numbers,
    )
}
