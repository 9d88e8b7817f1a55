"""Cells of shared memory: joining uniform lanes agrees with joining each lane, chunks of loads with their cells."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from bitwise_core.execution.memory.loaded_chunks import ZERO, addresses_of
from bitwise_core.execution.memory.shared_memory import (
    SharedMemory,
    join,
    join_by_lane,
    join_uniform,
    joined_constants,
    part_code,
)
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
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


@pytest.mark.parametrize(("count", "granule"), [(2, 1), (2, 2), (4, 1), (2, 4)])
def test_constants_with_other_flags_in_each_lane_are_joined(count: int, granule: int) -> None:
    facts = np.array([0, L.NOT_NEGATIVE, L.NOT_MINUS_ZERO, L.NOT_NEGATIVE | L.NOT_MINUS_ZERO], np.uint32)
    cells = [(cell("constant", part, count, granule)[0], facts.repeat(2).reshape(SHAPE)) for part in range(count)]
    assert parts(join(cells, granule)) == parts(join_by_lane(cells, granule))
    assert joined_constants(cells, granule) is not None
    for flags in (L.LOAD, L.TERM, L.AC_TERMS, L.POISON, L.NONDETERMINISTIC, part_code(0, 2)):
        changed = [(words, each.copy()) for words, each in cells]
        changed[-1][1][1, 2] = flags
        assert joined_constants(changed, granule) is None
        assert parts(join(changed, granule)) == parts(join_by_lane(changed, granule))


def test_a_lane_of_another_kind_disables_the_fast_path() -> None:
    cells = [cell("load", part, 2, 2) for part in range(2)]
    cells[1][1][1, 3] = L.TERM
    assert join_uniform(cells, 2) is None


class CellsOnly(SharedMemory):
    """Shared memory that keeps every value in cells."""

    def _store_chunks(self, cells: Array, value: Value, mask: Array | None) -> bool:
        return False


def stored_value(rng: np.random.Generator, kind: str, lanes: int) -> tuple[Value, int]:
    """A random value of 8 or 16 bytes, and its size."""

    def load(bits: int, start: Array, blocks: int) -> SymbolicVector:
        return SymbolicVector(bits, L.both_words(np.broadcast_to(start, (blocks, lanes)).astype(np.uint64)), L.LOAD)

    blocks = int(rng.integers(1, 3))
    start = (rng.integers(0, 64, (blocks, lanes)) * 16 + (1 << 48)).astype(np.uint64)
    if kind == "loads":
        return PackedVector(
            (load(64, start, blocks), load(64, start + np.uint64(int(rng.choice([8, 24]))), blocks))
        ), 16
    if kind == "halves":
        return PackedVector((load(32, start, blocks), load(32, start + np.uint64(int(rng.choice([4, 12]))), blocks))), 8
    if kind == "loads or zeros":
        zeros = rng.random((blocks, lanes)) < 0.5
        words, flags = np.where(zeros, np.uint64(0), start), np.where(zeros, np.uint32(L.CONST), np.uint32(L.LOAD))
        return SymbolicVector(64, L.both_words(words), flags), 8
    if kind == "elements":
        step = np.uint64(int(rng.choice([8, 12])))
        return PackedVector((load(32, start, blocks), load(32, start + step, blocks))), 8
    if kind == "elements or zeros":
        zeros = rng.random((blocks, lanes)) < 0.5
        words, flags = np.where(zeros, np.uint64(0), start), np.where(zeros, np.uint32(L.CONST), np.uint32(L.LOAD))
        return PackedVector((load(32, start, blocks), SymbolicVector(32, L.both_words(words), flags))), 8
    if kind == "conditional loads":
        return SymbolicVector(64, np.stack([start, start + np.uint64(1)]), L.LOAD), 8
    if kind == "zeros":
        return PackedVector((np.zeros((1, 1), dtype=np.uint32),) * 4), 16
    if kind == "numbers":
        return start, 8
    return SymbolicVector(64, rng.integers(0, 2**64, (2, blocks, lanes), dtype=np.uint64), L.TERM), 8


STORED = (
    "loads", "halves", "loads or zeros", "elements", "elements or zeros", "conditional loads", "numbers", "zeros",
    "terms",
)  # fmt: skip


def same(left: Value, right: Value) -> bool:
    """Whether two values are equal in every lane."""
    one, other = (as_symbolic_vector(each) for each in (left, right))
    flags = [np.broadcast_to(np.asarray(each.flags, dtype=np.uint32), (2, 8)) for each in (one, other)]
    words = [np.broadcast_to(each.words, (2, 2, 8)) for each in (one, other)]
    return L.width(left) == L.width(right) and np.array_equal(*words) and np.array_equal(*flags)


@pytest.mark.parametrize("granule", [1, 2, 4])
@pytest.mark.parametrize("seed", range(12))
def test_chunks_of_loads_hold_what_cells_hold(granule: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    memory, cells_only = SharedMemory(1024, 2, granule), CellsOnly(1024, 2, granule)
    used = [False, False]
    for _ in range(40):
        value, size = stored_value(rng, str(rng.choice(STORED)), 8)
        address = (rng.permutation(24)[:8] * 16 + (size == 8) * 8 * int(rng.integers(0, 2)))[None].astype(np.uint64)
        mask = [None, rng.random((1, 8)) < 0.7, np.broadcast_to(rng.random((2, 1)) < 0.7, (2, 8))][rng.integers(0, 3)]
        for each in (memory, cells_only):
            each.store(each.cells(address, None), value, mask)
            assert each.holds(each.cells(address, None), value, mask).all()
        for index, held in enumerate((memory.chunks, memory.elements)):
            used[index] |= held is not None and bool(held.held.any())
        bits = int(rng.choice([each for each in (8, 16, 32, 64) if each >= 8 * granule]))
        place = rng.integers(0, 24 * 128 // bits, (int(rng.integers(1, 3)), 8)).astype(np.uint64) * np.uint64(bits // 8)
        found = [each.load(each.cells(place, None), bits) for each in (memory, cells_only)]
        assert same(*found)
    assert all(used)
    assert cells_only.chunks is cells_only.elements is None
    assert np.array_equal(memory.copy().words, cells_only.words)
    assert np.array_equal(memory.flags & np.uint32(L.FORM), cells_only.flags & np.uint32(L.FORM))


@pytest.mark.parametrize(
    "flag", [L.NEGATED, L.PLUS_ZERO, L.WIDENED, L.CANONICAL_NAN, L.POISON, L.NONDETERMINISTIC, L.NOT_NEGATIVE, L.QUIET]
)
def test_a_value_made_of_a_load_is_no_load(flag: int) -> None:
    words = np.arange(8, dtype=np.uint64).reshape(1, 8) * np.uint64(8) + np.uint64(1 << 40)
    assert L.load_addresses(SymbolicVector(32, L.both_words(words), L.LOAD)) is not None
    changed = SymbolicVector(32, L.both_words(words), L.LOAD | flag)
    assert L.load_addresses(changed) is None
    assert addresses_of(PackedVector((changed, SymbolicVector(32, L.both_words(words + np.uint64(4)), L.LOAD)))) is None
    in_one_lane = np.where(np.arange(8)[None] == 3, np.uint32(L.LOAD | flag), np.uint32(L.LOAD))
    assert addresses_of(SymbolicVector(64, L.both_words(words), in_one_lane)) is None
    other = np.stack([words, words + np.uint64(1)])
    assert L.load_addresses(SymbolicVector(32, other, L.LOAD)) is None


def test_halves_of_chunks_are_consecutive_loads_or_both_zeros() -> None:
    """The first half holds loads, and zeros in its last two lanes."""
    address = np.arange(6, dtype=np.uint64).reshape(1, 6) * np.uint64(8) + np.uint64(1 << 40)
    zero = np.array([[False, False, False, False, True, True]])

    def half(places: Array, zeros: Array) -> SymbolicVector:
        flags = np.where(zeros, np.uint32(L.CONST), np.uint32(L.LOAD))
        return SymbolicVector(32, L.both_words(np.where(zeros, np.uint64(0), places)), flags)

    first, second = half(address, zero), address + np.uint64(4)
    found = addresses_of(PackedVector((first, half(second, zero))))
    assert found is not None
    assert found[0].tolist() == np.where(zero, ZERO, address).tolist()
    for lane in range(6):
        other = zero.copy()
        other[0, lane] ^= True
        assert addresses_of(PackedVector((first, half(second, other)))) is None
        moved = second + np.uint64(4) * (np.arange(6) == lane).astype(np.uint64)
        expected = None if lane < 4 else found[0].tolist()
        seen = addresses_of(PackedVector((first, half(moved, zero))))
        assert (None if seen is None else seen[0].tolist()) == expected
    assert addresses_of(PackedVector((first,))) is None
    undefined = SymbolicVector(32, first.words, np.where(zero, np.uint32(L.CONST | L.POISON), np.uint32(L.LOAD)))
    assert addresses_of(PackedVector((undefined, half(second, zero)))) is None
    joined = PackedVector((first, half(second, zero)))
    joined.whole = zero
    assert addresses_of(joined) is None
