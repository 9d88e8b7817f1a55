"""triton-kernels: rotary embeddings."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def examples(t: Tensors) -> None:
    """Call the example of the rotation in two layouts, of queries alone and with keys."""
    bare_package("triton_kernels")
    t.call(import_module("triton_kernels.rotary_embedding").run)


CASES = {each.__name__: each for each in (examples,)}
