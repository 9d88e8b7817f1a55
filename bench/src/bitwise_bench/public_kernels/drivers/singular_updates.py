"""eigentune: updates of a layer in the space of its singular vectors, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def updates(t: Tensors) -> None:
    """Call the update with a vector and with a matrix in the middle."""
    function = import_module("eigentune.kernels.autograd").eigentune_update
    for kind, rank, dtype in (("diag", 16, "float32"), ("core", 32, "bfloat16"), ("core", 16, "float32")):
        middle = (
            t.normal(rank, dtype=dtype, grad=True) if kind == "diag" else t.normal(rank, rank, dtype=dtype, grad=True)
        )
        found = t.call(function, t.normal(40, 96, dtype=dtype, grad=True), t.normal(40, 80, dtype=dtype),
                       t.normal(rank, 96, dtype=dtype), t.normal(80, rank, dtype=dtype), middle, kind,
                       "triton")  # fmt: skip
        if found is not None:
            t.call(t.backward, found)


CASES = {"updates": updates}
