"""Global memory within one launch: ordered accesses are analysed, races are Unknown."""

from __future__ import annotations

import pytest

from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options, Source, buffer_numbers
from bitwise_core.execution.assumptions import ANY_LANE
from bitwise_core.execution.launch import Launch
from bitwise_core.plugins import registry

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 .ptr .global .align 16 a, .param .u64 .ptr .global .align 16 b)
.reqntid 64
{
.reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>;
ld.param.b64 %rd1, [a]; ld.param.b64 %rd2, [b];
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
setp.eq.s32 %p0, %r1, 0; setp.eq.s32 %p1, %r1, 1; setp.lt.s32 %p2, %r1, 2; setp.eq.s32 %p3, %r1, 32;
mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
mul.wide.u32 %rd6, %r2, 256; add.s64 %rd5, %rd5, %rd6;
ld.global.b32 %r3, [%rd1]; ld.global.b32 %r4, [%rd1+4];
"""
"""Each thread has two loaded numbers; %rd5 is its own address in b; %p0, %p1, %p3 select one thread, %p2 two."""


def analysis(body: str, blocks: int = 1, options: Options | None = None) -> AnalysisResult:
    launch = Launch.model_validate(
        {"file": "k.ptx", "entry": "k", "grid": [blocks], "block": [64], "args": [{"buffer": "a"}, {"buffer": "b"}]}
    )
    text = HEAD + body + "\nret;\n}\n"
    return analyse(
        Source("k.ptx", text, launch),
        registry.default().arch("sm_90"),
        buffer_numbers({"a", "b"}),
        options or Options(),
    )


DEFINED = {
    "two threads store one value": "@%p2 st.global.b32 [%rd2], %r3;",
    "the later store is ordered": "@%p2 st.global.b32 [%rd2], %r3; bar.sync 0; @%p1 st.global.b32 [%rd2], %r4;",
    "read after a barrier": "@%p0 st.global.b32 [%rd2], %r3; bar.sync 0; ld.global.b32 %r5, [%rd2]; "
    "bar.sync 0; st.global.b32 [%rd5], %r5;",
    "read by its writer": "st.global.b32 [%rd5], %r3; ld.global.b32 %r5, [%rd5]; st.global.b32 [%rd5+16384], %r5;",
    "sum at a known address": "red.global.relaxed.gpu.add.u32 [%rd2], %r3;",
    "sum at computed addresses": "and.b32 %r6, %r3, 7; mul.wide.u32 %rd7, %r6, 4; add.s64 %rd8, %rd2, %rd7; "
    "red.global.relaxed.gpu.add.u32 [%rd8], %r4;",
}


@pytest.mark.parametrize("body", DEFINED.values(), ids=DEFINED.keys())
def test_defined_kernels_are_analysed(body: str) -> None:
    assert analysis(body).unknown is None


SUM = "add.rn.f32 %r5, %r3, %r4; "


@pytest.mark.parametrize(
    ("twice", "once"),
    [
        (f"st.global.b32 [%rd5], %r3; {SUM} st.global.b32 [%rd5], %r5;", f"{SUM} st.global.b32 [%rd5], %r5;"),
        (f"{SUM} st.global.b32 [%rd5], %r5; st.global.b32 [%rd5], %r3;", "st.global.b32 [%rd5], %r3;"),
        (
            f"st.global.b32 [%rd5], %r3; {SUM} @%p2 st.global.b32 [%rd5], %r5;",
            f"{SUM} selp.b32 %r6, %r5, %r3, %p2; st.global.b32 [%rd5], %r6;",
        ),
        (f"mov.b32 %r6, 0; st.global.b32 [%rd5], %r6; {SUM} @%p2 st.global.b32 [%rd5], %r5;",
         f"mov.b32 %r6, 0; {SUM} @!%p2 st.global.b32 [%rd5], %r6; @%p2 st.global.b32 [%rd5], %r5;"),
    ],
)  # fmt: skip
def test_an_overwritten_value_does_not_matter(twice: str, once: str) -> None:
    found = analysis(twice)
    assert found.signature is not None
    assert found.signature == analysis(once).signature


SCATTER = DEFINED["sum at computed addresses"]
RACES = {
    "a copy and a sum at one address by two threads": "add.rn.f32 %r5, %r3, %r4; @%p0 st.global.b32 [%rd2], %r3; "
    "@%p1 st.global.b32 [%rd2], %r5;",
    "another store of the same instruction may come later": "@%p2 st.global.b32 [%rd2], %r3; "
    "@%p1 st.global.b32 [%rd2], %r4;",
    "two stores by different threads": "@%p1 ld.global.b32 %r5, [%rd2]; @%p2 st.global.b32 [%rd2], %r3; "
    "@%p1 st.global.b32 [%rd5+4096], %r5;",
    "one thread reads the sum of all": "@%p0 ld.global.b32 %r5, [%rd2]; "
    "red.global.relaxed.gpu.add.u32 [%rd2], %r3; @%p0 st.global.b32 [%rd1+4096], %r5;",
    "read after a sum at computed addresses": f"{SCATTER} ld.global.b32 %r5, [%rd2]; st.global.b32 [%rd1+4096], %r5;",
    "read before a sum at computed addresses": f"ld.global.b32 %r5, [%rd2]; {SCATTER} and.b32 %r5, %r5, 0; "
    "red.global.relaxed.gpu.add.u32 [%rd2], %r5;",
    "gather next to a sum at computed addresses": "and.b32 %r9, %r4, 7; mul.wide.u32 %rd9, %r9, 4; "
    "add.s64 %rd10, %rd2, %rd9; ld.global.b32 %r10, [%rd10]; and.b32 %r6, %r3, 7; mul.wide.u32 %rd7, %r6, 4; "
    "add.s64 %rd8, %rd2, %rd7; red.global.relaxed.gpu.add.u32 [%rd8], %r10;",
}


@pytest.mark.parametrize("body", RACES.values(), ids=RACES.keys())
def test_a_race_is_unknown(body: str) -> None:
    assert analysis(body).signature is None


def test_what_lanes_of_one_warp_leave_is_loaded_and_then_overwritten() -> None:
    body = (
        "selp.b32 %r5, %r3, %r4, %p1; @%p2 st.global.b32 [%rd2], %r5; bar.sync 0; ld.global.b32 %r6, [%rd2]; "
        "bar.sync 0; @%p0 st.global.b32 [%rd2], %r3; st.global.b32 [%rd5+4096], %r6;"
    )
    assert analysis(body).unknown is None
    assert analysis(body, options=Options(assume=frozenset({ANY_LANE}))).signature is None


def test_a_load_after_an_atomic_of_another_block() -> None:
    body = (
        "setp.eq.s32 %p4, %r2, 0; and.pred %p5, %p0, %p4; bar.sync 0; @%p5 ld.global.b32 %r5, [%rd2+64]; "
        "@!%p4 red.global.relaxed.gpu.add.u32 [%rd2+64], %r3; @%p5 st.global.b32 [%rd1+4096], %r5;"
    )
    assert analysis(body, blocks=2).signature is None
    assert analysis(body.replace("[%rd2+64], %r3", "[%rd2+68], %r3"), blocks=2).unknown is None
