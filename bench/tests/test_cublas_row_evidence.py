from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from bitwise_bench.cublas.addend_orders import feature_counts, samples
from bitwise_bench.cublas.fp16_accumulation import FEATURE, counted, products
from bitwise_bench.cublas.row_evidence import count_evidence, lines
from bitwise_bench.cublas.sweeps.sweep_records import COLUMNS
from bitwise_bench.cublas.unprofiled_features import feature_rows, fp32_feature_rows
from bitwise_cublas_profiles.profile import profile

H100 = profile("13.1", "9.0")


def swept(file: Path) -> list[dict[str, Any]]:
    return [{**line, "draws": 10} for line in lines(file)[1]]


def test_rows_count_the_shapes_of_the_recorded_sweep(tmp_path: Path) -> None:
    about = {"library": "13.1.0", "capability": "9.0", "draws": 10, "columns": list(COLUMNS)}
    line = [5, 1, 64, 64, 1024, "fp16", "NN", "fp16", 0, 66, 10, 35, 1, 0, 1, 4, "equal", None, None, None]
    file = tmp_path / "sweep.jsonl"
    file.write_text("\n".join(map(json.dumps, (about, line, [6, *line[1:]]))) + "\n", encoding="utf-8")
    tables, wrong = count_evidence(H100, swept(file))
    assert wrong == []
    (row,) = (row for row in tables["stages"] if row["stages"] == 35)
    assert (row["provenance"], row["shapes"], row["draws"]) == ("measured", 2, 20)
    (row,) = (row for row in tables["stages"] if row["stages"] == 36)
    assert "shapes" not in row
    line[16] = "different"
    file.write_text("\n".join(map(json.dumps, (about, line))) + "\n", encoding="utf-8")
    assert count_evidence(H100, swept(file))[1] == ["5: 64x64x1024 fp16 NN to fp16 (algorithm 66)"]
    line[-1] = "00000000"
    file.write_text("\n".join(map(json.dumps, (about, line))) + "\n", encoding="utf-8")
    assert count_evidence(H100, swept(file))[1] == []


def test_feature_rows_match_the_records() -> None:
    folder = Path(__file__).resolve().parents[2] / "records"
    name = "cublas-forms{}-sm90-h100-13.1{}.json.xz"
    names = [name.format("", ""), *(name.format("-fp32", f"-seed{seed}") for seed in (18, 19))]
    if not (folder / names[0]).exists():
        pytest.skip("records are not part of an installed distribution")
    first, *others = (json.loads(lzma.decompress((folder / each).read_bytes())) for each in names)
    stated = [*feature_rows(first["runs"]), *fp32_feature_rows(others)]
    assert list(H100.tables["features"][: len(stated)]) == stated
    # The other rows are counted in the records of addends.
    found = samples()
    sums = products()
    for row in H100.tables["features"][len(stated) :]:
        counts, misses = feature_counts(row, found)
        if row["feature"] == FEATURE:
            equal, different = counted(row, sums)
            assert different == 0
            counts["sampled"] = counts.get("sampled", 0) + equal
        assert (counts, misses) == ({name: row[name] for name in ("shapes", "sampled") if name in row}, [])
        assert sum(counts.values()) >= 5
