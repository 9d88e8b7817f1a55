# ruff: noqa: E501 - PTX is easier to check without line breaks
"""Accesses to global memory that nothing orders: of tensor copies, whoever issues them, and of loads that are not coherent."""

from __future__ import annotations

import pytest

from bitwise_core.checker.comparison import compare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome, Verdict
from bitwise_core.execution.concrete import checked_outputs, prepare_launch, run_blocks
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_nvidia_sm90.architecture import SM90
from cluster_kernels import launch, text

START = """
mov.u32 %r10, room; add.u32 %r15, %r10, 2048; mad.lo.u32 %r11, %r0, 4, %r10; mov.b64 %d12, map; mul.lo.u32 %r18, %r2, 32;
setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p3, %r2, 0; setp.eq.u32 %p5, %r0, 5; and.pred %p4, %p1, %p3; mov.b32 %r30, 77;
@%p1 mbarrier.init.shared::cta.b64 [%r15], 1; bar.sync 0;
"""
"""%p1: the issuing thread, %p3: the first block, %p4: the first thread of all, %p5: another thread."""
LOAD = """
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r15], 128;
@%p1 cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r10], [%d12, {%r18}], [%r15];
"""
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r15], 0; @!%p2 bra W; ld.shared.b32 %r21, [%r11];"
OUT = "st.global.b32 [%d9], %r21;"
BEFORE_STORE = "fence.proxy.async.shared::cta; bar.sync 0;"
STORE = f"""
ld.global.b32 %r21, [%d8]; add.u32 %r22, %r21, 1; st.shared.b32 [%r11], %r22; {BEFORE_STORE}
@%p1 cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%d12, {{%r18}}], [%r10]; @%p1 cp.async.bulk.commit_group;
"""
READ = "@%p1 cp.async.bulk.wait_group.read 0; bar.sync 0;"
CHANGED = "@{} st.global.b32 [%d8], %r30;"
RETURNED = f"bar.sync 0; st.shared.b32 [%r11], %r21; {BEFORE_STORE}" + STORE[STORE.index("@%p1") :]

HALF_WAITS = """
setp.lt.u32 %p6, %r0, 16; @!%p6 bra N;
V: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r15], 0; @!%p2 bra V;
N: bar.warp.sync -1;
"""
OTHER_LOAD = """
add.u32 %r16, %r10, 2056; add.u32 %r17, %r10, 256; @%p1 mbarrier.init.shared::cta.b64 [%r16], 1; bar.sync 0;
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r16], 128;
@%p1 cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r17], [%d12, {%r18}], [%r16];
"""
OTHER_WAIT = "V: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r16], 0; @!%p2 bra V;"
OVERWRITTEN = f"st.shared.b32 [%r11], %r30; {BEFORE_STORE}" + STORE[STORE.index("@%p1") :]

NEXT = "xor.b32 %r31, %r0, 1; mad.lo.u32 %r31, %r2, 32, %r31; mul.wide.u32 %d20, %r31, 4; add.s64 %d21, %d1, %d20;"
"""%d21: the element of the next thread."""

