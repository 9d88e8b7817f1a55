from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bitwise_cublas_profiles.sample import checked

FOLDER = Path(__file__).parents[1]
RECORDS = FOLDER.parents[1] / "records"


def record(name: str) -> dict[str, Any]:
    path = RECORDS / name
    if not path.exists():
        pytest.skip("the records are in the source, not here")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def table_line(head: str) -> list[str]:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    (found,) = [line for line in text.splitlines() if line.startswith(f"| {head} |")]
    return [cell.strip() for cell in found.strip("|").split("|")[1:]]


def outcomes(names: list[str], candidates: bool) -> list[str]:
    found: Counter[str] = Counter()
    for name in names:
        for key, count in record(name)["outcomes"].items():
            kind, outcome = key.split(": ")
            if kind.startswith("candidate") == candidates:
                found[outcome] += count
    return [f"{found[each]:,}" for each in ("equal", "different", "declined")]


def test_the_readme_says_what_the_sweeps_counted() -> None:
    sweeps = [f"cublas-sweep-sm90-h100-13.1-seed{seed}.json" for seed in (1, 2)]
    assert table_line("shapes of seed 1") == outcomes(sweeps[:1], False)
    assert table_line("shapes of seed 2") == outcomes(sweeps[1:], False)
    assert table_line("other answers of the heuristic, both seeds") == outcomes(sweeps, True)
    parity = record("cublas-parity-sm90-h100.json")
    found = parity["outcomes"]
    assert table_line('`matmul(like="cublas")` beside `torch.mm`') == [str(found["equal"]), "0", str(found["declined"])]
    assert parity["different"] == []


def test_the_readme_says_what_the_clock_showed() -> None:
    summary = record("cublas-timing-sm90-h100.json")["summary"]
    for group, mean in {f"all {summary['shapes']} shapes": summary["all"], **summary["groups"]}.items():
        assert table_line(group) == [str(mean)]
    assert (summary["schedules that ran"], summary["schedules whose bytes differ"]) == (1290, 0)


def test_bytes_recorded_on_a_gpu_are_those_of_their_descriptors() -> None:
    pytest.importorskip("bitwise_nvidia_sm90")
    content = record("cublas-sample-sm90-h100-13.1.json")
    assert sum(content["checked"]["outcomes"].values()) == len(content["rows"]) == 1000
    content["rows"] = content["rows"][::10]
    found = list(checked(content))
    assert [outcome for _, outcome in found] == ["equal"] * 100
    assert {line["algorithm"] for line, _ in found} >= {11, 13, 14, 23, 24, 66}
