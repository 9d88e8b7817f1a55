"""nvidia-modelopt: quantisation to 4 and 8 bits, and attention with quantised or sparse probabilities."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors

_KERNELS = "modelopt.torch.kernels"


def _module(name: str) -> Any:
    for part in ("quantization.gemm", "quantization.common", "quantization.attention", "common.attention",
                 "sparsity.attention"):  # fmt: skip
        bare_package(f"{_KERNELS}.{part}")
    stub("modelopt.torch.quantization.utils.numeric_utils", E4M3_MAX=448.0)
    stub("modelopt.torch.utils.logging", warn_rank_0=print)
    return import_module(f"{_KERNELS}.{name}")


def weights(t: Tensors) -> None:
    """Quantise weights to 4 and 8 bits, and back."""
    for dtype in ("float16", "bfloat16", "float32"):
        x = t.normal(32, 256, dtype=dtype)
        largest = x.abs().amax().float()
        blocks = x.float().reshape(-1, 16).abs().amax(-1)
        t.call(_module("quantization.gemm.fp4_kernel_hopper").fp4_fake_quant_block, x, largest)
        module = _module("quantization.gemm.fp4_kernel")
        t.call(module.static_blockwise_fp4_fake_quant, x.reshape(-1, 16), blocks, largest)
        t.call(module.fp4_dequantize, t.integers(0, 256, 32, 64, dtype="uint8"), t.uniform(32, 8),
               t.of([0.7], "float32"), dtype=t.dtype(dtype))  # fmt: skip
        t.call(_module("quantization.gemm.nvfp4_fp8_sweep").nvfp4_fp8_scale_sweep, x, largest)
    t.call(_module("quantization.gemm.fp8_kernel").weight_dequant, t.normal(256, 128).to(t.dtype("float8_e4m3fn")),
           t.uniform(2, 1), dtype=t.dtype("bfloat16"))  # fmt: skip
    t.call(_module("quantization.gemm.gptq_fused_kernel").gptq_fused_block_scalar, t.normal(24, 32), t.uniform(24, 2),
           0.5, t.normal(32, 32).triu() + 4 * t.torch.eye(32, device=t.device), 16, 0)  # fmt: skip


def attention(t: Tensors) -> None:
    """Call attention over sequences of different lengths, dense, sparse and quantised, forward and backward."""
    module = _module("common.attention.triton_fa")
    starts, lengths = t.of([0, 40], "int32"), t.of([40, 27], "int32")
    for settings in ({}, {"sparsity_n": 2, "sparsity_m": 4, "dense_recent_tokens": 16}, {"skip_softmax_threshold": 0.1},
                     {"is_causal": False}):  # fmt: skip
        for dtype, heads, width in (("float16", 4, 64), ("bfloat16", 2, 128)):
            q, k, v = (t.normal(67, each, width, dtype=dtype, grad=True) for each in (heads, 2, 2))
            found = t.call(module.attention, q, k, v, starts, lengths, 40, **settings)
            if found is not None:
                t.call(t.backward, found)


def decoding(t: Tensors) -> None:
    """Call attention of one query over pages."""
    module = _module("common.attention.decode_attention")
    table = t.of([[3, 7, 1], [0, 5, 2]], "int32")
    for dtype, settings in (("float16", {}), ("bfloat16", {"p_qdq": "fp8"})):
        caches = [t.normal(8, 16, 2, 64, dtype=dtype) for _ in range(2)]
        t.call(
            module.attention_decode,
            t.normal(2, 4, 64, dtype=dtype),
            *caches,
            table,
            t.of([41, 30], "int32"),
            **settings,
        )


CASES = {each.__name__: each for each in (weights, attention, decoding)}
