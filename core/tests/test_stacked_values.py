"""Values side by side hold what each of them holds, and are taken apart again."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.stacked_values import form_of, split, stacked
from bitwise_core.execution.values.symbolic_vector import Array, Origin, PackedVector, SymbolicVector, Value

BLOCKS, THREADS = 3, 8


def vector(
    seed: int, *, flags: L.Flags = L.TERM, rows: int = BLOCKS, origin: SymbolicVector | None = None
) -> SymbolicVector:
    """Return a value with the words of a seed, and an operation in some lanes that made it of another value."""
    words = np.random.default_rng(seed).integers(1 << 63, size=(2, rows, THREADS), dtype=np.uint64)
    found = SymbolicVector(32, words, flags)
    if origin is not None:
        lanes = (words[0] & np.uint64(1)).astype(bool)
        found.origins = (Origin("neg.fp32", (origin,)), Origin("abs.fp32", (origin,), lanes))
    return found


def contents(value: Value) -> list[Array]:
    """Return all that is known of a value in each lane, with the names of its operations."""
    shape = (BLOCKS, THREADS)
    if isinstance(value, np.ndarray):
        return [np.broadcast_to(value, shape)]
    if isinstance(value, PackedVector):
        return [each for part in value.parts for each in contents(part)]
    found = [np.broadcast_to(value.words, (2, *shape)), L.flags_of_lanes(value.flags, shape)]
    for origin in value.origins:
        lanes = np.broadcast_to(np.asarray(origin.lanes), shape)
        found += [np.array([origin.name]), lanes, *(each for operand in origin.operands for each in contents(operand))]
    return found


FLAGS = np.where(np.arange(BLOCKS * THREADS).reshape(BLOCKS, THREADS) % 5 == 0, L.CONST, L.TERM).astype(np.uint32)
KINDS: dict[str, list[Value]] = {
    "numbers": [np.arange(THREADS, dtype=np.uint32)[None] + np.uint32(each) for each in range(4)],
    "numbers of blocks": [np.full((rows, 1), 7 + rows, dtype=np.uint32) for rows in (1, BLOCKS)],
    "terms": [vector(each) for each in range(5)],
    "terms that blocks share": [vector(each, rows=1) for each in range(3)],
    "constants in some lanes": [vector(each, flags=FLAGS[:, ::step].copy()) for each, step in ((1, 1), (2, -1))],
    "operations": [vector(each, origin=vector(10 + each)) for each in range(3)],
    "halves": [
        PackedVector((np.full((1, 1), each, dtype=np.uint16), SymbolicVector(16, vector(each).words, L.TERM)))
        for each in range(3)
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_one_form_are_taken_apart_again(kind: str) -> None:
    values = KINDS[kind]
    assert len({form_of(each) for each in values}) == 1
    assert form_of(values[0]) is not None
    found = split(stacked(values, BLOCKS, THREADS), len(values), THREADS)
    assert found is not None
    for one, other in zip(found, values, strict=True):
        for left, right in zip(contents(one), contents(other), strict=True):
            assert np.array_equal(left, right)


def test_values_of_different_forms_are_not_put_side_by_side() -> None:
    plain = vector(1)
    others = [
        vector(2, flags=L.TERM | L.QUIET),
        vector(2, flags=FLAGS),
        vector(2, origin=plain),
        np.ones((1, 1), dtype=np.uint32),
        SymbolicVector(16, plain.words, L.TERM),
        PackedVector((plain, plain)),
    ]
    assert len({form_of(each) for each in (plain, *others)}) == len(others) + 1


def test_a_value_with_more_than_its_lanes_has_no_form() -> None:
    joined = PackedVector((vector(1), vector(2)))
    joined.whole = np.ones((1, 1), dtype=bool)
    assert form_of(joined) is None
