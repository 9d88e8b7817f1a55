"""lmdeploy: norms, caches, attention over pages, quantised products, experts and sampling of a serving engine."""

from __future__ import annotations

import logging
from enum import IntEnum
from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors


class _QuantPolicy(IntEnum):
    """The package's own, whose module needs the whole engine."""

    NONE = 0
    INT4 = 4
    INT8 = 8
    FP8 = 16
    FP8_E5M2 = 17
    TURBO_QUANT = 42


def _module(name: str) -> Any:
    bare_package("lmdeploy.pytorch.kernels.cuda")
    stub("lmdeploy.messages", QuantPolicy=_QuantPolicy)
    stub("lmdeploy.utils", get_logger=logging.getLogger)
    bare_package("lmdeploy.pytorch.kernels.cuda.moe")
    return import_module(f"lmdeploy.pytorch.kernels.cuda.{name}")


def rows(t: Tensors) -> None:
    """Call norms, gates and rotations."""
    for dtype, length, width in (("float16", 21, 192), ("bfloat16", 9, 1000), ("float32", 5, 640)):
        x, weight = t.normal(length, width, dtype=dtype), t.normal(width, dtype=dtype)
        t.call(_module("rms_norm").rms_norm, x, weight, 1e-6)
        t.call(_module("rms_norm").rms_norm, x, weight, 1e-6, residual=t.normal(length, width, dtype=dtype))
        t.call(_module("activation").silu_and_mul, t.normal(length, 2 * width, dtype=dtype))
    for heads, width, dtype in ((6, 64, "float16"), (5, 128, "bfloat16")):
        parts = t.normal(19, heads, width, dtype=dtype), t.normal(19, 2, width, dtype=dtype)
        t.call(_module("apply_rotary_pos_emb").apply_rotary_pos_emb, *parts, t.normal(19, width, dtype=dtype),
               t.normal(19, width, dtype=dtype))  # fmt: skip


def _pages(t: Tensors) -> tuple[Any, Any, Any]:
    """Return a table of 6 pages for each of three sequences, their lengths, and the lengths of what is new."""
    table = t.of([[3, 7, 1, 12, 9, 15], [0, 5, 11, 2, 16, 8], [4, 6, 10, 13, 14, 17]], "int64")
    return table, t.of([70, 33, 91], "int64"), t.of([1, 1, 1], "int64")


def caches(t: Tensors) -> None:
    """Fill and flatten caches of keys and values that lie in pages."""
    table, lengths, _ = _pages(t)
    new, starts = t.of([12, 5, 20], "int64"), t.of([0, 12, 17], "int64")
    for dtype, heads, width in (("float16", 2, 64), ("bfloat16", 3, 128)):
        keys, values = (t.normal(18, 16, heads, width, dtype=dtype) for _ in range(2))
        parts = [t.normal(37, heads, width, dtype=dtype) for _ in range(2)]
        t.call(_module("fill_kv_cache").fill_kv_cache, *parts, keys, values, starts, new, lengths, 20, table)
        t.call(_module("flatten_kv_cache").flatten_kv_cache, keys, values, lengths, table, out_size=194)


def attention(t: Tensors) -> None:
    """Call attention over sequences of different lengths, and over pages."""
    table, lengths, _ = _pages(t)
    ends = t.of([0, 40, 63, 100], "int32")
    for dtype, heads, groups, width, softcap in (("float16", 4, 2, 64, 0.0), ("bfloat16", 6, 2, 128, 20.0)):
        q = t.normal(100, heads, width, dtype=dtype)
        k, v = (t.normal(groups, 100, width, dtype=dtype) for _ in range(2))
        t.call(_module("flashattention").flash_attn_varlen_func, q, k, v, cu_seqlens_q=ends, cu_seqlens_k=ends,
               max_seqlen_q=40, max_seqlen_k=40, causal=True, softcap=softcap)  # fmt: skip
        keys, values = (t.normal(18, 16, groups, width, dtype=dtype) for _ in range(2))
        t.call(_module("pagedattention").flash_attn_with_kvcache, t.normal(3, heads, width, dtype=dtype), keys, values,
               lengths, table, max_seqlen_q=1, causal=True)  # fmt: skip


