"""Rows computed by several processes; each imports this module."""

from __future__ import annotations

import os
from typing import Any

import pytest

from bitwise_bench.cublas.settings_parity import KINDS, merged
from bitwise_bench.cublas.worker_processes import run_workers, visible_devices


def counted(start: int, step: int, deadline: float, given: Any) -> Any:
    if start == given:
        raise ValueError("no GPU")
    return ([number] for number in range(start, 10, step))


def test_rows_of_several_processes_are_collected() -> None:
    rows, died = run_workers(counted, 2, 60, None)
    assert (sorted(rows), died) == ([[number] for number in range(10)], [])
    rows, died = run_workers(counted, 2, 60, 1)
    assert (sorted(rows), died) == ([[0], [2], [4], [6], [8]], ["ValueError: no GPU"])


def with_device(start: int, step: int, deadline: float, given: Any) -> Any:
    return [[start, step, os.environ["CUDA_VISIBLE_DEVICES"]]]


def test_every_gpu_has_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert visible_devices() == ["3", "5"]
    rows, died = run_workers(with_device, 2, 60, None)
    assert (sorted(rows), died) == ([[0, 4, "3"], [1, 4, "5"], [2, 4, "3"], [3, 4, "5"]], [])


def test_the_counts_of_a_settings_processes_are_added() -> None:
    one = {"counts": {kind: {"equal": 2, "changed": 0} for kind in KINDS}, "different": [[1]], "gpu": "a"}
    other = {"counts": {kind: {"equal": 1, "declined": 3} for kind in KINDS}, "different": [[2]], "gpu": "a"}
    assert merged([one, other]) == {
        "counts": {kind: {"equal": 3, "changed": 0, "declined": 3} for kind in KINDS}, "different": [[1], [2]],
        "gpu": "a",
    }  # fmt: skip
    assert merged([one, {"failed": "why"}]) == {"failed": "why"}
