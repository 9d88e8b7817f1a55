"""rwkv-ops: delta rules in chunks and by steps, with bounded states, and mixed residual streams."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors

_LENGTH, _HEADS, _WIDTH = 48, 2, 64


def _module(name: str) -> Any:
    package, _, module = f"rwkv_ops.{name}".rpartition(".")
    bare_package(package)
    return import_module(f"{package}.{module}")


def _sequences(t: Tensors, count: int, grad: bool = True) -> list[Any]:
    return [t.normal(1, _LENGTH, _HEADS, _WIDTH, dtype="bfloat16", scale=0.3, grad=grad) for _ in range(count)]


def _strengths(t: Tensors) -> Any:
    return t.uniform(1, _LENGTH, _HEADS, grad=True)


def _decays(t: Tensors) -> Any:
    return t.uniform(1, _LENGTH, _HEADS, low=-1.0, high=-0.01, grad=True)


def _state(t: Tensors) -> Any:
    return t.normal(1, _HEADS, _WIDTH, _WIDTH, grad=True)


def _differentiated(t: Tensors, function: Any, *arguments: Any, **settings: Any) -> None:
    found = t.call(function, *arguments, **settings)
    if found is not None:
        t.call(t.backward, found[0] if isinstance(found, tuple) else found)


def chunks(t: Tensors) -> None:
    """Call the delta rule in chunks, forward and backward."""
    function = _module("delta_net_chunk.torch_triton_kernel").delta_net_chunk
    _differentiated(t, function, *_sequences(t, 3), _strengths(t), _state(t))


def gated_chunks(t: Tensors) -> None:
    """Call the gated delta rule in chunks, forward and backward."""
    function = _module("gdn_chunk.torch_triton_kernel").gated_delta_net_chunk
    _differentiated(t, function, *_sequences(t, 3), _decays(t), _strengths(t), _state(t))


def steps(t: Tensors) -> None:
    """Call the delta rule step by step, forward and backward, and for one step."""
    module = _module("delta_net_recurrent.torch_triton_kernel")
    _differentiated(t, module.delta_net_recurrent, *_sequences(t, 3), _strengths(t), _state(t))
    t.call(module.delta_net_recurrent_inference, *_sequences(t, 3, False), t.uniform(1, _LENGTH, _HEADS))
    q, k, v = (t.normal(2, _HEADS, _WIDTH, dtype="bfloat16") for _ in range(3))
    t.call(module.delta_net_recurrent_single_step, q, k, v, t.uniform(2, _HEADS))


def bounded_steps(t: Tensors) -> None:
    """Call the gated delta rule with bounded states, with and without a mask, forward and backward."""
    module = _module("gdn_recurrent_sane.torch_triton_kernel")
    bounds = t.uniform(1, _LENGTH // 16, _HEADS, low=0.5, high=4.0)
    for mask in (None, t.of([[1.0, 0.0, 1.0]], "float32")):
        _differentiated(t, module.gated_delta_net_recurrent_sane, *_sequences(t, 3), _decays(t), _strengths(t), bounds,
                        mask=mask, initial_state=_state(t))  # fmt: skip


def general_rule(t: Tensors) -> None:
    """Call the generalised delta rule, forward and backward."""
    function = _module("rwkv7_kernel.torch_triton_kernel").generalized_delta_rule
    r, w, k, v, a, b = _sequences(t, 6)
    _differentiated(t, function, r, w, k, v, a, b)


def streams(t: Tensors) -> None:
    """Call the mix of residual streams before and behind a layer, forward and backward."""
    before = _module("mhc_kernel.torch_triton_op.mhc_pre_op").mhc_pre_op_fused
    behind = _module("mhc_kernel.torch_triton_op.mhc_post_op").mhc_post_op
    streams_of = t.normal(2, 9, 4, 128, grad=True)
    _differentiated(t, before, streams_of, t.normal(2, 9, 4, 4, grad=True), t.normal(2, 9, 4, grad=True))
    _differentiated(t, behind, t.normal(2, 9, 128, grad=True), streams_of, t.normal(2, 9, 4, grad=True),
                    t.uniform(2, 9, 4, 4, grad=True))  # fmt: skip


CASES = {each.__name__: each for each in (chunks, gated_chunks, steps, bounded_steps, general_rule, streams)}
