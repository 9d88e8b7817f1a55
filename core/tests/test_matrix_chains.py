"""Chains of matrix steps: what is computed late is what each step computes, and two chains have two hashes."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest

from bitwise_core.execution.term_recorder import Recorder, TermContext
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.matrix_steps.matrix_chains import (
    FACTORS,
    PRIME,
    ChainedRegister,
    ChainedSteps,
    _payload,
)
from bitwise_core.execution.values.matrix_steps.mma_steps import HashedVectors, MmaStep, mma_terms, mma_terms_in_order
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector
from bitwise_core.execution.values.term_hash import base_hash, full_hash, term

STEP = MmaStep("a step", positive_zero=True, commutes=True)
OTHER_STEP = MmaStep("another step", positive_zero=True, commutes=True)
BLOCKS, ROWS, COLUMNS = 2, 4, 3


def vectors(rng: np.random.Generator, rows: bool) -> HashedVectors:
    """Random vectors of the rows or of the columns."""
    shape = (2, BLOCKS, ROWS, 1) if rows else (2, BLOCKS, 1, COLUMNS)
    return HashedVectors(rng.integers(0, 2**64, shape, dtype=np.uint64), None, 0)


def zero() -> SymbolicVector:
    """The accumulator +0."""
    return SymbolicVector(32, np.zeros((2, 1, 1, 1), dtype=np.uint64), L.CONST | L.NOT_MINUS_ZERO | L.NOT_NEGATIVE)


def terms(rng: np.random.Generator) -> SymbolicVector:
    """Accumulators that differ everywhere."""
    return SymbolicVector(32, rng.integers(0, 2**64, (2, BLOCKS, ROWS, COLUMNS), dtype=np.uint64), L.TERM)


def plain(value: SymbolicVector) -> SymbolicVector:
    """The value without what its payload is computed from, as memory keeps it."""
    return SymbolicVector(value.bits, value.words.copy(), value.flags)


def chain(pairs: list[tuple[int, int]], table: Array, step: MmaStep = STEP, *, raw: bool = False) -> tuple[int, ...]:
    """The hash, or the `raw` payload, of one output after the steps on these pairs of vectors."""
    value = zero()
    for row, column in pairs:
        one, other = (HashedVectors(table[:, each].reshape(2, 1, 1, 1), None, 0) for each in (row, column))
        value = mma_terms(step, value, one, other, TermContext())
    return tuple((value.words if raw else full_hash(value)).ravel().tolist())


@pytest.mark.parametrize("commutes", [True, False])
@pytest.mark.parametrize("begins", ["zero", "terms"])
@pytest.mark.parametrize("seed", range(5))
def test_results_do_not_depend_on_when_they_are_computed(begins: str, commutes: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    step = MmaStep("a step", positive_zero=True, commutes=commutes)
    late = read = kept = recorded = zero() if begins == "zero" else terms(rng)
    for _ in range(6):
        left, right = vectors(rng, True), vectors(rng, False)
        late = mma_terms(step, late, left, right, TermContext())
        read = mma_terms(step, read, left, right, TermContext())
        assert read.words.shape == (2, BLOCKS, ROWS, COLUMNS)
        kept = plain(mma_terms(step, kept, left, right, TermContext()))
        recorded = mma_terms(step, recorded, left, right, TermContext(recorder=Recorder()))
        assert not isinstance(recorded, ChainedSteps)
    assert isinstance(late, ChainedSteps)
    for each in (read, kept, recorded):
        assert np.array_equal(each.words, late.words)
        assert each.flags == late.flags
        assert np.array_equal(full_hash(each), full_hash(late))


@pytest.mark.parametrize("commutes", [True, False])
@pytest.mark.parametrize("special", ["none", "a vector of zeros", "an inherited flag", "one row for all blocks"])
@pytest.mark.parametrize("begins", ["zero", "terms", "a chain"])
def test_steps_in_order_are_a_loop_over_steps(begins: str, special: str, commutes: bool) -> None:
    rng = np.random.default_rng(7)
    step = MmaStep("a step", positive_zero=True, commutes=commutes)
    start = zero() if begins == "zero" else terms(rng)
    if begins == "a chain":
        start = mma_terms(step, start, vectors(rng, True), vectors(rng, False), TermContext())
    row, column = np.arange(ROWS)[:, None], np.arange(COLUMNS)[None]
    for count in (1, 2, 3, 40):
        pairs = [(vectors(rng, True), vectors(rng, False)) for _ in range(count)]
        left, right = pairs[count // 2]
        if special == "a vector of zeros":
            zeros = np.zeros((BLOCKS, ROWS, 1), dtype=bool)
            zeros[0, 1] = True
            left, right = replace(left, zero=zeros), replace(right, zero=np.ones((BLOCKS, 1, COLUMNS), dtype=bool))
        elif special == "an inherited flag":
            left = replace(left, sticky=L.NAN_BITS)
        elif special == "one row for all blocks":
            left = replace(left, words=left.words[:, :1])
        pairs[count // 2] = left, right
        expected = start
        for one, other in pairs:
            expected = mma_terms(step, expected, one.take(row), other.take(column), TermContext())
        lefts, rights = zip(*pairs, strict=True)
        found = mma_terms_in_order(step, start, lefts, rights, row, column, TermContext())
        assert (found.words == expected.words).all()
        assert np.all(found.flags == expected.flags)
        # A chain goes on as if its steps had been computed one by one.
        more = vectors(rng, True).take(row), vectors(rng, False).take(column)
        following = [mma_terms(step, each, *more, TermContext()) for each in (found, expected)]
        assert (following[0].words == following[1].words).all()


def test_registers_hold_the_results() -> None:
    rng = np.random.default_rng(0)
    found = mma_terms(STEP, terms(rng), vectors(rng, True), vectors(rng, False), TermContext())
    assert isinstance(found, ChainedSteps)
    registers = [ChainedRegister(found, ROWS, index) for index in range(ROWS)]
    for index, each in enumerate(registers):
        assert np.array_equal(each.words, found.words[:, :, index])
        assert each.bundle == (found, index)


def test_registers_share_one_payload() -> None:
    rng = np.random.default_rng(0)
    # Neither vectors nor accumulators differ between columns, so that the payload is broadcast to them.
    columns = HashedVectors(rng.integers(0, 2**64, (2, BLOCKS, 1, 1), dtype=np.uint64), None, 0)
    found = mma_terms(STEP, zero(), vectors(rng, True), columns, TermContext())
    assert isinstance(found, ChainedSteps)
    found.shape = (2, BLOCKS, ROWS, COLUMNS)
    registers = [ChainedRegister(found, ROWS, index) for index in range(ROWS)]
    assert registers[0].words.shape == (2, BLOCKS, COLUMNS)
    assert all(np.shares_memory(each.words, found.registers(ROWS)) for each in registers)
    found.words = found.words + np.uint64(1)
    later = ChainedRegister(found, ROWS, 0)
    assert np.array_equal(later.words, registers[0].words + np.uint64(1))


def test_every_order_and_choice_of_vectors_has_its_own_hash() -> None:
    table = np.random.default_rng(1).integers(0, 2**64, (2, 3), dtype=np.uint64)
    pairs = [(row, column) for row in range(3) for column in range(row, 3)]
    chains = [list(each) for count in range(1, 5) for each in product(pairs, repeat=count)]
    assert len({chain(each, table) for each in chains}) == len(chains)


def test_vectors_commute_in_a_step_and_in_no_two_steps() -> None:
    table = np.random.default_rng(2).integers(0, 2**64, (2, 4), dtype=np.uint64)
    assert chain([(0, 1), (2, 3)], table) == chain([(1, 0), (2, 3)], table)
    found = {chain([(a, b), (c, d)], table) for a, b, c, d in permutations(range(4))}
    assert len(found) == 6
    ordered = MmaStep("a step", positive_zero=True, commutes=False)
    assert chain([(0, 1)], table, ordered) != chain([(1, 0)], table, ordered)


def test_steps_of_two_units_have_an_order() -> None:
    rng = np.random.default_rng(3)
    left, right = vectors(rng, True), vectors(rng, False)
    found = []
    for steps in ((STEP, OTHER_STEP), (OTHER_STEP, STEP), (STEP, STEP), (STEP,)):
        value = zero()
        for step in steps:
            value = mma_terms(step, value, left, right, TermContext())
        found.append(full_hash(value).tobytes())
    assert len(set(found)) == len(found)


def test_the_relations_of_payloads_are_none_of_hashes() -> None:
    rng = np.random.default_rng(4)
    found = mma_terms(STEP, zero(), vectors(rng, True), vectors(rng, False), TermContext())
    payload, hashed = found.words[0], base_hash(found)
    assert np.array_equal(payload[..., 0, 0] + payload[..., 1, 1], payload[..., 0, 1] + payload[..., 1, 0])
    assert (hashed[..., 0, 0] + hashed[..., 1, 1] != hashed[..., 0, 1] + hashed[..., 1, 0]).all()
    corner = [SymbolicVector(32, found.words[..., i, j][..., None], found.flags) for i in (0, 1) for j in (0, 1)]
    one, other = (term(32, "a sum", pair, commutes=True) for pair in ((corner[0], corner[3]), (corner[1], corner[2])))
    assert (one.words != other.words).all()


def test_an_operation_on_a_result_ends_its_chain() -> None:
    rng = np.random.default_rng(5)
    left, right = vectors(rng, True), vectors(rng, False)
    found = mma_terms(STEP, zero(), left, right, TermContext())
    for flag in (L.PLUS_ZERO, L.NEGATED):
        changed = SymbolicVector(32, found.words, found.flags | flag)
        after = mma_terms(STEP, changed, left, right, TermContext())
        opaque = SymbolicVector(32, full_hash(changed), L.TERM)
        assert np.array_equal(after.words, mma_terms(STEP, opaque, left, right, TermContext()).words)
        assert (after.words != mma_terms(STEP, found, left, right, TermContext()).words).all()


def test_lanes_continue_their_own_chains() -> None:
    rng = np.random.default_rng(6)
    left, right = vectors(rng, True), vectors(rng, False)
    chained = mma_terms(STEP, terms(rng), left, right, TermContext())
    others = terms(rng)
    mask = rng.random((BLOCKS, ROWS, COLUMNS)) < 0.5
    mixed = L.blend(mask, plain(chained), others)
    after = mma_terms(STEP, mixed, left, right, TermContext()).words
    expected = [mma_terms(STEP, each, left, right, TermContext()).words for each in (chained, others)]
    assert np.array_equal(after, np.where(mask, *expected))


def test_payloads_are_sums_of_powers_of_the_factors() -> None:
    rng = np.random.default_rng(7)
    pairs = [(vectors(rng, True), vectors(rng, False)) for _ in range(5)]
    start = value = terms(rng)
    for pair in pairs:
        value = mma_terms(STEP, value, *pair, TermContext())
    name = hashing.constant("fused a step").ravel()
    for block, row, column in product(range(BLOCKS), range(ROWS), range(COLUMNS)):
        for index, (factor, modulus) in enumerate(zip(FACTORS, (2**64, PRIME, PRIME), strict=True)):

            def part(words: Array, index: int = index) -> int:
                number = int(words[min(index, 1)])
                return (number, number >> 31 & PRIME, number & PRIME)[index]

            total = part(start.words[:, block, row, column])
            for left, right in pairs:
                added = name, left.words[:, block, row, 0], right.words[:, block, 0, column]
                total = (total * factor + sum(part(each) for each in added)) % modulus
            assert part(value.words[:, block, row, column]) == total


def test_a_pattern_that_vanishes_modulo_a_power_of_two_has_two_hashes() -> None:
    table = np.random.default_rng(8).integers(0, 2**64, (2, 3), dtype=np.uint64)
    pattern = [each.bit_count() % 2 for each in range(1024)]
    found = [chain([(2, each ^ flipped) for each in pattern], table, raw=True) for flipped in (0, 1)]
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]
    halves = [(word >> 31, word & PRIME) for _, word in found]
    assert all(one != other for one, other in zip(*halves, strict=True))


def test_factors_have_the_order_of_the_field() -> None:
    assert FACTORS[0] % 8 == 3
    for factor in FACTORS[1:]:
        assert all(pow(factor, (PRIME - 1) // each, PRIME) != 1 for each in (2, 3, 7, 11, 31, 151, 331))
    assert FACTORS[1] != FACTORS[2]


def test_sums_that_are_equal_modulo_the_prime_are_one_payload() -> None:
    sums = np.array([[5, 5], [PRIME, 2 * PRIME], [2**62, 2**62 % PRIME]], dtype=np.uint64)
    found = _payload(sums)
    assert found[:, 0].tolist() == found[:, 1].tolist() == [5, 2**62 % PRIME]


def test_vectors_of_zeros_are_known_beside_vectors_without() -> None:
    rng = np.random.default_rng(6)
    without, others = vectors(rng, rows=True), vectors(rng, rows=True)
    zeros = rng.integers(0, 2, (1, ROWS, 1)).astype(bool)
    marked = replace(others, zero=zeros)
    for parts, expected in (
        ((without, marked), (np.zeros_like(zeros), zeros)),
        ((marked, without), (zeros, np.zeros_like(zeros))),
        ((marked, marked), (zeros, zeros)),
    ):
        together = parts[0].concatenated(parts[1:])
        assert together.zero is not None
        assert np.array_equal(together.zero[0], np.concatenate(expected, axis=1).ravel())
    assert without.concatenated([others]).zero is None
