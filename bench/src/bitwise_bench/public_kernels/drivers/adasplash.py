"""AdaSplash: sparse attention by entmax, whose thresholds are found by iteration."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _package() -> Any:
    return import_module("adasplash")


def _heads(t: Tensors, rows: int, *, dtype: str = "bfloat16") -> list[Any]:
    return [t.normal(2, heads, rows, 32, dtype=dtype, grad=True) for heads in (2, 2, 2)]


def entmax(t: Tensors) -> None:
    """Call entmax of rows by histograms and by bisection, forward and backward."""
    package = _package()
    for alpha, columns in ((1.5, 300), (2.0, 128)):
        t.backward(t.call(package.triton_entmax_v2, t.normal(12, columns, grad=True), alpha=alpha))
    t.backward(t.call(package.triton_entmax_v1, t.normal(12, 200, grad=True), alpha=1.7, n_iter=5))


def blocks(t: Tensors) -> None:
    """Call the causal attention over blocks that are not zero, forward and backward."""
    t.backward(t.call(_package().adasplash_v2, *_heads(t, 128)))


def variable_lengths(t: Tensors) -> None:
    """Call it for sequences of different lengths."""
    t.backward(t.call(_package().adasplash_v2, *_heads(t, 128), varlen=t.of([128, 75], "int32")))


def first_version(t: Tensors) -> None:
    """Call the first version with a mask of blocks, and without one."""
    package = _package()
    t.backward(t.call(package.adasplash_v1, *_heads(t, 128), alpha=1.5, is_causal=True, niter=3))
    t.backward(t.call(package.adasplash_no_block_mask, *_heads(t, 128, dtype="float16"), alpha=1.5, niter=3))


CASES = {each.__name__: each for each in (entmax, blocks, variable_lengths, first_version)}
