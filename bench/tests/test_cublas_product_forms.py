"""Calls of the campaign of product forms: their summary, their seeds, and the record."""

from __future__ import annotations

import json
from pathlib import Path

from bitwise_bench.cublas.product_forms import KINDS, summary

RECORD = Path(__file__).resolve().parents[2] / "records" / "cublas-product-forms-sm90-h100-13.1.json"


def test_outcomes_are_counted_by_kind_and_type() -> None:
    rows = [
        [1, "matrix", "bf16", "equal", [], None], [2, "matrix", "bf16", "equal", [], None],
        [3, "matrix", "bf16", "declined", [], "why"], [4, "row", "fp16", "different", [], None],
        [5, "error", "", "failed", [], "ValueError"],
    ]  # fmt: skip
    assert summary(rows) == {
        "error": {"failed": 1}, "matrix bf16": {"equal": 2, "declined": 1}, "row fp16": {"different": 1},
    }  # fmt: skip


def test_the_record_has_every_kind_and_names_what_differs() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    kinds = {name.split()[0] for run in record["runs"] for name in run["outcomes"]}
    assert kinds == {name for name, _ in KINDS}
    for run in record["runs"]:
        different = sum(each.get("different", 0) for each in run["outcomes"].values())
        assert len(run["different"]) == different
        assert all(call[1] in ("grouped", "vector", "relu", "matrix", "batch") for call in run["different"])
        # The differing groups have scales, and differing vectors are one row of fp32 with another alpha than 1.
        for _, kind, dtype, _, about, _ in run["different"]:
            if kind == "grouped":
                assert dtype.startswith("scaled")
            elif kind in ("vector", "relu"):
                assert (about[0], dtype in ("fp32", "tf32"), about[5] != 1) == (1, True, True)
    for form in record["scaled groups"].values():
        assert all(each["groups"] == each["(acc s_a) s_b"] > each["(acc s_b) s_a"] for each in form.values())
