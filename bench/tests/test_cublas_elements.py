"""Sampled elements of fp32 and tf32 products, and the record of PyTorch's settings."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bitwise_bench.compressed_text import read_text
from bitwise_bench.cublas.samples import element_samples
from bitwise_bench.cublas.settings_parity import FP16_ACCUMULATION, KINDS, SETTINGS
from bitwise_cublas_profiles.profile import RowNotCovered

RECORDS = Path(__file__).resolve().parents[2] / "records"


def _path(name: str) -> Path:
    path = RECORDS / name
    if not path.exists():
        pytest.skip("records are not part of an installed distribution")
    return path


@pytest.mark.parametrize("dtype", ["fp32", "tf32"])
def test_sampled_elements_are_those_of_the_descriptors(dtype: str, tmp_path: Path) -> None:
    """The first of every algorithm's shapes with the fewest values of k, and one with a wrong element."""
    about = json.loads(read_text(_path(f"cublas-elements-{dtype}-sm90-h100-13.1.json.xz")))
    assert (about["died"], about["torch.mm equal"], len(about["rows"])) == ([], about["shapes"], about["shapes"])
    kinds: dict[tuple[int, bool], list[Any]] = {}
    for row in sorted(about["rows"], key=lambda row: row[3]):
        with suppress(RowNotCovered):
            if row[3] >= 40 and (row[5], row[8] > 1) not in kinds and element_samples.descriptor_of_row(row, about):
                kinds[row[5], row[8] > 1] = row
    chosen = {**about, "rows": list(kinds.values())}
    file = tmp_path / "elements.json"
    file.write_text(json.dumps(chosen), encoding="utf-8")
    counts = element_samples.check(file, 1 << 30)
    assert counts == {"equal": len(kinds)}
    assert len(kinds) >= 8
    chosen["rows"][0][-1][0] ^= 1
    file.write_text(json.dumps(chosen), encoding="utf-8")
    assert element_samples.check(file, 1) == {"different": 1}


def test_operands_of_sampled_elements_are_those_of_the_whole_matrices() -> None:
    torch = pytest.importorskip("torch")
    from bitwise_bench.cublas.portable_operands import DRAWS, Operands

    made = Operands(51, "cpu")
    found = 0
    for number in range(40):
        query = element_samples.query_of_number(51, number, "fp32")
        if query is None or max(query.m, query.n) * query.k > 1 << 18:
            continue
        rows, columns = element_samples.sampled(51, number, query)
        for draw in DRAWS:
            a, b = (each.contiguous().view(torch.int32).numpy() for each in made.draw(query, number, draw))
            left, right = element_samples.operands_of(51, number, query, draw, rows, columns)
            assert (left.view(np.int32) == a[rows]).all()
            assert (right.view(np.int32) == b[:, columns]).all()
        found += 1
    assert found > 4


@pytest.mark.parametrize("names", [
    ("settings-sm90-h100", "settings-cublaslt-sm90-h100"), ("settings-sm90-h200", "settings-cublaslt-sm90-h200"),
])  # fmt: skip
def test_no_product_differs_under_the_settings(names: tuple[str, ...]) -> None:
    content: dict[str, Any] = {}
    early = ["no split K, :16:8, cuBLASLt preferred", "cuBLASLt preferred"][: 1 if "h200" in names[0] else 2]
    for name in names:
        content |= json.loads(read_text(_path(f"cublas-{name}-13.1.json")))["settings"]
    assert set(content) == set(SETTINGS) - {FP16_ACCUMULATION}
    for name, each in content.items():
        assert each["different"] == []
        assert set(each["counts"]) == set(KINDS)
        for kind, counts in each["counts"].items():
            assert not counts.get("different")
            declined = name == "no split K" and kind in ("mm fp16", "mm bf16")
            declined |= name in early and kind.endswith("fp32")
            assert counts.get("equal", 0) > 500 or (declined and set(counts) == {"declined"})
