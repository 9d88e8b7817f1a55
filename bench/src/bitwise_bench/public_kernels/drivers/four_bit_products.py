"""gptq-triton: products of half precision by weights of four bits, and a fused pair of them."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def products(t: Tensors) -> None:
    """Call a product with groups of weights, with and without a bias."""
    bare_package("gptq_triton")
    module = import_module("gptq_triton.quant_linear")
    for rows, inner, columns, group in ((17, 128, 256, 128), (40, 256, 512, 256)):
        weights, zeros = t.integers(-(1 << 31), 1 << 31, inner // 8, columns, dtype="int32"), None
        zeros = t.integers(-(1 << 31), 1 << 31, inner // group, columns // 8, dtype="int32")
        scales = t.uniform(inner // group, columns, dtype="float16")
        x = t.normal(rows, inner, dtype="float16")
        t.call(module.triton_matmul4, group, x, weights, scales, zeros, None)
        t.call(module.triton_matmul4, group, x, weights, scales, zeros, t.normal(columns, dtype="float16"))


def fused(t: Tensors) -> None:
    """Call the fused pair of products of a gated layer."""
    bare_package("gptq_triton")
    module = import_module("gptq_triton.fused_mlp")
    inner, columns, group = 256, 256, 128
    parts = [
        each
        for _ in range(2)
        for each in (
            t.integers(-(1 << 31), 1 << 31, inner // 8, columns, dtype="int32"),
            t.uniform(inner // group, columns, dtype="float16"),
            t.integers(-(1 << 31), 1 << 31, inner // group, columns // 8, dtype="int32"),
        )
    ]
    t.call(module.triton_llama_mlp_4, group, t.normal(17, inner, dtype="float16"), *parts)


CASES = {each.__name__: each for each in (products, fused)}
