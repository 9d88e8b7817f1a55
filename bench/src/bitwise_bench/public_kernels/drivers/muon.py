"""triton-muon-adamw: steps of two optimisers, one of them with a product that makes matrices orthogonal."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def products(t: Tensors) -> None:
    """Call the three products of the iteration on several matrices."""
    module = import_module("triton_muon_adamw.muon.triton_muon")
    for rows, columns, dtype in ((64, 128, "bfloat16"), (96, 160, "bfloat16"), (128, 128, "float32")):
        x = t.normal(rows, columns, dtype=dtype, scale=0.1)
        square, other = (t.empty(rows, rows, dtype=dtype) for _ in range(2))
        t.call(module.solve_ns_kernel_1, x, square)
        t.call(module.solve_ns_kernel_2, square, -4.775, 2.0315, other)
        t.call(module.solve_ns_kernel_3, x, other, 3.445, t.empty(rows, columns, dtype=dtype))


def adamw(t: Tensors) -> None:
    """Call the step of AdamW on parameters of several sizes."""
    module = import_module("triton_muon_adamw.adamw.triton_adam")
    for count, dtype in ((3000, "float32"), (4096, "bfloat16")):
        tensors = [t.normal(count, dtype=dtype), t.normal(count, dtype=dtype), t.normal(count, dtype=dtype, scale=0.1)]
        t.call(module.solve_adamw_step, *tensors, t.uniform(count, dtype=dtype), 0.001, 0.4, 0.1, 0.9, 0.99, 0.01, 1e-7)


CASES = {each.__name__: each for each in (products, adamw)}
