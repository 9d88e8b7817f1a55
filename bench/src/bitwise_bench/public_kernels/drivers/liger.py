"""Liger Kernel: norms, activations, losses and rotary embeddings of language models, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _functional() -> Any:
    return import_module("liger_kernel.transformers.functional")


def _function(name: str) -> Any:
    return getattr(import_module("liger_kernel.ops"), name)


def norms(t: Tensors) -> None:
    """Call the root-mean-square norm of rows, in two casting modes, and fused with an addition."""
    f = _functional()
    for dtype, mode in (("bfloat16", "llama"), ("float32", "gemma")):
        x, w = t.normal(2, 24, 640, dtype=dtype, grad=True), t.normal(640, dtype=dtype, grad=True)
        t.backward(f.liger_rms_norm(x, w, 1e-6, 0.0, mode, False))
    x, r, w = (t.normal(*shape, dtype="bfloat16", grad=True) for shape in ((2, 24, 640), (2, 24, 640), (640,)))
    t.backward(f.liger_fused_add_rms_norm(x, r, w, 1e-6, 0.0, "llama", False))


def layer_norm(t: Tensors) -> None:
    """Call the layer norm of rows."""
    f = _functional()
    for dtype in ("float32", "bfloat16"):
        x, w, b = (t.normal(*shape, dtype=dtype, grad=True) for shape in ((48, 768), (768,), (768,)))
        t.backward(f.liger_layer_norm(x, w, b, 1e-5))


def group_norm(t: Tensors) -> None:
    """Call the group norm."""
    x, w, b = (t.normal(*shape, grad=True) for shape in ((4, 16, 160), (16,), (16,)))
    t.backward(_functional().liger_group_norm(x, w, b, 16, 4, 1e-5))


def poly_norm(t: Tensors) -> None:
    """Call the polynomial norm."""
    x, w, b = (t.normal(*shape, grad=True) for shape in ((32, 512), (3,), (1,)))
    t.backward(_functional().liger_poly_norm(x, w, b, 1e-6, False))


def tanh_norm(t: Tensors) -> None:
    """Call the dynamic tanh."""
    x, a, g, b = (t.normal(*shape, grad=True) for shape in ((32, 512), (1,), (512,), (512,)))
    t.backward(_functional().liger_dyt(x, a, g, b))


def modulated_norm(t: Tensors) -> None:
    """Call the modulated norm of diffusion transformers."""
    x, w = t.normal(2, 16, 512, dtype="bfloat16", grad=True), t.normal(512, dtype="bfloat16", grad=True)
    scale, shift = (t.normal(2, 512, dtype="bfloat16", grad=True) for _ in range(2))
    t.backward(_functional().liger_modulated_rms_norm(x, w, scale, shift, in_place=False))


def softmax(t: Tensors) -> None:
    """Call the softmax over rows."""
    for dtype, columns in (("float32", 1000), ("bfloat16", 3000)):
        t.backward(_functional().liger_softmax(t.normal(24, columns, dtype=dtype, grad=True)))


def sparsemax(t: Tensors) -> None:
    """Call the sparsemax over rows."""
    t.backward(_functional().liger_sparsemax(t.normal(16, 500, grad=True)))


def swiglu(t: Tensors) -> None:
    """Call the gated unit with SiLU."""
    for dtype in ("float32", "bfloat16"):
        a, b = (t.normal(24, 1408, dtype=dtype, grad=True) for _ in range(2))
        t.backward(_functional().liger_swiglu(a, b))


def geglu(t: Tensors) -> None:
    """Call the gated unit with GELU."""
    for dtype in ("float32", "bfloat16"):
        a, b = (t.normal(24, 1408, dtype=dtype, grad=True) for _ in range(2))
        t.backward(_functional().liger_geglu(a, b))


def relu_squared(t: Tensors) -> None:
    """Call the squared ReLU."""
    t.backward(_functional().liger_relu_squared(t.normal(24, 1408, dtype="bfloat16", grad=True)))


def rope(t: Tensors) -> None:
    """Call the rotary embedding."""
    q, k = t.normal(2, 8, 24, 64, dtype="bfloat16", grad=True), t.normal(2, 2, 24, 64, dtype="bfloat16", grad=True)
    cos, sin = (t.uniform(1, 24, 64, low=-1.0, dtype="bfloat16") for _ in range(2))
    t.backward(_functional().liger_rope(q, k, cos, sin))


def multimodal_rope(t: Tensors) -> None:
    """Call the rotary embedding of a model of vision and language."""
    q, k = t.normal(2, 8, 24, 64, dtype="bfloat16", grad=True), t.normal(2, 2, 24, 64, dtype="bfloat16", grad=True)
    cos, sin = (t.uniform(3, 2, 24, 64, low=-1.0, dtype="bfloat16") for _ in range(2))
    t.backward(_functional().liger_qwen2vl_mrope(q, k, cos, sin, [8, 12, 12]))


def cross_entropy(t: Tensors) -> None:
    """Call the cross entropy, plain, and with smoothing, a soft cap and a square of the log sum."""
    f = _functional()
    target = t.integers(0, 4001, 24)
    target[3] = -100
    f.liger_cross_entropy(t.normal(24, 4001, dtype="bfloat16", grad=True), target).backward()
    f.liger_cross_entropy(
        t.normal(24, 4001, grad=True), target, label_smoothing=0.1, lse_square_scale=1e-4, softcap=30.0
    ).backward()


def fused_linear_cross_entropy(t: Tensors) -> None:
    """Call the cross entropy fused with its product."""
    x, w = t.normal(32, 256, dtype="bfloat16", grad=True), t.normal(2000, 256, dtype="bfloat16", grad=True)
    _functional().liger_fused_linear_cross_entropy(x, w, t.integers(0, 2000, 32)).backward()


def divergences(t: Tensors) -> None:
    """Call the Jensen-Shannon and Kullback-Leibler divergences, and the total variation."""
    f = _functional()
    for dtype in ("float32", "bfloat16"):
        first = t.normal(24, 1500, dtype=dtype).log_softmax(-1).detach().requires_grad_()
        second = t.normal(24, 1500, dtype=dtype).log_softmax(-1)
        t.backward(f.liger_jsd(first, second))
        t.backward(f.liger_kl_div(first, second.exp(), reduction="batchmean"))
        third = t.normal(24, 1500, dtype=dtype).softmax(-1).detach().requires_grad_()
        t.backward(f.liger_tvd(third, second.exp()))


def distillation(t: Tensors) -> None:
    """Call the divergence fused with its products."""
    shapes = ((32, 128), (1000, 128), (32, 256), (1000, 256))
    inputs = [t.normal(*shape, dtype="bfloat16", grad=True) for shape in shapes]
    t.backward(_functional().liger_fused_linear_jsd(*inputs))


def neighbourhood_attention(t: Tensors) -> None:
    """Call the attention to neighbours."""
    q, k, v = (t.normal(1, 2, 64, 32, grad=True) for _ in range(3))
    t.backward(_functional().liger_fused_neighborhood_attention(q, k, v, 7, 1))


def multi_token_attention(t: Tensors) -> None:
    """Call the kernels of the attention to several tokens."""
    scores, weight = t.normal(1, 2, 64, 64, grad=True), t.normal(2, 2, 3, 3, grad=True)
    t.backward(_functional().liger_multi_token_attention(scores, weight, padding=1))


def experts(t: Tensors) -> None:
    """Call the layer of experts."""
    x = t.normal(48, 128, dtype="bfloat16", grad=True)
    gates, down = t.normal(4, 256, 128, dtype="bfloat16", grad=True), t.normal(4, 128, 128, dtype="bfloat16", grad=True)
    index, weights = t.integers(0, 4, 48, 2, dtype="int32"), t.uniform(48, 2, dtype="bfloat16", grad=True)
    t.backward(_function("LigerFusedMoEFunction").apply(x, gates, down, index, weights))


def policy_loss(t: Tensors) -> None:
    """Call the loss of group-relative policy optimisation."""
    logits = t.normal(4, 17, 1000, dtype="bfloat16", grad=True)
    old, ids, mask = t.uniform(4, 16, low=-9.0, high=-1.0), t.integers(0, 1000, 4, 16), t.integers(0, 2, 4, 16)
    numbers = (0.9, 0.04, 0.2, 0.2, False)
    found = _function("GrpoLossFunction").apply(logits, old, old - 0.1, ids, t.normal(4), mask, *numbers)
    t.backward(found[0])


def residual_attention(t: Tensors) -> None:
    """Call the attention over the residuals of layers."""
    stacked, query, norm = (t.normal(*shape, grad=True) for shape in ((4, 2, 12, 256), (256,), (256,)))
    t.backward(_function("LigerAttnResFunction").apply(stacked, query, norm, 1e-6))


def hyper_connections(t: Tensors) -> None:
    """Call the coefficients of manifold-constrained hyper-connections."""
    f = _functional()
    x = t.normal(24, 4, 128, dtype="bfloat16", grad=True)
    phi, b = t.normal(512, 24, scale=0.05, grad=True), t.normal(24, grad=True)
    alphas = [t.of(0.5, "float32").requires_grad_() for _ in range(3)]  # type: ignore[arg-type]
    t.backward(f.liger_mhc_coeffs(x, phi, b, *alphas))


CASES = {
    each.__name__: each
    for each in (
        *(norms, layer_norm, group_norm, poly_norm, tanh_norm, modulated_norm, softmax, sparsemax, swiglu, geglu),
        *(relu_squared, rope, multimodal_rope, cross_entropy, fused_linear_cross_entropy, divergences, distillation),
        *(neighbourhood_attention, multi_token_attention, experts, policy_loss, residual_attention),
        hyper_connections,
    )
}
