"""The table of kernels that keep their bits between two generations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitwise_bench.readings import between_generations as table

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "records" / "bits-sm90-sm100.json"
RECORDS = sorted((ROOT / "records").glob("bits-sm90-*.json"))


def test_the_page_is_that_of_the_records() -> None:
    assert (ROOT / "docs" / "results" / "between-generations.md").read_text() == table.page(
        [json.loads(each.read_text()) for each in RECORDS]
    )


@pytest.mark.parametrize("record", RECORDS, ids=lambda each: str(each.stem))
def test_every_configuration_has_one_of_the_results(record: Path) -> None:
    entries = json.loads(record.read_text())["configurations"]
    assert sum(table.summary(entries).values()) == len(entries)
    assert all(each["draws"] for each in entries if each["result"] == table.DIFFERENT)
    without = (table.CONDITIONAL, table.OPEN, table.UNKNOWN)
    assert all("why" in each for each in entries if each["result"] in without)


@pytest.mark.parametrize(
    ("name", "opcode", "kind"),
    [
        ("gemm_fp8e5/128x128x256", "wgmma.mma_async.sync.aligned.m64n64k32.f32.e5m2.e5m2 {", "fp8 products"),
        ("gemm_bias_relu/fp32-96x64x72", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {", "tf32 products"),
        ("gemm_row_sum/fp32-ieee-64x96x96", "fma.rn.f32 %f1", "products without matrix units"),
        ("inductor_split_k/x", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {", "fp16 and bf16 products"),
        ("gemm_fp16_sum/x", "wgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16 {", "fp16 and bf16 products"),
        ("inductor_softmax/x", "", "softmaxes and losses"),
        ("inductor_pointwise/x", "", "functions, casts and copies"),
        ("narrow_outputs/attention-bf16-32x200--inf", "mma.sync.m16n8k16.row.col.f32.bf16.bf16.f32", "attention"),
        ("scan_tile/x", "", "scans"),
    ],
)  # fmt: skip
def test_every_configuration_has_a_kind(name: str, opcode: str, kind: str) -> None:
    assert table.kind_of(f"{name}/k", f"\t{opcode}\n") == kind
    assert kind in table.KINDS


@pytest.mark.parametrize(
    ("family", "result"),
    [("row_sum", table.EQUAL), ("gemm_fp8e4nv", table.DIFFERENT), ("softmax_row", table.CONDITIONAL)],
)
def test_a_configuration_is_compared_and_executed(family: str, result: str) -> None:
    (name,) = table.chosen_ids(("sm_90", "sm_100"), 1, [family])
    entry = next(each for each in json.loads(RECORD.read_text())["configurations"] if each["id"] == name)
    found = table._job((name, ("sm_90", "sm_100")))
    assert found["result"] == entry["result"] == result
