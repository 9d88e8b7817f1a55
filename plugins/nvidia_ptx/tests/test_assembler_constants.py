# ruff: noqa: E501 - a line of PTX is read as one
"""Approximations of numbers that the assembler knows, does not know, or may know.

ptxas 12.8 and 13.0 return `x * (1 / 3)` for `div.full x, 3.0` where they know the divisor: of a literal, of what simple
instructions compute from literals, of a shuffle of one, of `x & 0` plus one, and of what local memory keeps.  They do
not evaluate `x - x`, fused products and integer divisions of literals.
"""

from __future__ import annotations

import pytest

from bitwise_core.checker.comparison import compare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.launch import Argument, Launch
from bitwise_nvidia_ptx.assembler.ptxas import Ptxas
from bitwise_nvidia_sm90.architecture import SM90
from ptx_programs import store, text

THREE = "0f40400000"
LITERAL = f"mov.f32 %f2, {THREE};"
LOOP, AGAIN = "L: setp.eq.u32 %p2, %r4, 0; @%p2 bra D;", "sub.u32 %r4, %r4, 1; bra L; D:"
LOADED = {
    "a parameter": "mov.f32 %f2, %f3;",
    "a sum with a parameter": "add.rn.f32 %f2, %f3, 0f00000000;",
    "a sum of a parameter and a load": "add.s32 %r4, %r9, 5; mov.b32 %r5, %f3; sub.s32 %r6, %r4, %r5; mov.b32 %f2, %f3;",
    "a converted parameter": "cvt.rn.f32.s32 %f2, %r9;",
    "a product of a parameter": "mul.lo.s32 %r4, %r9, 1; cvt.rn.f32.s32 %f2, %r4;",
    "what another lane has of a parameter": "shfl.sync.idx.b32 %f2, %f3, 0, 31, -1;",
    "what shared memory keeps": "st.shared.f32 [room], %f3; bar.sync 0; ld.shared.f32 %f2, [room];",
}
EVALUATED = {
    "a literal": LITERAL,
    "a literal in two registers": f"mov.f32 %f4, {THREE}; mov.f32 %f2, %f4;",
    "a sum": "mov.f32 %f4, 0f3f800000; add.rn.f32 %f5, %f4, %f4; add.rn.f32 %f2, %f5, %f4;",
    "a converted literal": "mov.u32 %r4, 3; cvt.rn.f32.u32 %f2, %r4;",
}
OPEN = {
    "a literal of another lane": f"mov.f32 %f4, {THREE}; shfl.sync.idx.b32 %f2, %f4, 0, 31, -1;",
    "a sum with no bits": "and.b32 %r4, %r1, 0; add.u32 %r4, %r4, 3; cvt.rn.f32.u32 %f2, %r4;",
    "a sum with a product with 0": "mul.lo.u32 %r4, %r1, 0; add.u32 %r4, %r4, 3; cvt.rn.f32.u32 %f2, %r4;",
    "a sum with a difference": "sub.u32 %r4, %r1, %r1; add.u32 %r4, %r4, 3; cvt.rn.f32.u32 %f2, %r4;",
    "a sum without what it adds": "add.u32 %r4, %r9, 3; sub.u32 %r5, %r4, %r9; cvt.rn.f32.u32 %f2, %r5;",
    "a sum that is moved without what it adds": "add.u32 %r4, %r1, 3; mov.u32 %r5, %r4; sub.u32 %r6, %r5, %r1; cvt.rn.f32.u32 %f2, %r6;",
    "a sum with a product that leaves no bits": "mul.lo.u32 %r4, %r1, 65536; mul.lo.u32 %r5, %r4, 65536; add.u32 %r6, %r5, 3; cvt.rn.f32.u32 %f2, %r6;",
    "a choice of one number": f"setp.gt.u32 %p1, %r1, 7; selp.f32 %f2, {THREE}, {THREE}, %p1;",
    "what local memory keeps": f"mov.f32 %f4, {THREE}; st.local.f32 [mine], %f4; ld.local.f32 %f2, [mine];",
    "what local memory keeps, by generic addresses": f"mov.f32 %f4, {THREE}; mov.u64 %d5, mine; cvta.local.u64 %d6, %d5; st.f32 [%d6], %f4; ld.f32 %f2, [%d6];",
    "a fused product": "mov.f32 %f4, 0f3f800000; mov.f32 %f5, 0f40000000; fma.rn.f32 %f2, %f4, %f5, %f4;",
    "an integer quotient": "mov.u32 %r4, 9; div.u32 %r5, %r4, 3; cvt.rn.f32.u32 %f2, %r5;",
    "a root": "mov.f32 %f4, 0f41100000; sqrt.rn.f32 %f2, %f4;",
    "the start of a loop": f"mov.f32 %f2, {THREE}; sub.u32 %r4, %r9, 3; {LOOP} mul.rn.f32 %f2, %f2, %f3; {AGAIN}",
    "what follows from the start of a loop": f"mov.f32 %f4, 0f3f800000; sub.u32 %r4, %r9, 3; {LOOP} mul.rn.f32 %f4, %f4, %f3; {AGAIN} add.rn.f32 %f2, %f4, 0f40000000;",
    "a product with what may be 0": "setp.gt.s32 %p2, %r9, 1; selp.f32 %f5, 0f3f800000, 0f00000000, %p2; mul.rn.f32 %f2, %f3, %f5;",
    "a difference of a number and itself": f"setp.gt.s32 %p2, %r9, 1; selp.f32 %f4, %f3, {THREE}, %p2; sub.rn.f32 %f5, %f4, %f4; add.rn.f32 %f2, %f5, {THREE};",
    "an extremum in a range": "min.u32 %r4, %r0, 0; add.u32 %r4, %r4, 3; cvt.rn.f32.u32 %f2, %r4;",
}


