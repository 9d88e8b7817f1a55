"""Hashes of terms: they distinguish flags of operands whose hashes agree in many bits, and numbers of members."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import (
    IDENTITY_WORDS,
    MARK_WORDS,
    NEGATED_WORDS,
    PLUS_ZERO_WORDS,
    exact_hash,
    full_hash,
    term,
)
from bitwise_core.numerics import operation

COUNT = 1 << 12


def agreeing_hashes(change: Array) -> tuple[Array, Array]:
    """Return pairs of hashes that agree in every bit of `change`, shape (2, 1, COUNT)."""
    generator = np.random.default_rng(1)
    one = generator.integers(0, 2**64, (2, 1, COUNT), dtype=np.uint64)
    other = generator.integers(0, 2**64, (2, 1, COUNT), dtype=np.uint64)
    mixed: Array = (one & change) | (other & ~change)
    return one, mixed


def words_of(value: object) -> Array:
    assert isinstance(value, SymbolicVector)
    return full_hash(value)


def test_a_difference_is_not_its_negation() -> None:
    left, right = (SymbolicVector(32, words, L.TERM) for words in agreeing_hashes(NEGATED_WORDS))
    domain = TermDomain()
    one = words_of(domain.floating(operation("sub.rn.fp32"), [left, right]))
    other = words_of(domain.floating(operation("sub.rn.fp32"), [right, left]))
    assert not (one == other).any()


@pytest.mark.parametrize(
    ("flag", "change"),
    [(L.NEGATED, NEGATED_WORDS), (L.PLUS_ZERO, PLUS_ZERO_WORDS), *MARK_WORDS.items()],
)
def test_commuting_operands_are_distinguished_by_their_flags(flag: int, change: Array) -> None:
    left, right = agreeing_hashes(change)
    one = term(
        32,
        "any",
        [SymbolicVector(32, left, L.TERM | flag), SymbolicVector(32, right, L.TERM)],
        commutes=True,
        exact=True,
    )
    other = term(
        32,
        "any",
        [SymbolicVector(32, left, L.TERM), SymbolicVector(32, right, L.TERM | flag)],
        commutes=True,
        exact=True,
    )
    assert not (one.words == other.words).any()


def test_ac_terms_are_distinguished_by_their_identity_flags() -> None:
    left, right = agreeing_hashes(IDENTITY_WORDS)
    flags = L.AC_TERMS | 1 << L.OPERATION_SHIFT
    one = [SymbolicVector(32, left, flags | L.WITH_IDENTITY), SymbolicVector(32, right, flags)]
    other = [SymbolicVector(32, left, flags), SymbolicVector(32, right, flags | L.WITH_IDENTITY)]
    words = [term(32, "any", each, commutes=True).words for each in (one, other)]
    assert not (words[0] == words[1]).any()


def test_combinations_of_flags_have_distinct_hashes() -> None:
    words = agreeing_hashes(NEGATED_WORDS)[0]
    flags = (
        0,
        L.NEGATED,
        L.PLUS_ZERO,
        L.NEGATED | L.PLUS_ZERO,
        *MARK_WORDS,
        *(L.NEGATED | mark for mark in MARK_WORDS),
        *(L.PLUS_ZERO | mark for mark in MARK_WORDS),
    )
    hashes = [exact_hash(SymbolicVector(32, words, L.TERM | flag)) for flag in flags]
    for index, one in enumerate(hashes):
        assert not any((one == other).any() for other in hashes[:index])


def test_lanes_with_different_flags_are_hashed_separately() -> None:
    words = agreeing_hashes(NEGATED_WORDS)[0]
    chosen = np.arange(COUNT)[None] % 3 == 0
    flags = np.where(chosen, np.uint32(L.TERM | L.NEGATED), np.uint32(L.TERM))
    mixed = full_hash(SymbolicVector(32, words, flags))
    assert (mixed == np.where(chosen, full_hash(SymbolicVector(32, words, L.TERM | L.NEGATED)), words)).all()


def test_gathers_of_different_widths_are_distinguished() -> None:
    domain, place = TermDomain(), SymbolicVector(64, agreeing_hashes(NEGATED_WORDS)[0], L.TERM)
    narrow, wide = (words_of(domain.gather(place, bits, None)) for bits in (16, 32))
    assert not (narrow == wide).any()


def loads(*addresses: int) -> list[SymbolicVector]:
    return [SymbolicVector(32, np.full((2, 1, 1), address, dtype=np.uint64), L.LOAD) for address in addresses]


@pytest.mark.parametrize("squarings", [32, 63, 64, 65, 128])
def test_powers_of_different_numbers_are_distinguished(squarings: int) -> None:
    domain = TermDomain()
    found = []
    for number in loads(4096, 8192):
        power: Value = number
        for _ in range(squarings):
            power = domain.integer(operation("mul.b32"), [power, power])
        found.append(words_of(power))
    assert not (found[0] == found[1]).any()


@pytest.mark.parametrize("name", ["max.fp32", "min.nan.fp16", "max.fp64", "min.s32", "max.u64", "and.b32", "or.b16"])
@pytest.mark.parametrize("rounds", [32, 64, 65])
def test_sets_that_are_combined_with_themselves_keep_their_members(name: str, rounds: int) -> None:
    domain, combine = TermDomain(), operation(name)
    apply = domain.floating if combine.is_float else domain.integer
    first, second, *others = [SymbolicVector(combine.bits, each.words, L.LOAD) for each in loads(4096, 8192, 64, 128)]
    found = []
    for member in (first, second):
        combined: Value = member
        for _ in range(rounds):
            left, right = (apply(combine, [combined, other]) for other in others)
            combined = apply(combine, [left, right])
        found.append(words_of(combined))
    assert not (found[0] == found[1]).any()


@pytest.mark.parametrize("name", ["max.fp32", "min.s32", "mul.b64", "xor.b32"])
def test_sets_do_not_depend_on_the_order_of_their_members(name: str) -> None:
    domain, combine = TermDomain(), operation(name)
    apply = domain.floating if combine.is_float else domain.integer
    generator = np.random.default_rng(2)
    addresses = generator.integers(0, 2**40, (9, COUNT), dtype=np.uint64)
    members: list[Value] = [
        SymbolicVector(combine.bits, np.broadcast_to(each, (2, 1, COUNT)), L.LOAD) for each in addresses
    ]
    one, other = members[0], members[-1]
    for member in members[1:]:
        one = apply(combine, [one, member])
    for member in members[-2::-1]:
        other = apply(combine, [member, other])
    assert (words_of(one) == words_of(other)).all()
