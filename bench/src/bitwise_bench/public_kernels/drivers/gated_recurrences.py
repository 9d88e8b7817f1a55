"""gru-qat: recurrences of gated units in one kernel, with dense and with structured matrices, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors

_STEPS, _BATCH, _WIDTH = 6, 8, 64


def _run(t: Tensors, module: str, name: str, *weights: Any, batch: int = _BATCH, width: int = _WIDTH) -> None:
    function = getattr(import_module(f"gru_qat.triton_kernels.{module}"), name)
    gates, state = t.normal(_STEPS, batch, 3 * width, grad=True), t.normal(batch, width, grad=True)
    found = t.call(function, gates, state, *weights, t.normal(3 * width, grad=True))
    if found is not None:
        t.call(t.backward, found)


def dense(t: Tensors) -> None:
    """Call the recurrence with a dense matrix."""
    for name in ("gru_scan", "gru_scan_persistent"):
        _run(t, "scan", name, t.normal(3 * _WIDTH, _WIDTH, scale=0.2, grad=True))


def diagonal(t: Tensors) -> None:
    """Call the recurrence with diagonal matrices."""
    _run(t, "scan_diagonal", "gru_scan_diagonal", t.normal(3, _WIDTH, scale=0.5, grad=True))


def blocks(t: Tensors) -> None:
    """Call the recurrences with matrices of blocks."""
    _run(t, "scan_blockdiag", "gru_scan_blockdiag", t.normal(3, 4, 16, 16, scale=0.3, grad=True))
    _run(t, "scan_monarch", "gru_scan_monarch", t.normal(3, 4, 16, 16, scale=0.3, grad=True),
         t.normal(3, 4, 16, 16, scale=0.3, grad=True))  # fmt: skip


CASES = {each.__name__: each for each in (dense, diagonal, blocks)}
