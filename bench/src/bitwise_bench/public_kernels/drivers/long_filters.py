"""vtx: convolutions with short filters between gates, filters of poles, and rotations."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    package, _, module = f"vortex.ops.{name}".rpartition(".")
    bare_package(package)
    return import_module(f"{package}.{module}")


def gated_convolutions(t: Tensors) -> None:
    """Call convolutions of chunks between two gates, with filters of groups, forward and backward."""
    forward, backward = (_module(f"hyena_se.{each}") for each in ("fwd", "bwd"))
    settings = {"version": "v2", "CHUNK_SIZE": 32, "BLOCK_D": 32, "num_warps": 4}
    for dtype, length, groups, taps in (("float32", 64, 2, 4), ("float16", 128, 1, 7)):
        given = [t.normal(1, length, groups, 32, dtype=dtype) for _ in range(3)]
        filters = t.normal(groups, 1, taps, dtype=dtype)
        found = t.call(forward.two_pass_fwd_grouped, *given, filters, return_y2=True, autotune=False, **settings)
        if found is not None:
            t.call(backward.two_pass_bwd_grouped, t.normal(1, length, groups, 32, dtype=dtype), *given, filters,
                   found[-1], **settings)  # fmt: skip


def short_filters(t: Tensors) -> None:
    """Call causal convolutions of channels, between gates and alone."""
    module = _module("hcs_interface")
    for dtype, length in (("float32", 70), ("bfloat16", 128)):
        given = [t.normal(2, 24, length, dtype=dtype) for _ in range(3)]
        weight = t.normal(24, 1, 7, dtype=dtype)
        t.call(module.hcs_depthwise_conv, given[0], weight)
        t.call(module.hcs_conv, *given, weight, t.normal(24, dtype=dtype))


def spectra(t: Tensors) -> None:
    """Call products of spectra, filters of poles, and sums with the input behind a convolution."""
    middle, long = _module("hcm_interface"), _module("hcl_interface")
    complex_of = t.torch.view_as_complex
    t.call(middle._hcm_complex_mul, complex_of(t.normal(2, 24, 65, 2)), complex_of(t.normal(1, 24, 65, 2)), 128)
    t.call(middle._hcm_bias_residual, t.normal(2, 24, 70), t.normal(2, 24, 70, dtype="bfloat16"), t.normal(24))
    t.call(long._hcl_compute_filter, t.normal(24, 16), -t.uniform(24, 16), t.torch.arange(70, device=t.device))
    t.call(long._hcl_bias_residual_gate, t.normal(2, 24, 70), t.normal(2, 24, 70, dtype="bfloat16"), t.normal(24),
           t.normal(2, 24, 70, dtype="bfloat16"))  # fmt: skip


def rotations(t: Tensors) -> None:
    """Call rotations of pairs in two layouts, and the states of sequences of uneven lengths."""
    module = _module("embedding.rotary")
    angles = t.normal(40, 16)
    for interleaved, dtype in ((False, "float32"), (True, "bfloat16")):
        t.call(module.apply_rotary, t.normal(2, 40, 3, 64, dtype=dtype), angles.cos().to(t.dtype(dtype)),
               angles.sin().to(t.dtype(dtype)), interleaved=interleaved)  # fmt: skip
    states = _module("conv.local_causal_conv1d.causal_conv1d_varlen").causal_conv1d_varlen_states
    t.call(states, t.normal(30, 48), t.of([0, 9, 11, 30], "int32"), 4)


CASES = {each.__name__: each for each in (gated_convolutions, short_filters, spectra, rotations)}
