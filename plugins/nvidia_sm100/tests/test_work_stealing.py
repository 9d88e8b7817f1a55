"""clusterlaunchcontrol: blocks that take over tiles of others, and what then depends on which tiles they take."""

from __future__ import annotations

import numpy as np
import pytest

import tcgen05_kernels
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.execution.assumptions import WORK_STEALING
from tcgen05_kernels import executed

HEAD = """
.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 .ptr .global .align 16 in, .param .u64 .ptr .global .align 16 out)
.reqntid 32
{
  .reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .b128 %rq<3>;
  .shared .align 16 .b8 room[256];
  ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, room; add.u32 %r4, %r3, 16;
  setp.eq.u32 %p1, %r1, 0; mov.b32 %r5, 0; mov.b32 %r6, 0;
  @%p1 mbarrier.init.shared::cta.b64 [%r4], 1;
  bar.sync 0;
"""
ASK = """
NEXT:
  bar.sync 0;
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 16;
  @%p1 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r3], [%r4];
"""
TILE = """
  mad.lo.u32 %r10, %r2, 32, %r1; mul.wide.u32 %rd3, %r10, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
  ld.global.b32 %r11, [%rd4]; mad.lo.u32 %r11, %r11, 3, %r2; st.global.b32 [%rd5], %r11;
"""
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4], %r5; @!%p2 bra W;"
ANSWER = """
  ld.shared.v2.b64 {%rd6, %rd7}, [room]; fence.proxy.async.shared::cta; mov.b128 %rq1, {%rd6, %rd7};
  clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %rq1;
  clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r2, %rq1;
"""
LOOP = "xor.b32 %r5, %r5, 1; add.u32 %r6, %r6, 1; @%p3 bra NEXT;"
END = "ret; }"


def reading(text: str, blocks: int) -> AnalysisResult:
    return tcgen05_kernels.reading(text, blocks=blocks, assume=frozenset({WORK_STEALING}))


STEALS = HEAD + ASK + TILE + WAIT + ANSWER + LOOP + END
PLAIN = HEAD + TILE + END


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_tiles_have_the_values_of_blocks_of_their_own(blocks: int) -> None:
    found = reading(STEALS, blocks=blocks)
    assert found.unknown is None
    assert found.signature == reading(PLAIN, blocks=blocks).signature
    given = np.arange(32 * blocks, dtype=np.uint32)
    out = executed(STEALS, given.view(np.uint8), 128 * blocks, blocks=blocks)
    assert out.tolist() == (3 * given + given // 32).tolist()


def test_all_coordinates_of_a_block() -> None:
    vector = ANSWER.replace("get_first_ctaid::x.b32.b128 %r2", "get_first_ctaid.v4.b32.b128 {%r2, %r20, %r21, _}")
    assert reading(STEALS.replace(ANSWER, vector), blocks=5).signature == reading(PLAIN, blocks=5).signature


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mad.lo.u32 %r11, %r11, 3, %r2;", "add.u32 %r11, %r11, %r6;"),
        ("mad.lo.u32 %r11, %r11, 3, %r2;", "mov.u32 %r12, %ctaid.x; add.u32 %r11, %r11, %r12;"),
        ("mad.lo.u32 %r11, %r11, 3, %r2;", "add.u32 %r6, %r6, %r11; mov.b32 %r11, %r6;"),
        ("mad.lo.u32 %r11, %r11, 3, %r2;", "max.u32 %r6, %r6, %r11; mov.b32 %r11, %r6;"),
        (LOOP, LOOP.replace("@%p3", "setp.lt.u32 %p3, %r6, 2; @%p3")),
    ],
    ids=["number of tiles", "own block", "sum of tiles", "maximum of tiles", "an answer that is not asked for"],
)
def test_values_that_depend_on_the_distribution_are_unknown(old: str, new: str) -> None:
    assert old in STEALS
    assert reading(STEALS.replace(old, new), blocks=1 + 4 * (old != LOOP)).unknown is not None


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (WAIT, "", "a race"),
        ("fence.proxy.async.shared::cta;", "", "may overtake a load"),
        ("st.global.b32 [%rd5], %r11;", "red.global.add.u32 [%rd5], %r11;", "beside red.global.add.u32"),
        (".reqntid 32", ".reqntid 32\n.explicitcluster\n.reqnctapercluster 2", "a cluster takes over another"),
        ("b128 [%r3], [%r4]", "multicast::cluster.b128 [%r3], [%r4]", "is not modelled"),
        ("xor.b32 %r5, %r5, 1;", "", "hangs|a race"),
    ],
)
def test_what_is_not_modelled_is_unknown(old: str, new: str, reason: str) -> None:
    assert old in STEALS
    unknown = reading(STEALS.replace(old, new), blocks=4).unknown
    assert unknown is not None
    assert any(each in unknown for each in reason.split("|")), unknown


def test_a_block_is_its_own_cluster() -> None:
    of_cluster = STEALS.replace("b128 [%r3], [%r4]", "multicast::cluster::all.b128 [%r3], [%r4]")
    assert reading(of_cluster, blocks=5).signature == reading(PLAIN, blocks=5).signature


def test_the_verdict_says_what_is_assumed() -> None:
    assert any("every other distribution of the tiles" in each for each in reading(STEALS, blocks=4).notes)


def test_without_the_assumption_such_kernels_are_unknown() -> None:
    unknown = tcgen05_kernels.reading(STEALS, blocks=4).unknown
    assert unknown is not None
    assert "--assume work-stealing" in unknown
