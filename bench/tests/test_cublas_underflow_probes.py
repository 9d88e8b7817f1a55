from __future__ import annotations

import hashlib
import json
import lzma
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from bitwise_bench.cublas.orders import underflow_probes
from bitwise_bench.cublas.orders.underflow_probes import COLUMNS, DRAWS, listed, main, operands, outcome
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.profile import Profile, profile
from bitwise_cublas_profiles.query import Configuration, gemm_query

RECORD = Path(__file__).parents[2] / "records" / "cublas-vanishing-sm90-h100-13.1.json.xz"


@pytest.fixture(scope="module")
def recorded() -> list[dict[str, Any]]:
    content = json.loads(lzma.decompress(RECORD.read_bytes()))
    assert (content["library"], content["died"]) == ("cuBLASLt 13.1.0", [])
    return [dict(zip(content["columns"], row, strict=True)) for row in content["rows"]]


def test_no_underflowing_sum_is_negative_in_any_configuration(recorded: list[dict[str, Any]]) -> None:
    found = Counter(line["algorithm"] for line in recorded if line["draw"] == "vanishing")
    assert {number: found[number] for number in (11, 13, 14, 16)} == {11: 36, 13: 3940, 14: 48, 16: 72}
    assert not any(any(map(any, line["corners"])) for line in recorded if line["draw"] == "vanishing")
    options = {line["custom"] for line in recorded if line["algorithm"] == 13}
    rows = profile("13.1", "9.0").tables
    assert options >= {row["custom"] for name in ("lanes", "slices") for row in rows[name] if row["algorithm"] == 13}


def without_starts() -> Profile:
    known = profile("13.1", "9.0")
    rows = tuple({key: value for key, value in row.items() if key != "start"} for row in known.tables["algorithms"])
    return Profile(known.key, known.architecture, {**known.tables, "algorithms": rows})


def test_the_record_matches_the_descriptors_and_distinguishes_another_start(recorded: list[dict[str, Any]]) -> None:
    pytest.importorskip("bitwise_nvidia_sm90")
    chosen = recorded[::97]
    assert {line["algorithm"] for line in chosen} >= {11, 13, 14, 16, 21, 23, 24}
    found = Counter(outcome(line, profile("13.1", "9.0")) for line in chosen)
    assert set(found) <= {"equal", *(key for key in found if key.endswith("was seen without slices only"))}
    assert found["equal"] > 140
    other = without_starts()
    wrong = [line for line in chosen if outcome(line, other) == "different"]
    assert {(line["algorithm"], line["draw"]) for line in wrong} >= {(13, "vanishing")}
    assert {line["draw"] for line in wrong} == {"vanishing"}


def test_products_with_two_roundings_are_distinguished(
    recorded: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = profile("13.1", "9.0")

    def twice(*given: Any, **options: Any) -> Any:
        return descriptor_of(*given, **options).model_copy(update={"path": "mul_add"})

    monkeypatch.setattr(underflow_probes, "descriptor_of", twice)
    lines = [line for line in recorded if line["algorithm"] == 13 and line["split_k"] == 3][::61]
    found = Counter((line["draw"], outcome(line, known)) for line in lines)
    assert found["halves", "different"]
    assert found["halves of both signs", "different"]
    assert not found["halves", "equal"]


def test_operands_do_not_depend_on_the_machine() -> None:
    made = [operands(gemm_query(3, 2, 70, "bf16"), draw) for draw in DRAWS]
    assert {side.dtype.name for pair in made for side in pair} == {"uint16"}
    assert [hashlib.sha256(a.tobytes() + b.tobytes()).hexdigest()[:8] for a, b in made] == [
        "8921c2a2",
        "f501e96b",
        "de724777",
    ]


class Fake:
    """A library with one algorithm for vectors, one for small products and one with tiles."""

    def algorithms(self, base: Any) -> tuple[int, ...]:
        return (11, 13, 14, 23)

    def capabilities(self, base: Any, algorithm: int) -> dict[str, tuple[int, ...]]:
        return {"customs": (1,), "stages": (13, 19), "tiles": (10, 11)}


def test_the_listed_cases() -> None:
    found = Counter((configurations[0].algorithm, configurations[0].split_k) for _, configurations in listed(Fake()))
    assert found == {
        (11, 1): 144, (13, 1): 64, (13, 3): 16, (14, 1): 16, (14, 4): 8, (14, 5): 8, (14, 32): 8, (14, 33): 8,
        (23, 1): 16, (23, 3): 48,
    }  # fmt: skip


def test_a_file_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = {each.name: 0 for each in fields(Configuration)} | {
        "m": 1, "n": 4, "k": 3, "transposes": "NN", "c": "bf16", "algorithm": 13, "custom": 56, "split_k": 1,
        "draw": "vanishing", "corners": [[0, 0], [0, 0]],
    }  # fmt: skip
    content = {"library": "cuBLASLt 13.1.0", "capability": "9.0", "columns": list(COLUMNS)}
    file = tmp_path / "vanishing.json.xz"
    for corners, status in (([[0, 0], [0, 0]], 0), ([[0, 0], [0, -32768]], 1)):
        row = [{**line, "corners": corners}[name] for name in COLUMNS]
        file.write_bytes(lzma.compress(json.dumps({**content, "rows": [row, row]}).encode()))
        assert main(["check", str(file)]) == status
        assert ('"algorithm 13 vanishing: different": 2' in capsys.readouterr().out) == bool(status)
    assert replace(gemm_query(1, 4, 3, "bf16"), k=3) == underflow_probes.query_and_configuration(line)[0]
