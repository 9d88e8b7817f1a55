"""rotalabs-accel: norms, activations, rotations and quantised products of inference."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import stub
from bitwise_bench.public_kernels.tensors import Tensors


def norms(t: Tensors) -> None:
    """Call the norms, alone and after a sum."""
    module = import_module("rotalabs_accel.kernels.rmsnorm")
    for width, dtype in ((288, "float16"), (1100, "bfloat16"), (640, "float32")):
        x, weight = t.normal(2, 7, width, dtype=dtype), t.normal(width, dtype=dtype)
        t.call(module.rmsnorm, x, weight)
        t.call(module.rmsnorm_residual_fused, x, t.normal(2, 7, width, dtype=dtype), weight)


def activations(t: Tensors) -> None:
    """Call the gated unit, with and without biases, and the rotation by position."""
    module = import_module("rotalabs_accel.kernels.swiglu")
    for dtype in ("float16", "float32"):
        gate, up = (t.normal(3, 10, 176, dtype=dtype) for _ in range(2))
        t.call(module.swiglu_fused, gate, up)
        t.call(module.swiglu_with_bias, gate, up, t.normal(176, dtype=dtype), t.normal(176, dtype=dtype))
    rope = import_module("rotalabs_accel.kernels.rope")
    for dtype in ("float32", "float16"):
        q, k = (t.normal(2, 3, 20, 32, dtype=dtype) for _ in range(2))
        angles = t.normal(20, 16, dtype=dtype)
        t.call(rope.apply_rope, q, k, angles.cos(), angles.sin(), use_triton=True)


def products(t: Tensors) -> None:
    """Call the product with weights of 8 bits."""
    stub("triton_kernels.quantization", quantize_weight_per_channel=None, dequantize=None)
    module = import_module("rotalabs_accel.kernels.quantized_matmul")
    for rows, width, columns in ((20, 128, 96), (64, 256, 128)):
        t.call(module.int8_gemm, t.normal(rows, width, dtype="float16"),
               t.integers(-127, 128, columns, width, dtype="int8"), t.uniform(columns, low=0.01, high=0.02),
               use_cublas=False)  # fmt: skip


CASES = {each.__name__: each for each in (norms, activations, products)}
