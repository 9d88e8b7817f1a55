"""Elements of matrix fragments are those of their registers, whether these are stacked or taken one by one."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from bitwise_amd_gfx942.opcodes.matrices import matrix_fragments
from bitwise_amd_gfx942.opcodes.matrices.matrix_fragments import Fragment
from bitwise_amd_gfx942.opcodes.matrices.matrix_layouts import Tile
from bitwise_core.execution.active_lanes import WholeBlocks
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.matrix_steps.mma_steps import HashedVectors
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash, term

THREADS, BLOCKS = 64, 3


def load(number: int) -> SymbolicVector:
    """Return words that are loaded from places of their own."""
    places = np.arange(BLOCKS * THREADS, dtype=np.uint64).reshape(BLOCKS, THREADS) * np.uint64(4)
    return SymbolicVector(32, L.both_words(places + np.uint64(number << 20)), L.LOAD)


def register(random: Random) -> Value:
    """Return a register with a number, a load, bytes of loads beside zeros, loads in some lanes, or terms."""
    zero, word = np.zeros((1, 1), dtype=np.uint8), load(random.randrange(1 << 10))
    kind = random.randrange(6)
    if kind == 0:
        return np.full((1, 1), random.randrange(1 << 32), dtype=np.uint32)
    if kind == 1:
        return np.arange(THREADS, dtype=np.uint32)[None] * np.uint32(random.randrange(99))
    if kind == 2:
        return word
    low, high = (extract(word, each, 8) for each in (0, 8))
    if kind == 3:
        return concat([zero, low, zero, high])
    if kind == 4:
        some = np.arange(THREADS)[None] < random.randrange(1, THREADS)
        return concat([zero, blend_values(some, low, zero), zero, blend_values(some, high, zero)])
    halves = [term(16, f"half {each}", [word], 0) for each in "ab"]
    return concat(halves)


@pytest.mark.parametrize("seed", range(4))
def test_stacked_registers_have_the_elements_of_each(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random, tile = Random(seed), Tile(side=32, k=8, blocks=1, run=4)
    alike = tuple(
        Fragment([register(random) for _ in "ab"], 16, "fp16", tile, 8, TermDomain(), (BLOCKS, THREADS), None)
        for _ in range(8)
    )
    found, numbers = matrix_fragments._elements_of_registers(alike)
    assert matrix_fragments._elements_of_stack([each for of in alike for each in of.registers], 16, THREADS) is not None
    monkeypatch.setattr(matrix_fragments, "_elements_of_stack", lambda *_: None)
    expected, others = matrix_fragments._elements_of_registers(alike)
    assert numbers.tolist() == others.tolist()
    assert np.array_equal(exact_hash(found), exact_hash(expected))
    assert np.array_equal(*(np.broadcast_to(each.flags, found.words.shape[1:]) for each in (found, expected)))


@pytest.mark.parametrize("seed", range(4))
def test_waves_with_equal_bytes_have_the_elements_of_each(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes beside zeros, as fp8e5 becomes fp16, are joined once for waves and blocks that loaded the same."""
    random, blocks, threads, zero = Random(seed), 4, 4 * THREADS, np.zeros((1, 1), dtype=np.uint8)
    places = np.arange(THREADS, dtype=np.uint64) * np.uint64(4)
    registers = []
    for _ in range(6):
        starts = np.array([random.choice([1, 2, 3]) << 20 for _ in range(blocks * 4)], dtype=np.uint64)
        words = (starts[:, None] + places).reshape(blocks, threads)
        word = SymbolicVector(32, L.both_words(words), L.LOAD)
        if seed % 2:
            inside = np.arange(threads)[None] % THREADS < 40
            word = as_symbolic_vector(blend_values(inside, word, np.zeros((1, 1), dtype=np.uint32)))
        registers.append(concat([zero, extract(word, 0, 8), zero, extract(word, 8, 8)]))
    found = matrix_fragments._elements_of_stack(registers, 16, threads)
    stack = matrix_fragments._alike_registers(registers, threads)
    assert isinstance(stack, PackedVector)
    assert matrix_fragments._repeated(stack.parts, 16) is not None
    monkeypatch.setattr(matrix_fragments, "_repeated", lambda *_: None)
    expected = matrix_fragments._elements_of_stack(registers, 16, threads)
    assert found is not None
    assert expected is not None
    assert np.array_equal(exact_hash(found), exact_hash(expected))
    assert np.array_equal(*(np.broadcast_to(each.flags, found.words.shape[1:]) for each in (found, expected)))


def test_parts_of_terms_are_not_stacked() -> None:
    """Two parts of one term, unlike those of a load, are known to be its parts by their origins alone."""
    zero, whole = np.zeros((1, 1), dtype=np.uint8), term(16, "whole", [load(1)], 0)
    registers = [concat([extract(whole, 0, 8), zero, extract(whole, 8, 8), zero])] * 2
    assert matrix_fragments._elements_of_stack(registers, 16, THREADS) is None


def tile_register(rng: np.random.Generator, kind: str) -> Value:
    """Return a register of tiles that two of four blocks share: loads, halves of loads, or loads beside zeros."""
    start = (rng.integers(0, 1 << 20, (2, 2 * THREADS)) * 8 + (1 << 48)).astype(np.uint64)[[0, 1, 1, 0]]
    if kind == "loads":
        return SymbolicVector(32, L.both_words(start), L.LOAD)
    halves = [SymbolicVector(16, L.both_words(start + np.uint64(step)), L.LOAD) for step in (0, 6)]
    if kind == "zeros":
        some = rng.random((1, 2 * THREADS)) < 0.5
        halves[1] = as_symbolic_vector(blend_values(some, np.zeros((1, 1), dtype=np.uint16), halves[1]))
    return concat(halves)


@pytest.mark.parametrize("kind", ["loads", "halves", "zeros"])
@pytest.mark.parametrize("active", [None, [True, False, True, True]])
def test_tiles_that_blocks_share_have_the_vectors_of_each_block(kind: str, active: list[bool] | None) -> None:
    rng, tile, domain = np.random.default_rng(5), Tile(side=32, k=8, blocks=1, run=4), TermDomain()
    blocks = None if active is None else WholeBlocks.of(np.repeat(np.array(active)[:, None], 2 * THREADS, axis=1))
    registers = [[tile_register(rng, kind) for _ in "ab"] for _ in range(6)]
    shape = 4, 2 * THREADS
    together, alone = (
        [Fragment(each, 16, "fp16", tile, 8, domain, shape, blocks) for each in registers] for _ in range(2)
    )
    matrix_fragments.compute_together(together)
    assert all(each.computed is not None for each in together)
    rows = np.arange(2 * tile.side)
    for one, other in zip(together, alone, strict=True):
        elements, numbers = matrix_fragments._elements_of_registers((other,))
        expected = matrix_fragments._of_all_blocks(matrix_fragments._vectors_of_k(elements, other), numbers, other)
        for found, wanted in zip(one.vectors, expected, strict=True):
            left, right = (each.take(rows) for each in (found, wanted))
            assert isinstance(left, HashedVectors)
            assert isinstance(right, HashedVectors)
            chosen = slice(None) if active is None else np.array(active)
            assert np.array_equal(left.words[:, chosen], right.words[:, chosen])
            assert (left.zero is None) == (right.zero is None or not right.zero.any())
