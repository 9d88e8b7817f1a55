"""triton-csprng: streams of random numbers and samples of distributions."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _stream(t: Tensors, number: int) -> Any:
    module = import_module("triton_csprng.stream")
    return module.ChaCha20Rng(key=list(range(number, number + 8)), nonce=[1, 2], device=t.empty(1).device)


def samples(t: Tensors) -> None:
    """Call the samples of integers, of a rounded normal distribution, and of random rounding."""
    module = import_module("triton_csprng.sampling")
    t.call(module.bounded_uint64, _stream(t, 1), 1000003, 300)
    t.call(module.bounded_uint64, _stream(t, 2), [17, 4097, 1 << 40], [3, 100])
    t.call(module.discrete_gaussian, _stream(t, 3), 500)
    t.call(module.stochastic_round, _stream(t, 4), t.normal(400, dtype="float64", scale=20.0))


CASES = {"samples": samples}
