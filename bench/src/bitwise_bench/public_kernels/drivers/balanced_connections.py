"""hyper-connections: matrices whose rows and columns are normalised in turns, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def turns(t: Tensors) -> None:
    """Call the normalisation of square and other matrices, for several numbers of turns."""
    bare_package("hyper_connections")
    function = import_module("hyper_connections.triton_sinkhorn").TritonSinkhornFunction
    for shape, count in (((5, 4, 4), 20), ((2, 3, 12, 9), 5), ((3, 40, 40), 8)):
        found = t.call(function.apply, t.normal(*shape, grad=True), count)
        if found is not None:
            t.call(t.backward, found)


CASES = {each.__name__: each for each in (turns,)}
