"""mma.sync and tcgen05 are one operation on fp16, and where their rows agree under the assumption matrix-arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bitwise_core.checker.sources import Options
from bitwise_core.execution.assumptions import (
    ANY_LANE,
    ASSUMPTIONS,
    CONDITIONS,
    FINITE,
    MATRIX_ARITHMETIC,
    PROXIES_APART,
    PROXIES_TOGETHER,
    UNITS_APART,
    conditions_of,
)
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.matrix_steps.mma_steps import HashedVectors, MmaStep, with_arithmetic
from bitwise_core.execution.values.symbolic_vector import SymbolicVector
from bitwise_core.execution.values.term_hash import full_hash
from bitwise_core.numerics.mma import FusedSum, MmaSpec
from bitwise_nvidia_sm100.matrix_units import ROWS

TRUNCATED = tuple(
    replace(row, arithmetic=replace(row.arithmetic, least_exponent=-133))
    for row in ROWS
    if isinstance(row.arithmetic, FusedSum)
)
"""Rows whose sums truncate small terms, as those of sm_90 do."""


def step(family: str, k: int, types: str, arch: str = "sm_100", units: tuple[MmaSpec, ...] = ROWS) -> MmaStep:
    return MmaStep(f"{family} k{k} {types} {arch}", positive_zero=True, commutes=True, units=units)


FP16 = "fp32 fp16 fp16 fp32"
ALIKE = [(16, "fp32 bf16 bf16 fp32"), (8, "fp32 tf32 tf32 fp32")]
OTHERS = [
    (step("mma.sync", 32, "fp32 e4m3 e4m3 fp32"), step("tcgen05", 32, "fp32 e4m3 e4m3 fp32")),
    (step("mma.sync", 8, FP16), step("tcgen05", 16, FP16)),
    (step("tcgen05", 16, FP16), step("tcgen05", 16, "fp32 bf16 bf16 fp32")),
    (step("mma.sync", 16, FP16, units=TRUNCATED), step("tcgen05", 16, FP16)),
    (step("tcgen05", 64, FP16), step("mma.sync", 64, FP16)),
]
"""Steps whose rows differ, or that have no row."""


def result(of: MmaStep, assume: frozenset[str]) -> list[int]:
    """Return the hash of a step on one row and one column."""
    rng = np.random.default_rng(1)
    row, column = (HashedVectors(rng.integers(0, 2**64, (2, 1, 1, 1), dtype=np.uint64), None, 0) for _ in range(2))
    start = SymbolicVector(32, rng.integers(0, 2**64, (2, 1, 1, 1), dtype=np.uint64), L.TERM)
    found: list[int] = full_hash(TermDomain(assume).mma_step(of, start, row, column)).ravel().tolist()
    return found


@pytest.mark.parametrize(("k", "types"), ALIKE)
@pytest.mark.parametrize("arch", ["sm_100", "sm_103"])
def test_units_of_one_arithmetic_are_one_under_the_assumption_only(k: int, types: str, arch: str) -> None:
    warp, tensor = step("mma.sync", k, types, arch), step("tcgen05", k, types, arch)
    assumed = frozenset({MATRIX_ARITHMETIC})
    assert result(warp, assumed) == result(tensor, assumed)
    assert result(warp, frozenset()) != result(tensor, frozenset())


@pytest.mark.parametrize(("left", "right"), OTHERS)
def test_units_of_other_arithmetic_stay_apart(left: MmaStep, right: MmaStep) -> None:
    one, other = with_arithmetic(left), with_arithmetic(right)
    assert (one.arithmetic or one.name) != (other.arithmetic or other.name)
    assumed = frozenset({MATRIX_ARITHMETIC})
    assert result(left, assumed) != result(right, assumed)


def test_an_assumption_is_a_condition_of_a_verdict_unless_it_takes_a_default_away() -> None:
    assert Options(assume=frozenset(CONDITIONS)).assume == set(CONDITIONS)
    assert {*CONDITIONS, ANY_LANE, PROXIES_APART, UNITS_APART} == set(ASSUMPTIONS)
    assert conditions_of({ANY_LANE, PROXIES_APART, UNITS_APART, FINITE}) == (FINITE,)


@pytest.mark.parametrize("pair", [(UNITS_APART, MATRIX_ARITHMETIC), (PROXIES_APART, PROXIES_TOGETHER)], ids=" ".join)
def test_what_takes_a_default_away_excludes_its_opposite(pair: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="assume one of them"):
        Options(assume=frozenset(pair))
