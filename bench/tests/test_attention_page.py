"""The page of the record of attention."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitwise_bench.attention.__main__ import main
from bitwise_bench.attention.page import page

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "records/attention-sm90-h100.json"
OTHER = ROOT / "records/attention-sm90-h200.json"
"""The digests of another GPU, where they were recorded."""


def test_the_page_is_that_of_the_record() -> None:
    other = json.loads(OTHER.read_text()) if OTHER.exists() else None
    assert (ROOT / "docs/attention.md").read_text() == page(json.loads(RECORD.read_text()), other)


def test_calls_with_other_bytes_on_another_gpu_are_named() -> None:
    record = json.loads(RECORD.read_text()) | {"digests": {"prefill 64/64": "a", "pages 96/96": "b"}}
    other = {"environment": {"gpu": "NVIDIA H200"}, "digests": {"prefill 64/64": "a", "pages 96/96": "c"}}
    assert "2 calls were computed on an NVIDIA H200 as well" in page(record, other)
    assert "1 have other bytes: pages 96/96" in page(record, other)
    assert "None has other bytes" in page(record, other | {"digests": record["digests"]})


def test_no_problem_of_the_record_has_other_bytes() -> None:
    found = json.loads(RECORD.read_text())["correctness"]
    assert found["problems"]
    assert not found["different"]
    assert [each["patterns"]["all"] for each in found["invariance"]] == [1, 1, 1]


def test_another_gpu_has_the_same_bytes() -> None:
    if OTHER.exists():
        assert json.loads(OTHER.read_text())["digests"] == json.loads(RECORD.read_text())["digests"]


def test_a_step_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path / "record.json"), "--steps", "decode,encode"])
    assert "there are no steps encode" in capsys.readouterr().err
