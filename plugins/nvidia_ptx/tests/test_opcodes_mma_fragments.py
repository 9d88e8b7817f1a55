# ruff: noqa: E501 - PTX is easier to check without line breaks
"""Floating-point matrix instructions whose operand has constant rows beside rows that each block loads."""

from __future__ import annotations

import pytest

from bitwise_core.execution.domains.domain import Unsupported
from ptx_programs import hashes, run

PLACES = "mov.u32 %r51, %ctaid.x; mad.lo.u32 %r50, %r51, 32, %r0; mul.lo.u32 %r52, %r50, 16; cvt.u64.u32 %d5, %r52; add.s64 %d6, %d1, %d5; add.s64 %d7, %d0, %d5;"
LOADS = PLACES + "".join(f"ld.global.b32 %r{number}, [%d6+{2048 * number}];" for number in range(1, 9))
ONES = "mov.b32 %r10, 0x3C003C00;"
ZERO = "mov.b32 %r20, 0; mov.b32 %r21, 0; mov.b32 %r22, 0; mov.b32 %r23, 0;"
STORE = "st.global.v4.b32 [%d7], {{%r{0}, %r{1}, %r{2}, %r{3}}};"


def product(*fragment: str) -> str:
    """Return an mma of a fragment of A, rows 0 to 7 in its first and third register, with the loads 5 and 6."""
    a = ", ".join(fragment)
    return f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%r20, %r21, %r22, %r23}}, {{{a}}}, {{%r5, %r6}}, {{%r20, %r21, %r22, %r23}};"


FIRST_CONSTANT = product("%r10", "%r1", "%r10", "%r3")
LAST_CONSTANT = product("%r1", "%r10", "%r3", "%r10")
OTHER_LOADS = product("%r1", "%r10", "%r4", "%r10")


def form(multiply: str, order: tuple[int, int, int, int], blocks: int) -> object:
    return hashes(LOADS + ONES + ZERO + multiply + STORE.format(*order), blocks=blocks)


@pytest.mark.parametrize("blocks", [1, 2])
def test_rows_that_agree_in_all_blocks_beside_rows_that_do_not(blocks: int) -> None:
    """A row of the result depends on its own row of A only, so that exchanging the halves exchanges the results."""
    first = form(FIRST_CONSTANT, (20, 21, 22, 23), blocks)
    assert first == form(LAST_CONSTANT, (22, 23, 20, 21), blocks)
    assert first != form(LAST_CONSTANT, (20, 21, 22, 23), blocks)
    assert first != form(OTHER_LOADS, (22, 23, 20, 21), blocks)


def added(
    accumulators: tuple[int, ...], results: tuple[int, ...] = (20, 21, 22, 23), a: str = "%r1, %r2, %r3, %r4"
) -> str:
    """Return an mma that adds to some registers."""
    registers = [", ".join(f"%r{each}" for each in listed) for listed in (results, accumulators)]
    return f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{{registers[0]}}}, {{{a}}}, {{%r5, %r6}}, {{{registers[1]}}};"


TWO = ZERO + added((20, 21, 22, 23), (24, 25, 26, 27), "%r4, %r3, %r2, %r1") + added((20, 21, 22, 23))
PLAIN = TWO + added((20, 21, 22, 23))
OTHERS = [(21, 20, 22, 23), (22, 23, 20, 21), (20, 25, 22, 27), (24, 25, 26, 27), (20, 20, 20, 20), (24, 21, 22, 23)]


@pytest.mark.parametrize("accumulators", OTHERS)
@pytest.mark.parametrize("blocks", [1, 2])
def test_results_of_a_step_in_other_places_are_other_accumulators(accumulators: tuple[int, ...], blocks: int) -> None:
    order = (20, 21, 22, 23)
    other = form(TWO + added(accumulators), order, blocks)
    assert other != form(PLAIN, order, blocks)
    moved = "".join(f"mov.b32 %r3{place}, %r{each};" for place, each in enumerate(accumulators))
    back = "".join(f"mov.b32 %r2{place}, %r3{place};" for place in range(4))
    through = f"{moved} add.rn.f32 %r36, %r30, %r31; {back}"
    assert other == form(TWO + through + added(order), order, blocks)


LARGE = (
    "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%g0, %g1, %g2, %g3}, {%g4, %g5}, {%g6}, {%g0, %g1, %g2, %g3};"
)
SMALL = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {{%g0, %g1}}, {{%g5}}, {{%g6}}, {{{}}};"


