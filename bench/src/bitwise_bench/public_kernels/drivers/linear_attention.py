"""Flash Linear Attention: attention with linear recurrences, forward and backward, and the layers around it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors

_LENGTH, _HEADS, _WIDTH = 128, 2, 64


def _heads(t: Tensors, count: int, dtype: str = "bfloat16") -> list[Any]:
    return [t.normal(1, _LENGTH, _HEADS, _WIDTH, dtype=dtype, scale=0.5, grad=True) for _ in range(count)]


def _decays(t: Tensors, *extra: int, dtype: str = "float32") -> Any:
    """Return the logarithms of decays."""
    return t.uniform(1, _LENGTH, _HEADS, *extra, low=-0.5, high=-0.01, dtype=dtype, grad=True)


def _gates(t: Tensors, dtype: str = "bfloat16") -> Any:
    return t.uniform(1, _LENGTH, _HEADS, low=0.1, high=0.9, dtype=dtype, grad=True)


def _unit(t: Tensors) -> Any:
    """Return keys of length one."""
    found = t.normal(1, _LENGTH, _HEADS, _WIDTH)
    return (found / found.norm(dim=-1, keepdim=True)).to(t.dtype("bfloat16")).requires_grad_()


def _operator(module: str, name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(import_module(f"fla.ops.{module}"), name)
    return found


def simple_gla(t: Tensors) -> None:
    """Call gated linear attention with one decay for each head, in chunks and as a recurrence."""
    q, k, v = _heads(t, 3)
    t.backward(_operator("simple_gla", "chunk_simple_gla")(q, k, v, _decays(t), output_final_state=True))
    t.backward(_operator("simple_gla", "fused_recurrent_simple_gla")(q, k, v, _decays(t)))


def parallel_simple_gla(t: Tensors) -> None:
    """Call the parallel form of gated linear attention."""
    q, k, v = _heads(t, 3)
    t.backward(_operator("simple_gla", "parallel_simple_gla")(q, k, v, _decays(t))[0])


def gla(t: Tensors) -> None:
    """Call gated linear attention with a decay for each channel."""
    q, k, v = _heads(t, 3)
    t.backward(_operator("gla", "chunk_gla")(q, k, v, _decays(t, _WIDTH)))


def recurrent_gla(t: Tensors) -> None:
    """Call the recurrent form of gated linear attention."""
    q, k, v = _heads(t, 3)
    t.backward(_operator("gla", "fused_recurrent_gla")(q, k, v, _decays(t, _WIDTH)))


def retention(t: Tensors) -> None:
    """Call retention."""
    t.backward(_operator("retention", "chunk_retention")(*_heads(t, 3)))


def delta_rule(t: Tensors) -> None:
    """Call the delta rule."""
    q, _, v = _heads(t, 3)
    t.backward(_operator("delta_rule", "chunk_delta_rule")(q, _unit(t), v, _gates(t)))


def recurrent_delta_rule(t: Tensors) -> None:
    """Call the recurrent form of the delta rule."""
    q, _, v = _heads(t, 3)
    t.backward(_operator("delta_rule", "fused_recurrent_delta_rule")(q, _unit(t), v, _gates(t)))


def gated_delta_rule(t: Tensors) -> None:
    """Call the gated delta rule, with the norms of its keys inside."""
    q, k, v = _heads(t, 3)
    f = _operator("gated_delta_rule", "chunk_gated_delta_rule")
    t.backward(f(q, k, v, _decays(t), _gates(t), use_qk_l2norm_in_kernel=True))


def recurrent_gated_delta_rule(t: Tensors) -> None:
    """Call the recurrent form of the gated delta rule."""
    q, _, v = _heads(t, 3)
    f = _operator("gated_delta_rule", "fused_recurrent_gated_delta_rule")
    f(q, _unit(t), v, g=_decays(t), beta=_gates(t))


def kimi_delta(t: Tensors) -> None:
    """Call the delta attention with a decay for each channel."""
    q, _, v = _heads(t, 3)
    t.backward(_operator("kda", "chunk_kda")(q, _unit(t), v, _decays(t, _WIDTH), _gates(t)))


def gated_delta_product(t: Tensors) -> None:
    """Call the product of delta rules."""
    q, g, beta = _heads(t, 1)[0], _decays(t), t.uniform(1, 2 * _LENGTH, _HEADS, dtype="bfloat16", grad=True)
    k, v = (t.normal(1, 2 * _LENGTH, _HEADS, _WIDTH, dtype="bfloat16", scale=0.1, grad=True) for _ in range(2))
    t.backward(_operator("gated_delta_product", "chunk_gated_delta_product")(q, k, v, g, beta, 2))


def comba(t: Tensors) -> None:
    """Call the closed-loop delta rule."""
    q, _, v = _heads(t, 3)
    t.backward(_operator("comba", "chunk_comba")(q, _unit(t), v, _unit(t), _decays(t), _gates(t)))


def diagonal_plus_low_rank(t: Tensors) -> None:
    """Call the delta rule with a diagonal and a term of low rank."""
    q, k, v, a, b = _heads(t, 5)
    t.backward(_operator("generalized_delta_rule", "chunk_dplr_delta_rule")(q, k, v, a, b, _decays(t, _WIDTH)))


def identity_plus_low_rank(t: Tensors) -> None:
    """Call the delta rule with the identity and a term of low rank."""
    q, k, v, a, b = _heads(t, 5)
    t.backward(_operator("generalized_delta_rule", "chunk_iplr_delta_rule")(q, k, v, a, b))


def hgrn(t: Tensors) -> None:
    """Call the hierarchically gated recurrence, in chunks and as a recurrence."""
    x, g = t.normal(2, _LENGTH, 128, grad=True), t.uniform(2, _LENGTH, 128, low=-2.0, high=-0.1, grad=True)
    t.backward(_operator("hgrn", "chunk_hgrn")(x, g))
    t.backward(_operator("hgrn", "fused_recurrent_hgrn")(x, g))


def rwkv4(t: Tensors) -> None:
    """Call the recurrence of RWKV-4."""
    w, u = (t.normal(64, grad=True) for _ in range(2))
    k, v = (t.normal(2, 48, 64, grad=True) for _ in range(2))
    t.backward(_operator("rwkv4", "fused_recurrent_rwkv4")(w, u, k, v, t.empty(2, 3, 1, 64)))


def rwkv6(t: Tensors) -> None:
    """Call the recurrence of RWKV-6."""
    q, k, v = _heads(t, 3)
    u = t.normal(_HEADS, _WIDTH, dtype="bfloat16", grad=True)
    t.backward(_operator("rwkv6", "chunk_rwkv6")(q, k, v, _decays(t, _WIDTH), u))
    t.backward(_operator("rwkv6", "fused_recurrent_rwkv6")(q, k, v, _decays(t, _WIDTH), u))


def rwkv7(t: Tensors) -> None:
    """Call the recurrence of RWKV-7."""
    r, k, v, a, b = _heads(t, 5)
    t.backward(_operator("rwkv7", "chunk_rwkv7")(r, _decays(t, _WIDTH), k, v, a, b))


def slots(t: Tensors) -> None:
    """Call gated slot attention."""
    q, k, v = _heads(t, 3)
    s, g = t.normal(1, _LENGTH, _HEADS, 32, dtype="bfloat16", grad=True), _decays(t, 32)
    t.backward(_operator("gsa", "chunk_gsa")(q, k, v, s, g))


def abc(t: Tensors) -> None:
    """Call attention with bounded memory."""
    q, k, v = _heads(t, 3)
    t.backward(_operator("abc", "chunk_abc")(q, k, v, t.normal(1, _LENGTH, _HEADS, 32, dtype="bfloat16", grad=True)))


def sparse(t: Tensors) -> None:
    """Call natively sparse attention."""
    q = t.normal(1, _LENGTH, 16, _WIDTH, dtype="bfloat16", grad=True)
    k, v = (t.normal(1, _LENGTH, 1, _WIDTH, dtype="bfloat16", grad=True) for _ in range(2))
    gates = [t.uniform(1, _LENGTH, 16, dtype="bfloat16", grad=True) for _ in range(2)]
    indices = t.integers(0, 4, 1, _LENGTH, 1, 2)
    t.backward(_operator("nsa", "parallel_nsa")(q, k, v, None, *gates, indices, 2, 32, 0))


def compressed(t: Tensors) -> None:
    """Call the selection and the compression of natively sparse attention."""
    q = t.normal(1, _LENGTH, 16, _WIDTH, dtype="bfloat16", grad=True)
    k, v = (t.normal(1, _LENGTH, 1, _WIDTH, dtype="bfloat16", grad=True) for _ in range(2))
    gates = [t.uniform(1, _LENGTH, 16, dtype="bfloat16", grad=True) for _ in range(2)]
    t.backward(_operator("nsa", "parallel_nsa")(q, k, v, gates[0], gates[1], None, None, 2, 32, 0))


def forgetting(t: Tensors) -> None:
    """Call forgetting attention."""
    q, k, v = _heads(t, 3)
    t.backward(_operator("forgetting_attn", "parallel_forgetting_attn")(q, k, v, _decays(t)))


def softmax_attention(t: Tensors) -> None:
    """Call softmax attention, whole and in a window."""
    q, k, v = _heads(t, 3)
    t.backward(_operator("attn", "parallel_attn")(q, k, v))
    t.backward(_operator("attn", "parallel_attn")(q, k, v, window_size=40))


def path_attention(t: Tensors) -> None:
    """Call attention with positions from products of reflections."""
    q, k, v = _heads(t, 3)
    t.backward(_operator("path_attn", "parallel_path_attn")(q, k, v, _unit(t), _gates(t), _decays(t)))


def stick_breaking(t: Tensors) -> None:
    """Call stick-breaking attention."""
    q, k, v = _heads(t, 3)
    t.backward(_operator("stickbreaking_attn", "parallel_stickbreaking_attn")(q, k, v))


def linear(t: Tensors) -> None:
    """Call linear attention in its forms."""
    q, k, v = _heads(t, 3)
    t.backward(_operator("linear_attn", "chunk_linear_attn")(q, k, v, normalize=False))
    t.backward(_operator("linear_attn", "fused_recurrent_linear_attn")(q, k, v, normalize=False))
    t.backward(_operator("linear_attn", "fused_chunk_linear_attn")(q, k, v, normalize=False))


def lightning(t: Tensors) -> None:
    """Call lightning attention."""
    t.backward(_operator("lightning_attn", "chunk_lightning_attn")(*_heads(t, 3), 1, 4))


def based(t: Tensors) -> None:
    """Call linear attention with the series of the exponential."""
    q, k = (t.normal(1, _HEADS, _LENGTH, 16, dtype="bfloat16", grad=True) for _ in range(2))
    v = t.normal(1, _HEADS, _LENGTH, _WIDTH, dtype="bfloat16", grad=True)
    t.backward(_operator("based", "parallel_based")(q, k, v))


def mesa(t: Tensors) -> None:
    """Call the layer that solves by conjugate gradients."""
    q, _, v = _heads(t, 3)
    lamb = t.uniform(_HEADS, _WIDTH, low=0.3, high=1.0, grad=True)
    t.backward(_operator("mesa_net", "chunk_mesa_net")(q, _unit(t), v, _decays(t), _gates(t), lamb, max_CG_iteration=3))


def log_linear(t: Tensors) -> None:
    """Call log-linear attention."""
    q, k, v = _heads(t, 3)
    scales = t.uniform(1, _LENGTH, _HEADS, 12, dtype="bfloat16", grad=True)
    t.backward(_operator("log_linear_attn", "chunk_log_linear_attn")(q, k, v, _decays(t), scales))


def sums(t: Tensors) -> None:
    """Call the cumulative sums and the softmaxes."""
    cumsum = import_module("fla.ops.utils.cumsum")
    for shape in ((2, _LENGTH, _HEADS), (2, _LENGTH, _HEADS, _WIDTH)):
        cumsum.chunk_local_cumsum(t.normal(*shape), 64)
        cumsum.chunk_local_cumsum(t.normal(*shape), 64, reverse=True)
        cumsum.chunk_global_cumsum(t.normal(*shape))
        cumsum.chunk_global_cumsum(t.normal(*shape), reverse=True)


def solve(t: Tensors) -> None:
    """Call the inversion of triangular blocks."""
    tril = import_module("fla.ops.utils.solve_tril").solve_tril
    for size in (16, 32, 64):
        tril(t.normal(1, _LENGTH, _HEADS, size, scale=0.1).tril(-1))


def norms(t: Tensors) -> None:
    """Call norms of rows, gated and plain."""
    norm = import_module("fla.modules.norm")
    x, z = (t.normal(2, 24, 512, dtype="bfloat16", grad=True) for _ in range(2))
    for made in (norm.RMSNorm(512), norm.LayerNorm(512), norm.GroupNorm(4, 512), norm.L2Norm()):
        t.backward(made.to(t.device)(x))
    for made in (norm.FusedRMSNormGated(512), norm.FusedLayerNormGated(512)):
        t.backward(made.to(t.device)(x, z))


def quantised_norm(t: Tensors) -> None:
    """Call the linear layer with ternary weights."""
    layer = import_module("fla.modules.fused_bitlinear").FusedBitLinear(256, 128).to(t.device)
    t.backward(layer(t.normal(2, 24, 256, grad=True)))


def activations(t: Tensors) -> None:
    """Call the activations."""
    module = import_module("fla.modules.activations")
    for name in ("swish", "sigmoid", "logsigmoid", "sqrelu", "fast_gelu_impl"):
        f = getattr(module, name, None)
        if f is not None:
            t.backward(f(t.normal(16, 600, dtype="bfloat16", grad=True)))
    x, y = (t.normal(16, 600, dtype="bfloat16", grad=True) for _ in range(2))
    t.backward(module.swiglu(x, y))


def losses(t: Tensors) -> None:
    """Call the losses."""
    modules = import_module("fla.modules")
    logits, target = t.normal(24, 3000, grad=True), t.integers(0, 3000, 24)
    t.backward(modules.FusedCrossEntropyLoss()(logits, target))


def fused_losses(t: Tensors) -> None:
    """Call the losses that are fused with their products."""
    modules = import_module("fla.modules")
    x, w = t.normal(1, 32, 256, dtype="bfloat16", grad=True), t.normal(1000, 256, dtype="bfloat16", grad=True)
    t.backward(modules.FusedLinearCrossEntropyLoss(num_chunks=2)(x, t.integers(0, 1000, 1, 32), w))
    shapes = ((32, 256), (32, 256), (1000, 256), (1000, 256))
    other = [t.normal(*shape, dtype="bfloat16", grad=True) for shape in shapes]
    t.backward(modules.FusedKLDivLoss()(*other))


def rotary(t: Tensors) -> None:
    """Call the rotary embedding."""
    f = import_module("fla.modules.rotary").rotary_embedding
    cos, sin = (t.uniform(_LENGTH, 32, low=-1.0) for _ in range(2))
    t.backward(f(t.normal(2, _LENGTH, _HEADS, _WIDTH, dtype="bfloat16", grad=True), cos, sin))


def convolution(t: Tensors) -> None:
    """Call the short convolution."""
    layer = import_module("fla.modules").ShortConvolution(128, 4, activation="silu", backend="triton").to(t.device)
    t.backward(layer(t.normal(2, _LENGTH, 128, grad=True))[0])


def shift(t: Tensors) -> None:
    """Call the shift of tokens."""
    t.backward(import_module("fla.modules.token_shift").token_shift(t.normal(2, 48, 256, grad=True)))


CASES = {
    each.__name__: each
    for each in (
        *(simple_gla, parallel_simple_gla, gla, recurrent_gla, retention, delta_rule, recurrent_delta_rule),
        *(gated_delta_rule, recurrent_gated_delta_rule, kimi_delta, gated_delta_product, comba),
        *(diagonal_plus_low_rank, identity_plus_low_rank, hgrn, rwkv4, rwkv6, rwkv7, slots, abc, sparse, compressed),
        *(forgetting, softmax_attention, path_attention, stick_breaking, linear, lightning, based, mesa, log_linear),
        *(sums, solve, norms, quantised_norm, activations, losses, fused_losses, rotary, convolution, shift),
    )
}
