"""parallax-kernel: local linear attention, forward and backward, over packed rows, and of one query."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def training(t: Tensors) -> None:
    """Call the attention of training."""
    bare_package("parallax")
    function = import_module("parallax.triton").parallax_func
    for heads, groups, length, width, window in ((4, 2, 70, 64, -1), (2, 2, 100, 32, 24)):
        q, r = (t.normal(1, heads, length, width, dtype="bfloat16", grad=True) for _ in range(2))
        k, v = (t.normal(1, groups, length, width, dtype="bfloat16", grad=True) for _ in range(2))
        found = t.call(function, q, r, k, v, 0.2, window)
        if found is not None:
            t.call(t.backward, found)


def packed(t: Tensors) -> None:
    """Call the attention over packed rows, and that of one query."""
    bare_package("parallax")
    module = import_module("parallax.triton.parallax_varlen")
    q, r = (t.normal(1, 90, 4, 64, dtype="bfloat16", grad=True) for _ in range(2))
    k, v = (t.normal(1, 90, 2, 64, dtype="bfloat16", grad=True) for _ in range(2))
    found = t.call(module.parallax_varlen_func, q, r, k, v, 0.2, -1, t.of([0, 33, 90], "int64"))
    if found is not None:
        t.call(t.backward, found)
    one = [t.normal(2, 1, 4, 64, dtype="bfloat16") for _ in range(2)]
    many = [t.normal(2, 75, 2, 64, dtype="bfloat16") for _ in range(2)]
    t.call(import_module("parallax.triton.parallax_decode").parallax_decode, *one, *many, 0.2)


CASES = {each.__name__: each for each in (training, packed)}
