# ruff: noqa: E501 - PTX is easier to check without line breaks
"""Kernels whose threads race without an effect are run, and told apart by inputs; those with an effect are not."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core import api
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Argument, Launch
from ptx_programs import text

INPUT = np.array([1e8, 1.0, -1e8, 0.5], dtype=np.float32)
SUM = "shfl.sync.bfly.b32 %r5, %r4, {0}, 31, -1; mov.b32 %f4, %r4; mov.b32 %f5, %r5; add.f32 %f4, %f4, %f5; mov.b32 %r4, %f4;"


def in_place(first: int, second: int) -> str:
    """Return a kernel of which each four lanes sum one row, and all of them load the number to which it is added."""
    return (
        "and.b32 %r1, %r0, 3; shr.u32 %r2, %r0, 2; mul.wide.u32 %d2, %r1, 4; add.s64 %d2, %d1, %d2; ld.global.b32 %r4, [%d2];"
        + SUM.format(first)
        + SUM.format(second)
        + "mul.wide.u32 %d3, %r2, 4; add.s64 %d3, %d0, %d3; ld.global.f32 %f6, [%d3]; add.f32 %f6, %f6, %f4;"
        "setp.ne.b32 %p1, %r1, 0; @%p1 bra END; st.global.f32 [%d3], %f6; END:"
    )


def launch(blocks: int = 1) -> Launch:
    arguments = tuple(Argument(kind="buffer", buffer=name, dtype="fp32") for name in ("out", "in"))
    return Launch(file="k.ptx", entry="k", grid=(blocks, 1, 1), block=(32, 1, 1), args=arguments)


def test_a_sum_in_place_is_run() -> None:
    before = np.arange(8, dtype=np.float32)
    done = api.run(text(in_place(1, 2)), {"out": before, "in": INPUT}, launch(), target="sm_90")
    total = (INPUT[0] + INPUT[1]) + (INPUT[2] + INPUT[3])
    assert done["out"].tobytes() == (before + total).astype(np.float32).tobytes()


def test_kernels_in_place_are_told_apart_by_an_input() -> None:
    verdict = api.compare(text(in_place(1, 2)), text(in_place(2, 1)), launch(), target="sm_90", search_seconds=20)
    assert verdict.outcome is Outcome.DIFFERENT


def test_a_race_with_an_effect_is_not_run() -> None:
    body = "mov.u32 %r1, %ctaid.x; setp.ne.u32 %p2, %r0, 0; @%p2 bra END; st.global.u32 [%d0], %r1; END:"
    with pytest.raises(Unsupported, match="race"):
        api.run(text(body), {"out": np.zeros(8, np.float32), "in": INPUT}, launch(2), target="sm_90")
