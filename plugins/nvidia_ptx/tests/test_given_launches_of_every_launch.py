# ruff: noqa: E501 - a line of PTX is read as one
"""Verdicts for every launch of kernels that are given a launch that does not fulfil an assumption."""

from __future__ import annotations

import pytest

from bitwise_core.checker import analysis
from bitwise_core.checker.analysis import GIVEN_LAUNCH_TOO
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome, Verdict
from bitwise_core.execution.launch import Argument, Launch
from bitwise_nvidia_sm90.architecture import SM90

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 .ptr .global .align 16 out, .param .u64 .ptr .global .align 16 in, .param .u64 .ptr .global .align 16 other) .reqntid 32
{ .reg .b32 %r<30>; .reg .b64 %d<30>;
ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; ld.param.u64 %d9, [other]; mov.u32 %r0, %tid.x; mov.u32 %r8, %ctaid.x;
mad.lo.s32 %r7, %r8, 32, %r0; mul.wide.s32 %d2, %r7, 8; add.s64 %d3, %d0, %d2; add.s64 %d4, %d1, %d2; add.s64 %d5, %d9, %d2;
ld.global.b32 %r1, [%d4]; ld.global.b32 %r5, [%d5]; add.u32 %r6, %r1, %r5;
"""
STORE = "st.global.b32 [%d3], %r6;"
AGAIN = f"{STORE} ld.global.b32 %r2, [%d4]; st.global.b32 [%d3+4], %r2; ret; }}"
"""The input is loaded again after the store."""
KEPT = f"{STORE} st.global.b32 [%d3+4], %r1; ret; }}"
BEFORE = "ld.global.b32 %r2, [%d4]; st.global.b32 [%d3+4], %r2; st.global.b32 [%d3], %r6; ret; }"


def verdict(left: str, right: str, *buffers: str, blocks: int = 2) -> Verdict:
    arguments = tuple(Argument(kind="buffer", buffer=each, dtype="u32") for each in buffers)
    launch = Launch(file="k.ptx", entry="k", grid=(blocks, 1, 1), block=(32, 1, 1), args=arguments)
    sources = Source("l", HEAD + left, launch), Source("r", HEAD + right, launch)
    return compare(*sources, SM90, Options(every_launch=True, audit_contraction=False)).verdict


@pytest.mark.parametrize("buffers", [("x", "x", "y"), ("x", "x", "x")])
def test_what_a_load_finds_after_a_store_to_its_buffer_is_compared_in_that_launch(buffers: tuple[str, ...]) -> None:
    assert verdict(AGAIN, KEPT, *buffers).outcome is Outcome.UNPROVED
    found = verdict(BEFORE, KEPT, *buffers)
    assert found.outcome is Outcome.EQUAL
    assert GIVEN_LAUNCH_TOO in found.notes


@pytest.mark.parametrize("buffers", [("x", "y", "z"), ("x", "y", "y")])
def test_buffers_that_are_only_read_may_be_one(buffers: tuple[str, ...]) -> None:
    for text in (AGAIN, BEFORE):
        found = verdict(text, KEPT, *buffers)
        assert found.outcome is Outcome.EQUAL
        assert GIVEN_LAUNCH_TOO not in found.notes


def test_only_the_text_is_compared_where_the_launch_is_not_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "MAXIMUM_LANES", 32)
    found = verdict(BEFORE, KEPT, "x", "x", "y")
    assert found.outcome is Outcome.UNKNOWN
    assert "two pointers of the launch address one buffer" in found.reason
    assert verdict(KEPT, KEPT.replace("%r1;", "%r1 ;"), "x", "x", "y").outcome is Outcome.EQUAL


SIZED = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 .ptr .global .align 16 out, .param .u64 .ptr .global .align 16 in, .param .u32 n) .reqntid 32
{ .reg .b32 %r<30>; .reg .b64 %d<30>;
ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; ld.param.u32 %r2, [n]; mov.u32 %r0, %tid.x; mov.u32 %r8, %ctaid.x;
mad.lo.s32 %r6, %r8, 32, %r0; mul.wide.s32 %d2, %r6, 8; add.s64 %d2, %d1, %d2; ld.global.b32 %r10, [%d2]; ld.global.b32 %r11, [%d2+4];
mul.wide.s32 %d3, %r6, 4; add.s64 %d3, %d0, %d3; mul.wide.s32 %d5, %r2, 4; add.s64 %d6, %d3, %d5;
"""
FIRST, SECOND = "st.global.b32 [%d3], %r10;", "st.global.b32 [%d6], %r11;"


@pytest.mark.parametrize(("size", "outcome"), [(0, Outcome.UNPROVED), (64, Outcome.EQUAL), (100, Outcome.EQUAL)])
def test_stores_at_different_indices_are_compared_where_they_meet_in_the_given_launch(
    size: int, outcome: Outcome
) -> None:
    arguments = (
        *(Argument(kind="buffer", buffer=each, dtype="u32") for each in ("a", "b")),
        Argument(kind="i32", value=size),
    )
    launch = Launch(file="k.ptx", entry="k", grid=(2, 1, 1), block=(32, 1, 1), args=arguments)
    left, right = (Source("k", f"{SIZED} {stores} ret; }}", launch) for stores in (FIRST + SECOND, SECOND + FIRST))
    assert compare(left, right, SM90, Options(every_launch=True, audit_contraction=False)).verdict.outcome is outcome


WIDENED = "mul.wide.{0}32 %d7, %r2, 4; shr.u64 %d7, %d7, 32; cvt.u32.u64 %r12, %d7; add.u32 %r10, %r10, %r12; st.global.b32 [%d3], %r10; ret; }}"


@pytest.mark.parametrize(("size", "outcome"), [(5, Outcome.EQUAL), (-5, Outcome.UNPROVED)])
def test_a_negative_argument_that_is_widened_is_compared_in_the_given_launch(size: int, outcome: Outcome) -> None:
    arguments = (
        *(Argument(kind="buffer", buffer=each, dtype="u32") for each in ("a", "b")),
        Argument(kind="i32", value=size),
    )
    launch = Launch(file="k.ptx", entry="k", grid=(2, 1, 1), block=(32, 1, 1), args=arguments)
    left, right = (Source("k", SIZED + WIDENED.format(sign), launch) for sign in "su")
    assert compare(left, right, SM90, Options(every_launch=True, audit_contraction=False)).verdict.outcome is outcome
