"""Payloads of sets: sums of the hashes of their members, each counted once."""

from __future__ import annotations

import random

import numpy as np
import pytest

from bitwise_core.execution.values.sets.member_sets import MemberSets, RepeatedMembers

PRIMES = ((1 << 32) - 5, (1 << 64) - 59)


def payload(members: frozenset[tuple[int, int]], upper_half: bool) -> tuple[int, int]:
    second = sum(each[1] for each in members) % PRIMES[1]
    if upper_half:
        return (sum(each[0] >> 32 for each in members) % PRIMES[0]) << 32, second
    return sum(each[0] for each in members) % PRIMES[1], second


@pytest.mark.parametrize("upper_half", [False, True])
def test_the_payload_of_a_union_is_the_sum_of_its_members(upper_half: bool) -> None:
    draw = random.Random(5)
    words = [0, 5, (1 << 64) - 1, (1 << 64) - 59, (1 << 32) - 5 << 32, *(draw.getrandbits(64) for _ in range(6))]
    hashes = [(first & ~0xFFFFFFFF if upper_half else first, draw.getrandbits(64) | 1) for first in words]
    sets = [(each, frozenset([each])) for each in hashes]
    known = MemberSets()
    shared = 0
    for _ in range(300):
        (left, one), (right, other) = draw.sample(sets, 2)
        operands = [np.array(each, dtype=np.uint64).reshape(2, 1, 1) for each in (left, right)]
        plain = np.full((2, 1, 1), 7, dtype=np.uint64)
        found = tuple(known.union(*operands, plain, upper_half=upper_half)[:, 0, 0].tolist())
        wanted = payload(one | other, upper_half)
        assert found == (wanted if one & other else (7, 7))
        shared += bool(one & other)
        sets.append((wanted, one | other))
    assert 50 < shared < 300


def test_a_value_that_every_thread_combines_again_is_found() -> None:
    rng = np.random.default_rng(2)
    values = [rng.integers(1, 2**64, (2, 2, 8), dtype=np.uint64) for _ in range(6)]
    repeated = RepeatedMembers()
    for each in values:
        repeated.examine(each, True)
    assert not repeated.found
    repeated.examine(values[-2], True)
    assert repeated.found
    apart = RepeatedMembers()
    half = np.arange(8) < 4
    apart.examine(values[0], half[None])
    apart.examine(values[0], ~half[None])
    assert not apart.found
