# ruff: noqa: E501 - PTX and tables are easier to check without line breaks
"""Divergence and reconvergence, calls, barriers and races."""

from __future__ import annotations

import pytest

from bitwise_core.execution.domains.domain import Unsupported
from ptx_programs import hashes, known, run, store, stored

ROOM = ".shared .align 16 .b8 room[4096];"
PLACES = """
    mul.lo.u32 %r1, %r0, 4; cvt.u64.u32 %d5, %r1; add.s64 %d6, %d1, %d5; add.s64 %d7, %d0, %d5;
    mov.u64 %d8, room; add.s64 %d9, %d8, %d5; xor.b32 %r4, %r1, 128; cvt.u64.u32 %d10, %r4; add.s64 %d11, %d8, %d10;
"""
"""%d6, %d7 and %d9: this thread's word of the input, of the output and of shared memory; %d11: that of the next warp."""


def collatz(number: int) -> int:
    steps = 0
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        steps += 1
    return steps


def test_trip_counts_that_differ_between_lanes_and_blocks() -> None:
    body = """
        mov.u32 %r1, %ctaid.x; mad.lo.u32 %r9, %r1, 32, %r0; add.u32 %r2, %r9, 1; mov.b32 %r3, 0;
        LOOP: setp.eq.u32 %p1, %r2, 1; @%p1 bra DONE;
        and.b32 %r4, %r2, 1; setp.eq.u32 %p2, %r4, 0; @%p2 bra EVEN;
        mad.lo.u32 %r2, %r2, 3, 1; bra NEXT;
        EVEN: shr.u32 %r2, %r2, 1;
        NEXT: add.u32 %r3, %r3, 1; bra LOOP;
        DONE: mov.u32 %r0, %r9;
    """
    assert stored(body + store("%r3", 32), blocks=3) == [collatz(number + 1) for number in range(96)]


def test_blocks_with_different_trip_counts_have_the_values_of_their_own_iterations() -> None:
    """Blocks that leave a loop early keep their registers, also those that only others write afterwards."""
    start = (
        PLACES
        + """
        mov.u32 %r1, %ctaid.x; mad.lo.u32 %r9, %r1, 32, %r0; mul.lo.u32 %r3, %r9, 4; cvt.u64.u32 %d5, %r3;
        add.s64 %d6, %d1, %d5; ld.global.f32 %f1, [%d6]; mov.f32 %f2, 0f00000000; mov.b32 %r2, 0; mov.b32 %r7, 5;
    """
    )
    turn = (
        "mul.rn.f32 %f4, %f1, %f2; add.rn.f32 {sum}, %f4, %f1; st.shared.f32 [%d9], {sum}; ld.shared.f32 {next}, [%d9];"
    )
    end = "mov.u32 %r0, %r9;" + store("%f2", 32)
    loop = f"""
        LOOP: setp.gt.u32 %p1, %r2, %r1; @%p1 bra DONE;
        {turn.format(sum="%f3", next="%f2")} add.u32 %r2, %r2, 1; add.u32 %r7, %r7, %r2; bra LOOP;
        DONE: setp.eq.u32 %p2, %r1, 1; @%p2 bra ONE; add.rn.f32 %f2, %f2, %f1; bra BOTH;
        ONE: mul.rn.f32 %f2, %f2, %f1;
        BOTH:
    """
    turns = "".join(
        f"setp.le.u32 %p1, {count}, %r1; {turn.format(sum='%f3', next='%f5')} selp.f32 %f2, %f5, %f2, %p1;"
        for count in range(4)
    )
    selected = f"""{turns}
        setp.eq.u32 %p2, %r1, 1; add.rn.f32 %f3, %f2, %f1; mul.rn.f32 %f4, %f2, %f1; selp.f32 %f2, %f4, %f3, %p2;
    """
    wanted = hashes(start + selected + end, blocks=4, shared=ROOM)
    assert hashes(start + loop + end, blocks=4, shared=ROOM) == wanted
    one_more = loop.replace("setp.gt.u32", "setp.ge.u32")
    assert hashes(start + one_more + end, blocks=4, shared=ROOM) != wanted
    counts = f"{start}{loop}mov.u32 %r0, %r9;{store('%r7', 32)}"
    expected = [5 + sum(range(1, block + 2)) for block in range(4) for _ in range(32)]
    assert stored(counts, blocks=4, shared=ROOM) == expected


