"""grouped-nf4-gemm: experts with weights of four bits, their norms, rotations and routers, and caches of 8 bits."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _experts(t: Tensors, count: int, rows: int, columns: int) -> Any:
    packed = t.integers(0, 256, count, rows, columns // 2, dtype="uint8")
    return packed, t.uniform(count, rows, columns // 32, dtype="float16")


def rows(t: Tensors) -> None:
    """Call the operators on rows: norms, gates, rotations and sums of experts."""
    module = import_module("int4_b32")
    x, weight = t.normal(9, 128, dtype="bfloat16"), t.normal(128, dtype="bfloat16")
    t.call(module.rmsnorm_rows, x, weight, 1e-6)
    t.call(module.rmsnorm_resid_rows, x, t.normal(9, 128, dtype="bfloat16"), weight, 1e-6)
    t.call(module.scaled_resid_add_rows, x, t.normal(9, 128, dtype="bfloat16"), 0.22)
    t.call(module.swiglu_rows, t.normal(9, 192, dtype="bfloat16"))
    t.call(module.combine_rows, t.normal(12, 128, dtype="bfloat16"), t.uniform(12), 3)
    heads, angles = t.normal(9, 4, 64, dtype="bfloat16"), t.normal(9, 64, dtype="bfloat16")
    t.call(module.rope_heads, heads, angles.cos(), angles.sin())
    t.call(module.rope_norm_heads, heads, t.normal(64, dtype="bfloat16"), angles.cos(), angles.sin(), 1e-6)


def routers(t: Tensors) -> None:
    """Call the choice of experts from logits in its two modes, and the order of tokens by expert."""
    module = import_module("int4_b32")
    logits = t.normal(11, 16, dtype="bfloat16")
    t.call(module.router_epilogue, logits, 4, True)
    t.call(module.router_epilogue, logits, 2, False, select_on_logits=True, bias=t.normal(16, dtype="bfloat16"))
    t.call(module.build_group_tiles_fused, t.integers(0, 8, 40, dtype="int32"), 8, 16)


def vectors(t: Tensors) -> None:
    """Call the products of single rows by experts with weights of four bits."""
    module = import_module("int4_b32")
    packed, scales = _experts(t, 4, 192, 256)
    quantised = t.call(module.quant_x_rows, t.normal(6, 256, dtype="bfloat16"))
    experts = t.of([0, 3, 1, 1, 2, 0], "int32")
    if quantised is not None:
        t.call(module.gemv_int4_b32, *quantised, packed, scales, experts, 192, 256)
        t.call(module.gemv_int4_b32, *quantised, packed, scales, experts, 192, 256, fused_reduce=True)
        t.call(module.gemv_int4_b32_grouped, *quantised, packed, scales, experts, 192, 256)


def grouped(t: Tensors) -> None:
    """Call the products of groups of rows by experts in the format NF4, forward and backward."""
    module = import_module("nf4_grouped")
    weights, largest = t.integers(0, 256, 3, 128, 64, dtype="uint8"), t.uniform(3, 128, 2)
    x = t.normal(50, 128, dtype="bfloat16")
    for sizes in ([20, 13, 17], [1, 1, 1]):
        mine = x[: sum(sizes)].contiguous()
        t.call(module.gemm_4bit_grouped, mine, weights, largest, sizes, [0, 1, 2])
    t.call(module.dgrad_4bit_grouped, t.normal(50, 128, dtype="bfloat16"), weights, largest, [20, 13, 17], [0, 1, 2])
    route = import_module("nf4_route")
    t.call(route.dequant_groups, weights, largest, t.of([2, 0], "int32"), 128, 128)
    t.call(route.decoded_forward, x, weights, largest, [20, 13, 17], [0, 1, 2])


def dense(t: Tensors) -> None:
    """Call the products of one row by dense weights in 16 and in 8 bits."""
    t.call(import_module("dense_gemv").gemv_bf16_bw, t.normal(256, dtype="bfloat16"),
           t.normal(192, 256, dtype="bfloat16"))  # fmt: skip
    module = import_module("dense_i8")
    weights, scales = t.integers(-127, 128, 192, 256, dtype="int8"), t.uniform(192)
    t.call(module.linear_i8, t.normal(1, 256, dtype="bfloat16"), weights, scales)
    t.call(module.linear_i8, t.normal(5, 256, dtype="bfloat16"), weights, scales)


def micro(t: Tensors) -> None:
    """Call the products by experts in the format MXFP4."""
    module = import_module("mxfp4_grouped")
    blocks, scales = t.integers(0, 256, 3, 128, 64, dtype="uint8"), t.integers(120, 132, 3, 128, 4, dtype="uint8")
    t.call(module.gemm_mxfp4_grouped, t.normal(50, 128, dtype="bfloat16"), blocks, scales, [20, 13, 17], [0, 1, 2])
    quantised = t.call(import_module("int4_b32").quant_x_rows, t.normal(3, 128, dtype="bfloat16"))
    if quantised is not None:
        t.call(module.gemv_mxfp4_b32, *quantised, blocks, scales, t.of([2, 0, 1], "int32"), 128, 128)


def paged(t: Tensors) -> None:
    """Call the attention of one token over pages in 8 bits."""
    cache, module = import_module("fp8_kv"), import_module("fp8_paged_attn")
    pools = []
    for _ in range(2):
        found = t.call(cache.quantize_kv_fp8, t.normal(6, 16, 2, 64))
        if found is None:
            return
        rows = t.torch.empty(6, cache.kv_block_bytes(16, 2, 64), dtype=t.torch.uint8, device=t.device)
        for page in range(6):
            cache.pack_kv_block(found[0][page], found[1][page], rows[page])
        pools.append(rows)
    table, lengths = t.of([[0, 2, 4], [5, 1, 3]], "int32"), t.of([41, 20], "int32")
    t.call(module.fp8_paged_decode_attention, t.normal(2, 8, 64, dtype="bfloat16"), *pools, table, lengths,
           n_kv_heads=2, head_dim=64)  # fmt: skip


CASES = {each.__name__: each for each in (rows, routers, vectors, grouped, dense, micro, paged)}
