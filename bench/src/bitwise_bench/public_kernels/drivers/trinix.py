"""trinix: activations, norms, positions, attention and optimisers, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _kernel(module: str, name: str) -> Any:
    return getattr(import_module(f"trinix.kernels.{module}_kernel"), name)


def activations(t: Tensors) -> None:
    """Call the activations."""
    for module, name in (("geglu", "GeGLU"), ("mish", "Mish"), ("quickgelu", "QuickGELU"), ("reglu", "ReGLU"),
                         ("squared_relu", "SquaredReLU"), ("swigelu", "SwiGLU")):  # fmt: skip
        for width, dtype in ((192, "bfloat16"), (300, "float32")):
            found = t.call(
                _kernel(module, f"Triton{name}Function").apply, t.normal(2, 9, width, dtype=dtype, grad=True)
            )
            if found is not None:
                t.call(t.backward, found)


def norms(t: Tensors) -> None:
    """Call the norms."""
    for width, dtype in ((160, "float16"), (700, "float32")):
        x = t.normal(3, 7, width, dtype=dtype, grad=True)
        weight, bias = t.normal(width, dtype=dtype, grad=True), t.normal(width, dtype=dtype, grad=True)
        for found in (t.call(_kernel("layernorm", "TritonLayerNormFunction").apply, x, weight, bias, 1e-5),
                      t.call(_kernel("rmsnorm", "TritonRMSNormFunction").apply, x, weight, 1e-6)):  # fmt: skip
            if found is not None:
                t.call(t.backward, found)


def positions(t: Tensors) -> None:
    """Call rotations by position, and penalties of distance."""
    q, k = (t.normal(2, 24, 3, 32, dtype="bfloat16", grad=True) for _ in range(2))
    found = t.call(_kernel("rope", "TritonRoPEFunction").apply, q, k, t.normal(24, 32), t.normal(24, 32))
    if found is not None:
        t.call(t.backward, found)
    t.call(_kernel("alibi", "TritonALiBiFunction").apply, t.uniform(3, grad=True), 2, 3, 40)


def attention(t: Tensors) -> None:
    """Call attention with and without a causal mask."""
    function = import_module("trinix.layers.attention.functional").triton_attn_func
    for causal, dtype, width in ((False, "float16", 32), (True, "bfloat16", 64), (True, "float32", 32)):
        heads = [t.normal(2, 48, 2, width, dtype=dtype, grad=True) for _ in range(3)]
        found = t.call(function, *heads, causal=causal)
        if found is not None:
            t.call(t.backward, found)


def optimisers(t: Tensors) -> None:
    """Call the steps of optimisers."""
    module = import_module("trinix.optim")
    for name in ("FastAdam", "FastAdamW", "FastLion", "FastMuon"):
        parameters = [t.normal(40, 48, grad=True), t.normal(500, grad=True)]
        optimiser = t.call(
            getattr(module, name, None) or getattr(module, name.replace("Fast", "")), parameters, lr=0.01
        )
        for _ in range(2):
            for parameter in parameters:
                parameter.grad = t.normal(*parameter.shape)
            if optimiser is not None:
                t.call(optimiser.step)


CASES = {each.__name__: each for each in (activations, norms, positions, attention, optimisers)}
