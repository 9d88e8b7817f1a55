"""Matrix steps on loads that are computed together are those that are computed one by one."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.checker.parametric.coordinates import Coordinates
from bitwise_core.checker.parametric.domain import ParametricDomain
from bitwise_core.checker.parametric.polynomial import AtomTable
from bitwise_core.checker.trees.provenance import RecordingDomain
from bitwise_core.execution.assumptions import FINITE
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.term_recorder import Recorder
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.matrix_steps import deferred_steps
from bitwise_core.execution.values.matrix_steps.deferred_steps import DeferredChain, LoadedVectors
from bitwise_core.execution.values.matrix_steps.mma_steps import HashedVectors, IntegerProducts, MmaStep, OperandVectors
from bitwise_core.execution.values.symbolic_vector import SymbolicVector
from bitwise_core.execution.values.term_hash import full_hash

BLOCKS, ROWS, COLUMNS, K = 4, 8, 6, 4
ROW, COLUMN = np.arange(2 * ROWS)[:, None], np.arange(COLUMNS)[None]
STEP, OTHER = (MmaStep(each, positive_zero=True, commutes=True) for each in ("a step", "another step"))


class AtOnce(TermDomain):
    """The domain of terms without deferred steps."""

    @property
    def defers_steps(self) -> bool:
        """Never."""
        return False


def test_domains_whose_operations_have_effects_defer_none() -> None:
    parametric = ParametricDomain(Coordinates(AtomTable(), ("x",), 2))
    recording = RecordingDomain(frozenset(), Recorder())
    assert TermDomain().defers_steps
    assert TermDomain(frozenset({FINITE}), follows_members=True).defers_steps
    assert [each.defers_steps for each in (parametric, recording, TermDomain(recorder=Recorder()))] == [False] * 3


def elements(rng: np.random.Generator, rows: int) -> SymbolicVector:
    """Return elements that two tiles of blocks load, of which two pairs of rows are equal."""
    start = (rng.integers(0, 99, (2, rows // 2, K)) * 8 + (1 << 48)).astype(np.uint64)
    return SymbolicVector(16, L.both_words(np.concatenate([start, start], axis=1)), L.LOAD)


def operands(domain: TermDomain, rng: np.random.Generator) -> tuple[OperandVectors, OperandVectors]:
    """Return the vectors of two tiles of A, one after the other, and of one of B."""
    place = np.array([0, 1, 1, 0])
    tiles = [domain.operand_vectors(elements(rng, ROWS), "fp16", 2).of_blocks(place) for _ in "ab"]
    right = domain.operand_vectors(elements(rng, COLUMNS), "fp16").of_blocks(np.array([0, 0, 1, 1]))
    return tiles[0].concatenated(tiles[1:]).take(ROW), right.take(COLUMN)


def zero() -> SymbolicVector:
    return SymbolicVector(32, np.zeros((2, 1, 1, 1), dtype=np.uint64), L.CONST | L.NOT_MINUS_ZERO | L.NOT_NEGATIVE)


@pytest.mark.parametrize("count", [1, 2, 7, 70])
@pytest.mark.parametrize("read", ["at the end", "in between"])
@pytest.mark.parametrize("steps", [(STEP,), (STEP, OTHER)])
def test_results_do_not_depend_on_when_they_are_computed(count: int, read: str, steps: tuple[MmaStep, ...]) -> None:
    results = []
    for domain in (TermDomain(), AtOnce()):
        rng, total = np.random.default_rng(count), zero()
        for number in range(count):
            total = domain.mma_step(steps[number % len(steps)], total, *operands(domain, rng))
            assert isinstance(total, DeferredChain) == (type(domain) is TermDomain)
            if read == "in between" and number == count // 2:
                assert total.words.shape == (2, BLOCKS, 2 * ROWS, COLUMNS)
        results.append(total)
    late, early = results
    assert late.flags == early.flags
    assert np.array_equal(np.broadcast_to(late.words, early.words.shape), early.words)
    assert np.array_equal(full_hash(late), full_hash(early))
    following = [
        domain.mma_step(STEP, total, *operands(domain, np.random.default_rng(1)))
        for domain, total in ((AtOnce(), late), (AtOnce(), early))
    ]
    assert np.array_equal(*(each.words for each in following))


def test_operands_of_several_steps_are_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    hashed = deferred_steps.hashed_vectors

    def counted(value: SymbolicVector, *others: object) -> HashedVectors:
        calls.append(value.words.shape[1])
        return hashed(value, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(deferred_steps, "hashed_vectors", counted)
    domain, rng, total = TermDomain(), np.random.default_rng(0), zero()
    for _ in range(5):
        total = domain.mma_step(STEP, total, *operands(domain, rng))
    assert not calls
    assert total.words.shape == (2, BLOCKS, 2 * ROWS, COLUMNS)
    assert sorted(calls) == [10, 20]  # two tiles of each operand of B, and twice as many of A


@pytest.mark.parametrize("what", ["finite", "integers", "cuts", "a term", "a narrow accumulator"])
def test_other_steps_are_computed_at_once(what: str) -> None:
    domain = TermDomain(frozenset({FINITE}) if what == "finite" else frozenset())
    rng, total, step = np.random.default_rng(0), zero(), STEP
    left, right = operands(domain, rng)
    if what == "integers":
        step = MmaStep("integers", True, True, IntegerProducts("s8 s8", 1 << 14, clamps=False))
    elif what == "cuts":
        step = MmaStep("cuts", True, True, cuts=True)
    elif what == "a narrow accumulator":
        total = SymbolicVector(16, total.words, total.flags)
    elif what == "a term":
        loads = elements(rng, 2 * ROWS)
        vectors = domain.operand_vectors(SymbolicVector(16, loads.words.copy(), L.TERM), "fp16")
        left = vectors.of_blocks(np.array([0, 1, 1, 0])).take(ROW)
    assert not isinstance(domain.mma_step(step, total, left, right), DeferredChain)
    assert isinstance(right, LoadedVectors) == (what != "finite")