def products(t: Tensors) -> None:
    """Call products of quantised matrices and of adapters."""
    functions = _module("w8a8_triton_kernels")
    for length, width, dtype in ((24, 256, "float16"), (17, 384, "bfloat16")):
        x, weight = t.normal(length, width, dtype=dtype), t.normal(width, dtype=dtype)
        found = t.call(functions.per_token_quant_int8, x, 1e-7)
        t.call(functions.rms_norm_dynamic_quant, x, weight, 1e-6)
        t.call(functions.rms_norm_dynamic_quant, x, weight, 1e-6, residual=t.normal(length, width, dtype=dtype))
        if found is not None:
            other, scale = t.integers(-100, 100, 192, width, dtype="int8"), t.uniform(192, 1)
            t.call(functions.matmul_kernel_dynamic_quant, found[0], other, found[1], scale)
            t.call(functions.matmul_kernel_dynamic_quant, found[0], other, found[1], scale,
                   residual=t.normal(length, 192, dtype="float16"))  # fmt: skip
    blocked = _module("blocked_gemm_fp8")
    found = t.call(blocked.quant_fp8, t.normal(48, 256, dtype="bfloat16"), 128)
    if found is not None:
        other = t.normal(256, 256).to(t.dtype("float8_e4m3fn")).T
        t.call(blocked.blocked_gemm_fp8, *found, other, t.uniform(2, 2), out_dtype=t.dtype("bfloat16"))
    t.call(_module("awq_kernels").awq_linear, t.normal(24, 256, dtype="float16"),
           t.integers(-(2**31), 2**31, 256, 16, dtype="int32"), t.uniform(2, 128, dtype="float16"),
           t.integers(-(2**31), 2**31, 2, 16, dtype="int32"))  # fmt: skip


def adapters(t: Tensors) -> None:
    """Call the products of adapters, for sequences that have different ones."""
    t.call(_module("fused_lora").fused_lora, t.normal(37, 128, dtype="float16"), t.normal(24, 128, dtype="float16"),
           t.normal(24, 96, dtype="float16"), t.uniform(2, dtype="float16"), t.of([0, 8], "int64"),
           t.of([8, 16], "int64"), t.of([0, 12, 17], "int64"), t.of([12, 5, 20], "int64"), t.of([1, 0, 1], "int64"),
           16, 20)  # fmt: skip


def experts(t: Tensors) -> None:
    """Route rows to experts, and call their products."""
    torch = t.torch
    for tokens, count, top in ((20, 8, 2), (40, 6, 3)):
        weights, ids = torch.topk(t.normal(tokens, count).softmax(-1), top, -1)
        w1, w2 = t.normal(count, 192, 128, dtype="float16"), t.normal(count, 128, 96, dtype="float16")
        t.call(_module("moe.fused_moe").fused_moe, t.normal(tokens, 128, dtype="float16"), w1, w2,
               weights.to(torch.float16), ids, top, renormalize=True)  # fmt: skip
    t.call(_module("moe.route_noaux_tc").fused_noaux_tc_routing, t.normal(9, 64), t.normal(64), 64, 8, 4, 6)


def sampling(t: Tensors) -> None:
    """Choose tokens from sorted probabilities, and the largest scores."""
    for tokens in (150, 400):
        scores = t.normal(5, tokens).softmax(-1).sort(-1, descending=True).values
        t.call(_module("multinomial_sampling").multinomial_sampling, scores, t.integers(0, 1000, 5),
               t.integers(0, 50, 5))  # fmt: skip
    t.call(_module("bitonic_topk").bitonic_topk, t.normal(4, 300), t.of([1, 1, 1, 1], "int64"),
           t.of([300, 200, 64, 130], "int64"), 64)  # fmt: skip


def streams(t: Tensors) -> None:
    """Mix the streams of a residual."""
    bare_package("lmdeploy.pytorch.kernels.cuda.dsv4")
    module = _module("dsv4.hc_prepost")
    x = t.normal(14, 4, 256, dtype="bfloat16")
    t.call(module.hc_pre_reduce, x, t.uniform(14, 4), 4)
    t.call(module.hc_post_expand, t.normal(14, 256, dtype="bfloat16"), x, t.uniform(14, 4), t.uniform(14, 4, 4), 4)


CASES = {each.__name__: each for each in (rows, caches, attention, products, adapters, experts, sampling, streams)}
