"""Rows computed by several processes; each imports this module."""

from __future__ import annotations

from typing import Any

from bitwise_bench.cublas.worker_processes import run_workers


def counted(start: int, step: int, deadline: float, given: Any) -> Any:
    if start == given:
        raise ValueError("no GPU")
    return ([number] for number in range(start, 10, step))


def test_rows_of_several_processes_are_collected() -> None:
    rows, died = run_workers(counted, 2, 60, None)
    assert (sorted(rows), died) == ([[number] for number in range(10)], [])
    rows, died = run_workers(counted, 2, 60, 1)
    assert (sorted(rows), died) == ([[0], [2], [4], [6], [8]], ["ValueError: no GPU"])
