"""accelerated-scan: first-order recurrences by associative scans, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def scanned(t: Tensors) -> None:
    """Call the recurrence over sequences of several lengths."""
    module = import_module("accelerated_scan.scalar")
    for length in (64, 200, 512):
        gates, inputs = t.uniform(2, 3, length, grad=True), t.normal(2, 3, length, grad=True)
        t.backward(t.call(module.scan, gates, inputs))


def scanned_narrow(t: Tensors) -> None:
    """Call the recurrence over numbers of 16 bits."""
    module = import_module("accelerated_scan.scalar")
    for dtype in ("bfloat16", "float16"):
        gates = t.uniform(2, 2, 128, dtype=dtype, grad=True)
        t.backward(t.call(module.scan, gates, t.normal(2, 2, 128, dtype=dtype, grad=True)))


CASES = {each.__name__: each for each in (scanned, scanned_narrow)}
