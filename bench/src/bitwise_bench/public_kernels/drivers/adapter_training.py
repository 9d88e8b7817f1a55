"""nemo-automodel: adapters of low rank, losses with soft targets, rotations, and residual mixes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    package, _, module = f"nemo_automodel.components.{name}".rpartition(".")
    bare_package("nemo_automodel.shared")
    bare_package(package)
    return import_module(f"{package}.{module}")


def adapters(t: Tensors) -> None:
    """Call the product with an adapter, and the products of its gradients."""
    module = _module("_peft.lora_kernel")
    rows, inner, rank, outer = 70, 96, 16, 136
    x, a, b = (t.normal(*shape, dtype="bfloat16") for shape in ((rows, inner), (inner, rank), (rank, outer)))
    gradient = t.normal(rows, outer, dtype="bfloat16")
    narrow = t.dtype("bfloat16")
    t.call(module.lora_forward_wrapper, x, a, b, None, 0.5, dtype=narrow)
    t.call(module.lora_da_dx_update_wrapper, x.t(), gradient, b.t(), a.t(), 0.5, dtype=narrow)
    t.call(module.lora_db_update_wrapper, a.t(), x.t(), gradient, 0.5, dtype=narrow)


def soft_losses(t: Tensors) -> None:
    """Call the cross entropy with soft targets, forward and backward."""
    module = _module("loss.triton.soft_cross_entropy")
    for dtype, words in (("float32", 333), ("bfloat16", 1100)):
        targets = t.normal(2, 9, words, dtype=dtype).softmax(-1)
        mask = t.integers(0, 2, 2, 9, 1)
        found = t.call(module.fused_soft_cross_entropy, t.normal(2, 9, words, dtype=dtype, grad=True), targets, mask)
        if found is not None:
            t.call(t.backward, found)


def losses(t: Tensors) -> None:
    """Call the cross entropy with and without smoothed labels, forward and backward."""
    module = _module("loss.triton.te_cross_entropy")
    for smoothing, dtype in ((0.0, "float32"), (0.1, "bfloat16")):
        logits = t.normal(2, 11, 500, dtype=dtype)
        found = t.call(module.cross_entropy_forward, logits, t.integers(0, 500, 2, 11), smoothing, False, None, -100)
        if found is not None:
            t.call(module.cross_entropy_backward, found[1], t.normal(2, 11, dtype=dtype))


def rotations(t: Tensors) -> None:
    """Call the rotation of the last channels, and its inverse, forward and backward."""
    module = _module("models.common.rope_triton")
    for shape, dtype, inverse in (((2, 13, 3, 40), "bfloat16", False), ((2, 13, 64), "float32", True)):
        values = t.normal(*shape, dtype=dtype, grad=True)
        found = t.call(module.apply_rope_triton, values, t.normal(2, 13, 16), inverse=inverse)
        if found is not None:
            t.call(t.backward, found)


def residual_mixes(t: Tensors) -> None:
    """Call the mix of earlier residuals by scores, forward and backward."""
    module = _module("models.kimi_k3.attn_res_triton")
    for entries, dtype in ((3, "bfloat16"), (1, "float32")):
        stream, blocks = t.normal(20, 192, dtype=dtype), t.normal(20, entries, 192, dtype=dtype)
        norm, projection = t.normal(192, dtype=dtype), t.normal(192, dtype=dtype)
        found = t.call(module.attn_res_fwd_triton, stream, blocks, norm, projection, 1e-6)
        if found is not None:
            t.call(module.attn_res_bwd_triton, stream, blocks, norm, projection, t.normal(20, 192, dtype=dtype),
                   found[1])  # fmt: skip


def bounded_units(t: Tensors) -> None:
    """Call gated units with a bounded activation, with and without weights of rows, forward and backward."""
    module = _module("models.kimi_k3.situ_triton")
    for weighted, bound, fast in ((True, 4.0, False), (False, None, False), (True, None, True)):
        values = t.normal(37, 2 * 120, dtype="bfloat16")
        weights = t.uniform(37, 1) if weighted else None
        t.call(module.situ_fwd_triton, values, weights, 1.5, bound, fast_math=fast)
        t.call(module.situ_bwd_triton, values, weights, t.normal(37, 120, dtype="bfloat16"), 1.5, bound, weighted,
               fast_math=fast)  # fmt: skip


def delta_rules(t: Tensors) -> None:
    """Call the gradients of a gated delta rule in chunks, of two sequences."""
    module = _module("models.kimi_k3.kda_fused.chunk_kda_bwd_triton")
    length, heads = 150, 2
    shape = (1, length, heads, 128)
    narrow = [t.normal(*shape, dtype="bfloat16", scale=0.3) for _ in range(3)]
    gates, strengths = -t.uniform(*shape, low=0.01, high=1.0), t.uniform(1, length, heads)
    outputs = [t.empty(*shape, dtype="bfloat16") for _ in range(3)] + [t.empty(*shape), t.empty(1, length, heads)]
    t.call(module.run, *narrow, gates, strengths, t.of([0, 90, length], "int32"), t.normal(*shape, dtype="bfloat16"),
           *outputs, cu_seqlens_cpu=[0, 90, length])  # fmt: skip


def routes(t: Tensors) -> None:
    """Call the conversion of chosen experts to a mask and weights, forward and backward."""
    module = _module("moe.megatron.fused_indices_converter")
    indices = t.of([[0, 3, -1], [2, 1, 5], [-1, -1, 4], [5, 0, 2], [3, 4, 1]], "int64")
    found = t.call(module.fused_indices_to_multihot, indices, t.uniform(5, 3, grad=True), 6)
    if found is not None:
        t.call(t.backward, found[1])


CASES = {
    each.__name__: each
    for each in (adapters, soft_losses, losses, rotations, residual_mixes, bounded_units, delta_rules, routes)
}
