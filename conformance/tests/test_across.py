"""Pairs of kernels for sm_90 and gfx942: each verdict with its nodes, and both kernels run on bit patterns."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from bitwise_conformance import across
from bitwise_conformance.corpus.across import Pair, pairs

DRAWS = ("normal", "special", "subnormal", "zeros", "wide", "tiny", "underflow", "nans")
"""A difference shows on one of these where any draw shows it."""
PAIRS = pairs()


def test_there_are_pairs_of_both_kinds() -> None:
    assert len(PAIRS) >= 150
    assert len({each.name for each in PAIRS}) == len(PAIRS)
    assert sum(each.expected == "equal" for each in PAIRS) >= 120
    assert sum(each.expected == "unproved" for each in PAIRS) >= 30
    assert {(each.left.target, each.right.target) for each in PAIRS} == {("sm_90", "gfx942")}


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_a_pair_has_its_verdict_and_its_bytes(pair: Pair) -> None:
    found = across.compared(pair, DRAWS)
    assert found.refused is None
    assert found.verdict.outcome.value == pair.expected
    assert pair.nodes is None or found.nodes == pair.nodes
    assert bool(found.different) == (pair.expected == "unproved" and not pair.same_bytes)
