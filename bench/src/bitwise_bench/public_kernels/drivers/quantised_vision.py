"""qattn: products and attention of integers in transformers of images."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors


def products(t: Tensors) -> None:
    """Call the products with scales of the whole and of channels."""
    stub("triton.ops.matmul_perf_model", early_config_prune=lambda configs, named, **_: configs,
         estimate_matmul_time=lambda **_: 0.0)  # fmt: skip
    bare_package("qattn.nn.functional")
    matmul = import_module("qattn.nn.functional._matmul")._matmul
    for m, k, n in ((50, 96, 72), (33, 128, 160)):
        a, b = t.integers(-90, 90, m, k, dtype="int8"), t.integers(-90, 90, k, n, dtype="int8")
        t.call(matmul.apply, a, b, t.of([0.02], "float32"), t.of([0.03], "float32"), t.of([0.5], "float32"), None)
        t.call(matmul.apply, a, b, t.uniform(m), t.uniform(n), t.of([0.5], "float32"), t.normal(n), True, True)


def attention(t: Tensors) -> None:
    """Call attention of integers."""
    bare_package("qattn.nn.functional")
    function = import_module("qattn.nn.functional._flash_attention")._attention
    for length, width in ((64, 32), (128, 64)):
        parts = [t.integers(-90, 90, 1, 3, length, width, dtype="int8") for _ in range(3)]
        t.call(function.apply, *parts, t.of([0.02], "float32"), t.of([0.03], "float32"), 0.2)


CASES = {each.__name__: each for each in (products, attention)}
