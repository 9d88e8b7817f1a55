"""Which products ptxas fuses on sm_100, decided by its machine code."""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-any-unimported"

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.launch import Launch
from bitwise_nvidia_sm100.architecture import SM100
from bitwise_triton import Buffer, compile_configuration

SIZE = 128


@triton.jit
def gated(a, b, g, c, BLOCK: tl.constexpr, N: tl.constexpr):
    row, column = tl.arange(0, BLOCK), tl.arange(0, N)
    x = tl.load(a + row[:, None] * BLOCK + row[None, :])
    place = row[:, None] * N + column[None, :]
    up = tl.dot(x, tl.load(b + place))
    gate = tl.dot(x, tl.load(g + place))
    tl.store(c + place, (up * gate * tl.sigmoid(gate)).to(tl.bfloat16))


def test_code_with_tensor_memory_and_pairs_of_products_is_compared() -> None:
    """Stated roundings give other registers, so that machine code decides only as a dataflow."""
    arguments = {name: Buffer(name, "bf16") for name in "abgc"}
    found = compile_configuration(gated, arguments, {"BLOCK": SIZE, "N": 64}, grid=(1,), target="sm_100")
    assert "tcgen05.ld" in found.assembly
    assert "mul.f32x2" in found.assembly
    launch = Launch.model_validate({"file": "k.ptx", **found.manifest_entry})
    result = analyse(Source("k.ptx", found.assembly, launch), SM100, {n: i for i, n in enumerate("abgc", 1)}, Options())
    assert result.signature is not None, result.unknown


@triton.jit
def distance(x, y, n, eps, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + column, mask=column < n, other=-float("inf")).to(tl.float32)
    top = tl.max(value, 0)
    total = top + tl.log(tl.sum(tl.exp(value - top), 0))
    mean = tl.sum(tl.where(column < n, value, 0.0), 0) / n
    tl.store(y + row, eps * (total - mean))


def test_code_with_an_extremum_of_the_lanes_is_compared() -> None:
    """The quotient is fused into the difference, and the code has CREDUX, the extremum of floats of a warp."""
    arguments: Any = {"x": Buffer("x", "bf16"), "y": Buffer("y", "fp32"), "n": 1000, "eps": 0.1}
    found = compile_configuration(distance, arguments, {"BLOCK": 1024}, grid=(8,), target="sm_100", num_warps=2)
    assert "redux.sync.max.NaN.f32" in found.assembly or "redux.sync.max.f32" in found.assembly
    launch = Launch.model_validate({"file": "k.ptx", **found.manifest_entry})
    result = analyse(Source("k.ptx", found.assembly, launch), SM100, {"x": 1, "y": 2}, Options())
    assert result.signature is not None, result.unknown
    assert "pairs contracted" in " ".join(result.notes)
