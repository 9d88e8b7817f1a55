"""auto-round: products with weights of 2, 4 and 8 bits, and their transposes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors


def _module(folder: str, name: str) -> Any:
    bare_package(f"auto_round_extension.triton.{folder}")
    stub("auto_round.utils", get_packing_device=lambda device="auto": "cpu")
    return import_module(f"auto_round_extension.triton.{folder}.{name}")


def products(t: Tensors) -> None:
    """Call the products and the conversion of the weights, in both conventions for the zero."""
    for folder in ("triton_utils", "triton_utils_zp"):
        for bits, dtype in ((4, "float16"), (8, "bfloat16"), (2, "float16")):
            packed = 32 // bits
            weights = (t.integers(-(2**31), 2**31, 128 // packed, 96, dtype="int32"), t.uniform(4, 96, dtype=dtype),
                       t.integers(-(2**31), 2**31, 4, 96 // packed, dtype="int32"),
                       t.of([k // 32 for k in range(128)], "int32"))  # fmt: skip
            t.call(
                _module(folder, "kernels").quant_matmul_248_core,
                t.normal(24, 128, dtype=dtype),
                *weights,
                bits,
                2**bits - 1,
            )
            t.call(
                _module(folder, "kernels").transpose_quant_matmul_248_core,
                t.normal(24, 96, dtype=dtype),
                *weights,
                bits,
                2**bits - 1,
            )
            t.call(_module(folder, "dequant").dequant248_core, *weights, bits, 2**bits - 1)


CASES = {each.__name__: each for each in (products,)}
