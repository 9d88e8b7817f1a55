"""lanczos-triton: images of another size."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def sizes(t: Tensors) -> None:
    """Call the change of size up and down, of three types."""
    module = import_module("lanczos_triton.resize")
    for old, new, dtype, reach in (
        ((24, 40), (48, 56), "float32", 3), ((64, 48), (20, 17), "float16", 3), ((30, 30), (45, 16), "bfloat16", 2),
    ):  # fmt: skip
        t.call(module.resize, t.uniform(2, 3, *old, dtype=dtype), new, a=reach)


CASES = {"sizes": sizes}
