"""Elements at places that depend on data: shared memory at computed addresses, and shuffles from computed lanes."""

from __future__ import annotations

import pytest

from bitwise_core.execution.domains.domain import Unsupported
from ptx_programs import hashes, store

ROOM = ".shared .align 16 .b8 room[512];"
LOADS = (
    "mul.wide.u32 %d5, %r0, 8; add.s64 %d5, %d1, %d5; ld.global.u32 %r1, [%d5]; ld.global.u32 %r2, [%d5+4];"
    "mov.u64 %d6, room; mul.wide.u32 %d7, %r0, 4; add.s64 %d7, %d6, %d7;"
)
WRITE = "st.shared.u32 [%d7], %r1; bar.sync 0;"
INDEX = "and.b32 %r3, %r2, 31; mul.wide.u32 %d8, %r3, 4; add.s64 %d8, %d6, %d8;"
READ = "ld.shared.u32 %r4, [%d8];"
GATHER = WRITE + INDEX + READ


def form(code: str, threads: int = 64) -> dict[int, tuple[int, int, int]]:
    return hashes(" ".join((LOADS, code, store("%r4", 32))), shared=ROOM, threads=threads)


def test_equal_places_among_equal_elements_are_equal() -> None:
    assert form(GATHER) == form(
        GATHER.replace("%r4, [%d8]", "%r4, [%d8+4]").replace(INDEX, INDEX + "sub.s64 %d8, %d8, 4;")
    )
    assert len(set(form(GATHER).values())) == 64
    assert form(GATHER.replace("%r2, 31", "%r1, 31")) != form(GATHER)


ANOTHER = {
    "another element": GATHER.replace("st.shared", "@%p1 mov.b32 %r1, 7; st.shared"),
    "another place": GATHER.replace("[%d8]", "[%d8+4]"),
    "elements in another order": GATHER.replace("[%d7]", "[%d7+4]"),
    "another width": GATHER.replace("ld.shared.u32", "ld.shared.u16"),
}


@pytest.mark.parametrize("code", ANOTHER.values(), ids=ANOTHER)
def test_other_elements_and_places_are_others(code: str) -> None:
    found = form("setp.eq.u32 %p1, %r0, 9;" + GATHER)
    changed = form("setp.eq.u32 %p1, %r0, 9;" + code)
    assert all(found[place] != changed[place] for place in found)


UNORDERED = {
    "no barrier after a write": GATHER.replace("bar.sync 0;", ""),
    "a later write without a barrier": GATHER + "st.shared.u32 [%d7], %r2;",
    "a write of one warp": GATHER + "setp.lt.u32 %p2, %r0, 32; @%p2 st.shared.u32 [%d7], 5;",
    "nothing is written": INDEX + READ,
    "data decides whether an element is written": GATHER.replace(
        "bar.sync 0;", "setp.lt.u32 %p3, %r2, 9; @%p3 st.shared.u32 [%d7+256], %r2; bar.sync 0;"
    ),
    "blocks write elements or not": GATHER.replace(
        "bar.sync 0;",
        "ld.global.u32 %r5, [%d1]; setp.lt.u32 %p3, %r5, 9; @%p3 bra S; st.shared.u32 [%d7+256], %r2; S: bar.sync 0;",
    ),
    "an element is a copy of one that nothing wrote": GATHER.replace(
        "bar.sync 0;", "ld.shared.u32 %r5, [%d6+400]; st.shared.u32 [%d6+256], %r5; bar.sync 0;"
    ),
}


@pytest.mark.parametrize("code", UNORDERED.values(), ids=UNORDERED)
def test_reads_that_writes_may_meet_are_unknown(code: str) -> None:
    with pytest.raises(Unsupported, match="computed address"):
        form(code)


def test_a_write_after_a_barrier_has_no_effect() -> None:
    assert form(GATHER) == form(GATHER + "bar.sync 0; st.shared.u32 [%d7], %r2;")


SHUFFLE = "shfl.sync.idx.b32 %r4, %r1, %r2, 31, -1;"


def test_a_shuffle_from_a_lane_of_data_is_a_function_of_its_warp() -> None:
    found = form(SHUFFLE)
    assert found == form("mov.b32 %r5, %r1; mov.b32 %r6, %r2;" + SHUFFLE.replace("%r1, %r2", "%r5, %r6"))
    assert len(set(found.values())) == 64
    other = form("setp.eq.u32 %p1, %r0, 9; @%p1 mov.b32 %r1, 7;" + SHUFFLE)
    assert all((found[4 * lane] != other[4 * lane]) is (lane < 32) for lane in range(64))
    assert all(found[place] != each for place, each in form(SHUFFLE.replace("%r2", "%r1")).items())


@pytest.mark.parametrize("code", [SHUFFLE.replace("31, -1", "7199, -1"), SHUFFLE.replace("idx", "up"),
                                  "setp.lt.u32 %p1, %r0, 8; @%p1 " + SHUFFLE.replace("-1", "255")])  # fmt: skip
def test_other_shuffles_by_data_are_unknown(code: str) -> None:
    with pytest.raises(Unsupported, match="distance depends on data"):
        form(code)


def test_lanes_that_a_guard_excludes_do_not_take_part() -> None:
    """Every lane has one address, and only the first may store: by data."""
    code = "setp.eq.u32 %p1, %r0, 0; setp.gt.u32 %p2, %r1, 5; and.pred %p3, %p1, %p2; mov.b32 %r4, 1;"
    assert len(hashes(LOADS + code + "@%p3 st.global.u32 [%d0], %r4;", threads=64, shared=ROOM)) == 1
    with pytest.raises(Unsupported):
        hashes(LOADS + code + "@%p2 st.global.u32 [%d0], %r0;", threads=64, shared=ROOM)
