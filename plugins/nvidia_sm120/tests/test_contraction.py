"""Which products ptxas fuses on sm_120, decided by its machine code."""

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
from bitwise_nvidia_sm120.architecture import SM120
from bitwise_triton import Buffer, compile_configuration


@triton.jit
def distance(x, y, n, eps, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + column, mask=column < n, other=-float("inf")).to(tl.float32)
    top = tl.max(value, 0)
    total = top + tl.log(tl.sum(tl.exp(value - top), 0))
    mean = tl.sum(tl.where(column < n, value, 0.0), 0) / n
    tl.store(y + row, eps * (total - mean))


def test_code_with_sums_of_64_bits_is_compared() -> None:
    """The quotient is fused into the difference.  nvdisasm prints the schedule of an instruction after its operands."""
    arguments: Any = {"x": Buffer("x", "bf16"), "y": Buffer("y", "fp32"), "n": 1000, "eps": 0.1}
    found = compile_configuration(distance, arguments, {"BLOCK": 1024}, grid=(8,), target="sm_120", num_warps=2)
    launch = Launch.model_validate({"file": "k.ptx", **found.manifest_entry})
    result = analyse(Source("k.ptx", found.assembly, launch), SM120, {"x": 1, "y": 2}, Options())
    assert result.signature is not None, result.unknown
    assert "same dataflow, pairs contracted" in " ".join(result.notes)