def test_some_results_of_a_step_are_accumulators_of_a_smaller_one() -> None:
    """Half of the registers of a result have another layout than all of them."""
    begin = PLACES + "".join(f"ld.global.f64 %g{place}, [%d6+{1024 * place}];" for place in range(7)) + LARGE
    store = "st.global.f64 [%d7], %g0; st.global.f64 [%d7+8], %g1;"
    found = [
        hashes(f"{begin}{SMALL.format(each)}{store}", dtype="fp64") for each in ("%g0, %g1", "%g1, %g0", "%g2, %g3")
    ]
    # The same values, put together from those of some lanes and those of others.
    moved = "setp.lt.u32 %p9, %r0, 16;" + "".join(
        f"selp.f64 %g{8 + place}, %g{place}, %g{place + 2}, %p9; selp.f64 %g{8 + place}, %g{8 + place}, %g{place}, %p9;"
        for place in range(2)
    )
    assert found[0] == hashes(f"{begin}{moved}{SMALL.format('%g8, %g9')}{store}", dtype="fp64")
    assert len({str(each) for each in found}) == 3


ALL_WARPS = LOADS + ZERO + added((20, 21, 22, 23)) + added((20, 21, 22, 23)) + STORE.format(20, 21, 22, 23)


def some_warps(comparison: str, thread: int) -> str:
    """Return a body that threads leave for which the comparison of their number is true."""
    return f"{PLACES} setp.{comparison} %p1, %r0, {thread}; @%p1 bra DONE; {ALL_WARPS.removeprefix(PLACES)} DONE:"


@pytest.mark.parametrize(("condition", "own"), [(("lt.u32", 32), (32, 96)), (("ge.u32", 64), (0, 64))])
def test_some_warps_of_a_block_multiply(condition: tuple[str, int], own: tuple[int, int]) -> None:
    """The other warps have not written any register of the operands."""
    found, every = hashes(some_warps(*condition), threads=96), hashes(ALL_WARPS, threads=96)
    assert found == {place: each for place, each in every.items() if own[0] <= place // 16 < own[1]}


def test_a_part_of_a_warp_does_not_multiply() -> None:
    with pytest.raises(Unsupported, match="part of a warp"):
        run(some_warps("lt.u32", 40), threads=96)


FP8 = "mma.sync.aligned.m16n8k32.row.col.{form}.e4m3.e5m2.{form} {{{results}}}, {{{a}}}, {{{b}}}, {{{c}}};"


@pytest.mark.parametrize(
    ("form", "results", "a", "b", "c", "known"),
    [
        ("f32", "%r20, %r21, %r22, %r23", "%r1, %r2, %r3, %r4", "%r5, %r6", "%r20, %r21, %r22, %r23", True),
        ("f32", "%r20, %r21, %r22, %r23", "%r1, %r1, %r1, %r1", "%r1, %r1", "%r24, %r24, %r24, %r24", True),
        ("f32", "%r20, %r21, %r22, %r23", "%r1, %r2, %r3, %r4", "%r5, %r6", "%r23, %r22, %r21, %r20", False),
        ("f32", "%r20, %r21, %r22, %r23", "%r1, %r2, %r3, %r4", "%r5, %r6", "%r20, %r20, %r22, %r23", False),
        ("f32", "%r20, %r21, %r22, %r23", "%r1, %r2, %r3, %r20", "%r5, %r6", "%r24, %r25, %r26, %r27", False),
        ("f32", "%r20, %r21, %r22, %r23", "%r1, %r2, %r3, %r4", "%r5, %r23", "%r20, %r21, %r22, %r23", False),
        ("f16", "%r20, %r21", "%r1, %r2, %r3, %r4", "%r5, %r6", "%r20, %r21", True),
        ("f16", "%r20, %r21", "%r1, %r2, %r3, %r4", "%r5, %r6", "%r21, %r20", False),
    ],
)
def test_results_of_fp8_are_written_where_only_their_accumulator_was(
    form: str, results: str, a: str, b: str, c: str, known: bool
) -> None:
    """ptxas 12.8 replaces the instruction by several for sm_90, which write a result before all are read."""
    multiply = FP8.format(form=form, results=results, a=a, b=b, c=c)
    body = (
        LOADS
        + ZERO
        + "".join(f"mov.b32 %r{each}, %r7;" for each in range(24, 28))
        + multiply
        + STORE.format(20, 21, 22, 23)
    )
    if known:
        assert hashes(body)
    else:
        with pytest.raises(Unsupported, match="writes a register that it reads at another place"):
            hashes(body)
