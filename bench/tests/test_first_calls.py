"""First calls of products with an epilogue: the processes that measure them, and the record."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bitwise_bench.cublas import product_forms
from bitwise_bench.cublas.times import first_calls
from bitwise_bench.cublas.times.first_calls import ALONE, CACHES, CASES, NUMBERS, main
from bitwise_nvidia_sm90.gemm.tuning import FIRST_CALL_VARIABLE


def test_each_process_has_its_variable_and_the_folder_of_the_caches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[tuple[str | None, str, str]] = []

    def run(command: list[str], *, env: dict[str, str], **_: Any) -> Any:
        ran.append((env.get(FIRST_CALL_VARIABLE), env["XDG_CACHE_HOME"], command[-1]))
        assert env["TRITON_CACHE_DIR"].startswith(env["XDG_CACHE_HOME"])
        failed = len(ran) == 1
        return SimpleNamespace(returncode=int(failed), stdout='a line\n{"seconds": 0.5}\n', stderr="no memory")

    monkeypatch.setenv(FIRST_CALL_VARIABLE, "7")
    monkeypatch.setattr(first_calls.subprocess, "run", run)  # type: ignore[attr-defined]
    monkeypatch.setattr(product_forms, "environment", lambda: {"gpu": "none"})
    assert main(["--out", str(tmp_path / "record.json")]) == 1
    rows = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))["rows"]
    assert len(rows) == len(ran) == (len(CASES) + len(ALONE)) * len(NUMBERS) * len(CACHES)
    assert [each for each, *_ in ran[:4]] == ["0", "0", None, None]
    # The second process of a case and a number has the caches of the first one, and no other process has them.
    folders = [folder for _, folder, _ in ran]
    assert folders[::2] == folders[1::2]
    assert len({*folders}) == len(ran) // 2
    assert rows[0]["failed"] == "no memory"
    assert [row["seconds"] for row in rows[1:]] == [0.5] * (len(rows) - 1)
    assert [row["caches"] for row in rows[:2]] == ["empty", "full"]
    assert {number for *_, number in ran} == {str(place) for place in range(len(CASES) + len(ALONE))}


def test_products_without_an_epilogue_are_measured_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = SimpleNamespace(returncode=0, stdout='{"seconds": 0.5}\n', stderr="")
    monkeypatch.setattr(first_calls.subprocess, "run", lambda *_, **__: found)  # type: ignore[attr-defined]
    monkeypatch.setattr(product_forms, "environment", lambda: {"gpu": "none"})
    assert main(["--alone", "--out", str(tmp_path / "record.json")]) == 0
    rows = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))["rows"]
    assert [(row["epilogue"], row["m"]) for row in rows] == [
        ("none", m) for m, *_ in ALONE for _ in range(len(NUMBERS) * len(CACHES))
    ]
