"""Mamba: state-space models, forward and backward, and the norms around them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    bare_package("mamba_ssm.ops.triton")
    # Extensions that the package compiles; the drivers do not call them.
    stub("causal_conv1d", causal_conv1d_fn=None, causal_conv1d_update=None)
    stub("causal_conv1d.cpp_functions", causal_conv1d_fwd_function=None, causal_conv1d_bwd_function=None,
         causal_conv1d_update_function=None)  # fmt: skip
    return import_module(f"mamba_ssm.ops.triton.{name}")


def chunk_scan(t: Tensors) -> None:
    """Call the scan in chunks, with a skip and a gate."""
    x = t.normal(1, 128, 4, 64, dtype="bfloat16", grad=True)
    dt, a = t.normal(1, 128, 4, grad=True), t.uniform(4, low=-1.0, high=-0.1, grad=True)
    b, c = (t.normal(1, 128, 1, 32, dtype="bfloat16", grad=True) for _ in range(2))
    d, z = t.normal(4, grad=True), t.normal(1, 128, 4, 64, dtype="bfloat16", grad=True)
    f = _module("ssd_combined").mamba_chunk_scan_combined
    t.backward(f(x, dt, a, b, c, 64, D=d, z=z, dt_bias=t.normal(4, grad=True), dt_softplus=True))


def plain_chunk_scan(t: Tensors) -> None:
    """Call the scan in chunks of single precision, over two sequences in a row."""
    x = t.normal(1, 128, 2, 32, grad=True)
    dt, a = t.uniform(1, 128, 2, grad=True), t.uniform(2, low=-1.0, high=-0.1, grad=True)
    b, c = (t.normal(1, 128, 1, 16, grad=True) for _ in range(2))
    index = (t.integers(0, 1, 1, 128, dtype="int32").cumsum(1) > 60).to(t.dtype("int32"))
    t.backward(_module("ssd_combined").mamba_chunk_scan_combined(x, dt, a, b, c, 32, seq_idx=index))


def state_update(t: Tensors) -> None:
    """Call one step of the recurrence, with one decay for each channel and for each head."""
    f = _module("selective_state_update").selective_state_update
    x, z = (t.normal(2, 128, dtype="bfloat16") for _ in range(2))
    b, c = (t.normal(2, 16, dtype="bfloat16") for _ in range(2))
    f(t.normal(2, 128, 16), x, t.normal(2, 128), t.uniform(128, 16, low=-1.0), b, c, t.normal(128), z,
      t.normal(128), True)  # fmt: skip


def layer_norms(t: Tensors) -> None:
    """Call the norms with residuals."""
    module = _module("layer_norm")
    for rms in (False, True):
        x, r = (t.normal(24, 512, dtype="bfloat16", grad=True) for _ in range(2))
        w, b = (t.normal(512, grad=True) for _ in range(2))
        t.backward(module.layer_norm_fn(x, w, None if rms else b, r, prenorm=True, is_rms_norm=rms,
                                        residual_in_fp32=True))  # fmt: skip


def gated_norms(t: Tensors) -> None:
    """Call the gated norms, whole and in groups."""
    module = _module("layernorm_gated")
    for group in (None, 128):
        x, z = (t.normal(24, 512, dtype="bfloat16", grad=True) for _ in range(2))
        t.backward(module.rmsnorm_fn(x, t.normal(512, grad=True), None, z, group_size=group, norm_before_gate=False))


def gated_unit(t: Tensors) -> None:
    """Call the gated unit."""
    module = _module("k_activations")
    xy = t.normal(24, 1024, dtype="bfloat16")
    module._swiglu_fwd(xy)
    module._swiglu_bwd(xy, t.normal(24, 512, dtype="bfloat16"))


CASES = {
    each.__name__: each for each in (chunk_scan, plain_chunk_scan, state_update, layer_norms, gated_norms, gated_unit)
}