def kernel(divisor: str, opcode: str = "div.full.f32 %r3, %r1, %f2;") -> str:
    """Return a kernel with two parameters, the numbers 3 in %f3 and %r9, that divides what it loads by %f2."""
    loads = "ld.param.f32 %f3, [c]; ld.param.s32 %r9, [n]; mul.wide.u32 %d2, %r0, 4; add.s64 %d2, %d1, %d2; ld.global.b32 %r1, [%d2];"
    arrays = ".shared .align 4 .b8 room[4]; .local .align 4 .b8 mine[4];"
    body = f"{loads} {divisor} {opcode} {store('%r3', 32)}"
    return text(body, shared=arrays).replace(".param .u64 in)", ".param .u64 in, .param .f32 c, .param .s32 n)")


def outcome(left: str, right: str, threads: int = 32) -> Outcome:
    buffers = (Argument(kind="buffer", buffer=each, dtype="fp32") for each in ("out", "in"))
    scalars = Argument(kind="fp32", value=3.0), Argument(kind="i32", value=3)
    launch = Launch(file="k.ptx", entry="k", grid=(1, 1, 1), block=(threads, 1, 1), args=(*buffers, *scalars))
    options = Options(audit_contraction=False)
    return compare(Source("l", left, launch), Source("r", right, launch), SM90, options).verdict.outcome


@pytest.mark.parametrize("name", LOADED)
def test_loaded_numbers_are_divisors_at_run_time(name: str) -> None:
    assert outcome(kernel(LOADED[name]), kernel(LOADED["a parameter"])) is Outcome.EQUAL
    assert outcome(kernel(LOADED[name]), kernel(LITERAL)) is Outcome.UNPROVED


@pytest.mark.parametrize("name", EVALUATED)
def test_numbers_from_literals_are_evaluated(name: str) -> None:
    assert outcome(kernel(EVALUATED[name]), kernel(LITERAL)) is Outcome.EQUAL
    assert outcome(kernel(EVALUATED[name]), kernel(LOADED["a parameter"])) is Outcome.UNPROVED
    ptxas = Ptxas.locate("sm_90a")
    assert ptxas.digest(kernel(EVALUATED[name])) == ptxas.digest(kernel(LITERAL))


@pytest.mark.parametrize("name", OPEN)
def test_a_number_that_the_assembler_may_know_is_that_of_one_text(name: str) -> None:
    for other in (LITERAL, LOADED["a parameter"], *(each for each in OPEN.values() if each != OPEN[name])):
        assert outcome(kernel(OPEN[name]), kernel(other)) in (Outcome.UNPROVED, Outcome.UNKNOWN)
    assert outcome(kernel(OPEN[name]), kernel(OPEN[name])) is Outcome.EQUAL
    exponential = "ex2.approx.ftz.f32 %r3, %f2;"
    assert outcome(kernel(OPEN[name], exponential), kernel(LITERAL, exponential)) in (Outcome.UNPROVED, Outcome.UNKNOWN)


