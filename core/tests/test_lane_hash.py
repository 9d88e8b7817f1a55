"""Hashes of lanes: which operand a property stands at shows, however alike the operands' hashes are."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.machine import lanes as L
from bitwise_core.machine.lane_hash import (
    IDENTITY_WORDS,
    LOOSE_WORDS,
    NEGATED_WORDS,
    PLUS_ZERO_WORDS,
    exact_hash,
    full_hash,
    term,
)
from bitwise_core.machine.lanes import Array, Lanes
from bitwise_core.machine.terms import TermDomain
from bitwise_core.numeric import operation

COUNT = 1 << 12


def alike(change: Array) -> tuple[Array, Array]:
    """Pairs of hashes that agree in every bit of `change`, shape (2, 1, COUNT)."""
    draw = np.random.default_rng(1)
    one = draw.integers(0, 2**64, (2, 1, COUNT), dtype=np.uint64)
    other = draw.integers(0, 2**64, (2, 1, COUNT), dtype=np.uint64)
    mixed: Array = (one & change) | (other & ~change)
    return one, mixed


def words_of(value: object) -> Array:
    assert isinstance(value, Lanes)
    return full_hash(value)


def test_a_difference_is_not_its_opposite() -> None:
    left, right = (Lanes(32, words, L.TERM) for words in alike(NEGATED_WORDS))
    domain = TermDomain()
    one = words_of(domain.floating(operation("sub.rn.fp32"), [left, right]))
    other = words_of(domain.floating(operation("sub.rn.fp32"), [right, left]))
    assert not (one == other).any()


@pytest.mark.parametrize(
    ("flag", "change"), [(L.NEGATED, NEGATED_WORDS), (L.PLUS_ZERO, PLUS_ZERO_WORDS), (L.LOOSE, LOOSE_WORDS)]
)
def test_where_a_property_stands_shows_among_operands_that_commute(flag: int, change: Array) -> None:
    left, right = alike(change)
    one = term(32, "any", [Lanes(32, left, L.TERM | flag), Lanes(32, right, L.TERM)], commutes=True, exact=True)
    other = term(32, "any", [Lanes(32, left, L.TERM), Lanes(32, right, L.TERM | flag)], commutes=True, exact=True)
    assert not (one.words == other.words).any()


def test_where_the_neutral_element_stands_shows_among_sets() -> None:
    left, right = alike(IDENTITY_WORDS)
    meta = L.SET | 1 << L.SET_SHIFT
    one = [Lanes(32, left, meta | L.WITH_IDENTITY), Lanes(32, right, meta)]
    other = [Lanes(32, left, meta), Lanes(32, right, meta | L.WITH_IDENTITY)]
    words = [term(32, "any", each, commutes=True).words for each in (one, other)]
    assert not (words[0] == words[1]).any()


def test_properties_do_not_commute_with_one_another() -> None:
    words = alike(NEGATED_WORDS)[0]
    flags = (0, L.NEGATED, L.PLUS_ZERO, L.LOOSE, L.NEGATED | L.PLUS_ZERO, L.NEGATED | L.LOOSE, L.PLUS_ZERO | L.LOOSE)
    hashes = [exact_hash(Lanes(32, words, L.TERM | flag)) for flag in flags]
    for index, one in enumerate(hashes):
        assert not any((one == other).any() for other in hashes[:index])


def test_lanes_with_and_without_a_property_are_hashed_each_its_way() -> None:
    words = alike(NEGATED_WORDS)[0]
    chosen = np.arange(COUNT)[None] % 3 == 0
    meta = np.where(chosen, np.uint32(L.TERM | L.NEGATED), np.uint32(L.TERM))
    mixed = full_hash(Lanes(32, words, meta))
    assert (mixed == np.where(chosen, full_hash(Lanes(32, words, L.TERM | L.NEGATED)), words)).all()


def test_a_gather_tells_its_width() -> None:
    domain, place = TermDomain(), Lanes(64, alike(NEGATED_WORDS)[0], L.TERM)
    narrow, wide = (words_of(domain.gather(place, bits, None)) for bits in (16, 32))
    assert not (narrow == wide).any()
