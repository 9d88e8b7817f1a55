"""Accumulators under a mask are selected together, with the result of selecting each."""

import numpy as np
import pytest

from bitwise_amd_gfx942.opcodes.matrix_layouts import _accumulators, in_active_waves
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import blend_values
from bitwise_core.execution.values.symbolic_vector import Array, Origin, SymbolicVector

BLOCKS, COUNT, THREADS = 3, 4, 8


def accumulators(rng: np.random.Generator, *, by_lane: bool) -> list[SymbolicVector]:
    words = rng.integers(0, 1 << 60, (2, BLOCKS, COUNT, THREADS), dtype=np.uint64)
    marks = np.array([L.TERM, L.TERM | L.POISON, L.LOAD], dtype=np.uint32)
    flags: L.Flags = marks[rng.integers(0, 3, (BLOCKS, COUNT, THREADS))] if by_lane else L.TERM
    return _accumulators(SymbolicVector(32, words, flags), None)


def masks(rng: np.random.Generator) -> list[Array]:
    return [rng.random(shape) < 0.5 for shape in ((BLOCKS, THREADS), (BLOCKS, 1), (1, THREADS))]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("together", [False, True])
def test_all_accumulators_at_once_are_each_selected(seed: int, together: bool) -> None:
    rng = np.random.default_rng(seed)
    new = accumulators(rng, by_lane=bool(seed & 1))
    old = accumulators(rng, by_lane=bool(seed & 2))
    if not together:
        old = [SymbolicVector(32, each.words.copy(), each.flags) for each in old]
        old[0] = SymbolicVector(32, old[0].words[:, :1, :1], L.TERM)
    for mask in masks(rng):
        found = in_active_waves(mask, new, old)
        assert found is not None
        for index, (each, one, other) in enumerate(zip(found, new, old, strict=True)):
            expected = blend_values(mask, one, other)
            assert isinstance(expected, SymbolicVector)
            shape = (BLOCKS, THREADS)
            assert np.array_equal(each.words, np.broadcast_to(expected.words, (2, *shape)))
            assert np.array_equal(L.flags_of_lanes(each.flags, shape), L.flags_of_lanes(expected.flags, shape))
            assert each.bundle is not None
            assert each.bundle[1] == index


def test_accumulators_that_an_operation_made_are_selected_one_by_one() -> None:
    rng = np.random.default_rng(0)
    new, old = accumulators(rng, by_lane=False), accumulators(rng, by_lane=False)
    old[1].origins = (Origin("mul.rn.fp32", (new[0], new[1])),)
    assert in_active_waves(np.ones((BLOCKS, 1), dtype=bool), new, old) is None
