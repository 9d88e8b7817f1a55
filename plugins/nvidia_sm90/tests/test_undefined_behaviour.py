"""Kernels with undefined results are Unknown.

Each is paired with a kernel of defined result that would have the same expression DAG.
"""

from __future__ import annotations

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
.reqntid {threads}
{{
.reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>;
.shared .align 16 .b8 cells[1024];
ld.param.b64 %rd1, [a]; ld.param.b64 %rd2, [b];
mov.u32 %r1, %tid.x; mov.b32 %r2, cells;
mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
"""


def analysis(body: str, threads: int) -> AnalysisResult:
    launch = Launch.model_validate(
        {"file": "k.ptx", "entry": "k", "grid": [1], "block": [threads], "args": [{"buffer": "a"}, {"buffer": "b"}]}
    )
    text = HEAD.format(threads=threads) + body + "\nret;\n}\n"
    return analyse(
        Source("k.ptx", text, launch), registry.default().arch("sm_90"), buffer_numbers({"a", "b"}), Options()
    )


LAST_READER = """ld.global.b32 %r3, [%rd1]; ld.global.b32 %r4, [%rd1+4];
setp.eq.s32 %p1, %r1, 32;
@%p1 st.shared.b32 [%r2], %r3;
bar.sync 0;
ld.shared.b32 %r5, [%r2];
{between}
@%p1 st.shared.b32 [%r2], %r4;
bar.sync 0;
ld.shared.b32 %r6, [%r2];
add.rn.f32 %r7, %r5, %r6;
st.global.b32 [%rd5], %r7;"""

IN_PLACE = """mov.b32 %r8, 63; sub.s32 %r9, %r8, %r1; mul.wide.u32 %rd6, %r9, 4; add.s64 %rd7, %rd1, %rd6;
ld.global.b32 %r5, [%rd7];
{between}
st.global.b32 [%rd4], %r5; st.global.b32 [%rd5], %r5;"""

COPY = """and.b32 %r8, %r1, 31; shl.b32 %r9, %r8, 4; add.s32 %r10, %r2, %r9;
mul.wide.u32 %rd6, %r8, 16; add.s64 %rd7, %rd1, %rd6;
mov.b32 %r11, {size};
cp.async.cg.shared.global [%r10], [%rd7], 16, %r11;
cp.async.wait_all;
bar.sync 0;
ld.shared.b32 %r6, [%r10];
st.global.b32 [%rd5], %r6;"""


@pytest.mark.parametrize(
    ("body", "threads"),
    [
        (LAST_READER.format(between="bar.sync 0;"), 64),
        (IN_PLACE.format(between="bar.sync 0;"), 64),
        (COPY.format(size=16), 32),
        ("ld.global.b32 %r5, [%rd4+4]; st.global.b32 [%rd5], %r5;", 32),
    ],
    ids=["waits for every reader", "in place with a barrier", "a copy of its whole size", "aligned"],
)
def test_defined_kernels_are_analysed(body: str, threads: int) -> None:
    assert analysis(body, threads).unknown is None


def test_a_warp_overwrites_what_another_warp_may_still_read() -> None:
    assert analysis(LAST_READER.format(between="bar.warp.sync -1;"), 64).signature is None


def test_a_thread_overwrites_global_memory_that_another_may_still_read() -> None:
    assert analysis(IN_PLACE.format(between=""), 64).signature is None


def test_a_copy_with_a_source_size_above_its_size() -> None:
    assert analysis(COPY.format(size=17), 32).signature is None


@pytest.mark.parametrize(
    "body",
    [
        "ld.global.b32 %r5, [%rd4+2]; st.global.b32 [%rd5], %r5;",
        "ld.global.b32 %r5, [%rd4]; mul.wide.u32 %rd6, %r1, 8; add.s64 %rd7, %rd2, %rd6; "
        "st.global.v2.b32 [%rd7+4], {%r5, %r5};",
        COPY.format(size=16).replace("[%rd7]", "[%rd7+4]"),
    ],
    ids=["load", "vector store", "asynchronous copy"],
)
def test_an_unaligned_access(body: str) -> None:
    assert analysis(body, 32).signature is None


def test_a_shuffle_by_threads_outside_its_member_mask() -> None:
    body = "ld.global.b32 %r5, [%rd4]; shfl.sync.bfly.b32 %r6, %r5, 1, 31, 3; st.global.b32 [%rd5], %r6;"
    assert analysis(body, 32).signature is None


def test_a_wait_without_a_retry() -> None:
    body = """setp.eq.s32 %p1, %r1, 0;
@%p1 mbarrier.init.shared.b64 [%r2], 1;
bar.sync 0;
ld.global.b32 %r5, [%rd4];
setp.eq.s32 %p2, %r1, 32;
@%p2 mbarrier.arrive.shared.b64 _, [%r2];
mbarrier.try_wait.parity.shared.b64 %p3, [%r2], 0;
selp.b32 %r6, %r5, 0, %p3;
st.global.b32 [%rd5], %r6;"""
    assert analysis(body, 64).signature is None
