"""ply-ai: norms, rotations, paged and dense attention, weights of three values, experts, and pooling."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def rows(t: Tensors) -> None:
    """Call the norm and the rotation."""
    bare_package("ply")
    norm = import_module("ply.rmsnorm").PlyRMSNorm(300).to(t.device)
    t.call(norm, t.normal(11, 300, dtype="float16"))
    rotation = import_module("ply.rope").PlyRoPE(64).to(t.device)
    t.call(rotation, *(t.normal(1, 12, 2, 64, dtype="float16") for _ in range(2)))


def attention(t: Tensors) -> None:
    """Call attention over dense and paged keys."""
    bare_package("ply")
    dense = import_module("ply.flash_attn").PlyFlashAttention()
    t.call(dense, *(t.normal(1, 2, 128, 64, dtype="float16", scale=0.5) for _ in range(3)))
    paged = import_module("ply.paged_attn").PlyPagedAttentionManager(12, 16, 2, 64)
    paged.k_cache.copy_(t.normal(12, 16, 2, 64, dtype="float16"))
    paged.v_cache.copy_(t.normal(12, 16, 2, 64, dtype="float16"))
    tables = t.of([[3, 1, 7], [0, 5, 2]], "int32")
    t.call(paged, t.normal(2, 2, 64, dtype="float16"), tables, t.of([40, 17], "int32"))


def weights(t: Tensors) -> None:
    """Call the product with weights of three values."""
    bare_package("ply")
    layer = import_module("ply.bitnet").PlyBitLinear(128, 128).to(t.device)
    t.call(layer, t.normal(40, 128, dtype="float16"))


def experts(t: Tensors) -> None:
    """Call the grouped product of experts."""
    bare_package("ply")
    layer = import_module("ply.moe").PlyMoE(4, 64, 96).to(t.device)
    t.call(layer, t.normal(30, 64, dtype="float16"), t.integers(0, 4, 30))


def pooled(t: Tensors) -> None:
    """Call the maximum of windows."""
    bare_package("ply")
    t.call(import_module("ply.vision.pool").PlyMaxPool2d(2), t.normal(2, 32, 10, 10, dtype="float16"))


CASES = {each.__name__: each for each in (rows, attention, weights, experts, pooled)}
