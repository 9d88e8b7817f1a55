"""freesolo-chalk: norms, gates, rotations, losses and convolutions of models in training, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _built(module: str, name: str, *settings: Any) -> Any:
    return getattr(import_module(f"chalk.ops.{module}"), name)(*settings)


def _both(t: Tensors, function: Any, *arguments: Any) -> None:
    found = t.call(function, *arguments)
    if found is not None:
        t.call(t.backward, found)


def norms(t: Tensors) -> None:
    """Call the norms, with and without gates."""
    for rows, width, dtype in ((13, 320, "bfloat16"), (6, 1100, "float32")):
        for gemma in (True, False):
            _both(t, _built("rmsnorm", "_build_kernels", gemma), t.normal(2, rows, width, dtype=dtype, grad=True),
                  t.normal(width, dtype=dtype, grad=True), 1e-6)  # fmt: skip
        _both(t, _built("gdn", "_build_gated_rmsnorm_kernels"), t.normal(rows, width, dtype=dtype, grad=True),
              t.normal(width, dtype=dtype, grad=True), t.normal(rows, width, dtype=dtype, grad=True), 1e-6)  # fmt: skip


def gates(t: Tensors) -> None:
    """Call the gates."""
    for width, dtype in ((288, "bfloat16"), (900, "float32")):
        for module, name in (("swiglu", "_build_kernels"), ("qkv", "_build_out_gate")):
            _both(t, _built(module, name), *(t.normal(2, 9, width, dtype=dtype, grad=True) for _ in range(2)))


def positions(t: Tensors) -> None:
    """Call the rotations by position, and norms with rotations."""
    q, k = (t.normal(2, heads, 20, 64, dtype="bfloat16", grad=True) for heads in (4, 2))
    cos, sin = t.normal(2, 20, 64, dtype="bfloat16"), t.normal(2, 20, 64, dtype="bfloat16")
    _both(t, _built("rope", "_build_kernels"), q, k, cos, sin)
    _both(t, _built("qkv", "_build_qknorm_rope"), t.normal(40, 4, 64, dtype="bfloat16", grad=True),
          t.normal(64, dtype="bfloat16", grad=True), cos.view(40, 64), sin.view(40, 64))  # fmt: skip


def convolutions(t: Tensors) -> None:
    """Call the causal convolution."""
    for width, length in ((48, 40), (96, 70)):
        _both(t, _built("gdn", "_build_conv_kernels"), t.normal(2, width, length, dtype="bfloat16", grad=True),
              t.normal(width, 4, dtype="bfloat16", grad=True), None)  # fmt: skip


def losses(t: Tensors) -> None:
    """Call the losses that contain the last product."""
    for vocabulary, dtype in ((700, "bfloat16"), (1300, "float32")):
        hidden, weight = t.normal(20, 64, dtype=dtype, grad=True), t.normal(vocabulary, 64, dtype=dtype, grad=True)
        _both(t, _built("flce", "_build_kernels"), hidden, weight, t.integers(0, vocabulary, 20), -100, "mean", 0.1)
        kept = t.of([1.0] * 15 + [0.0] * 5, "float32")
        _both(t, _built("grpo_loss", "_build_kernels"), hidden, weight, t.normal(20), kept)


CASES = {each.__name__: each for each in (norms, gates, positions, convolutions, losses)}
