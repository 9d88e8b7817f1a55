"""triton-qml: gates on the state of a quantum computer, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors

_BITS = 6


def _apply(t: Tensors, backend: Any, gate: str, *settings: Any) -> None:
    parts = [t.normal(2, 1 << _BITS, scale=0.1) for _ in range(2)]
    state = t.torch.complex(*parts).requires_grad_()
    found = t.call(getattr(backend, f"apply_{gate}_gate"), state, *settings)
    if found is not None:
        t.call(t.torch.view_as_real(found).square().sum().backward)


def _backend(t: Tensors) -> Any:
    module = import_module("triton_qml.simulator")
    return module.TritonBackend(module.QuantumSimulatorBase(_BITS, t.device), False)


def fixed(t: Tensors) -> None:
    """Call gates without angles."""
    backend = _backend(t)
    for gate in ("H", "X", "Y", "S", "sqrtX"):
        _apply(t, backend, gate, 2)
    for gate in ("cz", "cnot", "swap"):
        _apply(t, backend, gate, 1, 4)


def rotations(t: Tensors) -> None:
    """Call rotations of one and of two bits."""
    backend = _backend(t)
    for gate in ("rx", "ry", "rz"):
        _apply(t, backend, gate, t.uniform(2, grad=True), 3)
    for gate in ("rxx", "rzz", "crx"):
        _apply(t, backend, gate, t.uniform(2, grad=True), 0, 3)


CASES = {each.__name__: each for each in (fixed, rotations)}
