"""turbopress: the transform of Hadamard in blocks, with a scale."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def blocks(t: Tensors) -> None:
    """Call the transform."""
    bare_package("turbopress")
    function = import_module("turbopress.triton_kernel").fwht_scale
    for rows, width, block in ((3, 512, 256), (9, 1024, 512), (20, 2048, 1024)):
        t.call(function, t.normal(rows, width, dtype="float16"), t.normal(width, dtype="float16"), block)


CASES = {each.__name__: each for each in (blocks,)}
