"""Records of parts of a set are joined in its order, and only where they were measured alike."""

from __future__ import annotations

import json
from dataclasses import asdict, astuple
from pathlib import Path

import pytest

from bitwise_bench.cublas.problem_sets import Problem
from bitwise_bench.cublas.times.schedule_timing import joined, rows_of

PROBLEMS = [Problem("odd", size, 9, 17, gap=size % 2) for size in range(1, 7)]


def record(folder: Path, name: str, problems: list[Problem], time: float, gpu: str = "one") -> Path:
    rows = [{**asdict(each), "cublas": time, "default": 1.0} for each in problems]
    path = folder / name
    path.write_text(json.dumps({"environment": {"gpu": gpu}, "set": "x", "rounds": 3, "summary": {}, "rows": rows}))
    return path


def test_parts_are_joined_in_the_order_of_the_set(tmp_path: Path) -> None:
    parts = [
        record(tmp_path, "a", PROBLEMS[1::2], 2.0), record(tmp_path, "b", PROBLEMS[::2], 3.0),
        record(tmp_path, "c", PROBLEMS, 4.0),
    ]  # fmt: skip
    head, rows = joined(parts[:2], PROBLEMS)
    assert head == {"environment": {"gpu": "one"}, "set": "x", "rounds": 3}
    assert [(row["m"], row["cublas"]) for row in rows] == [(1, 3.0), (2, 2.0), (3, 3.0), (4, 2.0), (5, 3.0), (6, 2.0)]
    assert [row["cublas"] for row in joined(parts, PROBLEMS)[1]] == [3.0, 2.0] * 3, "the first row counts"
    assert [row["m"] for row in joined(parts[:1], PROBLEMS)[1]] == [2, 4, 6]
    assert [*rows_of(parts[:1])] == [astuple(each) for each in PROBLEMS[1::2]]


def test_rows_without_a_field_have_its_default(tmp_path: Path) -> None:
    path = record(tmp_path, "a", PROBLEMS, 2.0)
    content = json.loads(path.read_text())
    for row in content["rows"]:
        del row["offset"]
    path.write_text(json.dumps(content))
    assert [*rows_of([path])] == [astuple(each) for each in PROBLEMS]


def test_parts_of_several_devices_are_not_joined(tmp_path: Path) -> None:
    parts = [record(tmp_path, name, PROBLEMS, 2.0, gpu=name) for name in "ab"]
    with pytest.raises(ValueError, match="several environments"):
        joined(parts, PROBLEMS)
