"""The cases of fused epilogues, their summary, and the record."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from bitwise_bench.cublas.model_shapes import MODELS
from bitwise_bench.cublas.problem_sets import SETS
from bitwise_bench.cublas.times.fused_epilogues import EPILOGUES, PARTS, TOKENS, published, summary, write

RECORD = Path(__file__).resolve().parents[2] / "records" / "cublas-epilogues-sm90-h100.json"


def test_there_are_96_cases_with_every_epilogue_and_model() -> None:
    cases = published()
    assert len(set(cases)) == 96
    assert Counter(each.epilogue for each in cases) == dict.fromkeys(EPILOGUES, 16)
    assert Counter(each.model for each in cases) == dict.fromkeys((each.name for each in MODELS), 6)
    assert {each.m for each in cases} == set(TOKENS)


def test_held_out_cases_are_others() -> None:
    known = {(each.m, each.n, each.k) for each in published()}
    cases = PARTS["held-out"]()
    assert len(set(cases)) == 48
    assert not known & {(each.m, each.n, each.k) for each in cases}
    assert cases == PARTS["held-out"]()
    assert not {*cases} & {*PARTS["tuning"]()}
    fitted = {(each.n, each.k) for name, make in SETS.items() if "held-out" not in name for each in make()}
    for name in ("models", "held-out", "tuning", "second-tuning", "second-held-out"):
        fitted |= {(each.n, each.k) for each in PARTS[name]()}
    assert not fitted & {(each.n, each.k) for each in PARTS["third-held-out"]()}
    fitted |= {(each.n, each.k) for name in ("third-held-out", "third-tuning") for each in PARTS[name]()}
    assert not fitted & {(each.n, each.k) for each in PARTS["fourth-held-out"]()}
    fitted |= {(each.n, each.k) for each in PARTS["fourth-held-out"]()}
    assert not fitted & {(each.n, each.k) for each in PARTS["fifth-held-out"]()}


def row(epilogue: str, sequence: float, ours: float, **fields: object) -> dict[str, object]:
    given = {"m": 1, "n": 8, "k": 8, "dtype": "bfloat16", "equal": True, "fused": True}
    return {**given, "epilogue": epilogue, "sequence": sequence, "ours": ours, **fields}


def test_a_summary_counts_and_averages() -> None:
    rows = [
        row("residual", 8.0, 2.0, library=4.0), row("residual", 2.0, 2.0), row("to fp8", 3.0, 4.0, equal=False),
        {"epilogue": "to fp8", "failed": "an error"},
    ]  # fmt: skip
    found = summary(rows)
    assert (found["cases"], found["failed"], found["other bytes"], found["fused"]) == (4, 1, 1, 3)
    assert found["ours"] == {
        "mean": 1.442, "cases": 3, "below 1": 1, "least": 0.75,
        "epilogues": {"residual": 2.0, "to fp8": 0.75},
    }  # fmt: skip
    assert found["library"]["mean"] == 2.0
    assert "compiled" not in found
    assert found["slowest"][0][0] == "to fp8"


def test_a_record_is_read_back(tmp_path: Path) -> None:
    rows = [row("residual", 8.0, 2.0)]
    result = {"environment": {"gpu": "none"}, "parts": {"models": {"summary": summary(rows), "rows": rows}}}
    write(tmp_path / "record.json", result)
    assert json.loads((tmp_path / "record.json").read_text()) == result


def test_the_recorded_cases_are_these_and_all_bytes_are_equal() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    for name, make in (("models", published), ("held-out", PARTS["held-out"])):
        part = record["parts"][name]
        fields = ("epilogue", "model", "m", "n", "k", "dtype")
        assert [tuple(each[field] for field in fields) for each in part["rows"]] == [
            tuple(getattr(each, field) for field in fields) for each in make()
        ]
        assert all(each["equal"] for each in part["rows"])
        assert part["summary"] == {**summary(part["rows"]), "not reached": 0}
