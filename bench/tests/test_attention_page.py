"""The page of the record of attention."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitwise_bench.attention.__main__ import main
from bitwise_bench.attention.page import page

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "records/attention-sm90-h100.json"


def test_the_page_is_that_of_the_record() -> None:
    assert (ROOT / "docs/attention.md").read_text() == page(json.loads(RECORD.read_text()))


def test_no_problem_of_the_record_has_other_bytes() -> None:
    found = json.loads(RECORD.read_text())["correctness"]
    assert found["problems"]
    assert not found["different"]
    assert [each["patterns"]["all"] for each in found["invariance"]] == [1, 1, 1]


def test_a_step_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path / "record.json"), "--steps", "decode,encode"])
    assert "there are no steps encode" in capsys.readouterr().err
