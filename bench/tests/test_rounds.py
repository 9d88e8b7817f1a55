"""Kernels of many rounds are complete: each is read, and each round of it matters."""

from __future__ import annotations

import pytest

from bitwise_bench.readings.rounds import ROUNDS, TARGET, kernel, main
from bitwise_core.assembly.module import Module
from bitwise_core.plugins import registry


def text(kind: str, rounds: int) -> Module:
    return registry.default().arch(TARGET).parse(kernel(kind, rounds), kind)


@pytest.mark.parametrize("kind", ROUNDS)
def test_a_round_is_read(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rounds", "2", "3", "--kinds", kind]) == 0
    assert capsys.readouterr().out.startswith(f"{kind}: 2 rounds ")


@pytest.mark.parametrize("kind", ROUNDS)
def test_rounds_have_the_same_instructions(kind: str) -> None:
    counts = [len(text(kind, rounds).kernels[0].instructions) for rounds in (1, 2, 3)]
    assert counts[2] - counts[1] == counts[1] - counts[0] >= 2
