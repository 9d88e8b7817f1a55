"""torchao: quantisation to fp8 and to formats of microscaling, products in 8 bits, and Hadamard transforms."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    return import_module(f"torchao.{name}")


def blockwise(t: Tensors) -> None:
    """Call the quantisation of blocks to fp8, and the product of blocks."""
    module = _module("kernel.blockwise_quantization")
    t.call(module.fp8_blockwise_act_quant, t.normal(30, 256, dtype="bfloat16"))
    t.call(module.fp8_blockwise_weight_quant, t.normal(256, 384, dtype="bfloat16"))
    a, b = (t.normal(*shape).to(t.dtype("float8_e4m3fn")) for shape in ((40, 256), (128, 256)))
    t.call(module.fp8_blockwise_weight_dequant, b, t.uniform(1, 2))
    t.call(module.blockwise_fp8_gemm, a, t.uniform(40, 2), b, t.uniform(1, 2))


def blockwise_training(t: Tensors) -> None:
    """Call the quantisations and products of training with blocks of fp8."""
    module = _module("prototype.blockwise_fp8_training.kernels")
    x, w = t.normal(256, 256, dtype="bfloat16"), t.normal(128, 256, dtype="bfloat16")
    for name in ("act_quant_lhs", "act_quant_rhs", "act_quant_transposed_lhs"):
        t.call(getattr(module, f"triton_fp8_blockwise_{name}"), x)
    for name in ("weight_quant_rhs", "weight_quant_transposed_rhs"):
        t.call(getattr(module, f"triton_fp8_blockwise_{name}"), w)


def microscaling(t: Tensors) -> None:
    """Call the cast from blocks of fp8 with a scale of 8 bits, and the order of scales for the matrix units."""
    module = _module("prototype.mx_formats.kernels")
    scales = t.integers(120, 134, 64, 4, dtype="uint8").view(t.dtype("float8_e8m0fnu"))
    x = t.normal(64, 128).to(t.dtype("float8_e4m3fn"))
    t.call(module.triton_mxfp8_dequant_dim0, x, scales, t.dtype("bfloat16"), 32)
    t.call(module.triton_mx_block_rearrange, t.integers(0, 256, 200, 10, dtype="uint8"))


def groups(t: Tensors) -> None:
    """Call the casts to fp8 with scales of rows and columns of each group of tokens."""
    module = _module("prototype.moe_training.kernels.jagged_float8_scales")
    ends = t.of([50, 96, 128], "int32")
    t.call(module.triton_fp8_per_group_rowwise_scales, t.normal(64, 128, dtype="bfloat16"), ends)
    t.call(module.triton_fp8_per_group_colwise_scales, t.normal(128, 64, dtype="bfloat16"), ends)
    t.call(module.triton_fp8_per_group_colwise_scales_dual, t.normal(128, 64, dtype="bfloat16"),
           t.normal(128, 96, dtype="bfloat16"), ends, round_scales_to_power_of_2=True)  # fmt: skip


def rows(t: Tensors) -> None:
    """Call the casts to fp8 with scales of the rows and columns of experts."""
    module = _module("prototype.moe_training.kernels.float8_rowwise")
    x = t.normal(2, 96, 128, dtype="bfloat16")
    t.call(module.triton_fp8_rowwise_3d_transpose_rhs, x)
    t.call(module.triton_fp8_rowwise_3d_transpose_rhs_fused_reduction, x)
    t.call(module.triton_fp8_colwise_3d_scale_and_cast, x)
    t.call(module.triton_fp8_rowwise_2d_scale_and_cast, t.normal(70, 256, dtype="bfloat16"))


def tensorwise(t: Tensors) -> None:
    """Call the casts to fp8 with one scale of a tensor, found by a reduction."""
    module = _module("prototype.float8nocompile.kernels.fp8_dynamic_tensorwise")
    algorithm = module.KernelAlgorithm.REDUCTION
    x = t.normal(96, 160, dtype="bfloat16")
    for name in ("row_major", "row_major_t", "col_major", "col_major_t"):
        t.call(getattr(module, f"hp_to_fp8_{name}"), x, t.dtype("float8_e4m3fn"), module.LinearMMConfig(),
               algo=algorithm)  # fmt: skip


def attention_inputs(t: Tensors) -> None:
    """Call the casts of queries, keys and values to fp8, plain, with rotary embeddings and Hadamard transforms."""
    q, k, v = (t.normal(1, 4, 100, 64, dtype="bfloat16") for _ in range(3))
    cos, sin = (t.uniform(100, 64, low=-1.0) for _ in range(2))
    quantization = "prototype.attention.quantization"
    t.call(_module(f"{quantization}.triton_qkv_quantization").triton_fp8_sdpa_quantize, q, k, v)
    rotated = [each.transpose(1, 2).contiguous() for each in (q, k, v)]
    t.call(_module(f"{quantization}.triton_hadamard_rope_qkv_quantization").triton_fp8_hadamard_rope_sdpa_quantize,
           *rotated, cos, sin)  # fmt: skip
    t.call(_module(f"{quantization}.triton_hadamard_utils").inverse_hadamard_transform, q)
    t.call(_module("prototype.fp8_sdpa_inference.fp8_sdpa_quantization").fp8_sdpa_quantize_func, q, k, v)


def products(t: Tensors) -> None:
    """Call the product in mixed types, and those of integers of 8 bits, plain and with scales."""
    module = _module("prototype.common.triton.matmul")
    t.call(module.matmul, t.normal(60, 128, dtype="float16"), t.normal(128, 96, dtype="float16"))
    a, b = t.integers(-127, 128, 64, 128, dtype="int8"), t.integers(-127, 128, 128, 128, dtype="int8")
    scaled = _module("prototype.quantized_training.int8_mm")
    t.call(scaled.scaled_int8_mm_cuda, a, b, t.uniform(64, dtype="bfloat16"), t.uniform(128, dtype="bfloat16"))
    integers = _module("kernel.intmm_triton")
    config = integers.int8_mm_kernel_configs[0]
    t.call(integers.int_matmul_kernel, a, b, t.empty(64, 128, dtype="int32"), config)
    t.call(integers.int_scaled_matmul_kernel, a, b, t.uniform(64, 1, dtype="bfloat16"),
           t.empty(64, 128, dtype="bfloat16"), config)  # fmt: skip


def permutation(t: Tensors) -> None:
    """Call the places of tokens sorted by expert."""
    module = _module("prototype.moe_training.ep.kernels")
    t.call(module.generate_permute_indices, t.of([5, 0, 9, 3, 7, 2, 0, 6], "int32"), 4, 2, 96, 8)


CASES = {
    each.__name__: each
    for each in (
        *(blockwise, blockwise_training, microscaling, groups, rows, tensorwise, attention_inputs, products),
        permutation,
    )
}