RACES = {
    "the first thread of all stores what another block copies": START + "@%p4 st.global.b32 [%d1+128], %r30;" + LOAD + WAIT + OUT,
    "the issuing thread stores before the copy": START + CHANGED.format("%p1") + LOAD + WAIT + OUT,
    "a thread stores before a barrier and the copy": START + CHANGED.format("%p5") + "bar.sync 0;" + LOAD + WAIT + OUT,
    "the issuing thread stores while the copy is made": START + LOAD + CHANGED.format("%p1") + WAIT + OUT,
    "a thread stores after a barrier, before the wait": START + LOAD + "bar.sync 0;" + CHANGED.format("%p5") + WAIT + OUT,
    "a thread stores many times after a barrier": START + LOAD + "bar.sync 0; and.pred %p6, %p3, %p5; mov.b64 %d22, {%r30, %r30};" + "@%p6 st.global.b64 [%d1+64], %d22;" * 16 + WAIT + OUT,
    "a thread stores behind a wait of its half of the block": START + LOAD + HALF_WAITS + CHANGED.format("%p5") + WAIT + OUT,
    "a thread stores behind a wait for another copy": START + OTHER_LOAD + LOAD + OTHER_WAIT + "bar.sync 0;" + CHANGED.format("%p5") + WAIT + OUT,
    "another block stores behind its wait": START + LOAD + WAIT + "bar.sync 0; @%p4 st.global.b32 [%d1+128], %r30;" + OUT,
    "a copy of another content back, without a wait": START + LOAD + "bar.sync 0;" + OVERWRITTEN.replace("[%r11]", "[%r11+512]").replace("[%r10]", "[%r10+512]") + WAIT + "st.global.b32 [%d9], %r21;",
    "the issuing thread loads after a copy to global memory": START + STORE + "@%p1 ld.global.b32 %r21, [%d8];" + OUT,
    "a thread loads after the copy has read": START + STORE + READ + "@%p5 ld.global.b32 %r21, [%d8];" + OUT,
    "the issuing thread stores after the copy": START + STORE + CHANGED.format("%p1"),
    "the issuing thread stores before its copy": START + CHANGED.format("%p1") + STORE.replace("[%d8]", "[%d9]"),
    "two copies to one place": START + STORE + READ + f"st.shared.b32 [%r11], %r30; {BEFORE_STORE}" + STORE[STORE.index("@%p1") :],
    "two copies to one place, far apart": START + STORE + READ + "bar.sync 0;" * 3 + f"st.shared.b32 [%r11], %r30; {BEFORE_STORE}" + STORE[STORE.index("@%p1") :],
    "a load that is not coherent after the own store": "st.global.b32 [%d8], %r1; ld.global.nc.b32 %r21, [%d8];" + OUT,
    "a load that is not coherent after a barrier": NEXT + "st.global.b32 [%d8], %r1; bar.sync 0; ld.global.nc.b32 %r21, [%d21];" + OUT,
    "a load that is not coherent before a store": NEXT + "ld.global.nc.b32 %r21, [%d21]; bar.sync 0; st.global.b32 [%d8], %r1;" + OUT,
}  # fmt: skip
ORDERED = {
    "a copy": START + LOAD + WAIT + OUT,
    "a copy to global memory of what was loaded before a barrier": START + STORE,
    "two copies of one content": START + STORE + READ + STORE[STORE.index("@%p1") :],
    "a copy back": START + LOAD + WAIT + "add.u32 %r21, %r21, 1;" + RETURNED,
    "a copy back of sums": START + LOAD + WAIT + "ld.shared.b32 %r22, [%r10+16]; add.u32 %r21, %r21, %r22;" + RETURNED,
    "a store of what was copied": START + LOAD + WAIT + "st.global.b32 [%d8], %r21;",
    "a store of another content behind a wait and a barrier": START + LOAD + WAIT + "bar.sync 0;" + CHANGED.format("%p5") + OUT,
    "a copy of another content back, behind a wait and a barrier": START + LOAD + WAIT + OUT + "bar.sync 0;" + OVERWRITTEN,
    "a coherent load": NEXT + "st.global.b32 [%d8], %r1; bar.sync 0; ld.global.b32 %r21, [%d21];" + OUT,
    "a store that depends on a load that is not coherent": "ld.global.nc.b32 %r21, [%d8]; add.u32 %r21, %r21, 1;\nst.global.b32 [%d8], %r21;",
    "a load of another element that is not coherent": "ld.global.nc.b32 %r21, [%d8];" + OUT,
    "a store that depends on what was copied": START + LOAD + WAIT + "add.u32 %r21, %r21, 1; st.global.b32 [%d8], %r21;",
}  # fmt: skip


def compared_with_itself(body: str) -> Verdict:
    sources = [Source(name, text(body), launch((4,), name=name)) for name in ("a.ptx", "b.ptx")]
    return compare(*sources, SM90, Options(audit_contraction=False)).verdict


@pytest.mark.parametrize("body", RACES.values(), ids=RACES)
def test_accesses_that_nothing_orders(body: str) -> None:
    assert "not determined" in compared_with_itself(body).reason
    prepared = prepare_launch(SM90.parse(text(body), "k.ptx"), SM90, launch((4,)))
    # As one of the blocks of a large grid, where a race ends the run.
    with pytest.raises(Unsupported, match=r"race|reads global memory that another"):
        checked_outputs(*run_blocks(prepared, TermDomain(), {"in": 1, "out": 2}))


@pytest.mark.parametrize("body", ORDERED.values(), ids=ORDERED)
def test_accesses_that_are_ordered(body: str) -> None:
    assert compared_with_itself(body).outcome is Outcome.EQUAL
