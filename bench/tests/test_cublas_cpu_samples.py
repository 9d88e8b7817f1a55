from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bitwise_bench.cublas import model_shapes
from bitwise_bench.cublas.row_evidence import query_and_configuration
from bitwise_bench.cublas.samples.cpu_samples import COLUMNS, checked, hashed, main, operands
from bitwise_bench.cublas.times import schedule_timing
from bitwise_core.plugins.installed import evaluate
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.profile import profile
from bitwise_cublas_profiles.query import gemm_query


@pytest.fixture
def sample() -> dict[str, Any]:
    rows: list[list[Any]] = [
        [7, 3, 5, 200, "fp16", "TN", "fp16", 24, 11, 13, 2, 4, 0, 0],
        [8, 1, 70, 300, "bf16", "NN", "bf16", 13, 0, 0, 1, 0, 12, 0],
        [9, 4, 16, 32, "e5m2", "NT", "fp32", 66, 10, 36, 1, 0, 1, 4],
        [10, 4, 16, 32, "fp16", "NN", "fp16", 57, 0, 31, 1, 0, 0, 0],
    ]
    pytest.importorskip("bitwise_nvidia_sm90")
    known = profile("13.1", "9.0")
    for row in rows[:3]:
        line = dict(zip(COLUMNS, [*row, ""], strict=True))
        query, configuration = query_and_configuration(line)
        desc = descriptor_of(query, configuration, known)
        row.append(hashed(evaluate(desc, *operands(query, row[0]))))
    rows[3].append("")
    return {"library": "13.1.0", "capability": "9.0", "columns": list(COLUMNS), "rows": rows}


def test_descriptor_bytes_are_compared_with_the_recorded_ones(sample: dict[str, Any], tmp_path: Path) -> None:
    outcomes = [outcome for _, outcome in checked(sample)]
    assert outcomes[:3] == ["equal"] * 3
    assert "algorithm 57 has no row" in outcomes[3]
    file = tmp_path / "sample.json"
    file.write_text(json.dumps(sample), encoding="utf-8")
    assert main(["check", str(file)]) == 0
    sample["rows"][1][-1] = "0" * 64
    file.write_text(json.dumps(sample), encoding="utf-8")
    assert main(["check", str(file)]) == 1
    assert [outcome for _, outcome in checked(sample)][:3] == ["equal", "different", "equal"]


def test_operands_do_not_depend_on_the_machine() -> None:
    a, b = operands(gemm_query(2, 3, 4, "bf16"), 11)
    assert (a.dtype, b.shape) == (np.uint16, (4, 3))
    assert (hashed(a)[:16], hashed(b)[:16]) == ("53088a8868554395", "2f7c0ce6335c06c5")


def test_shapes_are_spread_over_the_groups_of_layers() -> None:
    chosen = model_shapes.chosen(9)
    assert {group: sum(each[0] == group for each in chosen) for group in model_shapes.TOKENS} == dict.fromkeys(
        model_shapes.TOKENS, 9
    )
    assert len(set(chosen)) == 63
    assert ("mlp up", 256, 33792, 7168) in model_shapes.shapes()


def test_means_of_times_are_geometric_and_by_group() -> None:
    shape = {"m": 8, "n": 16, "k": 16, "layout": "nt", "dtype": "bfloat16"}
    rows = [
        {**shape, "group": "lora", "cublas": 4.0, "default": 2.0, "tuned": 1.0, "ran": 3, "wrong": []},
        {**shape, "group": "lora", "m": 20, "cublas": 4.0, "default": 8.0, "ran": 3, "wrong": ["one"]},
        {**shape, "group": "lm head", "declined": "why"},
        {**shape, "group": "lm head", "failed": "why"},
    ]
    found = schedule_timing.summary(rows)
    default, tuned = found["default"], found["tuned"]
    assert (default["all"], default["groups"], default["problems"]) == (1.0, {"lora": 1.0}, 2)
    assert default["rows"] == {"M <= 16": 2.0, "M <= 64": 0.5}
    assert (default["below 0.9"], default["slowest"][0]) == (1, ["lora", 20, 16, 16, "nt", "bfloat16", 0.5])
    assert (tuned["all"], tuned["problems"]) == (4.0, 1)
    assert (found["schedules that ran"], found["schedules whose bytes differ"]) == (6, 1)
    assert (found["declined"], found["failed"]) == (1, 1)
