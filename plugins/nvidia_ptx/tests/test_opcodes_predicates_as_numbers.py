# ruff: noqa: E501 - a line of PTX is read as one
"""Predicates as numbers 0 and 1: combined as such or as integers, across lanes and through shared memory."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.values.integers import predicate_bits
from ptx_programs import hashes, store
from random_programs import integers
from random_programs.forms import MAKERS, build, clashes

LOADS = (
    "mul.wide.u32 %d5, %r0, 8; add.s64 %d5, %d1, %d5; ld.global.f32 %f1, [%d5]; ld.global.f32 %f2, [%d5+4];"
    "setp.gt.f32 %p1, %f1, 0f3F800000; setp.lt.f32 %p2, %f2, 0f40000000;"
)
NUMBERS = "selp.b32 %r1, 1, 0, %p1; selp.b32 %r2, 1, 0, %p2;"
ROOM = ".shared .align 16 .b8 room[128];"
FROM = "selp.b32 %r3, 1, 0, %p3;"

ALIKE = {
    "or": ("or.pred %p3, %p1, %p2;" + FROM, "or.b32 %r3, %r1, %r2;"),
    "a maximum": ("or.pred %p3, %p1, %p2;" + FROM, "max.s32 %r3, %r1, %r2;"),
    "and": ("and.pred %p3, %p1, %p2;" + FROM, "and.b32 %r3, %r1, %r2;"),
    "a minimum": ("and.pred %p3, %p1, %p2;" + FROM, "min.u32 %r3, %r2, %r1;"),
    "a product": ("and.pred %p3, %p1, %p2;" + FROM, "mul.lo.s32 %r3, %r1, %r2;"),
    "xor": ("xor.pred %p3, %p1, %p2;" + FROM, "xor.b32 %r3, %r1, %r2;"),
    "the opposite": ("not.pred %p3, %p1;" + FROM, "xor.b32 %r3, %r1, 1;"),
    "a comparison": ("mov.pred %p3, %p1;" + FROM, "setp.gt.s32 %p3, %r1, 0;" + FROM),
    "a comparison with one": ("not.pred %p3, %p1;" + FROM, "setp.lt.u32 %p3, %r1, 1;" + FROM),
    "a byte": ("mov.pred %p3, %p1;" + FROM, "cvt.u16.u32 %h1, %r1; cvt.u16.u8 %h1, %h1; cvt.u32.u16 %r3, %h1; and.b32 %r3, %r3, 1;"),
    "a count": ("add.u32 %r3, %r1, %r2;", "shl.b32 %r4, %r2, 7; or.b32 %r4, %r4, %r1; popc.b32 %r3, %r4;"),
    "another lane": (
        "shfl.sync.bfly.b32 %r4, %r1, 1, 31, -1; setp.ne.b32 %p4, %r4, 0; or.pred %p3, %p1, %p4;" + FROM,
        "shfl.sync.bfly.b32 %r4, %r1, 1, 31, -1; max.s32 %r3, %r4, %r1;",
    ),
    "all lanes": ("redux.sync.max.s32 %r3, %r1, -1;", "vote.sync.any.pred %p3, %p1, -1;" + FROM),
    "every lane": ("redux.sync.min.s32 %r3, %r1, -1;", "vote.sync.all.pred %p3, %p1, -1;" + FROM),
    "the number of lanes": ("redux.sync.add.s32 %r3, %r1, -1;", "vote.sync.ballot.b32 %r4, %p1, -1; popc.b32 %r3, %r4;"),
    "shared memory": (
        "or.pred %p3, %p1, %p2;" + FROM,
        "cvt.u16.u32 %h1, %r1; mov.u64 %d6, room; cvt.u64.u32 %d7, %r0; add.s64 %d6, %d6, %d7; st.shared.b8 [%d6], %h1;"
        "bar.sync 0; ld.shared.b8 %h2, [%d6]; cvt.u32.u16 %r4, %h2; and.b32 %r4, %r4, 1; or.b32 %r3, %r4, %r2;",
    ),
    "a byte of shared memory": (
        "or.pred %p3, %p1, %p2;" + FROM,
        "mov.u64 %d6, room; mul.wide.u32 %d7, %r0, 4; add.s64 %d6, %d6, %d7; st.shared.b32 [%d6], %r1;"
        "bar.sync 0; ld.shared.u8 %r4, [%d6]; or.b32 %r3, %r4, %r2;",
    ),
    "shared memory of some lanes": (
        "or.pred %p3, %p1, %p2;" + FROM,
        "mov.u64 %d6, room; mul.wide.u32 %d7, %r0, 2; add.s64 %d6, %d6, %d7; cvt.u16.u32 %h1, %r1; st.shared.b16 [%d6], %h1;"
        "bar.sync 0; mov.b16 %h2, 0; setp.lt.u32 %p9, %r0, 99; @%p9 ld.shared.b16 %h2, [%d6]; cvt.u32.u16 %r4, %h2;"
        "or.b32 %r3, %r4, %r2;",
    ),
}  # fmt: skip
EIGHT = (
    "selp.b16 %h1, 1, 0, %p1; selp.b16 %h2, -1, 0, %p2; shl.b16 %h3, %h2, 3; or.b16 %h4, %h3, %h1; and.b16 %h4, %h4, 15;"
    "shl.b16 %h1, %h1, 4; or.b16 %h5, %h4, %h1;"
)
"""Bits 0 and 4 are the first predicate, bit 3 is the second one, and a mask of a byte leaves the number as it is."""
IN_A_BYTE = {
    "whether one holds": (
        "or.pred %p3, %p1, %p2;" + FROM, EIGHT + "and.b16 %h5, %h5, 255; setp.ne.b16 %p3, %h5, 0;" + FROM,
    ),
    "how many": (
        "selp.b32 %r4, 2, 0, %p1; add.u32 %r3, %r4, %r2;",
        EIGHT + "cvt.u32.u16 %r4, %h5; and.b32 %r4, %r4, 255; popc.b32 %r3, %r4;",
    ),
}  # fmt: skip
NOT_IN_A_BYTE = {
    "another bit": (
        "or.pred %p3, %p1, %p2;" + FROM, EIGHT + "and.b16 %h5, %h5, 255; setp.ne.b16 %p3, %h5, 8;" + FROM,
    ),
    "bits beyond the byte": (
        "or.pred %p3, %p1, %p2;" + FROM,
        EIGHT + "shl.b16 %h5, %h2, 8; and.b16 %h5, %h5, 255; setp.ne.b16 %p3, %h5, 0;" + FROM,
    ),
    "a count of other bits": (
        "selp.b32 %r4, 2, 0, %p1; add.u32 %r3, %r4, %r2;",
        EIGHT + "cvt.u32.u16 %r4, %h5; and.b32 %r4, %r4, 127; shr.u32 %r4, %r4, 1; popc.b32 %r3, %r4;",
    ),
}  # fmt: skip
SOME = "mov.b32 %r5, %f1; setp.lt.u32 %p9, %r0, 3; selp.b32 %r4, -1, 0, %p9;"
"""A mask that is known in each thread: all bits in some, none in others."""
CHOSEN_BY_A_MASK = {
    "or zero": (SOME + "selp.b32 %r3, %r5, 0, %p9;", SOME + "and.b32 %r3, %r5, %r4;"),
    "or all bits": (SOME + "selp.b32 %r3, -1, %r5, %p9;", SOME + "or.b32 %r3, %r4, %r5;"),
}
NOT_CHOSEN_BY_A_MASK = {
    "one bit": (SOME + "selp.b32 %r3, %r5, 0, %p9;", SOME + "selp.b32 %r4, 1, 0, %p9; and.b32 %r3, %r5, %r4;"),
    "all bits but one in a thread": (
        SOME + "selp.b32 %r3, %r5, 0, %p9;",
        SOME + "setp.eq.u32 %p8, %r0, 1; selp.b32 %r4, -2, %r4, %p8; and.b32 %r3, %r5, %r4;",
    ),
    "other threads": (SOME + "selp.b32 %r3, %r5, 0, %p9;", SOME + "not.b32 %r4, %r4; and.b32 %r3, %r5, %r4;"),
    "exclusive": (SOME + "selp.b32 %r3, -1, %r5, %p9;", SOME + "xor.b32 %r3, %r5, %r4;"),
}
UNLIKE = {
    "or of other bits": ("or.pred %p3, %p1, %p2;" + FROM, "shl.b32 %r4, %r2, 1; or.b32 %r3, %r1, %r4;"),
    "a maximum with another number": ("mov.b32 %r3, %r1;", "selp.b32 %r4, 2, 0, %p1; max.s32 %r3, %r4, %r1;"),
    "a maximum of negative numbers": (
        "or.pred %p3, %p1, %p2;" + FROM,
        "neg.s32 %r1, %r1; neg.s32 %r2, %r2; max.s32 %r3, %r1, %r2; and.b32 %r3, %r3, 1;",
    ),
    "a sum": ("or.pred %p3, %p1, %p2;" + FROM, "add.s32 %r3, %r1, %r2;"),
    "another lane": (
        "or.pred %p3, %p1, %p1;" + FROM,
        "shfl.sync.bfly.b32 %r4, %r1, 1, 31, -1; or.b32 %r3, %r1, %r4;",
    ),
    "what nothing wrote": (
        "mov.b32 %r3, 1;",
        "setp.lt.u32 %p9, %r0, 3; @%p9 mov.b32 %r1, %r2; @!%p9 mov.b32 %r9, 5; max.s32 %r3, %r1, 1;",
    ),
}


def form(code: str) -> dict[int, tuple[int, int, int]]:
    return hashes(" ".join((LOADS, NUMBERS, code, store("%r3", 32))), shared=ROOM)


@pytest.mark.parametrize(("one", "other"), ALIKE.values(), ids=ALIKE)
def test_predicates_and_their_numbers_are_combined_alike(one: str, other: str) -> None:
    assert form(one) == form(other)


@pytest.mark.parametrize(("one", "other"), CHOSEN_BY_A_MASK.values(), ids=CHOSEN_BY_A_MASK)
def test_a_mask_that_is_known_in_each_thread_selects(one: str, other: str) -> None:
    assert form(one) == form(other)


@pytest.mark.parametrize(("one", "other"), NOT_CHOSEN_BY_A_MASK.values(), ids=NOT_CHOSEN_BY_A_MASK)
def test_another_mask_does_not_select(one: str, other: str) -> None:
    assert form(one) != form(other)


@pytest.mark.parametrize(("one", "other"), IN_A_BYTE.values(), ids=IN_A_BYTE)
def test_predicates_keep_their_bits_under_a_mask_that_leaves_them(one: str, other: str) -> None:
    assert form(one) == form(other)


@pytest.mark.parametrize(("one", "other"), NOT_IN_A_BYTE.values(), ids=NOT_IN_A_BYTE)
def test_other_bits_under_a_mask_are_not_these(one: str, other: str) -> None:
    assert form(one) != form(other)


@pytest.mark.parametrize(("one", "other"), list(UNLIKE.values())[:-1], ids=list(UNLIKE)[:-1])
def test_other_numbers_are_not(one: str, other: str) -> None:
    assert form(one) != form(other)


def test_an_undefined_number_stays_undefined() -> None:
    some = "setp.lt.u32 %p9, %r0, 3; @%p9 selp.b32 %r5, 1, 0, %p1;"
    for code in ("max.s32 %r3, %r5, 1;", "or.b32 %r3, %r5, %r1;", "popc.b32 %r3, %r5;", "min.u32 %r3, %r5, %r1;"):
        with pytest.raises(Unsupported, match="nothing wrote"):
            form(some + code)


def test_a_vote_of_a_part_of_a_warp_on_data_is_unknown() -> None:
    with pytest.raises(Unsupported, match="a vote depends on data"):
        hashes(" ".join((LOADS, "vote.sync.any.pred %p3, %p1, 65535;", FROM, store("%r3", 32))), threads=16)


OF_PREDICATES = [
    place
    for place, maker in enumerate(MAKERS)
    if maker
    in (
        integers.compare,
        integers.logic_of_predicates,
        integers.predicates_in_bits,
        integers.predicates_as_numbers,
        integers.counted_predicates,
        integers.averages,
        integers.choose,
    )
]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(OF_PREDICATES), *[st.integers(0, 30)] * 2, *[st.integers(0, 200)] * 2), min_size=10,
        max_size=40,
    ),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_programs_of_predicates_keep_their_bits(program: list[tuple[int, int, int, int, int]], seed: int) -> None:
    assert clashes(build(program, seed=seed)) == []


def _wrong_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicate_bits, "_OF_ZERO_AND_ONE", {"max": "or", "min": "or", "mul": "and"})


def _wrong_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicate_bits, "_ones_of_result", lambda info, operands: 1)


def _lost_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicate_bits, "take_threads", lambda value, index: value)


def _lost_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    found = predicate_bits._bits_of

    def lowest(value: predicate_bits.Value, bits: int) -> Callable[[], tuple[predicate_bits.Value, ...]] | None:
        of = found(value, bits)
        return None if of is None else lambda: (of()[0], *[np.zeros((1, 1), dtype=bool)] * (bits - 1))

    monkeypatch.setattr(predicate_bits, "_bits_of", lowest)


@pytest.mark.parametrize("mutate", [_wrong_verb, _wrong_ones, _lost_exchange, _lost_bits])
def test_wrong_rules_are_found(mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    draw = Random(7)
    for seed in range(60):
        program = [
            (draw.choice(OF_PREDICATES), draw.randrange(8), draw.randrange(8), draw.randrange(200), draw.randrange(200))
            for _ in range(30)
        ]
        if clashes(build(program, seed=seed)):
            return
    pytest.fail("no program has two values of one form that differ")
