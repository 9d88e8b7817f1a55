# ruff: noqa: E501 - PTX and tables are easier to check without line breaks
from __future__ import annotations

from random import Random

import pytest

from bitwise_core.execution.domains.domain import Unsupported
from ptx_programs import hashes, known, run, store, stored, table

FULL = 0xFFFFFFFF
CLAMPS = (0x1F, 0, 7, 0x181F, 0x1C1F, 0x1E1F, 0x1F1F, 0x1C00, 0x1800, 0x1803, 0x1000, 0x101F, 0x100F, 0x0C1F)


def shuffled(mode: str, lane: int, amount: int, clamp: int) -> tuple[int, bool]:
    """Return the lane that `lane` reads, and whether it is in range, by the ISA's definition of shfl."""
    b, c, segment = amount & 31, clamp & 31, clamp >> 8 & 31
    highest = (lane & segment) | (c & ~segment & 31)
    lowest = lane & segment
    if mode == "up":
        source, inside = lane - b, lane - b >= highest
    elif mode == "down":
        source, inside = lane + b, lane + b <= highest
    elif mode == "bfly":
        source, inside = lane ^ b, (lane ^ b) <= highest
    else:
        source = lowest | (b & ~segment & 31)
        inside = source <= highest
    return (source if inside else lane), inside


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("clamp", CLAMPS)
def test_shuffles_read_the_lane_of_the_isa(mode: str, clamp: int) -> None:
    for amount in (0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 33):
        body = (
            f"mad.lo.u32 %r1, %r0, 3, 100; shfl.sync.{mode}.b32 %r2|%p1, %r1, {amount}, {clamp}, -1; selp.b32 %r3, 1, 0, %p1;"
            + store("%r2", 32, 0, 2)
            + store("%r3", 32, 1, 2)
        )
        found = known(run(body, threads=64)[0])
        for thread in range(64):
            source, inside = shuffled(mode, thread % 32, amount, clamp)
            assert found[8 * thread] == (32, 3 * (thread - thread % 32 + source) + 100)
            assert found[8 * thread + 4] == (32, int(inside))


