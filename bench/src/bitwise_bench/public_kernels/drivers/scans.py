"""mingru-scans: recurrences of minimal gated units as scans, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def linear(t: Tensors) -> None:
    """Call scans of numbers, plain and of logarithms."""
    module = import_module("mingru.min_gru")
    for length, width in ((48, 24), (100, 40)):
        found = t.call(module.linear_scan, t.uniform(2, length, width, low=0.2, grad=True),
                       t.normal(2, length, width, grad=True))  # fmt: skip
        if found is not None:
            t.call(t.backward, found)
        found = t.call(module.parallel_scan_log, t.uniform(2, length, width, low=-2.0, high=-0.1, grad=True),
                       t.normal(2, length + 1, width, grad=True))  # fmt: skip
        if found is not None:
            t.call(t.backward, found)


def matrices(t: Tensors) -> None:
    """Call scans of matrices of two rows."""
    module = import_module("mingru.min_gru")
    found = t.call(module.matrix_scan, t.normal(2, 40, 12, 2, 2, scale=0.5, grad=True),
                   t.normal(2, 40, 12, 2, grad=True))  # fmt: skip
    if found is not None:
        t.call(t.backward, found)


def layers(t: Tensors) -> None:
    """Call the layers of four recurrences."""
    module = import_module("mingru.min_gru")
    for name in ("MinGRU", "SignedMinGRU", "RotationMinGRU", "DeltaMinGRU"):
        layer = getattr(module, name)(32, 48).to(t.device)
        found = t.call(layer, t.normal(2, 40, 32, grad=True))
        if found is not None:
            t.call(t.backward, found)


CASES = {each.__name__: each for each in (linear, matrices, layers)}