def test_nested_branches_and_early_exits() -> None:
    body = """
        mov.b32 %r3, 7; setp.ge.u32 %p1, %r0, 24; @%p1 exit;
        setp.lt.u32 %p1, %r0, 16; @!%p1 bra OUT;
        setp.lt.u32 %p2, %r0, 4; @%p2 bra LOW; add.u32 %r3, %r0, 100; bra OUT;
        LOW: setp.eq.u32 %p3, %r0, 2; @%p3 bra TWO; mov.b32 %r3, 1; bra OUT;
        TWO: mov.b32 %r3, 2;
        OUT: @%p1 add.u32 %r3, %r3, 1000;
    """
    found = known(run(body + store("%r3", 32))[0])
    expected = [1002 if lane == 2 else 1001 if lane < 4 else 1100 + lane if lane < 16 else 7 for lane in range(24)]
    assert found == {4 * lane: (32, value) for lane, value in enumerate(expected)}


def test_a_branch_on_data_is_a_select() -> None:
    branch = """ld.global.b32 %r2, [%d6]; setp.lt.s32 %p1, %r2, 5; @%p1 bra A; add.u32 %r3, %r2, 1; bra B; A: mul.lo.u32 %r3, %r2, 3; B:"""
    choice = """ld.global.b32 %r2, [%d6]; setp.lt.s32 %p1, %r2, 5; add.u32 %r5, %r2, 1; mul.lo.u32 %r6, %r2, 3; selp.b32 %r3, %r6, %r5, %p1;"""
    guarded = (
        """ld.global.b32 %r2, [%d6]; setp.lt.s32 %p1, %r2, 5; mul.lo.u32 %r3, %r2, 3; @!%p1 add.u32 %r3, %r2, 1;"""
    )
    end = "st.global.b32 [%d7], %r3;"
    forms = [hashes(PLACES + body + end, shared=ROOM) for body in (branch, choice, guarded)]
    assert forms[0] == forms[1] == forms[2]


def test_a_guarded_store_does_not_change_other_content() -> None:
    guarded = "ld.global.b32 %r2, [%d6]; setp.lt.s32 %p1, %r2, 5; @%p1 st.global.b32 [%d7], %r2;"
    chosen = "ld.global.b32 %r2, [%d6]; ld.global.b32 %r3, [%d7]; setp.lt.s32 %p1, %r2, 5; selp.b32 %r4, %r2, %r3, %p1; st.global.b32 [%d7], %r4;"
    always = "ld.global.b32 %r2, [%d6]; st.global.b32 [%d7], %r2;"
    forms = [hashes(PLACES + body, shared=ROOM) for body in (guarded, chosen, always)]
    assert forms[0] == forms[1] != forms[2]


TWO_ENDS = """.func (.param .b32 out) f(.param .b32 a) { .reg .pred %q; .reg .b32 %x<4>; ld.param.b32 %x0, [a]; setp.lt.u32 %q, %x0, 5;
@%q bra A; st.param.b32 [out], 1; ret; A: st.param.b32 [out], 2; ret; }
"""
GUARDED_RESULT = """.func (.param .b32 out) f(.param .b32 a) { .reg .pred %q; .reg .b32 %x<4>; ld.param.b32 %x0, [a]; setp.lt.u32 %q, %x0, 5;
st.param.b32 [out], 1; @%q st.param.b32 [out], 2; ret; }
"""
CALL = "{ .param .b32 a; .param .b32 o; st.param.b32 [a], %r2; call (o), f, (a); ld.param.b32 %r3, [o]; }"


