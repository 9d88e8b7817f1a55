"""Accumulators: under a mask they are selected together, and their steps may be computed when they are read."""

import numpy as np
import pytest

from bitwise_amd_gfx942.opcodes.matrices import matrix_accumulators
from bitwise_amd_gfx942.opcodes.matrices.matrix_accumulators import in_active_waves
from bitwise_amd_gfx942.opcodes.matrices.matrix_layouts import accumulators_of
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import blend_values
from bitwise_core.execution.values.symbolic_vector import Array, Origin, SymbolicVector
from gfx942_kernels import reading

BLOCKS, COUNT, THREADS = 3, 4, 8


def accumulators(rng: np.random.Generator, *, by_lane: bool) -> list[SymbolicVector]:
    words = rng.integers(0, 1 << 60, (2, BLOCKS, COUNT, THREADS), dtype=np.uint64)
    marks = np.array([L.TERM, L.TERM | L.POISON, L.LOAD], dtype=np.uint32)
    flags: L.Flags = marks[rng.integers(0, 3, (BLOCKS, COUNT, THREADS))] if by_lane else L.TERM
    return accumulators_of(SymbolicVector(32, words, flags), None)


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


SHARED = "v_mfma_f32_4x4x4_16b_f16 v[8:11], v[2:3], v[4:5], v[8:11] cbsz:4 abid:{}\n"
WHOLE = "v_mfma_f32_16x16x16_f16 v[8:11], v[2:3], v[4:5], v[8:11]\n"
HALVES = "v_mfma_f32_32x32x8_f16 v[8:23], v[2:3], v[4:5], v[8:23]\n"
EXCHANGED = "v_mfma_f32_16x16x16_f16 v[8:11], v[4:5], v[2:3], v[8:11]\n"
SEQUENCES = {
    "blocks of A": SHARED.format(0) + SHARED.format(1) + SHARED.format(5) + SHARED.format(1),
    "blocks of A in another order": SHARED.format(1) + SHARED.format(0) + SHARED.format(5) + SHARED.format(1),
    "one block of A": SHARED.format(1) * 4,
    "one shape": WHOLE * 3,
    "two shapes": WHOLE + SHARED.format(2) + WHOLE,
    "a part of an accumulator": HALVES + WHOLE + HALVES,
    "operands": WHOLE + EXCHANGED + WHOLE,
    "a changed accumulator": WHOLE + "v_add_f32_e32 v9, v9, v9\n" + WHOLE,
    "an operand that is a result": WHOLE + "v_mov_b32_e32 v2, v8\nv_mov_b32_e32 v3, v9\n" + WHOLE,
    "an operand that changes": WHOLE + "v_mov_b32_e32 v2, v4\n" + WHOLE,
    "zeros": "v_mov_b32_e32 v2, 0\nv_mov_b32_e32 v3, 0\n" + WHOLE + "v_mov_b32_e32 v2, v4\n" + WHOLE,
}


def test_steps_that_are_computed_late_are_those_of_their_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    start = "v_mov_b32_e32 v5, v2\n" + "".join(f"v_mov_b32_e32 v{each}, 0\n" for each in range(8, 24))
    bodies = {name: f"{start}{body}v_mov_b32_e32 v5, v9" for name, body in SEQUENCES.items()}
    late = {name: reading(body).signature for name, body in bodies.items()}
    monkeypatch.setattr(matrix_accumulators, "may_be_deferred", lambda *_: False)
    assert late == {name: reading(body).signature for name, body in bodies.items()}
    assert None not in late.values()
    assert len(set(late.values())) == len(late)
