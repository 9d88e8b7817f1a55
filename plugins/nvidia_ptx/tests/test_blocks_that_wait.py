"""Which kernels read what tells them how far other blocks have come: others are not executed in orders of blocks."""

from __future__ import annotations

import pytest

from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.synchronised_blocks.synchronised_launch import blocks_may_wait
from ptx_programs import ARCH, text

ADD = "mov.b32 %f2, 0; setp.eq.u32 %p1, %r0, 0; @%p1 atom.global.gpu.acq_rel.add.f32 %f2, [%d0], %f1;"
ALONE = {
    "a reduction": "red.global.add.f32 [%d0], %f1;",
    "a sum whose result nothing reads": ADD,
    "a sum into the sink": "atom.global.add.f32 _, [%d0], %f1;",
    "no atomic operation": "ld.global.b32 %r1, [%d1]; st.global.b32 [%d0], %r1;",
}
WAITING = {
    "a sum whose result is stored": ADD + "st.global.f32 [%d1], %f2;",
    "a sum whose result is an operand of its own": "atom.global.add.f32 %f2, [%d0], %f2;",
    "a ticket": "atom.global.add.u32 %r1, [%d0], 1; setp.eq.u32 %p1, %r1, 3; @%p1 st.global.b32 [%d1], %r1;",
    "a flag": "L: ld.acquire.gpu.global.b32 %r1, [%d1]; setp.ne.u32 %p1, %r1, 1; @%p1 bra L;",
    "a volatile load": "ld.volatile.global.b32 %r1, [%d1]; st.global.b32 [%d0], %r1;",
}


def answer(body: str) -> bool:
    arguments = tuple(Argument(kind="buffer", buffer=name) for name in ("out", "in"))
    launch = Launch(file="k.ptx", entry="k", grid=(2, 1, 1), block=(32, 1, 1), args=arguments)
    return blocks_may_wait(prepare_launch(ARCH.parse(text(body), "k.ptx"), ARCH, launch))


@pytest.mark.parametrize("body", ALONE.values(), ids=ALONE)
def test_blocks_that_cannot_wait(body: str) -> None:
    assert not answer(body)


@pytest.mark.parametrize("body", WAITING.values(), ids=WAITING)
def test_blocks_that_may_wait(body: str) -> None:
    assert answer(body)
