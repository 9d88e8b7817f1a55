"""brx.idx: each thread continues at the label with its index."""

from __future__ import annotations

import pytest

from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.launch import Launch
from bitwise_core.plugins import registry

HEAD = """
.version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 .ptr .global k_param_0, .param .u64 .ptr .global k_param_1)
.reqntid 64
{
  .reg .pred %p<4>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<6>;
  ld.param.b64 %rd1, [k_param_0];
  ld.param.b64 %rd2, [k_param_1];
  mov.u32 %r1, %tid.x;
  mov.u32 %r5, %ctaid.x;
  mad.wide.u32 %rd3, %r1, 4, %rd1;
  mad.wide.u32 %rd4, %r1, 4, %rd2;
  mad.wide.u32 %rd4, %r5, 256, %rd4;
  ld.global.b32 %r2, [%rd3];
"""
TAIL = """
DONE:
  st.global.b32 [%rd4], %r2;
  ret;
}
"""
BRANCHES = """
  TABLE: .branchtargets A, B, DONE, A;
  brx.idx %r3, TABLE;
A:
  add.rn.f32 %r2, %r2, %r2;
  bra DONE;
B:
  mul.rn.f32 %r2, %r2, %r2;
"""
SELECTS = """
  add.rn.f32 %r6, %r2, %r2;
  mul.rn.f32 %r7, %r2, %r2;
  setp.eq.u32 %p1, %r3, 0;
  setp.eq.u32 %p2, %r3, 1;
  setp.eq.u32 %p3, %r3, 3;
  selp.b32 %r2, %r7, %r2, %p2;
  selp.b32 %r2, %r6, %r2, %p1;
  selp.b32 %r2, %r6, %r2, %p3;
"""


def reading(body: str, options: Options | None = None) -> AnalysisResult:
    launch = Launch.model_validate(
        {"file": "k.ptx", "grid": [3], "args": [{"buffer": "X", "dtype": "fp32"}, {"buffer": "Y", "dtype": "fp32"}]}
    )
    source = Source("k.ptx", HEAD + body + TAIL, launch)
    return analyse(source, registry.default().arch("sm_90"), {"X": 1, "Y": 2}, options or Options())


INDICES = {
    "one for all": "mov.b32 %r3, 1;",
    "of each thread": "and.b32 %r3, %r1, 3;",
    "of each block": "mov.b32 %r3, %r5;",
    "of each warp and block": "shr.u32 %r3, %r1, 5; add.s32 %r3, %r3, %r5;",
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_a_branch_by_index_selects_like_comparisons(index: str) -> None:
    found, expected = reading(index + BRANCHES), reading(index + SELECTS)
    assert found.unknown is None
    assert found.signature == expected.signature


def test_other_indices_are_other_kernels() -> None:
    found = {reading(index + BRANCHES).signature for index in INDICES.values()}
    assert len(found) == len(INDICES)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("mov.b32 %r3, %r2;" + BRANCHES, "depends on data"),
        ("mov.b32 %r3, 4;" + BRANCHES, "has no label for its index"),
        ("mov.b32 %r3, 1; setp.eq.u32 %p1, %r1, 0;" + BRANCHES.replace("brx", "@%p1 brx"), "is not modelled"),
    ],
)
def test_what_is_not_followed_is_unknown_with_its_line(body: str, reason: str) -> None:
    found = reading(body)
    assert found.signature is None
    assert found.unknown is not None
    assert reason in found.unknown
    assert "line 21" in found.unknown or "line 22" in found.unknown


def test_a_branch_by_index_is_not_followed_for_every_launch() -> None:
    found = reading("and.b32 %r3, %r1, 3;" + BRANCHES, Options(every_launch=True))
    assert found.signature is None
    assert found.unknown is not None
