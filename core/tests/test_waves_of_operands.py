"""Waves with equal tiles are hashed once: the vectors are those of every wave."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.matrix_steps.mma_steps import HashedVectors
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector

ROWS, K = 4, 8


def tiles(numbers: Array) -> SymbolicVector:
    """Return the elements of blocks and waves, shape (blocks, waves), of which each holds the tile of a number."""
    blocks, waves = numbers.shape
    inside = np.arange(ROWS * K, dtype=np.uint64).reshape(ROWS, K) * np.uint64(2)
    words = (numbers.astype(np.uint64)[..., None, None] << np.uint64(20)) + inside
    return SymbolicVector(16, L.both_words(words.reshape(blocks, waves * ROWS, K)), L.LOAD)


def vectors(elements: SymbolicVector, waves: int) -> HashedVectors:
    found = TermDomain().operand_vectors(elements, "fp16", waves)
    assert isinstance(found, HashedVectors)
    return found


@pytest.mark.parametrize(
    "numbers",
    [
        [[1, 2, 1, 2, 1, 2, 1, 2]],
        [[1, 1, 1, 1]],
        [[1, 2, 1, 2], [3, 2, 3, 2]],
        [[1, 2, 3, 4], [1, 2, 3, 4]],
        [[1, 1, 2, 3], [4, 5, 6, 7]],
    ],
    ids=["two tiles", "one tile", "blocks share a tile", "blocks are equal", "few are equal"],
)
def test_waves_share_tiles(numbers: list[list[int]]) -> None:
    found = np.array(numbers)
    elements, waves = tiles(found), found.shape[1]
    shared, apart = vectors(elements, waves), vectors(elements, 1)
    assert (np.broadcast_to(shared.words, apart.words.shape) == apart.words).all()
    own = shared.words.reshape(2, -1, waves, ROWS)
    own = np.broadcast_to(own, (2, found.shape[0], waves, ROWS))
    for number in np.unique(found):
        assert len(np.unique(own[0][found == number], axis=0)) == 1
    assert len(np.unique(own[0].reshape(-1, ROWS), axis=0)) == len(np.unique(found))


@pytest.mark.parametrize("place", [(0, 3, 7), (0, 3, 0), (1, 2, 5)])
def test_one_other_element_makes_another_tile(place: tuple[int, int, int]) -> None:
    """Waves whose first elements are equal may differ in another one."""
    block, row, k = place
    elements = tiles(np.array([[1, 2, 1, 2], [1, 2, 1, 2]]))
    words = elements.words.copy()
    words[:, block, 2 * ROWS + row, k] += np.uint64(1 << 30)
    changed = SymbolicVector(16, words, L.LOAD)
    shared, apart = vectors(changed, 4), vectors(changed, 1)
    assert (np.broadcast_to(shared.words, apart.words.shape) == apart.words).all()
    assert not (vectors(elements, 4).words == apart.words).all()


def test_flags_and_zeros_are_those_of_each_wave() -> None:
    elements = tiles(np.array([[1, 2, 1, 2], [1, 2, 1, 2]]))
    words, flags = elements.words.copy(), np.full(elements.words.shape[1:], L.LOAD, dtype=np.uint32)
    zero = np.repeat(np.array([[0, 1, 0, 1], [0, 1, 0, 1]], dtype=bool), ROWS, axis=1)
    words[:, zero], flags[zero] = 0, L.CONST
    changed = SymbolicVector(16, words, flags)
    shared, apart = vectors(changed, 4), vectors(changed, 1)
    assert shared.zero is not None
    assert apart.zero is not None
    assert (np.broadcast_to(shared.zero, apart.zero.shape) == apart.zero).all()
    assert (np.broadcast_to(shared.words, apart.words.shape) == apart.words).all()
    marked = np.array(flags)
    marked[1, 2 * ROWS :] |= L.POISON
    poisoned = SymbolicVector(16, words, marked)
    shared, apart = vectors(poisoned, 4), vectors(poisoned, 1)
    assert np.array_equal(np.broadcast_to(shared.sticky, (2,)), np.broadcast_to(apart.sticky, (2,)))
