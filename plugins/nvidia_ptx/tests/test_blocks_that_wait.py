"""Which kernels read what tells them how far other blocks have come; others are named without executions in orders."""

from __future__ import annotations

from typing import Any

import pytest

from bitwise_core.checker import analysis
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.concrete import prepare_launch, run_blocks
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.races.undetermined import Kind
from bitwise_core.execution.synchronised_blocks.synchronised_launch import blocks_may_wait
from bitwise_core.execution.time_limit import TimeLimitExceeded
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


def test_a_cause_is_named_where_the_time_limit_passes_while_its_causes_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = []

    def once(*arguments: Any, **keywords: Any) -> Any:
        runs.append(arguments)
        if len(runs) > 1:
            raise TimeLimitExceeded(60.0)
        return run_blocks(*arguments, **keywords)

    monkeypatch.setattr(analysis, "run_blocks", once)
    body = """
mul.wide.u32 %d2, %r0, 4; xor.b32 %r1, %r0, 1; mul.wide.u32 %d4, %r1, 4; add.s64 %d3, %d0, %d2; add.s64 %d5, %d0, %d4;
st.global.b32 [%d3], %r0; add.s64 %d6, %d1, %d2;
ld.global.b32 %r2, [%d5];
ld.global.b32 %r3, [%d5];
st.global.b32 [%d6], %r2; st.global.b32 [%d6+128], %r3;
"""
    arguments = tuple(Argument(kind="buffer", buffer=name, dtype="u32") for name in ("out", "in"))
    launch = Launch(file="k.ptx", entry="k", grid=(1, 1, 1), block=(32, 1, 1), args=arguments)
    source = Source("k.ptx", text(body), launch)
    found = analysis.analyse(source, ARCH, {"out": 1, "in": 2}, Options(audit_contraction=False))
    assert found.nondeterministic
    assert {each.kind for each in found.places} == {Kind.GLOBAL}
    assert len(runs) > 1
