"""turboquant-vllm: keys and values of 4 bits with rotations, and attention over them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _function(module: str, name: str) -> Any:
    bare_package("turboquant_vllm.triton")
    return getattr(import_module(f"turboquant_vllm.triton.{module}"), name)


def _centroids(t: Tensors) -> Any:
    return t.of([-2.7 + 0.36 * place for place in range(16)], "float32")


def codes(t: Tensors) -> None:
    """Call the compression and its inverse."""
    for width, dtype in ((64, "float16"), (128, "bfloat16")):
        x = t.normal(37, 3, width, dtype=dtype)
        rotations = [t.normal(width, width // 2, scale=0.1) for _ in range(2)]
        t.call(_function("tq4_compress", "tq4_compress"), x, *rotations, t.of([-2.5 + 0.36 * e for e in range(15)],
               "float32"))  # fmt: skip
        packed = t.integers(0, 256, 37, 3, width // 2, dtype="uint8")
        t.call(_function("tq4_decompress", "tq4_decompress"), packed, t.uniform(37, 3, 1), _centroids(t),
               t.dtype(dtype))  # fmt: skip


def attention(t: Tensors) -> None:
    """Call attention over plain and over compressed keys and values."""
    for heads, groups, length, width, causal in ((4, 2, 70, 64, True), (2, 2, 45, 128, False)):
        q = t.normal(1, heads, length, width, dtype="float16")
        k, v = (t.normal(1, groups, length, width, dtype="float16") for _ in range(2))
        packed = [t.integers(0, 256, 1, groups, length, width // 2, dtype="uint8") for _ in range(2)]
        norms = [t.uniform(1, groups, length, 1) for _ in range(2)]
        rotation = t.normal(width, width, scale=0.1)
        t.call(_function("flash_attention", "triton_flash_attention"), q, k, v, None, causal)
        t.call(_function("flash_attention_tq4", "triton_flash_attention_tq4"), q, packed[0], norms[0], _centroids(t),
               rotation, v, None, causal)  # fmt: skip
        t.call(_function("flash_attention_tq4_kv", "triton_flash_attention_tq4_kv"), q, packed[0], norms[0], packed[1],
               norms[1], _centroids(t), rotation, None, causal)  # fmt: skip
        t.call(_function("fused_qk_attention", "fused_qk_scores"), t.normal(1, heads, 1, width, dtype="float32"),
               packed[0], norms[0].squeeze(-1), _centroids(t), 0.1, n_q_heads=heads, n_kv_heads=groups)  # fmt: skip


def pages(t: Tensors) -> None:
    """Call attention over pages of compressed keys and values."""
    groups, width, size = 2, 64, 16
    cache = t.integers(0, 60, 9, size, groups * (width + 8), dtype="uint8")
    table, lengths = t.of([[3, 1, 7, 0], [2, 8, 4, 5]], "int32"), t.of([50, 33], "int32")
    for module, name, many in (("fused_paged_tq4_attention", "fused_paged_tq4_decode", 2),
                               ("fused_paged_tq4_int8_prefill", "fused_paged_tq4_int8_prefill", 1)):  # fmt: skip
        rows = 33 if many == 1 else 2
        query = t.normal(rows, 4, width, dtype="float16")
        t.call(_function(module, name), query, cache, table[-many:], lengths[-many:],
               _centroids(t), t.normal(width, width, scale=0.1), groups, width, size)  # fmt: skip


CASES = {each.__name__: each for each in (codes, attention, pages)}
