"""Kernels of sm_80, sm_86 and sm_89: matrix steps against an oracle, and instructions that they do not have."""

from __future__ import annotations

import numpy as np
import pytest

import fused_sums
from bitwise_core.numerics.mma import multiply_accumulate
from bitwise_core.plugins import registry
from ptx_instructions import unknown_of

NEWER = {
    "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2};": 90,
    "elect.sync %r3|%p1, 0xffffffff;": 90,
    "mbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r2;": 90,
    "fence.proxy.async.shared::cta;": 90,
    "cp.async.bulk.commit_group;": 90,
    "add.rn.bf16x2 %r3, %r1, %r2;": 90,
    "fma.rn.f32x2 %rd4, %rd3, %rd3, %rd3;": 100,
}


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_89"])
@pytest.mark.parametrize(("instruction", "capability"), NEWER.items())
def test_an_instruction_of_a_later_architecture_is_unknown(target: str, instruction: str, capability: int) -> None:
    found = unknown_of(target, instruction)
    assert f"needs sm_{capability} or later, and this is {target}" in found
    assert instruction.split()[0].rstrip(";") in found
    assert "line 18" in found


F, OPERANDS = "{%f0,%f1,%f2,%f3}", "{%r1,%r1,%r1,%r1}, {%r1,%r1}"
FP8 = f"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {F}, {OPERANDS}, {F};"


def test_fp8_products_are_those_of_sm_89_only() -> None:
    assert all("needs sm_89 or later" in unknown_of(target, FP8) for target in ("sm_80", "sm_86"))
    assert unknown_of("sm_89", FP8) == ""


def test_a_shape_without_a_row_is_unknown_by_name() -> None:
    wide = FP8.replace("k32", "k64")
    assert "has no matrix-unit row on sm_89" in unknown_of("sm_89", wide)
    assert "m16n8k64" in unknown_of("sm_89", wide)
    assert "has no matrix-unit row on sm_80" in unknown_of("sm_80", wide.replace("e4m3", "f16"))


def drawn(
    rng: np.random.Generator, kind: str, shape: tuple[int, ...]
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
    """Finite patterns of any sign, with exponents in the middle of the format's range."""
    exponent_bits, mantissa = fused_sums.LAYOUTS[kind]
    bias = (1 << exponent_bits - 1) - 1
    spread = min(bias - 1, 7)
    exponent = rng.integers(bias - spread, bias + spread, shape)
    return (rng.integers(0, 2, shape) << exponent_bits | exponent) << mantissa | rng.integers(0, 1 << mantissa, shape)


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_89"])
@pytest.mark.parametrize(
    ("kind", "k", "unit"),
    [
        ("fp16", 8, fused_sums.Unit("fp16", 8, 24)),
        ("fp16", 16, fused_sums.Unit("fp16", 8, 24)),
        ("bf16", 16, fused_sums.Unit("bf16", 8, 24)),
        ("tf32", 8, fused_sums.Unit("tf32", 4, 24)),
        ("e4m3", 32, fused_sums.Unit("e4m3", 16, 13, 13)),
        ("e5m2", 32, fused_sums.Unit("e5m2", 16, 13, 13)),
    ],
)
def test_rows_agree_with_the_oracle(target: str, kind: str, k: int, unit: fused_sums.Unit) -> None:
    rows = registry.default().matrix_units
    name = f"mma.sync_k{k}_fp32_{kind}_{kind}_fp32_{target}"
    if kind in ("e4m3", "e5m2") and target != "sm_89":
        assert name not in rows
        return
    rng = np.random.default_rng(k)
    bits = {"tf32": np.uint32, "e4m3": np.uint8, "e5m2": np.uint8}.get(kind, np.uint16)
    left, right = (drawn(rng, kind, shape).astype(bits) for shape in ((24, k), (k, 24)))
    found = multiply_accumulate(rows[name], left, right, np.zeros((24, 24), np.uint32))
    assert (found == fused_sums.product(unit, left, right)).all()
