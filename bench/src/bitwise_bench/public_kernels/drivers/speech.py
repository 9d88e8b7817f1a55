"""qwen3-tts-triton: norms, gates, rotations of three axes, and keys of 3 and 4 bits."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _function(module: str, name: str) -> Any:
    bare_package("qwen3_tts_triton.kernels")
    return getattr(import_module(f"qwen3_tts_triton.kernels.{module}"), name)


def rows(t: Tensors) -> None:
    """Call the norms and the gate."""
    for width, dtype in ((416, "bfloat16"), (1000, "float16"), (90, "float32")):
        x, other, weight = (
            t.normal(2, 7, width, dtype=dtype),
            t.normal(2, 7, width, dtype=dtype),
            t.normal(width, dtype=dtype),
        )
        t.call(_function("rms_norm", "triton_rms_norm"), x, weight, 1e-6)
        t.call(_function("fused_norm_residual", "triton_fused_add_rms_norm"), x, other, weight, 1e-6)
        t.call(_function("swiglu", "triton_swiglu_forward"), x, other)


def rotations(t: Tensors) -> None:
    """Call the rotation of three axes."""
    cos, sin = t.normal(3, 2, 15, 64, dtype="bfloat16"), t.normal(3, 2, 15, 64, dtype="bfloat16")
    t.call(_function("rope", "triton_mrope_forward"), t.normal(2, 4, 15, 64, dtype="bfloat16"),
           t.normal(2, 2, 15, 64, dtype="bfloat16"), cos, sin, [12, 10, 10])  # fmt: skip


def codes(t: Tensors) -> None:
    """Call the compression of keys and its inverse."""
    for bits in (3, 4):
        levels = 1 << bits
        turns = t.normal(2, 64, 64, scale=0.12)
        packed = t.integers(0, 256, 1, 2, 9, 64 * bits // 8, dtype="uint8")
        t.call(_function("fused_dequant", "triton_fused_dequant"), packed,
               t.uniform(1, 2, 9, 1, dtype="bfloat16"), turns, t.normal(levels), 64, bits)  # fmt: skip
        bounds = t.of([-2.0 + 4.0 * place / levels for place in range(levels - 1)], "float32")
        t.call(
            _function("fused_dequant", "triton_fused_quant"),
            t.normal(1, 2, 9, 64, dtype="bfloat16"),
            turns,
            bounds,
            bits,
        )


CASES = {each.__name__: each for each in (rows, rotations, codes)}
