"""Blocks with equal operands of a matrix step share the hashes of their vectors: those of each block alone."""

import numpy as np
import pytest

from bitwise_core.execution.term_recorder import TermContext
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.matrix_steps import mma_steps
from bitwise_core.execution.values.matrix_steps.mma_steps import HashedVectors, hashed_vectors
from bitwise_core.execution.values.symbolic_vector import SymbolicVector

ROWS, K = 4, 8


def elements(rng: np.random.Generator, distinct: int, blocks: int, kind: str) -> SymbolicVector:
    """Random elements of 16 bits of which `blocks` blocks take those of one of `distinct` blocks."""
    words = rng.integers(0, 1 << 12, (2, distinct, ROWS, K), dtype=np.uint64)
    flags: L.Flags = L.TERM
    if kind == "loads":
        words[1], flags = words[0], L.LOAD
    elif kind == "numbers and terms":
        numbers = rng.random((distinct, ROWS, K)) < 0.5
        words[:, numbers] = np.where(rng.random(int(numbers.sum())) < 0.5, 0, 0x8000).astype(np.uint64)
        flags = np.where(numbers, np.uint32(L.CONST), np.uint32(L.TERM))
    elif kind == "undefined":
        flags = np.where(rng.random((distinct, 1, 1)) < 0.5, np.uint32(L.TERM | L.POISON), np.uint32(L.TERM))
        flags = np.broadcast_to(flags, (distinct, ROWS, K))
    words[:, :, 0, 0] = np.arange(distinct)  # blocks are told apart by their first elements
    chosen = rng.integers(0, distinct, blocks)
    of_blocks = flags if isinstance(flags, int) else flags[chosen]
    return SymbolicVector(16, words[:, chosen], of_blocks)


def of_block(found: HashedVectors, block: int) -> tuple[bytes, bytes | None, int]:
    """The hashes, zeros and inherited flags of one block."""
    words = np.broadcast_to(found.words, (2, max(found.words.shape[1], block + 1), ROWS))[:, block]
    zero = None if found.zero is None else found.zero[min(block, found.zero.shape[0] - 1)]
    sticky = found.sticky if isinstance(found.sticky, int) else int(found.sticky.reshape(-1)[block])
    return words.tobytes(), None if zero is None or not zero.any() else zero.tobytes(), sticky


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["loads", "terms", "numbers and terms", "undefined"])
def test_vectors_of_alike_blocks_are_those_of_each_block(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    given = elements(rng, 3, 16, kind)
    assert mma_steps._alike_blocks(given) is not None
    found = hashed_vectors(given, "fp16", TermContext())
    for block in range(16):
        flags = given.flags if isinstance(given.flags, int) else given.flags[block : block + 1]
        alone = hashed_vectors(SymbolicVector(16, given.words[:, block : block + 1], flags), "fp16", TermContext())
        assert of_block(found, block) == of_block(alone, 0)


@pytest.mark.parametrize("place", ["words", "second word", "flags"])
def test_one_other_element_makes_a_block_another(place: str) -> None:
    given = elements(np.random.default_rng(7), 2, 16, "terms")
    words, flags = given.words.copy(), np.full((16, ROWS, K), L.TERM, dtype=np.uint32)
    assert mma_steps._alike_blocks(SymbolicVector(16, words, flags)) is not None
    if place == "flags":
        flags[11, 2, 3] |= np.uint32(L.NEGATED)
    else:
        words[int(place == "second word"), 11, 2, 3] += np.uint64(1)
    changed = SymbolicVector(16, words, flags)
    assert mma_steps._alike_blocks(changed) is None
    other = next(block for block in range(16) if block != 11 and (given.words[:, block] == given.words[:, 11]).all())
    found = hashed_vectors(changed, "fp16", TermContext())
    assert of_block(found, 11) != of_block(found, other)
