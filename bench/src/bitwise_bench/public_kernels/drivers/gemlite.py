"""GemLite: products with weights of few bits, for batches of one and many rows, and the quantisation of rows."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    # The package lists the folder of its tuned configurations, which is not fetched.
    for place in sys.path:
        if (Path(place) / "gemlite" / "core.py").exists():
            (Path(place) / "gemlite" / "configs").mkdir(exist_ok=True)
    return import_module(f"gemlite.{name}")


def _weights(t: Tensors, bits: int, group: int) -> tuple[Any, Any, Any]:
    """Return weights of 256 by 128 numbers, and the scales and zeros of their groups."""
    words = t.integers(0, 1 << bits, 128, 256, dtype="uint8")
    return words, t.uniform(128, 256 // group, dtype="float16"), t.uniform(128, 256 // group, high=3.0, dtype="float16")


def _products(t: Tensors, layer: Any, *kinds: tuple[str, int], dtype: str = "float16") -> None:
    for kind, count in kinds:
        t.call(layer.forward_manual, t.normal(count, 256, dtype=dtype), matmul_type=kind)


def vectors(t: Tensors) -> None:
    """Call the products of one row with weights of 4 and 2 bits."""
    helper = _module("helper")
    for bits, kinds in ((4, ("GEMV", "GEMV_REVSPLITK")), (2, ("GEMV_REVSPLITK",))):
        words, scales, zeros = _weights(t, bits, 64)
        layer = helper.A16Wn(device=t.device).from_weights(words, scales, zeros, bits, 64)
        _products(t, layer, *((kind, 1) for kind in kinds))


def split_vectors(t: Tensors) -> None:
    """Call the products of one row whose parts are added by atomic operations."""
    words, scales, zeros = _weights(t, 4, 64)
    _products(t, _module("helper").A16Wn(device=t.device).from_weights(words, scales, zeros, 4, 64),
              ("GEMV_SPLITK", 1))  # fmt: skip


def matrices(t: Tensors) -> None:
    """Call the products of several rows with weights of 4 bits."""
    words, scales, zeros = _weights(t, 4, 64)
    layer = _module("helper").A16Wn(device=t.device).from_weights(words, scales, zeros, 4, 64)
    _products(t, layer, ("GEMM", 33), ("GEMM_SPLITK", 16))


def eight_bits(t: Tensors) -> None:
    """Call the products with weights of 8 bits, with and without quantised rows."""
    helper, weight = _module("helper"), t.normal(128, 256, dtype="float16")
    _products(t, helper.A16W8_INT8(device=t.device).from_weights(weight), ("GEMM", 20), ("GEMV_REVSPLITK", 1))
    _products(t, helper.A8W8_int8_dynamic(device=t.device).from_weights(weight), ("GEMM", 40))
    _products(t, helper.A8W8_fp8_dynamic(device=t.device).from_weights(weight), ("GEMM", 40))


def rows(t: Tensors) -> None:
    """Call the quantisation of rows and blocks."""
    module, x = _module("quant_utils"), t.normal(20, 256, dtype="float16")
    for version in (1, 2, 3, 4):
        t.call(getattr(module, f"scale_activations_per_token_triton_v{version}"), x, t.dtype("float8_e4m3fn"))
    t.call(module.scale_activations_per_token_triton_v3, x, t.dtype("int8"))
    t.call(module.scale_activations_per_block_triton_v1, x, t.dtype("float8_e4m3fn"))


def small_formats(t: Tensors) -> None:
    """Call the quantisation of blocks to formats of 8 and 4 bits with a scale."""
    module, x = _module("quant_utils"), t.normal(20, 256, dtype="bfloat16")
    for name in ("mxfp8_triton_v1", "mxfp8_triton_v3", "mxfp8_triton_v4", "mxfp4_triton", "mxfp4_triton_v3",
                 "nvfp4_triton", "nvfp4_triton_v2"):  # fmt: skip
        t.call(getattr(module, f"scale_activations_{name}"), x)


def packing(t: Tensors) -> None:
    """Call the packing of small numbers into words, and back."""
    module, words = _module("bitpack"), t.integers(0, 16, 64, 96, dtype="uint8")
    for name in ("rows", "cols"):
        t.call(getattr(module, f"pack_weights_over_{name}_triton"), words, 4, 32, True)


CASES = {each.__name__: each for each in (vectors, split_vectors, matrices, eight_bits, rows, small_formats, packing)}
