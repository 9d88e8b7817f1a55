"""The public functions of `bitwise_core`: their static types, and their results on kernels of toy1."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import numpy as np

import bitwise_core as bitwise
from test_across_architectures import COPIED_TOY, TOY

LAUNCH: dict[str, Any] = {
    "entry": "add",
    "grid": [1],
    "block": [8],
    "args": [{"buffer": name, "dtype": "fp32"} for name in "xyz"],
}
SWAPPED = TOY.replace("fma.f r1, r1, r2, r2", "fma.f r1, r2, r1, r2")


def test_kernels_are_compared() -> None:
    found = assert_type(bitwise.compare(TOY, SWAPPED, LAUNCH, audit_contraction=False), bitwise.Verdict)
    assert assert_type(found.outcome, bitwise.Outcome) is bitwise.Outcome.EQUAL
    copied = bitwise.compare(TOY, COPIED_TOY, LAUNCH, audit_contraction=False)
    assert copied.outcome is bitwise.Outcome.DIFFERENT
    assert assert_type(copied.counterexample, bitwise.Counterexample | None) is not None
    assert assert_type(copied.divergence, bitwise.Divergence | None) is not None


def test_kernels_are_partitioned(tmp_path: Path) -> None:
    found = assert_type(
        bitwise.partition([TOY, SWAPPED, COPIED_TOY], LAUNCH, audit_contraction=False, workers=1), bitwise.Partition
    )
    assert assert_type(found.classes, tuple[tuple[str, ...], ...]) == (("kernel 1", "kernel 2"), ("kernel 3",))


def test_a_kernel_is_run() -> None:
    numbers = np.arange(8, dtype=np.float32)
    buffers = {"x": numbers, "y": numbers + 1, "z": np.zeros(8, np.float32)}
    found = assert_type(bitwise.run(TOY, buffers, LAUNCH, audit_contraction=False), bitwise.RunResult)
    assert found["z"].tolist() == (numbers * (numbers + 1) + numbers + 1).tolist()
    assert repr(found) == "RunResult(x: float32 (8,); y: float32 (8,); z: float32 (8,))"


def test_the_version_is_text() -> None:
    assert assert_type(bitwise.__version__, str)
