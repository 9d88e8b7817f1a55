"""A launch is executed in other orders of its blocks only if a block reads what may order them."""

from __future__ import annotations

import pytest

from bitwise_core.checker.analysis import outputs_of_all_blocks
from bitwise_core.checker.sources import Options
from bitwise_core.execution import concrete
from bitwise_core.execution.concrete import PreparedLaunch, prepare_launch
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.races.undetermined import Kind, Nondeterministic
from bitwise_core.execution.synchronised_blocks import synchronised_launch
from ptx_programs import ARCH, text

SUMS = (
    "mov.u32 %r1, %ctaid.x; mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %d1, %d2; add.s64 %d4, %d0, %d2;"
    "ld.global.f32 %f1, [%d3];\n"
    "atom.global.gpu.acq_rel.add.f32 %f2, [%d0], %f1;\natom.global.gpu.acq_rel.add.f32 %f3, [%d0+8], %f1;\n"
)
"""Two sums over the blocks of a launch, whose old values nothing reads."""


def executions(body: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, set[Kind]]:
    """Return how often a launch of three blocks is executed, and why its result is not determined."""
    number = 0
    run = concrete.run_machine

    def counted(prepared: PreparedLaunch, machine: Machine, budget: list[int]) -> None:
        nonlocal number
        number += 1
        run(prepared, machine, budget)

    monkeypatch.setattr(concrete, "run_machine", counted)
    monkeypatch.setattr(synchronised_launch, "run_machine", counted)
    module = ARCH.parse(text(body, threads=1), "k.ptx")
    arguments = tuple(Argument(kind="buffer", buffer=name, dtype="fp32") for name in ("out", "in"))
    own = Launch(file="k.ptx", entry="k", grid=(3, 1, 1), block=(1, 1, 1), args=arguments)
    with pytest.raises(Nondeterministic) as caught:
        outputs_of_all_blocks(prepare_launch(module, ARCH, own), {"out": 1, "in": 2}, Options())
    return number, {each.kind for each in caught.value.causes}


def test_sums_whose_old_values_nothing_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert executions(SUMS, monkeypatch) == (1, {Kind.SUM})


def test_sums_whose_old_values_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    number, kinds = executions(f"{SUMS} st.global.f32 [%d4+64], %f2;", monkeypatch)
    assert number > 1
    assert kinds == {Kind.SUM, Kind.ARRIVAL}
