"""comfy-kitchen: quantisation, products of bytes, norms with shifts, rotations, and attention of neighbours."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    bare_package("comfy_kitchen.backends.eager")
    bare_package("comfy_kitchen.backends.triton")
    bare_package("comfy_kitchen.tensor")
    return import_module(f"comfy_kitchen.backends.triton.{name}")


def shifted_norms(t: Tensors) -> None:
    """Call norms with scales and shifts of a sequence, with and without the mean."""
    module = _module("adaln")
    for width, dtype in ((320, "bfloat16"), (1152, "float32")):
        for function in (module.adaln, module.rms_adaln):
            t.call(function, t.normal(2, 13, width, dtype=dtype), t.normal(2, 1, width, dtype=dtype),
                   t.normal(2, 1, width, dtype=dtype))  # fmt: skip


def neighbours(t: Tensors) -> None:
    """Call attention to the neighbours in a volume, causal along one axis and not."""
    module = _module("na")
    for causal, dtype in (([False] * 3, "bfloat16"), ([True, False, False], "float16")):
        q, k, v = (t.normal(1, 4, 6, 8, 2, 64, dtype=dtype) for _ in range(3))
        t.call(module.na3d, q, k, v, [3, 3, 5], causal)


def bytes_of_floats(t: Tensors) -> None:
    """Call the quantisation of a tensor to fp8, and back."""
    module = _module("quantization")
    for name in ("float8_e4m3fn", "float8_e5m2"):
        found = t.call(module.quantize_per_tensor_fp8, t.normal(33, 70, dtype="bfloat16"), t.of([0.02], "float32"),
                       t.dtype(name))  # fmt: skip
        if found is not None:
            t.call(module.dequantize_per_tensor_fp8, found, t.of([0.02], "float32"))


def blocks(t: Tensors) -> None:
    """Call the quantisation to blocks of fp8 with scales in the layout of matrix units."""
    module = _module("quantization")
    t.call(module.quantize_mxfp8, t.normal(64, 96, dtype="bfloat16"), pad_32x=True)


def integers(t: Tensors) -> None:
    """Call rows of bytes with their scales, and products with them."""
    module = _module("quantization")
    t.call(module.triton_quantize_rowwise, t.normal(21, 256, dtype="bfloat16"))
    weight = t.integers(-127, 128, 96, 256, dtype="int8")
    t.call(module.int8_linear, t.normal(21, 256, dtype="bfloat16"), weight, t.uniform(96, 1),
           t.normal(96, dtype="bfloat16"))  # fmt: skip
    t.call(module.int8_linear, t.normal(5, 256, dtype="bfloat16"), weight, t.uniform(96, 1), convrot=True)


def rotations(t: Tensors) -> None:
    """Call rotations of queries and keys by matrices of pairs, in two layouts, with and without a norm before."""
    module, normed = _module("rope"), _module("rms_rope")
    q, k = (t.normal(2, 3, 17, 64, dtype="bfloat16") for _ in range(2))
    pairs = t.normal(1, 1, 17, 32, 2, 2)
    t.call(module.apply_rope, q, k, pairs)
    t.call(module.apply_rope_split_half1, q, pairs)
    t.call(normed.rms_rope, q, k, pairs, t.normal(64, dtype="bfloat16"), t.normal(64, dtype="bfloat16"))
    t.call(normed.rms_rope_split_half1, q, pairs, t.normal(64, dtype="bfloat16"))


CASES = {each.__name__: each for each in (shifted_norms, neighbours, bytes_of_floats, blocks, integers, rotations)}
