"""Counts of kernels without a proxy fence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bitwise_bench.readings.missing_fences import Count, count, main, total
from bitwise_bench.result_tables.pages import missing_fences
from bitwise_core.checker.kernel_files import read_kernel
from bitwise_core.plugins import registry

SAMPLES = Path(__file__).parents[2] / "plugins/nvidia_sm100/tests/samples/sm_100"
FENCE = "fence.proxy.async.shared::cta;"


def test_kernels_without_a_fence_are_counted() -> None:
    fenced, other = (read_kernel(str(SAMPLES / name)) for name in ("gemm/gemm_1.ptx", "row_sum/row_sum_0.ptx"))
    unfenced = replace(fenced, text=fenced.text.replace(FENCE, ""))
    assert unfenced.text != fenced.text
    found = count([fenced, unfenced, other], registry.default().arch("sm_100"))
    assert found == Count(kernels=3, unfenced=1, determined=1)


def test_the_record_keeps_its_other_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {
        "gemm": {"kernels": 3, "unfenced": 2, "determined": 1},
        "sum": {"kernels": 3, "unfenced": 0, "determined": 0},
    }
    monkeypatch.setattr(
        "bitwise_bench.readings.missing_fences.read_families", lambda *_: {"families": counts, "uncompiled": 0}
    )
    out = tmp_path / "record.json"
    for target, version in (("sm_100", "3.9.0"), ("sm_90", "3.6.0"), ("sm_100", "3.6.0"), ("sm_90", "3.6.0")):
        main(["--target", target, "--triton", version, "--folder", str(tmp_path), "--out", str(out)])
    record = json.loads(out.read_text())
    runs = [(run["target"], run["triton"]) for run in record["runs"]]
    assert runs == [("sm_100", "3.6.0"), ("sm_100", "3.9.0"), ("sm_90", "3.6.0")]
    assert total(counts.values()) == Count(6, 2, 1)
    assert "| sm_90, Triton 3.6.0 | 6 | 2 | 1 | 1 of 2 |" in missing_fences(record)
