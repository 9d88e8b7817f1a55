"""fasterkernels: attention of one new token over caches of several layouts."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def pages(t: Tensors) -> None:
    """Call decoding over pages."""
    function = import_module("fskernels.paged_attn.triton_paged_attn").paged_flash_decode
    pool = [t.normal(10, 16, 2, 64, dtype="float16") for _ in range(2)]
    t.call(function, t.normal(2, 4, 64, dtype="float16"), *pool, t.of([[4, 1, 7, 0], [9, 3, 0, 0]], "int32"),
           t.of([55, 23], "int32"), 16)  # fmt: skip


def caches(t: Tensors) -> None:
    """Call decoding over dense caches, of 16 and of 8 bits, and over packed ones."""
    dense = import_module("fskernels.triton.triton_gqa_decode_hf").flash_decode_gqa_hf_dense_optimized
    query, lengths = t.normal(2, 8, 64, dtype="bfloat16"), t.of([70, 96], "int32")
    cache = [t.normal(2, 2, 96, 64, dtype="bfloat16") for _ in range(2)]
    t.call(dense, query, *cache, lengths, num_splits=4)
    packed = import_module("fskernels.triton.triton_gqa_decode").flash_decode_gqa_varlen
    t.call(packed, t.normal(2, 8, 64, dtype="float16"), *(t.normal(150, 2, 64, dtype="float16") for _ in range(2)),
           t.of([0, 60, 150], "int32"))  # fmt: skip


def forward(t: Tensors) -> None:
    """Call the attention of whole sequences."""
    function = import_module("fskernels.triton.triton_fa2").flash_attention_2_fwd
    for length, dtype in ((64, "float16"), (96, "bfloat16")):
        t.call(function, *(t.normal(1, 2, length, 64, dtype=dtype) for _ in range(3)))


CASES = {each.__name__: each for each in (pages, caches, forward)}
