# ruff: noqa: E501 - PTX is easier to check without line breaks
"""Asynchronous copies by threads: memory barriers that track them, and addresses that depend on data."""

from __future__ import annotations

import pytest

from bitwise_core.execution.domains.domain import Unsupported
from ptx_programs import hashes, run

THREADS = 64
ROOM = ".shared .align 16 .b8 room[2048];"
START = """
mov.u32 %r10, room; mad.lo.u32 %r11, %r0, 16, %r10; add.u32 %r15, %r10, 1024; setp.eq.u32 %p1, %r0, 0;
mul.lo.u32 %r12, %r0, 16; cvt.u64.u32 %d5, %r12; add.s64 %d6, %d1, %d5; xor.b32 %r13, %r12, 1008; add.u32 %r13, %r10, %r13;
mul.lo.u32 %r14, %r0, 4; cvt.u64.u32 %d7, %r14; add.s64 %d7, %d0, %d7;
"""
"""%r11: the own 16 bytes in shared memory, %r13 those of another thread, %r15 the mbarrier; %d6 the own 16 bytes of in, %d7 the own word of out."""
COPY = "cp.async.cg.shared.global [%r11], [%d6], 16;"
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r15], 0; @!%p2 bra W;"
READ = "ld.shared.b32 %r20, [%r13+4]; st.global.b32 [%d7], %r20;"
ARRIVE, COUNTED = "cp.async.mbarrier.arrive.shared.b64 [%r15];", "cp.async.mbarrier.arrive.noinc.shared.b64 [%r15];"


def tracked(copies: str, arrivals: str, count: int) -> str:
    return f"{START} @%p1 mbarrier.init.shared::cta.b64 [%r15], {count}; bar.sync 0; {copies} {arrivals} {WAIT} {READ}"


COPIED = hashes(f"{START} {COPY} cp.async.wait_all; bar.sync 0; {READ}", threads=THREADS, shared=ROOM)
ONE_ARRIVES = f"{ARRIVE} bar.sync 0; @%p1 mbarrier.arrive.shared::cta.b64 _, [%r15];"
EACH_ARRIVES = f"{ARRIVE} mbarrier.arrive.shared::cta.b64 _, [%r15];"


@pytest.mark.parametrize(("arrivals", "count"), [(COUNTED, THREADS), (ONE_ARRIVES, 1), (EACH_ARRIVES, THREADS)])
def test_a_phase_completes_the_copies_that_it_tracks(arrivals: str, count: int) -> None:
    assert hashes(tracked(COPY, arrivals, count), threads=THREADS, shared=ROOM) == COPIED


