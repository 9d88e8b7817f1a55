from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from bitwise_bench.cublas import audit_records, model_shapes
from bitwise_cublas_profiles import report
from bitwise_cublas_profiles.audit import audit, read_shapes
from bitwise_cublas_profiles.query import Configuration, CublasError, GemmQuery, HeuristicResult, gemm_query


class Recorded:
    """A library whose results come from a table of split counts by k."""

    def __init__(self, splits: Mapping[int, int]) -> None:
        self.splits = splits

    def heuristic(self, query: GemmQuery, count: int = 1) -> tuple[HeuristicResult, ...]:
        if query.k not in self.splits:
            raise CublasError(f"no algorithm for {query.description}")
        return (HeuristicResult(Configuration(66, 10, 35, self.splits[query.k], 2, 0, 1, 0, 4), 1024, 0.5, bytes(64)),)


def test_audits_are_combined(tmp_path: Path) -> None:
    queries = [gemm_query(1, 8, k) for k in (11528, 11520, 7)]
    findings = list(audit(Recorded({11528: 9, 11520: 1}), queries))
    content = {
        "version": "13.1.0", "device": "a GPU", "driver": "1", "summary": report.summary(findings),
        "shapes": [each.record() for each in findings],
    }  # fmt: skip
    path, out = tmp_path / "audit.json", tmp_path / "record.json"
    path.write_text(json.dumps(content))
    assert audit_records.main([str(path), str(path), "--out", str(out)]) == 0
    first, second = json.loads(out.read_text())["audits"]
    assert first == second
    assert (first["library"], first["device"], first["summary"]["split K"]) == ("cuBLASLt 13.1.0", "a GPU", 1)
    assert first["rows"] == [
        [1, 8, 11528, "fp16", 66, 35, 9, 8, None], [1, 8, 11520, "fp16", 66, 35, 1, 0, None],
        [1, 8, 7, "fp16", None, None, None, None, None],
    ]  # fmt: skip


def test_model_shapes_have_the_published_counts_and_ranges(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model_shapes.main()
    path = tmp_path / "shapes"
    path.write_text(capsys.readouterr().out)
    assert len(read_shapes(path)) == 390
    found = model_shapes.published()
    assert len(set(found)) == 390
    assert {
        group: sum(each[0] == group for each in found) for group in model_shapes.PUBLISHED
    } == model_shapes.PUBLISHED
    bounds = {
        "attention": ((256, 16384), (2048, 18432), (2048, 16384)),
        "mlp up": ((256, 16384), (6144, 33792), (2048, 7168)),
        "mlp down": ((256, 16384), (2048, 7168), (6144, 33792)), "moe up": ((16, 3072), (512, 3072), (2048, 8192)),
        "moe down": ((16, 6144), (2048, 8192), (512, 3072)), "lm head": ((1, 256), (100352, 248320), (2048, 8192)),
        "lora": ((80, 16384), (768, 32768), (8, 64)),
    }  # fmt: skip
    for group, *sizes in found:
        assert all(low <= size <= high for size, (low, high) in zip(sizes, bounds[group], strict=True)), (group, sizes)