POWERS = {
    "products with a start": f"mov.f32 %f4, 0f3f800000; mov.u32 %r4, %r9; {LOOP} mul.rn.f32 %f4, %f4, %f3; {AGAIN} sub.rn.f32 %f2, %f4, 0f3f800000;",
    "squares": "mul.rn.f32 %f4, %f3, %f3; mul.rn.f32 %f4, %f4, %f3; sub.rn.f32 %f2, %f4, 0f3f800000;",
    "a choice of a reciprocal": f"mov.f32 %f4, 0f3f800000; mov.u32 %r4, %r9; {LOOP} mul.rn.f32 %f4, %f4, %f3; {AGAIN} setp.lt.s32 %p1, %r9, 0; rcp.rn.f32 %f5, %f4; selp.f32 %f4, %f5, %f4, %p1; sub.rn.f32 %f2, %f4, 0f3f800000;",
}
"""%f2: the number 26, which no literal gives, by a loop that leaves a literal if it ends at once."""


@pytest.mark.parametrize("name", POWERS)
def test_a_number_that_follows_from_no_literal_is_a_divisor_at_run_time(name: str) -> None:
    assert outcome(kernel(POWERS[name]), kernel(POWERS["squares"])) is Outcome.EQUAL
    assert outcome(kernel(POWERS[name]), kernel("mov.f32 %f2, 0f41d00000;")) is Outcome.UNPROVED


def test_a_number_that_differs_between_threads_is_none_that_the_assembler_knows() -> None:
    first = kernel("and.b32 %r4, %r0, 7; add.u32 %r4, %r4, 3; cvt.rn.f32.u32 %f2, %r4;")
    second = kernel("shl.b32 %r4, %r0, 29; shr.u32 %r4, %r4, 29; add.u32 %r4, %r4, 3; cvt.rn.f32.u32 %f2, %r4;")
    assert outcome(first, second) is Outcome.EQUAL


AT_RUN_TIME = "min.s32 %r4, %r9, 32; cvt.rn.f32.s32 %f5, %r4; setp.gt.u32 %p1, %r0, 31;"
"""%f5: a number, 3, that the assembler may know; %p1: some threads."""
OF_BLOCK = {
    "one computation": "mov.f32 %f2, %f5;",
    "a load in some threads": "mov.f32 %f2, %f5; @%p1 ld.global.b32 %r7, [%d1];",
    "a branch that all threads take": "setp.gt.s32 %p2, %r9, 1; @%p2 bra B; mov.f32 %f5, 0f3f800000; B: mov.f32 %f2, %f5;",
}
OF_THREADS = {
    "a choice": f"selp.f32 %f2, {THREE}, %f5, %p1;",
    "a number from a choice": f"selp.f32 %f4, {THREE}, %f5, %p1; add.f32 %f2, %f4, 0f00000000;",
    "a move in some threads": f"mov.f32 %f2, %f5; @%p1 mov.f32 %f2, {THREE};",
    "another move in some threads": f"mov.f32 %f2, %f5; mov.f32 %f6, %f5; @%p1 mov.f32 %f6, {THREE};",
    "a branch": f"mov.f32 %f2, %f5; @%p1 bra B; mov.f32 %f2, {THREE}; B:",
    "a branch around nothing": "mov.f32 %f2, %f5; @%p1 bra B; add.u32 %r7, %r7, 1; B:",
    "a branch on data": "setp.gt.s32 %p2, %r1, 5; mov.f32 %f2, %f5; @%p2 bra B; add.u32 %r7, %r7, 1; B:",
}


def quotient_of_all_threads(divisor: str) -> str:
    """Return a kernel whose threads store the quotient of one loaded number at one place."""
    loads = "ld.param.f32 %f3, [c]; ld.param.s32 %r9, [n]; ld.global.b32 %r1, [%d1];"
    body = f"{loads} {AT_RUN_TIME} {divisor} div.full.f32 %r3, %r1, %f2; st.global.b32 [%d0], %r3;"
    return text(body, threads=64).replace(".param .u64 in)", ".param .u64 in, .param .f32 c, .param .s32 n)")


@pytest.mark.parametrize("name", OF_BLOCK)
def test_threads_with_one_computation_and_the_same_branches_have_one_result(name: str) -> None:
    assert outcome(*[quotient_of_all_threads(OF_BLOCK[name])] * 2, threads=64) is Outcome.EQUAL


@pytest.mark.parametrize("name", OF_THREADS)
def test_threads_that_may_execute_other_copies_have_results_of_their_own(name: str) -> None:
    assert outcome(*[quotient_of_all_threads(OF_THREADS[name])] * 2, threads=64) is Outcome.UNKNOWN
