"""auto-round: searches of scales and zeros, products with packed weights, and Hadamard transforms to four bits."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def searched(t: Tensors) -> None:
    """Call the searches of scales and zeros of groups."""
    for name in ("auto_round_extension", "auto_round_extension.triton"):
        bare_package(name)
    module = import_module("auto_round_extension.triton.neuqi_sweep")
    data, weights, steps = t.normal(24, 32), t.uniform(24, 32), t.uniform(10, low=0.5)
    t.call(module.neuqi_shared_sweep_triton, data, weights, steps, 1.0 / steps, 15)
    t.call(module.sym_search_shared_triton, data, weights, steps, 1.0 / steps, 8)
    t.call(module.neuqi_sweep_triton, data, weights, t.uniform(24, 6, low=0.1), 15)
    t.call(module.sym_search_triton, data, weights, t.uniform(24, 6, low=0.1), 8)


def products(t: Tensors) -> None:
    """Call products with weights of 4 and 8 bits, and their expansion."""
    for name in ("auto_round_extension", "auto_round_extension.triton", "auto_round_extension.triton.triton_utils"):
        bare_package(name)
    module = import_module("auto_round_extension.triton.triton_utils.kernels")
    expanded = import_module("auto_round_extension.triton.triton_utils.dequant")
    for bits in (4, 8):
        words = 32 // bits
        packed = t.integers(0, 1 << 31, 128 // words, 64, dtype="int32")
        zeros, scales = t.integers(0, 1 << 31, 4, 64 // words, dtype="int32"), t.uniform(4, 64, dtype="float16")
        groups = t.of([row // 32 for row in range(128)], "int32")
        x = t.normal(20, 128, dtype="float16")
        t.call(module.quant_matmul_248_core, x, packed, scales, zeros, groups, bits, (1 << bits) - 1)
        t.call(expanded.dequant248_core, packed, scales, zeros, groups, bits, (1 << bits) - 1)


CASES = {each.__name__: each for each in (searched, products)}
