"""Elements of matrix fragments are those of their registers, whether these are stacked or taken one by one."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from bitwise_amd_gfx942.opcodes import matrix_fragments
from bitwise_amd_gfx942.opcodes.matrix_fragments import Fragment
from bitwise_amd_gfx942.opcodes.matrix_layouts import Tile
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import SymbolicVector, Value
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


def test_parts_of_terms_are_not_stacked() -> None:
    """Two parts of one term, unlike those of a load, are known to be its parts by their origins alone."""
    zero, whole = np.zeros((1, 1), dtype=np.uint8), term(16, "whole", [load(1)], 0)
    registers = [concat([extract(whole, 0, 8), zero, extract(whole, 8, 8), zero])] * 2
    assert matrix_fragments._elements_of_stack(registers, 16, THREADS) is None