@pytest.mark.parametrize("before", [TWO_ENDS, GUARDED_RESULT])
def test_a_call_returns_the_result_of_each_lane(before: str) -> None:
    assert stored("mov.b32 %r2, %r0;" + CALL + store("%r3", 32), before=before) == [2] * 5 + [1] * 27


def test_calls_on_both_sides_of_a_branch_have_separate_arguments() -> None:
    body = f"add.u32 %r2, %r0, 3; setp.lt.u32 %p1, %r0, 7; @%p1 bra A; {CALL} add.u32 %r3, %r3, 10; bra B; A: {CALL.replace(' a;', ' a;')} B:"
    expected = [2 if lane + 3 < 5 else 1 for lane in range(7)] + [11] * 25
    assert stored(body + store("%r3", 32), before=TWO_ENDS) == expected


def test_a_result_that_depends_on_data_is_a_select() -> None:
    called = hashes(
        PLACES + "ld.global.b32 %r2, [%d6];" + CALL + "st.global.b32 [%d7], %r3;", before=GUARDED_RESULT, shared=ROOM
    )
    chosen = "ld.global.b32 %r2, [%d6]; setp.lt.u32 %p1, %r2, 5; selp.b32 %r3, 2, 1, %p1; st.global.b32 [%d7], %r3;"
    assert called == hashes(PLACES + chosen, shared=ROOM)


EXCHANGE = "st.shared.b32 [%d9], %r0; {} ld.shared.b32 %r2, [%d11]; st.global.b32 [%d7], %r2;"