@pytest.mark.parametrize(
    ("copies", "arrivals", "count", "reason"),
    [
        (COPY, ONE_ARRIVES.replace("bar.sync 0;", ""), 1, "before it tracks the copies"),
        (COPY, ONE_ARRIVES.replace("bar.sync 0;", "bar.warp.sync -1;"), 1, "before it tracks the copies"),
        (COPY, f"mbarrier.arrive.shared::cta.b64 _, [%r15]; {ARRIVE}", THREADS, "at which phase"),
        (COPY, ONE_ARRIVES.replace(ARRIVE, ""), 1, "another wrote with no barrier"),
        ("", f"{COUNTED} {COPY}", THREADS, "another wrote with no barrier"),
        (f"{COPY} cp.async.commit_group;", ONE_ARRIVES, 1, "another wrote with no barrier"),
    ],
)  # fmt: skip
def test_what_a_phase_may_not_track_is_a_race(copies: str, arrivals: str, count: int, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        hashes(tracked(copies, arrivals, count), threads=THREADS, shared=ROOM)


def test_threads_that_copy_together_arrive_together() -> None:
    with pytest.raises(Unsupported, match="arrive for it separately"):
        run(tracked(COPY, f"@!%p1 {COUNTED}", THREADS), threads=THREADS, shared=ROOM)


OWN, OTHERS = (
    "st.global.b32 [%d6+4], 9;",
    "xor.b32 %r16, %r12, 1008; cvt.u64.u32 %d8, %r16; add.s64 %d8, %d1, %d8; st.global.b32 [%d8+4], 9;",
)
"""Stores to what a thread itself copies, and to what another thread copies."""
GROUP, WAITED = f"{COPY} cp.async.commit_group;", "cp.async.wait_group 0;"


@pytest.mark.parametrize(
    ("body", "copied"),
    [
        (f"{GROUP} {WAITED} bar.sync 0; {OTHERS}", True),
        (f"{GROUP} {WAITED} {OWN} bar.sync 0;", True),
        (f"{GROUP} bar.sync 0; {OTHERS} {WAITED} bar.sync 0;", False),
        (f"{GROUP} bar.sync 0; bar.sync 0; {OTHERS} bar.sync 0; {WAITED} bar.sync 0;", False),
        (f"{GROUP} {WAITED} {OTHERS} bar.sync 0;", False),
        (f"{GROUP} {OWN} {WAITED} bar.sync 0;", False),
        (f"{GROUP} bar.sync 0; {OWN} {WAITED} bar.sync 0;", False),
        (f"{COPY} {COUNTED} {WAIT} bar.sync 0; {OTHERS}", True),
        (f"{COPY} {COUNTED} {WAIT} {OWN}", True),
        (f"{COPY} {COUNTED} bar.sync 0; {OTHERS} {WAIT}", False),
        (f"{COPY} {COUNTED} {OWN} {WAIT}", False),
    ],
)
def test_a_copy_reads_until_its_thread_has_waited_for_it(body: str, *, copied: bool) -> None:
    kernel = f"{START} @%p1 mbarrier.init.shared::cta.b64 [%r15], {THREADS}; bar.sync 0; {body} {READ}"
    if not copied:
        with pytest.raises(Unsupported, match=r"reads global memory|order in which threads run"):
            hashes(kernel, threads=THREADS, shared=ROOM)
        return
    found = hashes(kernel, threads=THREADS, shared=ROOM)
    assert {place: found[place] for place in COPIED} == COPIED


def test_a_copy_reads_what_its_thread_has_stored_before() -> None:
    stored = hashes(f"{START} {OWN} {GROUP} {WAITED} bar.sync 0; {READ}", threads=THREADS, shared=ROOM)
    nine = hashes(f"{START} mov.b32 %r20, 9; st.global.b32 [%d7], %r20;", threads=THREADS, shared=ROOM)
    assert {place: stored[place] for place in nine} == nine


ROWS = """
ld.global.b32 %r30, [%d6]; and.b32 %r31, %r30, 1023; mul.wide.u32 %d20, %r31, 16; add.s64 %d21, %d1, %d20;
setp.lt.u32 %p3, %r30, 500; selp.b32 %r32, 16, 0, %p3;
"""
"""%d21: the address of a row that data names, %p3 whether it is read, %r32 the bytes that are then read."""
LOADED = """
mov.b32 %r40, 0; mov.b32 %r41, 0; mov.b32 %r42, 0; mov.b32 %r43, 0;
{} ld.global.v4.b32 {{%r40, %r41, %r42, %r43}}, [%d21]; st.shared.v4.b32 [%r11], {{%r40, %r41, %r42, %r43}};
"""


@pytest.mark.parametrize(("guard", "size"), [("", ""), ("@%p3", ", %r32")])
def test_a_copy_of_rows_that_data_names_is_a_load_of_them(guard: str, size: str) -> None:
    copied = f"cp.async.cg.shared.global [%r11], [%d21], 16{size}; cp.async.wait_all;"
    found = hashes(f"{START} {ROWS} {copied} bar.sync 0; {READ}", threads=THREADS, shared=ROOM)
    assert found == hashes(f"{START} {ROWS} {LOADED.format(guard)} bar.sync 0; {READ}", threads=THREADS, shared=ROOM)
    other = LOADED.format("@!%p3") if guard else LOADED.format("").replace("[%d21]", "[%d21+16]")
    assert found != hashes(f"{START} {ROWS} {other} bar.sync 0; {READ}", threads=THREADS, shared=ROOM)


@pytest.mark.parametrize(
    ("size", "guard", "equal"),
    [
        ("selp.b32 %r32, 16, 0, %p3;", "@%p3", True),
        ("selp.b32 %r32, 16, 0, %p3; selp.b32 %r32, 16, %r32, %p1;", "or.pred %p4, %p3, %p1; @%p4", True),
        ("selp.b32 %r32, 16, 0, %p3;", "@!%p3", False),
        ("selp.b32 %r32, 16, 0, %p3; selp.b32 %r32, 16, %r32, %p1;", "@%p3", False),
    ],
)
def test_a_copy_that_data_may_skip_leaves_the_row_or_zeros(size: str, guard: str, *, equal: bool) -> None:
    copied = f"{size} cp.async.cg.shared.global [%r11], [%d6], 16, %r32; cp.async.wait_all;"
    found = hashes(f"{START} {ROWS} {copied} bar.sync 0; {READ}", threads=THREADS, shared=ROOM)
    loaded = LOADED.format(guard).replace("[%d21]", "[%d6]")
    assert (found == hashes(f"{START} {ROWS} {loaded} bar.sync 0; {READ}", threads=THREADS, shared=ROOM)) is equal


def test_a_copy_that_data_may_skip_has_read_its_row() -> None:
    """A store behind the issue of the copy may come before the copy reads."""
    copied = f"cp.async.cg.shared.global [%r11], [%d6], 16, %r32; {OWN} cp.async.wait_all;"
    with pytest.raises(Unsupported, match=r"reads global memory|order in which threads run"):
        hashes(f"{START} {ROWS} {copied} bar.sync 0; {READ}", threads=THREADS, shared=ROOM)


@pytest.mark.parametrize("used", [True, False])
def test_a_copy_whose_size_is_not_determined_leaves_what_is_not(used: bool) -> None:
    """Each thread copies by what another thread may have stored; `used`: the copied bytes are stored."""
    size = "mov.u32 %r33, 16; st.shared.b32 [%r15], %r0; ld.shared.b32 %r31, [%r15]; and.b32 %r32, %r31, %r33;"
    copied = f"{size} cp.async.cg.shared.global [%r11], [%d6], 16, %r32; cp.async.wait_all; bar.sync 0;"
    body = f"{START} {copied} {READ if used else 'st.global.b32 [%d7], %r12;'}"
    if used:
        with pytest.raises(Unsupported, match="order in which threads run"):
            hashes(body, threads=THREADS, shared=ROOM)
    else:
        numbers = hashes(f"{START} st.global.b32 [%d7], %r12;", threads=THREADS, shared=ROOM)
        assert hashes(body, threads=THREADS, shared=ROOM) == numbers


def test_a_copy_of_a_number_of_bytes_that_data_gives_is_unknown() -> None:
    copied = "and.b32 %r32, %r30, 15; cp.async.cg.shared.global [%r11], [%d21], 16, %r32; cp.async.wait_all;"
    with pytest.raises(Unsupported, match="size depends on data"):
        run(f"{START} {ROWS} {copied} bar.sync 0; {READ}", threads=THREADS, shared=ROOM)


def test_a_copy_of_rows_that_the_launch_writes_is_unknown() -> None:
    copied = "cp.async.cg.shared.global [%r11], [%d21], 16; cp.async.wait_all;"
    body = f"{START} {ROWS} {copied} bar.sync 0; {READ.replace('[%d7]', '[%d6]')}"
    with pytest.raises(Unsupported, match="that the launch writes is read at a computed address"):
        hashes(body, threads=THREADS, shared=ROOM)


LATER = "cp.async.cg.shared.global [%r11+1024], [%d6], 16; cp.async.commit_group;"
ARRIVES = "mbarrier.arrive.shared::cta.b64 _, [%r15];"
RING = ".shared .align 16 .b8 room[2080];"
ONE_LEFT = "cp.async.wait_group 1;"


def ring(body: str, place: str = "%r16") -> str:
    """Return a kernel that copies to two stages, and reads what another lane of its warp, or another warp, has copied."""
    start = START.replace("room, 1024", "room, 2048")
    begin = f"mov.u32 %r15, room; add.u32 %r15, %r15, 2064; @%p1 mbarrier.init.shared::cta.b64 [%r15], {THREADS};"
    load = f"ld.shared.b32 %r20, [{place}]; st.global.b32 [%d7], %r20; cp.async.wait_all;"
    return f"{start} {begin} bar.sync 0; {GROUP} {LATER} {body} xor.b32 %r16, %r11, 16; xor.b32 %r17, %r11, 512; {load}"


@pytest.mark.parametrize("place", ["%r11", "%r16", "%r17"])
def test_a_copy_that_is_left_in_flight_does_not_touch_the_order_of_others(place: str) -> None:
    found = hashes(ring(f"{ONE_LEFT} {ARRIVES} {WAIT}", place), threads=THREADS, shared=RING)
    assert found == hashes(ring("cp.async.wait_all; bar.sync 0;", place), threads=THREADS, shared=RING)


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (f"{ONE_LEFT} {ARRIVES} {WAIT}", "%r16+1024"),
        (f"{ONE_LEFT} {ARRIVES} {WAIT}", "%r17+1024"),
        (f"{ONE_LEFT} {ARRIVES} {WAIT} cp.async.wait_group 0;", "%r16+1024"),
        (f"{ARRIVES} {ONE_LEFT} {WAIT}", "%r16"),
        (f"{ARRIVES} {WAIT} {ONE_LEFT}", "%r16"),
        (f"cp.async.wait_group 2; {ARRIVES} {WAIT}", "%r16"),
        (f"{ONE_LEFT} {ARRIVES} st.shared.b32 [%r11+8], %r0; {WAIT}", "%r16"),
        (f"{ONE_LEFT} {ARRIVES}", "%r16"),
    ],
)
def test_a_copy_in_flight_orders_nothing_else(body: str, place: str) -> None:
    with pytest.raises(Unsupported, match="another wrote with no barrier"):
        hashes(ring(body, place), threads=THREADS, shared=RING)
