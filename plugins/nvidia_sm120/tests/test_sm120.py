"""sm_120: its matrix rows against an oracle, and what is not published."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import fused_sums
from bitwise_core.numerics.mma import multiply_accumulate
from bitwise_core.plugins import registry
from bitwise_nvidia_sm120.matrix_units import ROWS
from ptx_instructions import unknown_of

F = "{%f0,%f1,%f2,%f3}"
FP8 = f"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32 {F}, {{%r1,%r1,%r1,%r1}}, {{%r1,%r1}}, {F};"
SCALES = "%r1, {0, 0}, %r1, {0, 0};"


def test_every_row_is_published_only() -> None:
    assert Counter(row.status for row in ROWS) == {"published only": 41}
    assert registry.load(["sm120"]).matrix_units == {row.name: row for row in ROWS}


@pytest.mark.parametrize(
    ("kind", "k"), [("fp16", 16), ("fp16", 8), ("bf16", 16), ("tf32", 8), ("e4m3", 32), ("e5m2", 16)]
)
def test_rows_agree_with_the_oracle(kind: str, k: int) -> None:
    rng = np.random.default_rng(k)
    exponent_bits, mantissa = fused_sums.LAYOUTS[kind]
    bias = (1 << exponent_bits - 1) - 1
    bits = {"tf32": np.uint32, "e4m3": np.uint8, "e5m2": np.uint8}.get(kind, np.uint16)

    def drawn(shape: tuple[int, int]) -> Any:
        exponent = rng.integers(max(bias - 12, 1), bias + 7, shape)
        sign, fraction = rng.integers(0, 2, shape), rng.integers(0, 1 << mantissa, shape)
        return ((sign << exponent_bits | exponent) << mantissa | fraction).astype(bits)

    row = registry.default().matrix_unit(f"mma.sync_k{k}_fp32_{kind}_{kind}_fp32_sm_120")
    left, right = drawn((24, 2 * k)), drawn((2 * k, 24))
    halves = multiply_accumulate(row, left[:, :k], right[:k], np.zeros((24, 24), np.uint32))
    found = multiply_accumulate(row, left[:, k:], right[k:], halves)
    assert (found == fused_sums.product(fused_sums.Unit(kind, k, 25), left, right)).all()
    assert (found != fused_sums.product(fused_sums.Unit(kind, k // 2, 25), left, right)).any()
    assert (found != fused_sums.product(fused_sums.Unit(kind, k, 24), left, right)).any()


def test_fp8_has_one_step_with_and_without_its_kind() -> None:
    assert unknown_of("sm_120", FP8) == unknown_of("sm_120", FP8.replace(".kind::f8f6f4", "")) == ""


@pytest.mark.parametrize(
    ("instruction", "why"),
    [
        (FP8.replace("e4m3", "e2m1"), "operands of the type e2m1"),
        (FP8.replace(".f32.e4m3", ".f32.e3m2"), "operands of the type e3m2"),
        (FP8.replace(".e4m3.f32", ".e2m3.f32"), "operands of the type e2m3"),
        (FP8.replace("e4m3", "f16"), "is not modelled"),
        (FP8.replace("k32", "k64"), "has no matrix-unit row on sm_120"),
        (FP8.replace("sync.aligned", "sp::ordered_metadata.sync.aligned"), "is not modelled"),
        (
            FP8.replace("kind::f8f6f4", "kind::mxf8f6f4.block_scale.scale_vec::1X").replace("f32 {", "f32.ue8m0 {")[:-1]
            + f", {SCALES}",
            "block scales",
        ),
        ("tcgen05.wait::ld.sync.aligned;", "is not modelled"),
        ("wgmma.fence.sync.aligned;", "is not modelled"),
    ],
)
def test_what_is_not_published_is_unknown_by_name_and_line(instruction: str, why: str) -> None:
    found = unknown_of("sm_120", instruction)
    assert instruction.split()[0].rstrip(";") in found
    assert why in found
    assert "line 18" in found