@pytest.mark.parametrize("barrier", ["bar.sync 0;", "barrier.sync 0;", "bar.sync 3, 64;", "barrier.sync.aligned 0;"])
def test_an_exchange_across_a_barrier_is_analysed(barrier: str) -> None:
    found = stored(PLACES + EXCHANGE.format(barrier), threads=64, shared=ROOM)
    assert found == [thread ^ 32 for thread in range(64)]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (EXCHANGE.format(""), "no barrier between"),
        (EXCHANGE.format("bar.warp.sync -1;"), "no barrier between"),
        (
            "st.shared.b32 [%d9], %r0; bar.sync 0; ld.shared.b32 %r2, [%d8]; setp.eq.u32 %p1, %r0, 63; @%p1 st.shared.b32 [%d8], %r0; st.global.b32 [%d7], %r2;",
            "no barrier between",
        ),
        (
            "st.shared.b32 [%d8], %r0; bar.sync 0; ld.shared.b32 %r2, [%d8]; st.global.b32 [%d7], %r2;",
            "different values to one address",
        ),
        (
            "st.global.b32 [%d7], %r0; sub.u32 %r2, 252, %r1; cvt.u64.u32 %d12, %r2; add.s64 %d12, %d0, %d12; ld.global.b32 %r3, [%d12]; st.global.b32 [%d7+1024], %r3;",
            "a race",
        ),
        (
            "sub.u32 %r2, 252, %r1; cvt.u64.u32 %d12, %r2; add.s64 %d12, %d0, %d12; ld.global.b32 %r3, [%d12]; st.global.b32 [%d7], %r3;",
            "a race",
        ),
        ("st.global.b32 [%d0], %r0;", "different values at one address"),
        (
            "createpolicy.fractional.L2::evict_last.b64 %d12, 0f3f800000; cvt.u32.u64 %r2, %d12; st.global.b32 [%d7], %r2;",
            "nothing wrote",
        ),
        (
            "setp.lt.u32 %p1, %r0, 32; @%p1 bar.arrive 1, 64; @!%p1 bar.sync 1, 64; st.global.b32 [%d7], %r0;",
            "bar.arrive is not modelled",
        ),
        ("setp.lt.u32 %p1, %r0, 32; @%p1 bar.sync 1, 64; st.global.b32 [%d7], %r0;", "hangs"),
        (
            "ld.global.b32 %r2, [%d6]; setp.lt.u32 %p1, %r2, 32; @%p1 bar.sync 0; st.global.b32 [%d7], %r0;",
            "depends on data",
        ),
    ],
)
def test_undefined_results_raise(body: str, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        hashes(PLACES + body, threads=64, shared=ROOM)


def test_a_cache_policy_changes_no_value() -> None:
    policy = "createpolicy.fractional.L2::evict_last.b64 %d12, 0f3f800000; ld.global{}.b32 %r2, [%d6]{}; st.global.b32 [%d7], %r2;"
    found = [hashes(PLACES + policy.format(*each), shared=ROOM) for each in (("", ""), (".L2::cache_hint", ", %d12"))]
    assert found[0] == found[1]


def test_one_value_written_by_all_threads_is_defined() -> None:
    body = "mov.b32 %r3, 7; st.shared.b32 [%d8], %r3; bar.sync 0; ld.shared.b32 %r2, [%d8]; st.global.b32 [%d7], %r2;"
    assert stored(PLACES + body, threads=64, shared=ROOM) == [7] * 64


def test_a_barrier_of_two_warps_does_not_order_a_third() -> None:
    """Global memory written by a third warp may not have arrived."""
    body = """
        st.global.b32 [%d7], %r0; setp.ge.u32 %p1, %r0, 64; @%p1 bra J; bar.sync 1, 64;
        J: xor.b32 %r2, %r1, 256; cvt.u64.u32 %d12, %r2; add.s64 %d12, %d0, %d12; ld.global.b32 %r3, [%d12]; st.global.b32 [%d7+1024], %r3;
    """
    with pytest.raises(Unsupported, match="a race"):
        hashes(PLACES + body, threads=128, shared=ROOM)


def test_exit_inside_a_function_raises() -> None:
    with pytest.raises(Unsupported, match="inside a function"):
        hashes("call f, (); st.global.b32 [%d0], %r0;", threads=1, before=".func f() { exit; }\n")


@pytest.mark.parametrize(
    "order",
    [
        "st.global.b32 [%d7], %r6; bar.sync 0; red.global.add.u32 [%d12], 1;",
        "red.global.add.u32 [%d12], 1; bar.sync 0; st.global.b32 [%d7], %r6;",
    ],
)
def test_atomics_that_stores_may_overlap_raise(order: str) -> None:
    body = "ld.global.b32 %r5, [%d6]; and.b32 %r5, %r5, 31; mul.wide.u32 %d12, %r5, 4; add.s64 %d12, %d0, %d12; mov.b32 %r6, 0;"
    with pytest.raises(Unsupported, match="may conflict with stores"):
        hashes(PLACES + body + order, shared=ROOM)


LOCAL = ".local .align 4 .b8 depot[8];"
COMPUTED_LOAD = """ld.global.b32 %r2, [%d6+{offset}]; setp.gt.s32 %p1, %r2, 5; mov.b32 %r3, %r2; @!%p1 bra {label};
    mov.u64 %d20, depot; st.local.b32 [%d20], %r2; mul.lo.u32 %r4, %r2, 7; st.local.b32 [%d20+4], %r4;
    and.b32 %r5, %r2, 4; cvt.u64.u32 %d21, %r5; add.s64 %d21, %d20, %d21; ld.local.b32 %r3, [%d21]; {label}:"""


def test_local_memory_inside_a_branch_is_what_that_branch_wrote() -> None:
    first, second = (COMPUTED_LOAD.format(offset=place, label=f"L{place}") for place in (0, 1024))
    end = "st.global.b32 [%d7], %r3;"
    alone, after = (hashes(PLACES + body + end, shared=ROOM + LOCAL) for body in (second, first + second))
    assert alone == after != hashes(PLACES + first + end, shared=ROOM + LOCAL)


def test_local_memory_after_a_branch_is_a_select() -> None:
    begin = "mov.u64 %d20, depot; ld.global.b32 %r2, [%d6]; setp.gt.s32 %p1, %r2, 5; st.local.b32 [%d20], %r2; add.u32 %r3, %r2, 1;"
    end = "ld.local.b32 %r5, [%d20]; st.global.b32 [%d7], %r5;"
    forms = [
        hashes(PLACES + begin + body + end, shared=ROOM + LOCAL)
        for body in (
            "@!%p1 bra A; st.local.b32 [%d20], %r3; A:",
            "@%p1 st.local.b32 [%d20], %r3;",
            "selp.b32 %r4, %r3, %r2, %p1; st.local.b32 [%d20], %r4;",
            "st.local.b32 [%d20], %r3;",
        )
    ]
    assert forms[0] == forms[1] == forms[2] != forms[3]


WITH_ARRAY = """.func (.param .b32 out) f(.param .b32 a) {{ .reg .b32 %x<4>; .reg .b64 %y<4>; .local .align 4 .b8 own[8]; ld.param.b32 %x0, [a];
mov.u64 %y0, own; {write} and.b32 %x1, %x0, 4; cvt.u64.u32 %y1, %x1; add.s64 %y1, %y0, %y1; ld.local.b32 %x2, [%y1]; st.param.b32 [out], %x2; ret; }}
"""


def test_a_function_has_its_own_local_arrays() -> None:
    begin = "mov.u64 %d20, depot; st.local.b32 [%d20], %r0; st.local.b32 [%d20+4], %r0;"
    end = "ld.local.b32 %r5, [%d20]; add.u32 %r3, %r3, %r5;"
    before = WITH_ARRAY.format(write="st.local.b32 [%y0], 10; st.local.b32 [%y0+4], 20;")
    body = begin + "mul.lo.u32 %r2, %r0, 4;" + CALL + end
    found = stored(PLACES + body + store("%r3", 32), before=before, shared=ROOM + LOCAL)
    assert found == [(20 if lane % 2 else 10) + lane for lane in range(32)]


def test_a_function_does_not_find_what_an_earlier_call_left() -> None:
    write = "setp.lt.u32 %q, %x0, 100; @!%q bra L; st.local.b32 [%y0], 10; st.local.b32 [%y0+4], 20; L:"
    before = WITH_ARRAY.format(write=".reg .pred %q;" + write)
    once = "mov.b32 %r2, %r0;" + CALL
    assert stored(PLACES + once + store("%r3", 32), before=before, shared=ROOM)[:5] == [10, 10, 10, 10, 20]
    with pytest.raises(Unsupported, match="nothing wrote"):
        hashes(
            PLACES + once + "add.u32 %r2, %r0, 100;" + CALL + "st.global.b32 [%d7], %r3;", before=before, shared=ROOM
        )


BF16 = "ld.global.b16 %h1, [%d6]; mov.b32 %r2, {0, %h1}; ld.global.b32 %r3, [%d6+1024]; mul.f32 %r4, %r3, %r3;"
MIXED = "setp.lt.u32 %p1, %r0, 16; selp.b32 %r5, %r2, %r4, %p1;"


@pytest.mark.parametrize(
    "moved",
    [
        "mov.b32 %r6, %r5;",
        "shfl.sync.bfly.b32 %r7, %r5, 3, 31, -1; shfl.sync.bfly.b32 %r6, %r7, 3, 31, -1;",
        "st.shared.b16 [%d9], %h1; st.shared.b32 [%d9], %r5; ld.shared.b32 %r6, [%d9];",
        "st.shared.b16 [%d9], %h1; st.shared.v2.b32 [%d12+2048], {%r5, %r5}; ld.shared.v2.b32 {%r7, %r6}, [%d12+2048];",
    ],
)
def test_a_known_number_next_to_widened_bf16_of_other_lanes_stays_known(moved: str) -> None:
    apart = "@%p1 add.f32 %r8, %r2, 0f3F800000; @!%p1 add.f32 %r8, %r4, 0f3F800000;"
    expected = hashes(PLACES + BF16 + MIXED + apart + "st.global.b32 [%d7], %r8;", shared=ROOM)
    if "v2" in moved:
        moved = "mul.lo.u32 %r9, %r0, 8; cvt.u64.u32 %d12, %r9; add.s64 %d12, %d8, %d12;" + moved
    both = moved + "add.f32 %r8, %r6, 0f3F800000;"
    assert hashes(PLACES + BF16 + MIXED + both + "st.global.b32 [%d7], %r8;", shared=ROOM) == expected
    assert hashes(PLACES + BF16 + MIXED + both + "st.global.b32 [%d7], %r6;", shared=ROOM) != expected


WAIT = ".func wait() { bar.sync 0; ret; }\n"


def test_a_barrier_in_a_function_that_the_whole_block_calls() -> None:
    body = "st.shared.b32 [%d9], %r0; call wait, (); ld.shared.b32 %r3, [%d11];"
    found = stored(PLACES + body + store("%r3", 32), threads=64, before=WAIT, shared=ROOM)
    assert found == [thread ^ 32 for thread in range(64)]


@pytest.mark.parametrize("writer", ["LOW", "HIGH"])
def test_a_barrier_in_a_function_that_a_part_of_the_block_calls(writer: str) -> None:
    write, read = "st.global.b32 [%d0], 7;", "ld.global.b32 %r3, [%d0]; st.global.b32 [%d7], %r3;"
    low, high = (write, read) if writer == "LOW" else (read, write)
    body = f"""
        setp.lt.u32 %p1, %r0, 32; @%p1 bra LOW;
        call wait, (); {high} bra DONE;
        LOW: call wait, (); {low}
        DONE: mov.b32 %r2, 0;
    """
    with pytest.raises(Unsupported, match="a barrier for the whole block is in a function or region that only some"):
        hashes(PLACES + body, threads=64, before=WAIT, shared=ROOM)


CHECKED = """
    setp.eq.u32 %p1, %r0, 0; @%p1 bra REST; add.u32 %r2, %r0, 7;
    setp.lt.u32 %p2, %r2, {limit}; @%p2 bra REST; bra FAILED;
    REST: shfl.sync.bfly.b32 %r3, %r0, 1, 31, -1; bra DONE;
    FAILED: trap;
    DONE:
"""
"""Lanes other than 0 are checked, and the whole warp exchanges afterwards."""


def test_lanes_join_where_the_other_side_of_a_branch_ends_the_launch() -> None:
    assert stored(CHECKED.format(limit=39) + store("%r3", 32)) == [lane ^ 1 for lane in range(32)]


def test_the_sides_of_a_branch_on_data_join_before_what_a_side_that_may_trap_passes_by() -> None:
    """A check inside of one side, which no lane fails on this launch, does not carry the branch to the kernel's end."""
    checked = """ld.global.b32 %r2, [%d6]; setp.lt.s32 %p1, %r2, 5; mov.b32 %r4, %r2; @%p1 bra JOIN;
        setp.ge.u32 %p2, %r0, {limit}; @%p2 bra FAILED; add.u32 %r4, %r2, 9;
        JOIN: shfl.sync.bfly.b32 %r3, %r4, 1, 31, -1; st.global.b32 [%d7], %r3; ret; FAILED: trap;"""
    plain = """ld.global.b32 %r2, [%d6]; setp.lt.s32 %p1, %r2, 5; add.u32 %r5, %r2, 9; selp.b32 %r4, %r2, %r5, %p1;
        shfl.sync.bfly.b32 %r3, %r4, 1, 31, -1; st.global.b32 [%d7], %r3;"""
    assert hashes(PLACES + checked.format(limit=32), shared=ROOM) == hashes(PLACES + plain, shared=ROOM)
    with pytest.raises(Unsupported, match="the kernel traps on this launch"):
        hashes(PLACES + checked.format(limit=31), shared=ROOM)


@pytest.mark.parametrize(
    "body",
    [
        CHECKED.format(limit=38),
        "mov.b32 %r3, 0; ld.global.b32 %r2, [%d0]; setp.lt.s32 %p1, %r2, 5; @%p1 bra REST; trap; REST:",
        "mov.b32 %r3, 0; setp.eq.u32 %p1, %r0, 31; @%p1 trap;",
    ],
)
def test_a_launch_that_may_trap_has_no_result(body: str) -> None:
    with pytest.raises(Unsupported, match="the kernel traps on this launch"):
        run(body + store("%r3", 32))


@pytest.mark.parametrize(
    "body",
    [
        # The other side follows the join in the text.
        "setp.eq.u32 %p1, %r0, 0; @!%p1 bra FAR; MEET: shfl.sync.bfly.b32 %r3, %r0, 1, 31, -1; bra DONE; FAR: add.u32 %r2, %r0, 7; bra MEET; DONE:",
        # So does the body of a loop, which lanes leave after different numbers of iterations.
        "mov.b32 %r2, 0; bra HEAD; MEET: shfl.sync.bfly.b32 %r3, %r0, 1, 31, -1; bra DONE; BODY: add.u32 %r2, %r2, 1; HEAD: setp.lt.u32 %p1, %r2, %r0; @%p1 bra BODY; bra MEET; DONE:",
        # Lanes that leave the inner loop wait for the others before the outer one goes on.
        "mov.b32 %r4, 0; OUTER: mov.b32 %r2, 0; bra HEAD; MEET: shfl.sync.bfly.b32 %r3, %r0, 1, 31, -1; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 3; @%p2 bra OUTER; bra DONE; BODY: add.u32 %r2, %r2, 1; HEAD: setp.lt.u32 %p1, %r2, %r0; @%p1 bra BODY; bra MEET; DONE:",
    ],
)
def test_lanes_meet_in_any_order_of_the_text(body: str) -> None:
    assert stored(body + store("%r3", 32)) == [lane ^ 1 for lane in range(32)]


IN_PLACE = """xor.b32 %r20, %r1, 4; cvt.u64.u32 %d20, %r20; add.s64 %d20, %d0, %d20; ld.global.b32 %r2, [%d6]; st.global.b32 [%d7], %r2;
    {first} ld.global.b32 %r3, [%d20]; {second} st.global.b32 [%d7], %r3;"""
"""Each lane stores its word, and then in its place that of the neighbouring lane."""
OF_ANOTHER = "xor.b32 %r20, %r1, 4; cvt.u64.u32 %d20, %r20; add.s64 %d20, %d1, %d20; ld.global.b32 %r3, [%d20]; st.global.b32 [%d7], %r3;"


def test_a_barrier_of_the_only_warp_orders_accesses_to_global_memory() -> None:
    between = "bar.warp.sync -1;"
    swapped = hashes(PLACES + IN_PLACE.format(first=between, second=between), shared=ROOM)
    assert swapped == hashes(PLACES + OF_ANOTHER, shared=ROOM)
    assert swapped == hashes(PLACES + IN_PLACE.format(first="bar.sync 0;", second="bar.sync 0;"), shared=ROOM)


@pytest.mark.parametrize(
    ("first", "second", "threads"),
    [
        ("bar.warp.sync -1;", "", 32),
        ("", "bar.warp.sync -1;", 32),
        ("bar.warp.sync -1;", "setp.lt.u32 %p9, %r0, 16; @%p9 bar.warp.sync 65535;", 32),
        ("setp.lt.u32 %p9, %r0, 16; @%p9 bar.warp.sync 65535;", "bar.warp.sync -1;", 32),
        ("bar.warp.sync -1;", "bar.warp.sync -1;", 64),
        ("shfl.sync.bfly.b32 %r9, %r2, 1, 31, -1;", "bar.warp.sync -1;", 32),
    ],
)
def test_other_barriers_of_warps_do_not_order_accesses_to_global_memory(first: str, second: str, threads: int) -> None:
    with pytest.raises(Unsupported, match="a race"):
        hashes(PLACES + IN_PLACE.format(first=first, second=second), threads=threads, shared=ROOM)


@pytest.mark.parametrize("name", ["%warpid", "%nwarpid", "%smid", "%nsmid", "%gridid", "%clock", "%globaltimer_lo"])
def test_a_register_that_the_launch_does_not_fix_is_undefined(name: str) -> None:
    """%warpid is where a warp runs on its multiprocessor, not the number of the warp in its block."""
    body = f"mul.wide.u32 %d5, %r0, 4; add.s64 %d7, %d0, %d5; mov.u32 %r1, {name}; st.global.b32 [%d7], %r1;"
    with pytest.raises(Unsupported, match="nothing wrote"):
        hashes(body, threads=64)
    assert hashes(body.replace(name, "%laneid"), threads=64)


HALF = "and.b32 %r5, %r0, 31; setp.lt.u32 %p1, %r5, 16; mov.b32 %r6, 0; ld.global.b32 %r7, [%d6]; st.shared.b32 [%d9], %r7;"
"""%p1: the lower half of a warp; each thread has stored its word in shared memory."""
READ = "ld.shared.b32 %r6, [%d8+{}]; X: st.global.b32 [%d7], %r6;"


@pytest.mark.parametrize(
    "barrier",
    [
        "@!%p1 bra X; bar.warp.sync 0xffff;",
        "@!%p1 bra X; bar.warp.sync -1;",
        "@%p1 bar.warp.sync 0xffff;",
        "@%p1 bra Y; bar.warp.sync 0xffff0000; bra X; Y: bar.warp.sync 0xffff;",
    ],
)
def test_a_barrier_of_a_part_of_a_warp_does_not_order_the_others(barrier: str) -> None:
    """A lane of the lower half reads what one of the upper half has stored."""
    body = PLACES + HALF + barrier + READ.format(80)
    with pytest.raises(Unsupported, match="race"):
        hashes(body, shared=ROOM)
    assert hashes(PLACES + HALF + "bar.warp.sync -1;" + READ.format(80), shared=ROOM)


@pytest.mark.parametrize("barrier", ["bar.warp.sync 0x55555555;", "setp.lt.u32 %p9, %r0, 9; @%p9 bar.warp.sync 0xff;"])
def test_a_lane_that_its_barrier_does_not_name_makes_the_kernel_unknown(barrier: str) -> None:
    """The PTX ISA leaves it undefined, and an H200 ends the kernel with an illegal instruction."""
    with pytest.raises(Unsupported, match="member mask does not contain it"):
        hashes(PLACES + HALF + barrier + READ.format(0), shared=ROOM)


@pytest.mark.parametrize("number", ["16", "%r9"])
def test_a_block_has_sixteen_barriers(number: str) -> None:
    with pytest.raises(Unsupported, match="has no barrier 16"):
        hashes(PLACES + HALF + f"mov.u32 %r9, 16; bar.sync {number};" + READ.format(0), shared=ROOM)
    assert hashes(PLACES + HALF + "bar.sync 15;" + READ.format(0), shared=ROOM)


def test_the_member_mask_of_a_barrier_must_be_known() -> None:
    with pytest.raises(Unsupported, match="member mask of a barrier depends on data"):
        hashes(PLACES + HALF + "bar.warp.sync %r7;" + READ.format(0), shared=ROOM)


@pytest.mark.parametrize(("threads", "count"), [(32, 16), (64, 32)])
def test_a_barrier_of_some_threads_is_executed_by_whole_warps(threads: int, count: int) -> None:
    body = PLACES + HALF + f"@!%p1 bra X; bar.sync 1, {count};" + READ.format(4)
    with pytest.raises(Unsupported, match="by a part of a warp"):
        hashes(body, shared=ROOM, threads=threads)
    assert hashes(PLACES + HALF + f"bar.sync 1, {threads};" + READ.format(4), shared=ROOM, threads=threads)