def test_the_source_lane_may_differ_between_lanes() -> None:
    random = Random(5)
    amounts = [random.randrange(32) for _ in range(32)]
    body = table(amounts, 32, "%r5") + "shfl.sync.idx.b32 %r2, %r0, %r5, 31, -1;" + store("%r2", 32)
    assert stored(body) == amounts


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("shfl.sync.down.b32 %r2, %r0, 1, 31, 1;", "member mask does not contain it"),
        ("setp.lt.u32 %p1, %r0, 9; @%p1 shfl.sync.down.b32 %r2, %r0, 1, 31, -1;", "does not take part"),
        ("ld.global.b32 %r5, [%d1]; shfl.sync.down.b32 %r2, %r0, %r5, 31, -1;", "distance depends on data"),
        ("setp.lt.u32 %p1, %r0, 9; @%p1 activemask.b32 %r2;", "is not determined"),
        ("setp.lt.u32 %p1, %r0, 9; @%p1 bra JOIN; mov.b32 %r3, 1; JOIN: activemask.b32 %r2;", "is not determined"),
        (
            "ld.global.b32 %r3, [%d1]; setp.lt.u32 %p1, %r3, 9; @%p1 bra JOIN;"
            "mov.b32 %r3, 1; JOIN: activemask.b32 %r2;",
            "is not determined",
        ),
        ("setp.lt.u32 %p1, %r0, 9; @%p1 redux.sync.add.u32 %r2, %r0, 0x1ff;", "part of a warp"),
        ("redux.sync.add.u32 %r2, %r0, 0xffff;", "not the set of lanes that execute it"),
        (
            "setp.lt.u32 %p1, %r0, 9; vote.sync.any.pred %p2, %p1, 0xffff; selp.b32 %r2, 1, 0, %p2;",
            "not the set of lanes",
        ),
        ("match.any.sync.b32 %r2, %r0, -1;", "is not modelled"),
    ],
)
def test_undefined_exchanges_raise(body: str, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        run("mov.b32 %r2, 0;" + body + store("%r2", 32))


@pytest.mark.parametrize("threads", [20, 36])
def test_a_shuffle_from_a_missing_lane_raises(threads: int) -> None:
    with pytest.raises(Unsupported, match="does not have"):
        run("shfl.sync.down.b32 %r2, %r0, 1, 31, -1;" + store("%r2", 32), threads=threads)


@pytest.mark.parametrize("seed", range(4))
def test_votes_over_whole_warps(seed: int) -> None:
    random = Random(seed)
    bits = [random.getrandbits(32), (0, FULL, 1, 0x80000000)[seed]]
    threads = 64
    values = [bits[thread // 32] >> thread % 32 & 1 for thread in range(threads)]
    body = (
        table(values, 32, "%r1")
        + """
        setp.eq.u32 %p1, %r1, 1;
        vote.sync.ballot.b32 %r2, %p1, -1; vote.sync.any.pred %p2, %p1, -1; vote.sync.all.pred %p3, %p1, -1;
        vote.sync.uni.pred %p4, %p1, -1; vote.sync.ballot.b32 %r6, !%p1, -1; activemask.b32 %r7;
        selp.b32 %r3, 1, 0, %p2; selp.b32 %r4, 1, 0, %p3; selp.b32 %r5, 1, 0, %p4;
    """
        + "".join(store(f"%r{2 + i}", 32, i, 6) for i in range(6))
    )
    found = known(run(body, threads=threads)[0])
    for thread in range(threads):
        ballot = bits[thread // 32]
        expected = [ballot, int(ballot != 0), int(ballot == FULL), int(ballot in (0, FULL)), ballot ^ FULL, FULL]
        assert [found[4 * (6 * thread + i)][1] for i in range(6)] == expected


def test_elect_selects_the_lowest_lane() -> None:
    body = "elect.sync %r2|%p1, -1; selp.b32 %r3, 1, 0, %p1;" + store("%r3", 32)
    assert stored(body, threads=64) == [int(thread % 32 == 0) for thread in range(64)]


@pytest.mark.parametrize("kind", ["u32", "s32"])
@pytest.mark.parametrize("operation", ["add", "min", "max"])
def test_reductions_of_a_warp(operation: str, kind: str) -> None:
    random = Random(6)
    values = [random.choice((0, 1, FULL, 0x80000000, random.getrandbits(32))) for _ in range(64)]
    body = table(values, 32, "%r1") + f"redux.sync.{operation}.{kind} %r2, %r1, -1;" + store("%r2", 32)
    numbers = [value - (value >> 31 << 32) if kind == "s32" else value for value in values]
    function = {"add": sum, "min": min, "max": max}[operation]
    expected = [function(numbers[start : start + 32]) & FULL for start in (0, 32)]
    assert stored(body, threads=64) == [expected[thread // 32] for thread in range(64)]


@pytest.mark.parametrize("operation", ["and", "or", "xor"])
def test_logical_reductions_of_a_warp(operation: str) -> None:
    random = Random(7)
    values = [random.getrandbits(32) | random.getrandbits(32) for _ in range(32)]
    total = values[0]
    for value in values[1:]:
        total = {"and": total & value, "or": total | value, "xor": total ^ value}[operation]
    body = table(values, 32, "%r1") + f"redux.sync.{operation}.b32 %r2, %r1, -1;" + store("%r2", 32)
    assert stored(body) == [total] * 32


ROOM = ".shared .align 128 .b8 room[4096];"
ADDRESS = "mov.u64 %d10, room; cvt.u32.u64 %r10, %d10;"


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix(count: int, transposed: bool) -> None:
    """Each half-word of shared memory holds its index; row r of matrix m begins at byte 32 * ((5 * (8m + r)) % 32)."""
    fill = ADDRESS + "".join(
        f"add.u32 %r11, %r0, {32 * step}; mad.lo.u32 %r12, %r11, 4, %r10; mad.lo.u32 %r13, %r11, 0x20002, 0x10000; st.shared.b32 [%r12], %r13;"
        for step in range(8)
    )
    registers = ", ".join(f"%r{20 + m}" for m in range(count))
    body = (
        fill
        + (
            "bar.sync 0; mul.lo.u32 %r14, %r0, 5; and.b32 %r14, %r14, 31; mad.lo.u32 %r15, %r14, 32, %r10;"
            f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared.b16 {{{registers}}}, [%r15];"
        )
        + "".join(store(f"%r{20 + m}", 32, m, count) for m in range(count))
    )
    found = known(run(body, shared=ROOM)[0])
    for lane in range(32):
        for matrix in range(count):
            expected = 0
            for element in range(2):
                row, column = lane // 4, 2 * (lane % 4) + element
                if transposed:
                    row, column = column, row
                expected |= (16 * (5 * (8 * matrix + row) % 32) + column) << 16 * element
            assert found[4 * (count * lane + matrix)] == (32, expected)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_stmatrix(count: int, transposed: bool) -> None:
    """Register m of a lane holds 2 * (32m + lane) and that plus one; rows begin as in the test of ldmatrix."""
    values = "".join(
        f"add.u32 %r16, %r0, {32 * m}; mad.lo.u32 %r{20 + m}, %r16, 0x20002, 0x10000;" for m in range(count)
    )
    clear = "".join(
        f"add.u32 %r11, %r0, {32 * step}; mad.lo.u32 %r12, %r11, 4, %r10; mov.b32 %r13, -1; st.shared.b32 [%r12], %r13;"
        for step in range(8)
    )
    registers = ", ".join(f"%r{20 + m}" for m in range(count))
    body = (
        ADDRESS
        + values
        + clear
        + (
            "bar.sync 0; mul.lo.u32 %r14, %r0, 5; and.b32 %r14, %r14, 31; mad.lo.u32 %r15, %r14, 32, %r10;"
            f"stmatrix.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared.b16 [%r15], {{{registers}}}; bar.sync 0;"
        )
    )
    body += "".join(
        f"add.u32 %r11, %r0, {32 * step}; mad.lo.u32 %r12, %r11, 4, %r10; ld.shared.b32 %r{30 + step}, [%r12];"
        + store(f"%r{30 + step}", 32, step, 8)
        for step in range(8)
    )
    expected = [0xFFFF] * 512
    for lane in range(32):
        for matrix in range(count):
            for element in range(2):
                row, column = lane // 4, 2 * (lane % 4) + element
                if transposed:
                    row, column = column, row
                expected[16 * (5 * (8 * matrix + row) % 32) + column] = 2 * (32 * matrix + lane) + element
    found = known(run(body, shared=ROOM)[0])
    memory = [0] * 512
    for lane in range(32):
        for step in range(8):
            word = found[4 * (8 * lane + step)][1]
            memory[2 * (32 * step + lane)], memory[2 * (32 * step + lane) + 1] = word & 0xFFFF, word >> 16
    assert memory == expected


LARGEST = """ld.global.b64 %d5, [%d1]; {magnitude} mov.b64 {{%r5, %r6}}, %d6; shfl.sync.bfly.b32 %r7, %r5, 1, 31, -1;
shfl.sync.bfly.b32 %r8, %r6, 1, 31, -1; mov.b64 %d7, {{%r7, %r8}}; {largest}; and.b32 %r9, %r0, -2; mul.wide.u32 %d9, %r9, 4;
add.s64 %d9, %d0, %d9; st.global.b64 [%d9], %d8;"""
CLEARED = "and.b64 %d6, %d5, 0x7fffffffffffffff;"


@pytest.mark.parametrize("magnitude", [CLEARED, "abs.f64 %d6, %d5;", "mov.b64 %d6, %d5;"])
def test_halves_of_a_number_that_lanes_exchange_are_the_number(magnitude: str) -> None:
    """Both lanes of a pair store one maximum at one address: no race only if the number of the other is found whole."""
    load = "mul.wide.u32 %d4, %r0, 8; add.s64 %d1, %d1, %d4;"
    exchanged = load + LARGEST.format(magnitude=magnitude, largest="max.f64 %d8, %d6, %d7")
    assert hashes(exchanged, threads=32)
    with pytest.raises(Unsupported, match="different values at one address"):
        hashes(load + LARGEST.format(magnitude=magnitude, largest="mov.b64 %d8, %d7"), threads=32)
