"""Pairs of kernels for sm_90 and gfx942: verdicts, first divergences, and execution of both on bit patterns."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from bitwise_bench.corpus.kernels.cross_architecture import Pair, pairs
from bitwise_bench.readings import cross_architecture

DRAWS = ("normal", "special", "subnormal", "zeros", "wide", "tiny", "underflow", "nans")
"""For every pair whose bytes differ on any kind of input, they differ on one of these kinds."""
PAIRS = pairs()


def test_there_are_equal_and_different_pairs() -> None:
    assert len(PAIRS) >= 150
    assert len({each.name for each in PAIRS}) == len(PAIRS)
    assert sum(each.expected == "equal" for each in PAIRS) >= 120
    assert sum(each.expected == "unproved" for each in PAIRS) >= 30
    assert {(each.left.target, each.right.target) for each in PAIRS} == {("sm_90", "gfx942")}


@pytest.mark.usefixtures("without_machine_code")
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_a_pair_has_its_verdict_and_its_bytes(pair: Pair) -> None:
    found = cross_architecture.compare_pair(pair, DRAWS)
    assert found.refused is None
    assert found.verdict.outcome.value == pair.expected
    assert pair.nodes is None or found.divergence == pair.nodes
    assert bool(found.different) == (pair.expected == "unproved" and not pair.same_bytes)
