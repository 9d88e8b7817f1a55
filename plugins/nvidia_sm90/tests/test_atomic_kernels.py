"""Atomic operations: those whose order cannot matter are analysed, those whose order may matter are Unknown."""

from __future__ import annotations

import itertools

import pytest

from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options, Source, buffer_numbers
from bitwise_core.execution.launch import Launch
from bitwise_core.plugins import registry

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 .ptr .global .align 16 a, .param .u64 .ptr .global .align 16 b)
.reqntid 32
{
.reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>;
ld.param.b64 %rd1, [a]; ld.param.b64 %rd2, [b];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 8; add.s64 %rd4, %rd1, %rd3;
ld.global.v2.b32 {%r3, %r4}, [%rd4];
and.b32 %r5, %r4, 7; mul.wide.u32 %rd5, %r5, 4; add.s64 %rd6, %rd2, %rd5;
"""


def analysis(body: str) -> AnalysisResult:
    launch = Launch.model_validate(
        {"file": "k.ptx", "entry": "k", "grid": [2], "block": [32], "args": [{"buffer": "a"}, {"buffer": "b"}]}
    )
    text = HEAD + body + "\nret;\n}\n"
    return analyse(
        Source("k.ptx", text, launch), registry.default().arch("sm_90"), buffer_numbers({"a", "b"}), Options()
    )


MAXIMUM = """setp.gt.s32 %p1, %r3, -1; setp.lt.s32 %p2, %r3, 0;
@%p1 red.global.relaxed.gpu.max.s32 [%rd6], %r3;
@%p2 red.global.relaxed.gpu.min.u32 [%rd6], %r3;"""
MINIMUM = MAXIMUM.replace("max", "MAX").replace("min.u32", "max.u32").replace("MAX.s32", "min.s32")


def as_number(bits: int) -> int:
    """Return the rank of a bit pattern in the order of sign and magnitude."""
    return bits if bits < 1 << 31 else (1 << 31) - 1 - bits


PATTERNS = (
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000,
    0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF,
)  # fmt: skip


def signed(bits: int) -> int:
    return bits - (1 << 32) if bits >> 31 else bits


@pytest.mark.parametrize("sign", [1, -1], ids=["largest", "least"])
def test_both_halves_by_sign_compute_one_extremum(sign: int) -> None:
    pick = max if sign > 0 else min
    other = min if sign > 0 else max

    def after(memory: int, value: int) -> int:
        return other(memory, value) if value >> 31 else pick(memory, value, key=signed)

    for memory, value in itertools.product(PATTERNS, repeat=2):
        assert after(memory, value) == pick(memory, value, key=as_number)
    # Without the conditions the order matters: the half for patterns with a sign bit, applied to one without.
    memory, one, two = 0x40000000, 0x00000001, 0x7F800000
    if sign < 0:
        one, two = two, one
    assert other(pick(memory, two, key=signed), one) != pick(other(memory, one), two, key=signed)


def test_an_atomic_extremum_of_floats_is_analysed() -> None:
    for text in (MAXIMUM, MINIMUM):
        found = analysis(text)
        assert found.unknown is None
        first, *halves = text.splitlines()
        assert found.signature == analysis("\n".join([first, *reversed(halves)])).signature
    assert analysis(MAXIMUM).signature != analysis(MINIMUM).signature


@pytest.mark.parametrize(
    "text",
    [
        MAXIMUM.replace("setp.gt.s32 %p1, %r3, -1", "setp.gt.s32 %p1, %r3, -1\n; not.pred %p3, %p2; not.pred %p2, %p1"),
        MAXIMUM.replace("setp.gt.s32 %p1, %r3, -1", "setp.ge.s32 %p1, %r3, 0"),
        MAXIMUM.replace("setp.lt.s32 %p2, %r3, 0", "setp.le.s32 %p2, %r3, -1"),
        MAXIMUM.replace("setp.lt.s32 %p2, %r3, 0", "not.pred %p2, %p1"),
        MAXIMUM.replace(
            "setp.lt.s32 %p2, %r3, 0;",
            "selp.b32 %r7, 1, 0, %p1; shfl.sync.bfly.b32 %r8, %r7, 0, 31, -1; and.b32 %r9, %r8, 1; "
            "setp.ne.b32 %p1, %r9, 0; setp.lt.s32 %p2, %r3, 0;",
        ),
    ],
    ids=["twice", "greater or equal", "less or equal", "negation", "through a shuffle"],
)
def test_equivalent_conditions_by_sign(text: str) -> None:
    assert analysis(text).signature == analysis(MAXIMUM).signature


@pytest.mark.parametrize(
    "text",
    [
        MAXIMUM.replace("-1;", "-2;"),
        MAXIMUM.replace("%r3, 0;", "%r3, 1;"),
        MAXIMUM.replace("@%p1", ""),
        MAXIMUM.replace("@%p2", ""),
        MAXIMUM.replace("@%p1", "@!%p1"),
        MAXIMUM.replace("@%p2", "@%p1"),
        MAXIMUM.replace("setp.gt.s32 %p1, %r3", "setp.gt.s32 %p1, %r4"),
        MAXIMUM.replace("min.u32", "min.s32"),
        MAXIMUM.replace("min.u32", "max.u32"),
        MAXIMUM.replace("min.u32 [%rd6], %r3", "min.u32 [%rd6], %r4"),
        MAXIMUM.replace("red.global.relaxed.gpu.min.u32 [%rd6]", "red.global.relaxed.gpu.add.u32 [%rd6]"),
    ],
)
def test_other_conditions_are_nondeterministic(text: str) -> None:
    assert analysis(text).signature is None


def test_one_half_alone_is_a_different_kernel() -> None:
    halves = [analysis("\n".join([MAXIMUM.splitlines()[0], line])) for line in MAXIMUM.splitlines()[1:]]
    assert all(each.unknown is None for each in halves)
    assert len({each.signature for each in (*halves, analysis(MAXIMUM))}) == 3


def test_the_result_of_an_atomic_operation_depends_on_the_order() -> None:
    body = "atom.global.relaxed.gpu.add.u32 %r6, [%rd2], %r3; "
    assert analysis("red.global.relaxed.gpu.add.u32 [%rd2], %r3;").unknown is None
    assert analysis(body + "st.global.b32 [%rd4+4096], %r6;").nondeterministic


def test_an_atomic_sum_of_floats_at_computed_addresses_is_nondeterministic() -> None:
    assert analysis("red.global.relaxed.gpu.add.f32 [%rd6], %r3;").nondeterministic
    assert analysis("red.global.relaxed.gpu.add.u32 [%rd6], %r3;").unknown is None
