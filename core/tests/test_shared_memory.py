"""Joining cells of shared memory: the fast path for uniform lanes agrees with joining lane by lane."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from bitwise_core.execution.memory.shared_memory import join, join_by_lane, join_uniform, part_code
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value

SHAPE = (2, 4)
KINDS = ("constant", "load", "other load", "part", "other part", "term", "poison", "nondeterministic")


def cell(kind: str, part: int, count: int, granule: int) -> tuple[Array, Array]:
    """Return the cell with number `part` of a value of this kind in `count` cells."""
    lanes = np.arange(8, dtype=np.uint64).reshape(SHAPE)
    words = np.stack([lanes * np.uint64(977), lanes * np.uint64(977)])
    code = part_code(part, count)
    if kind == "constant":
        return (words >> np.uint64(1)) % np.uint64(256**granule), np.full(SHAPE, L.CONST | L.NOT_NEGATIVE, np.uint32)
    if kind in ("load", "other load"):
        place = np.uint64(part * granule + 3 * (kind == "other load"))
        return words + place, np.full(SHAPE, L.LOAD | L.QUIET, np.uint32)
    if kind in ("part", "other part"):
        words[1] += np.uint64(kind == "other part")
        return words, np.full(SHAPE, L.TERM | L.QUIET | code, np.uint32)
    flag = {"term": 0, "poison": L.POISON, "nondeterministic": L.NONDETERMINISTIC}[kind]
    return words + np.uint64(part), np.full(
        SHAPE, (L.CONST if kind == "nondeterministic" else L.TERM) | flag, np.uint32
    )


def parts(value: Value) -> list[tuple[int, bytes, bytes]]:
    """Return the widths, words and flags of a value's parts."""
    if isinstance(value, PackedVector):
        return [each for part in value.parts for each in parts(part)]
    if isinstance(value, SymbolicVector):
        words = np.broadcast_to(value.words, (2, *SHAPE))
        return [(value.bits, words.tobytes(), np.broadcast_to(np.uint32(value.flags), SHAPE).tobytes())]
    return [(L.width(value), np.broadcast_to(value, SHAPE).astype(np.uint64).tobytes(), b"")]


@pytest.mark.parametrize(("count", "granule"), [(2, 1), (2, 2), (2, 4), (4, 1), (4, 2), (4, 4)])
def test_uniform_cells_join_as_their_lanes_do(count: int, granule: int) -> None:
    joined = 0
    for kinds in product(KINDS, repeat=2):
        chosen = [kinds[part * 2 // count] for part in range(count)]
        cells = [cell(kind, part, count, granule) for part, kind in enumerate(chosen)]
        joined += join_uniform(cells, granule) is not None
        assert parts(join(cells, granule)) == parts(join_by_lane(cells, granule)), kinds
    assert joined >= len(KINDS)


def test_a_lane_of_another_kind_disables_the_fast_path() -> None:
    cells = [cell("load", part, 2, 2) for part in range(2)]
    cells[1][1][1, 3] = L.TERM
    assert join_uniform(cells, 2) is None
