"""flashnn: norms with quantisation, products of quantised weights, attention over pages, experts and penalties."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _function(module: str, name: str) -> Any:
    return getattr(import_module(f"flashnn.triton_kernels.{module}"), name)


def norms(t: Tensors) -> None:
    """Call the norms, and those that quantise their rows."""
    for rows, width, dtype in ((11, 352, "float16"), (5, 1500, "bfloat16"), (3, 6000, "float16")):
        x, weight, bias = t.normal(rows, width, dtype=dtype), t.normal(width, dtype=dtype), t.normal(width, dtype=dtype)
        for name in ("rms_norm", "rms_norm_dquant"):
            t.call(_function(name, f"triton_{name.replace('rms_norm', 'rmsnorm')}_forward"), x, weight, 1e-5)
        for name in ("layer_norm", "layer_norm_dquant"):
            t.call(_function(name, f"triton_{name}_forward"), x, weight, bias, 1e-6)
        t.call(_function("dynamic_quant", "triton_dynamic_quantize"), t.empty(rows, width, dtype="int8"), x,
               t.empty(rows))  # fmt: skip


def products(t: Tensors) -> None:
    """Call the products with weights of 8 and 4 bits."""
    for m, n, k in ((20, 96, 192), (70, 160, 256)):
        a, b = t.integers(-9, 9, m, k, dtype="int8"), t.integers(-9, 9, n, k, dtype="int8")
        t.call(_function("gemm_a8w8", "triton_gemm_a8w8_forward"), t.empty(m, n, dtype="float16"), a, b,
               t.uniform(m, dtype="float16"), t.uniform(n, dtype="float16"))  # fmt: skip
        act, bias = t.normal(m, k, dtype="float16"), t.normal(n, dtype="float16")
        for scale in (t.uniform(n, dtype="float16"), t.uniform(n, k // 64, dtype="float16")):
            weight = t.integers(-9, 9, n, k, dtype="int8")
            t.call(_function("gemm_a16w8", "triton_gemm_a16w8_forward"), t.empty(m, n, dtype="float16"), act, weight,
                   scale, bias, t.normal(*scale.shape, dtype="float16"))  # fmt: skip
            packed = t.integers(-90, 90, n // 2, k, dtype="int8")
            t.call(_function("gemm_a16w4", "triton_gemm_a16w4_forward"), t.empty(m, n, dtype="float16"), act, packed,
                   scale, bias, t.normal(*scale.shape, dtype="float16"))  # fmt: skip


def attention(t: Tensors) -> None:
    """Call attention, and attention of one query over pages."""
    for causal, length, width in ((True, 100, 64), (False, 72, 128)):
        q, k, v = (t.normal(2, length, 3, width, dtype="float16") for _ in range(3))
        t.call(_function("flash_attn_v2", "triton_flash_attention_forward"), q, k, v, causal, 0.2)
    lengths, tables = t.of([37, 70], "int32"), t.of([[5, 1, 3, 0, 2], [4, 6, 7, 8, 9]], "int32")
    for heads, groups, width in ((4, 4, 64), (8, 2, 128)):
        query = t.normal(2, heads, width, dtype="float16")
        keys, values = (t.normal(10, groups, 16, width, dtype="float16") for _ in range(2))
        for splits in (0, 2):
            t.call(_function("paged_attn", "paged_attention"), t.empty(2, heads, width, dtype="float16"), query, keys,
                   values, lengths, tables, 0.1, 80, splits)  # fmt: skip


def experts(t: Tensors) -> None:
    """Call the products of experts."""
    settings = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 2}
    tokens, k, n, count, top = 10, 96, 64, 4, 2
    chosen = t.of([[place % count, (place + 1) % count] for place in range(tokens)], "int32")
    sorted_ids: list[int] = []
    owners: list[int] = []
    flat = chosen.flatten().tolist()
    for expert in range(count):
        mine = [place for place, each in enumerate(flat) if each == expert]
        mine += [tokens * top] * (-len(mine) % 16)
        sorted_ids += mine
        owners += [expert] * (len(mine) // 16)
    ids, of = t.of(sorted_ids, "int32"), t.of(owners, "int32")
    padded, weights = t.of([len(sorted_ids)], "int32"), t.uniform(tokens, top)
    x = t.normal(tokens, k, dtype="float16")
    t.call(_function("fused_moe_fp16", "fused_moe_fp16_forward"), x, t.normal(count, n, k, dtype="float16"),
           t.empty(tokens, top, n, dtype="float16"), weights, chosen, ids, of, padded, True, top, settings)  # fmt: skip
    t.call(_function("fused_moe_a8w8", "fused_moe_a8w8_forward"), t.integers(-9, 9, tokens, k, dtype="int8"),
           t.integers(-9, 9, count, n, k, dtype="int8"), t.empty(tokens, top, n, dtype="float16"), t.uniform(tokens),
           t.uniform(count, n), weights, chosen, ids, of, padded, False, top, settings)  # fmt: skip
    for parts in (1, 3):
        scale = t.uniform(count, n, parts, dtype="float16") if parts > 1 else t.uniform(count, n, dtype="float16")
        t.call(_function("fused_moe_a16w4", "fused_moe_a16w4_forward"), x, t.integers(-90, 90, count, n, k // 2,
               dtype="int8"), t.empty(tokens, top, n, dtype="float16"), scale, None, weights, chosen, ids, of, padded,
               True, top, settings)  # fmt: skip


def positions(t: Tensors) -> None:
    """Call the rotation by position, and the penalties of logits."""
    q, k = t.normal(2, 24, 4, 64, dtype="float16"), t.normal(2, 24, 2, 64, dtype="float16")
    cos, sin = t.normal(48, 32, dtype="float16"), t.normal(48, 32, dtype="float16")
    t.call(_function("rotary_embedding", "triton_rotary_embd_forward"), q, k, cos, sin, 3, 48, 1)
    for kind in ("REPETITION", "PRESENCE"):
        t.call(_function("logits_processor", "triton_logits_processor_forward"), t.normal(3, 500), t.uniform(3),
               t.integers(0, 500, 3, 12), t.of([12, 7, 9], "int64"), 12, kind)  # fmt: skip


CASES = {each.__name__: each for each in (norms, products, attention, experts, positions)}
