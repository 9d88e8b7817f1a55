"""Chains of steps over k in C return the bits of the steps in NumPy, for every rule that they serve."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.evaluation import evaluate_gemm
from bitwise_core.numerics import FLOAT_FORMATS, Bits, storage
from bitwise_core.numerics.mma import FusedSum, MmaSpec, chains_in_c, multiply_accumulate

RULES = [
    ("fp16", "fp32", FusedSum(16, 25, 23, "rz", least_exponent=-133)),
    ("bf16", "fp32", FusedSum(8, 25, 23, "rz", least_exponent=-133)),
    ("tf32", "fp32", FusedSum(4, 24, 23, "rz")),
    ("fp16", "fp16", FusedSum(16, 25, 10, "rn", zero_exponent=-14)),
    ("e4m3", "fp32", FusedSum(32, 13, 13, "rz", zero_products=True)),
    ("e5m2", "fp16", FusedSum(32, 13, 10, "rz", zero_exponent=3)),
]


def random_patterns(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Bits:
    """Patterns of magnitudes near 1, of any number, and of zeros, infinities and NaNs."""
    form = FLOAT_FORMATS[dtype]
    found = rng.integers(0, 1 << form.bits, shape, dtype=np.uint64)
    near = (found & ((1 << form.mantissa_bits) - 1)) | (form.bias - rng.integers(0, 3, shape, dtype=np.uint64)) << (
        form.mantissa_bits
    )
    sign = rng.integers(0, 2, shape, dtype=np.uint64) << (form.bits - 1)
    kind = rng.random((*shape[:-1], 1))
    chosen = np.where(kind < 0.6, near | sign, np.where(kind < 0.8, sign, found))
    return chosen.astype(storage(form.bits))


@pytest.fixture
def compiled() -> None:
    if not chains_in_c.available():
        pytest.skip("there is no C compiler")


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("operand", "result", "rule"), RULES)
def test_fused_sums(operand: str, result: str, rule: FusedSum, monkeypatch: pytest.MonkeyPatch) -> None:
    k = rule.products * 2
    spec = MmaSpec("arch", "unit", operand, operand, result, result, k, rule, "measured by us", "https://example.com")
    rng = np.random.default_rng(5)
    a, b = (random_patterns(rng, operand, (3, 5, 6 * k)) for _ in range(2))
    c = random_patterns(rng, result, (3, 5, 5))
    found = multiply_accumulate(spec, a, b.transpose(0, 2, 1), c)
    monkeypatch.setattr(chains_in_c, "serves", lambda rule: False)
    np.testing.assert_array_equal(found, multiply_accumulate(spec, a, b.transpose(0, 2, 1), c))
    assert len(np.unique(found)) > 20


@pytest.mark.usefixtures("compiled")
def test_multiply_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    desc = GEMMDesc(k=40, left_dtype="fp32", right_dtype="fp32", output_dtype="fp32", path="fma")
    rng = np.random.default_rng(6)
    a, b = (random_patterns(rng, "fp32", (30, 40)) for _ in range(2))
    found = evaluate_gemm(desc, a, b.T)
    monkeypatch.setattr(chains_in_c, "available", lambda: False)
    np.testing.assert_array_equal(found, evaluate_gemm(desc, a, b.T))
    assert len(np.unique(found)) > 20


def test_other_steps_are_not_served() -> None:
    assert not chains_in_c.serves(FusedSum(4, 25, 23, "rz", "alternate pairs"))
    assert not chains_in_c.serves(FusedSum(4, 25, 23, "rz", accumulator_last=True))
    assert not chains_in_c.serves(FusedSum(4, 25, 23, "rz", widened="fp16"))
