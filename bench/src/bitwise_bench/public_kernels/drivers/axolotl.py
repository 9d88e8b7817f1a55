"""axolotl: gates, norms, rotations, adapters of experts, attention and losses of the tuning of language models."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors

_LIBRARIES = "axolotl.integrations.kernels.libs"


def _module(package: str, name: str) -> Any:
    import torch
    import triton
    import triton.language as tl

    bare_package("axolotl.kernels")
    bare_package(package)
    types = {getattr(torch, f"float{bits}"): getattr(tl, f"float{bits}") for bits in (16, 32)}
    stub("liger_kernel.utils", is_npu_available=lambda: False)
    stub("liger_kernel.ops.utils", calculate_settings=lambda width: (triton.next_power_of_2(width), 4),
         ensure_contiguous=lambda function: function, compare_version=lambda package, operator, version: True,
         torch_to_triton_dtype={**types, torch.bfloat16: tl.bfloat16})  # fmt: skip
    return import_module(f"{package}.{name}")


def gates(t: Tensors) -> None:
    """Call gated activations and their derivatives."""
    for dtype in ("float16", "bfloat16", "float32"):
        for name in ("swiglu", "geglu"):
            module = _module("axolotl.kernels", name)
            t.call(getattr(module, f"{name}_forward"), *[t.normal(2, 13, 144, dtype=dtype) for _ in range(2)])
            t.call(getattr(module, f"{name}_backward"), *[t.normal(2, 13, 144, dtype=dtype) for _ in range(3)])
        t.call(
            lambda x: t.backward(_module("axolotl.kernels", "relu2").apply_relu2(x)),
            t.normal(9, 130, dtype=dtype, grad=True),
        )


def norms(t: Tensors) -> None:
    """Call norms with rotations, forward and backward."""
    rotated = _module("axolotl.kernels", "gemma4_fused_rope")
    for dtype, width in (("bfloat16", 128), ("float32", 64)):
        x = t.normal(2, 10, 3, width, dtype=dtype, grad=True)
        angles = [t.normal(2, 10, width, dtype=dtype) for _ in range(2)]
        t.call(lambda *each: t.backward(rotated.fused_rms_norm_rope(*each)), x, t.normal(width, dtype=dtype), *angles)
        t.call(lambda each: t.backward(rotated.fused_rms_norm_noscale(each)), x)


def streams(t: Tensors) -> None:
    """Call pools with gates, mixtures of streams and rotations."""
    package = f"{_LIBRARIES}.dsv4"
    kv, gate = (t.normal(2, 6, 4, 64, dtype="bfloat16", grad=True) for _ in range(2))
    t.call(lambda *each: t.backward(_module(package, "gated_pool").gated_softmax_pool(*each)), kv, gate)
    module = _module(package, "mhc")
    t.call(
        lambda *each: t.backward(module.sinkhorn_mix(*each, 4, 5, 1e-6)),
        t.normal(14, 24, grad=True),
        t.normal(3),
        t.normal(24),
    )
    rotate = _module(package, "rope").apply_rotary_pos_emb_triton
    t.call(lambda *each: t.backward(rotate(*each)), t.normal(2, 3, 11, 96, dtype="bfloat16", grad=True),
           t.normal(2, 11, 32, dtype="bfloat16"), t.normal(2, 11, 32, dtype="bfloat16"))  # fmt: skip


def attention(t: Tensors) -> None:
    """Call attention in windows and with wide heads, forward and backward."""
    module = _module(f"{_LIBRARIES}.dsv4", "attention")
    q, k, v = (t.normal(1, heads, 64, 64, dtype="bfloat16", grad=True) for heads in (2, 1, 1))
    t.call(lambda *each: t.backward(module.sliding_attn(*each, sliding_window=24)), q, k, v, t.normal(2))
    module = _module("axolotl.monkeypatch.attention", "flash_attn_d512")
    q, k, v = (t.normal(1, heads, 64, 256, dtype="bfloat16", grad=True) for heads in (2, 1, 1))
    t.call(lambda *each: t.backward(module.flash_d512(*each)), q, k, v)


def experts(t: Tensors) -> None:
    """Call the products of experts with adapters, and their gradients."""
    torch = t.torch
    package = f"{_LIBRARIES}.scattermoe_lora.kernels"
    ops, adapters = _module(package, "ops"), _module(package, "lora_ops")
    count, top, tokens, width, inner, rank = 4, 2, 24, 64, 96, 8
    ids = t.integers(0, count, tokens, top).flatten()
    order = torch.argsort(ids, stable=True)
    experts_, offsets = ids[order], torch.bincount(ids, minlength=count).cumsum(0)
    for dtype in ("float16", "bfloat16"):
        x, w = t.normal(tokens, width, dtype=dtype), t.normal(count, width, inner, dtype=dtype)
        a, b = t.normal(count * rank, width, dtype=dtype), t.normal(inner, count * rank, dtype=dtype)
        found = t.call(ops.scatter2scatter, x, w, experts_, order, top)
        grouped = t.call(ops.group, x, order, fan_out=top)
        t.call(adapters.scatter2scatter_lora, x, w, experts_, order, top, a, b, 0.5)
        gradient = t.normal(tokens * top, inner, dtype=dtype)
        if found is not None and grouped is not None:
            t.call(ops.group_bwd_W, gradient, grouped, offsets, count)
            t.call(adapters.group_bwd_lora, gradient, grouped, a, b, offsets, count, 0.5)
        t.call(adapters.scatter2scatter_lora_dX, gradient, w, experts_, order, 1, a, b, 0.5, dx_grouped=True)
        t.call(
            _module(package, "single").single2scatter, t.normal(1, width, dtype=dtype), w, t.integers(0, count, 1, top)
        )


def losses(t: Tensors) -> None:
    """Call the losses of a policy: probabilities of tokens, similarities and penalties."""
    module = _module("axolotl.core.trainers.ebft", "kernels")
    for dtype, words in (("float32", 900), ("bfloat16", 2100)):
        t.call(module.fused_log_softmax_gather, t.normal(2, 7, words, dtype=dtype), t.integers(0, words, 2, 7))
    t.call(module.fused_reinforce_loss, t.normal(5, 60), t.normal(5, 60), t.integers(0, 2, 5, 60).bool())
    t.call(module.fused_cosine_similarity, t.normal(3, 9, 200), t.normal(3, 9, 200))
    t.call(module.fused_diversity_penalty, t.normal(3, 6, 200))


def optimiser(t: Tensors) -> None:
    """Call steps of an optimiser that balances the rows and columns of a gradient."""
    module = _module("axolotl.utils.optimizers", "sinkgd_triton")
    for dtype, rows, columns in (("float32", 60, 130), ("bfloat16", 33, 700)):
        p, gradient = t.normal(rows, columns, dtype=dtype), t.normal(rows, columns, dtype=dtype)
        t.call(module.fused_sinkgd_step, p, gradient, 0.01, 0.1, 3, 1e-6)


CASES = {each.__name__: each for each in (gates, norms, streams, attention, experts, losses, optimiser)}
