"""Registers that nothing reads again are forgotten, also within a long run of instructions."""

from __future__ import annotations

import pytest

from bitwise_core.checker.analysis import output_signature, outputs_of_all_blocks
from bitwise_core.checker.sources import Options
from bitwise_core.execution import executor
from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.executor import Executor, LaneGroup
from bitwise_core.execution.launch import Argument, Launch
from ptx_programs import ARCH, text

THREADS, TERMS = 32, 80


def signature(blocks: int) -> bytes:
    """Return the signature of a kernel in which each register is read by the next instruction only."""
    chain = "".join(f"mul.rn.f32 %f{each + 1}, %f{each}, %f{each};" for each in range(TERMS))
    own = "mov.u32 %r1, %ctaid.x; mul.wide.u32 %d2, %r1, 4; add.s64 %d0, %d0, %d2; setp.eq.u32 %p1, %r0, 0;"
    body = f"{own} ld.global.f32 %f0, [%d1]; {chain} @%p1 st.global.f32 [%d0], %f{TERMS};"
    module = ARCH.parse(text(body, threads=THREADS), "k")
    arguments = tuple(Argument(kind="buffer", buffer=name, dtype="fp32") for name in ("out", "in"))
    launch = Launch(file="k.ptx", entry="k", grid=(blocks, 1, 1), block=(THREADS, 1, 1), args=arguments)
    outputs = outputs_of_all_blocks(prepare_launch(module, ARCH, launch), {"out": 1, "in": 2}, Options())
    assert outputs is not None
    return output_signature(outputs)


@pytest.mark.parametrize("blocks", [1, 3])
def test_dead_registers_within_a_run_of_instructions(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = signature(blocks)
    numbers: list[int] = []
    forget = Executor._forget_dead_registers

    def counted(self: Executor, groups: list[LaneGroup]) -> None:
        before = len(self.machine.registers)
        forget(self, groups)
        numbers.append(before - len(self.machine.registers))

    monkeypatch.setattr(Executor, "_forget_dead_registers", counted)
    monkeypatch.setattr(executor, "MAXIMUM_REGISTER_LANES", 16 * blocks * THREADS)
    assert signature(blocks) == expected
    assert sum(numbers) > TERMS // 2
