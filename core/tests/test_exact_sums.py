"""Sums of numbers that are 0 or 1: one form in every order, and the numbers that arithmetic returns."""

from __future__ import annotations

import random

import numpy as np
import pytest

from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.sets import exact_sums
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.execution.values.term_hash import full_hash
from bitwise_core.numerics import operation

LANES = 3
ONE, ZERO = (np.full((1, 1), np.float32(number)).view(np.uint32) for number in (1, 0))
ADD = operation("add.rn.fp32")


def number(domain: TermDomain, place: int) -> Value:
    """A loaded number of fp32 in each lane."""
    return domain.load(np.uint64(1 << 40) + np.arange(LANES, dtype=np.uint64)[None] * 4 + np.uint64(64 * place), 32)


def condition(domain: TermDomain, place: int) -> Value:
    """A predicate of each lane."""
    return domain.floating(operation("lt.fp32"), [number(domain, place), ONE])


def member(domain: TermDomain, place: int) -> Value:
    """A number that is 1 where a condition holds, else 0."""
    return domain.select(condition(domain, place), ONE, ZERO)


def form(value: Value) -> list[int]:
    """The hash of a value in each lane."""
    return [int(each) for each in np.broadcast_to(full_hash(as_symbolic_vector(value)), (2, 1, LANES)).ravel()]


def summed(domain: TermDomain, places: list[int], rng: random.Random) -> Value:
    """The sum of members in some order."""
    values = [member(domain, place) for place in places]
    while len(values) > 1:
        rng.shuffle(values)
        values.append(domain.floating(ADD, [values.pop(), values.pop()]))
    return values[0]


@pytest.mark.parametrize("seed", range(12))
def test_every_order_has_one_form(seed: int) -> None:
    rng = random.Random(seed)
    places = [rng.randrange(6) for _ in range(rng.randrange(2, 9))]
    assert form(summed(TermDomain(), places, rng)) == form(summed(TermDomain(), places, rng))
    other = [*places, rng.choice(places)]
    assert form(summed(TermDomain(), places, rng)) != form(summed(TermDomain(), other, rng))
    changed = [places[0] + 7, *places[1:]]
    assert form(summed(TermDomain(), places, rng)) != form(summed(TermDomain(), changed, rng))


def test_a_sum_of_the_largest_count_does_not_depend_on_its_order() -> None:
    """Sums of 2**24 members are exact in fp32, those of one more are not."""
    half = np.float32(1 << 23)
    assert half + half == 1 << 24
    assert half + half + np.float32(1) == 1 << 24
    domain = TermDomain()
    value = member(domain, 0)
    for _ in range(24):
        value = domain.floating(ADD, [value, value])
        assert as_symbolic_vector(value).flags & L.KIND == L.AC_TERMS
    above = domain.floating(ADD, [value, member(domain, 1)])
    assert as_symbolic_vector(above).flags & L.KIND == L.TERM


@pytest.mark.parametrize("arm", [0x3F000000, 0x40000000, 0x80000000, 0xBF800000, 0x7F800000, 0x7FC00000, 1])
def test_other_numbers_are_rounded_in_their_order(arm: int) -> None:
    domain = TermDomain()
    other = np.full((1, 1), arm, dtype=np.uint32)
    values = [domain.select(condition(domain, place), ONE, other) for place in range(3)]
    first, second = (
        domain.floating(ADD, [domain.floating(ADD, [values[a], values[b]]), values[c]])
        for a, b, c in ((0, 1, 2), (1, 2, 0))
    )
    assert form(first) != form(second)


@pytest.mark.parametrize("name", ["add.rn.sat.fp32", "add.rn.ftz.sat.fp32", "sub.rn.fp32", "mul.rn.fp32"])
def test_other_operations_are_no_such_sums(name: str) -> None:
    domain = TermDomain()
    found = domain.floating(operation(name), [member(domain, 0), member(domain, 1)])
    assert form(found) != form(domain.floating(ADD, [member(domain, 0), member(domain, 1)]))
    assert as_symbolic_vector(found).flags & L.KIND == L.TERM


@pytest.mark.parametrize("name", sorted(exact_sums._ADDITIONS))
def test_these_additions_return_every_integer_sum(name: str) -> None:
    rng = np.random.default_rng(7)
    numbers = np.concatenate([rng.integers(0, 1 << 23, 1000), [0, 1, (1 << 23) - 1, 1 << 23]]).astype(np.float32)
    others = rng.permutation(numbers)
    found = operation(name).evaluate(numbers.view(np.uint32), others.view(np.uint32))
    assert np.array_equal(found.view(np.float32).astype(np.int64), numbers.astype(np.int64) + others.astype(np.int64))
    assert not (found >> np.uint32(31)).any()


def test_a_loaded_number_keeps_its_place_in_the_order() -> None:
    domain = TermDomain()
    loaded, one, other = number(domain, 9), member(domain, 0), member(domain, 1)
    inside = domain.floating(ADD, [domain.floating(ADD, [loaded, one]), other])
    outside = domain.floating(ADD, [loaded, domain.floating(ADD, [one, other])])
    assert form(inside) != form(outside)


def test_lanes_with_known_conditions_are_the_sum_of_the_others() -> None:
    domain = TermDomain()
    known = np.array([[True, False, False]])
    choice = domain.select(known, ZERO, member(domain, 0))
    found = form(domain.floating(ADD, [choice, member(domain, 1)]))
    every = form(domain.floating(ADD, [member(domain, 0), member(domain, 1)]))
    alone = form(member(domain, 1))
    assert found[0] == alone[0]
    assert found[1:3] == every[1:3]


def test_what_depends_on_the_order_of_threads_stays_so() -> None:
    domain = TermDomain()
    one = L.with_flags(as_symbolic_vector(member(domain, 0)), L.NONDETERMINISTIC)
    found = as_symbolic_vector(domain.floating(ADD, [one, member(domain, 1)]))
    assert np.all(L.has_flag(found, L.NONDETERMINISTIC))


def test_more_numbers_than_are_kept_are_numbers_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_sums, "_MOST_KNOWN", LANES)
    domain = TermDomain()
    member(domain, 0)
    found = domain.floating(ADD, [member(domain, 1), member(domain, 2)])
    assert as_symbolic_vector(found).flags & L.KIND == L.TERM
