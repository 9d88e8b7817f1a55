from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitwise_cublas_profiles.dropped_k import dropped_k
from bitwise_cublas_profiles.query import Configuration

TABLE = json.loads((Path(__file__).parent / "heuristics-sm90-h200-13.1.json").read_text())
NAMES = TABLE["columns"][4:]


def configuration(algorithm: int = 66, stages: int = 35, split_k: int = 1) -> Configuration:
    return Configuration(algorithm, 10, stages, split_k, 2, 0, 1, 0, 4)


@pytest.mark.parametrize(
    ("k", "split_k", "verdict"),
    [
        (8648, 9, "drops 8"),  # GB200 and GB300 with 13.1: 8640 of ones came back
        (8648, 1, "complete"),  # GB300 with 12.8.5
        (8648, 6, "complete"),  # H200 with 13.1
        (11528, 9, "drops 8"),  # H100 with both, H200 with 13.1
        (57608, 9, "drops 8"),  # H200 with 13.1: 57,600 came back
        (57616, 9, "complete"),  # the control: 900 steps, and 16 values over are more than 9 slices
        (57616, 18, "drops 16"),
        (11520, 9, "complete"),
        (64, 2, "complete"),
    ],
)
def test_the_published_shapes(k: int, split_k: int, verdict: str) -> None:
    assert dropped_k(k, configuration(split_k=split_k)).verdict == verdict


def test_the_algorithm_decides_before_the_arithmetic() -> None:
    # 1 x 2 x 1032 on an H100 meets the three clauses and loses nothing: it is a CUTLASS kernel.
    assert dropped_k(1032, configuration(66, split_k=16)).count == 8
    assert dropped_k(1032, configuration(23, split_k=16)).count == 0


def test_a_step_of_128_for_fp8() -> None:
    assert dropped_k(1152 + 16, configuration(stages=36, split_k=3)).count == 0
    assert dropped_k(128 * 17 * 17 + 16, configuration(stages=36, split_k=17)).count == 16


def test_an_unmeasured_step_is_unknown() -> None:
    found = dropped_k(8648, configuration(stages=34, split_k=9))
    assert (found.count, found.verdict) == (None, "unknown")
    assert found.reason == "the k step of STAGES_ID 34 is not measured"
    assert dropped_k(8648, configuration(stages=34, split_k=1)).count == 0


def test_the_reason_says_where_the_slices_end() -> None:
    assert dropped_k(8648, configuration(split_k=9)).reason == (
        "135 steps of 64 and a remainder of 8; 9 slices of 15 steps end at 8640 of 8648"
    )


@given(st.integers(64, 400_000), st.integers(2, 64))
def test_the_published_condition_is_a_division_rounded_down(k: int, split_k: int) -> None:
    whole, over = divmod(k, 64)
    condition = over if over != 0 and whole % split_k == 0 and split_k > over else 0
    slice_length = -(-(k // split_k) // 64) * 64
    assert dropped_k(k, configuration(split_k=split_k)).count == condition == max(0, k - split_k * slice_length)


def test_whole_steps_are_dropped_if_slices_outnumber_the_values_of_a_step() -> None:
    assert dropped_k(274624, configuration(split_k=65)).reason == (
        "4291 steps of 64 and a remainder of 0; 65 slices of 66 steps end at 274560 of 274624"
    )
    assert dropped_k(100 * 64 + 64 + 8, configuration(split_k=100)).count == 72
    assert dropped_k(100 * 64 + 8, configuration(split_k=100)).count == 8
    assert dropped_k(99, configuration(split_k=100)).reason == "100 slices of 99 values are not measured"


@pytest.mark.parametrize("name", ["h200-13.1", "h100-12.8"])
def test_runs_on_ones_match_the_prediction(name: str) -> None:
    path = Path(__file__).parents[3] / "records" / f"cublas-tails-sm90-{name}.json"
    if not path.exists():
        pytest.skip("the records are in the source, not here")
    content = json.loads(path.read_text(encoding="utf-8"))
    found: Counter[bool] = Counter()
    for values in content["rows"]:
        row = dict(zip(content["columns"], values, strict=True))
        query = configuration(row["algorithm"], row["stages"], row["split_k"])
        assert dropped_k(row["k"], query).count == row["lost"]
        found[row["lost"] > 0] += 1
    assert found[True] > 100
    assert found[False] > 400


def test_four_recorded_results_drop_values() -> None:
    lost = []
    for m, n, k, dtype, *values in TABLE["rows"]:
        found = dropped_k(k, Configuration(**dict(zip(NAMES, values, strict=True))))
        assert found.count is not None
        if found.count:
            lost.append((m, n, k, dtype, found.count))
    assert lost == [(4, 512, 11528, "fp16", 8), (2, 512, 11528, "fp16", 8), (16, 512, 11528, "fp16", 8),
                    (4, 512, 11528, "bf16", 8)]  # fmt: skip


def test_the_recorded_results_have_controls() -> None:
    controls = [
        row for row in TABLE["rows"]
        if row[4] != 66 and row[2] % 64 and (row[2] // 64) % row[7] == 0 and row[7] > row[2] % 64
    ]  # fmt: skip
    assert len(controls) == 46
