"""The page of the record of attention."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from bitwise_bench.attention import drawn
from bitwise_bench.attention.__main__ import main
from bitwise_bench.attention.errors import paired
from bitwise_bench.attention.page import _comparison_of_errors, page

ROOT = Path(__file__).parents[2]
RECORDS = [path for path in (ROOT / f"records/attention-sm90-{gpu}.json" for gpu in ("h200", "h100")) if path.exists()]
"""One of each GPU on which attention was measured."""


def records() -> list[dict[str, Any]]:
    return [json.loads(each.read_text()) for each in RECORDS]


def test_the_page_is_that_of_the_records() -> None:
    assert (ROOT / "docs/results/attention.md").read_text() == page(records())


def test_calls_with_other_bytes_on_another_gpu_are_named() -> None:
    first = records()[-1] | {"digests": {"prefill 64/64": "a", "pages 96/96": "b"}}
    other = {"environment": first["environment"] | {"gpu": "NVIDIA H200"}, "digests": dict(first["digests"])}
    assert f"2 calls were computed on each of {first['environment']['gpu']}, NVIDIA H200" in page([first, other])
    assert "None has other bytes" in page([first, other])
    other["digests"]["pages 96/96"] = "c"
    assert "1 have other bytes: pages 96/96" in page([first, other])


def test_cases_with_other_errors_on_another_gpu_are_counted() -> None:
    first = {"environment": {"gpu": "A"}, "decode": {"results": [{"case": {"keys": 1}, "errors": {"bitwise": 0.1}}]}}
    other = first | {"environment": {"gpu": "B"}}
    assert "1 cases of the tables below" in _comparison_of_errors([first, other])
    assert "None differs in any of 17 digits" in _comparison_of_errors([first, other])
    other["decode"] = {"results": [{"case": {"keys": 1}, "errors": {"bitwise": 0.1 + 2**-56}}]}
    assert "1 differs in any of 17 digits" in _comparison_of_errors([first, other])
    other["environment"] = {"gpu": "B", "descriptors": "others"}
    assert not _comparison_of_errors([first, other])
    other = first | {"decode": {"results": [{"case": {"keys": 2}, "errors": {"bitwise": 0.1}}]}}
    assert not _comparison_of_errors([first, other])


def test_errors_of_seeds_are_compared_in_pairs() -> None:
    ratio, deviation, above = paired([2.0, 8.0, 1.0], [1.0, 2.0, 1.0])
    assert (f"{ratio:.9f}", f"{deviation:.9f}", above) == ("2.000000000", f"{2 * math.log(2) / math.sqrt(3):.9f}", 2)
    case = {"batch": 2, "queries": 1, "keys": 9, "depth": 64}
    errors = {"results": [{"case": case, "errors": {"bitwise": [2.0, 8.0, 1.0], "flash": [1.0, 2.0, 1.0]}}]}
    text = page([records()[-1] | {"errors": errors}])
    assert "| 2 x 1 x 9 | 64 | none | 0 | 3.67e+00 | 2.0000 ± 0.8004 | 2 of 3 |" in text
    assert "2 of 3 have a ratio above 1" in text


def test_a_record_of_other_kernels_says_so() -> None:
    record = records()[-1]
    other = record | {"environment": record["environment"] | {"kernels": "other"}}
    assert "Recorded with earlier kernels" not in page([record])
    assert "Recorded with earlier kernels than the first GPU" in page([other, record])
    other["environment"]["descriptors"] = "other"
    assert "Recorded with earlier kernels and descriptors than the first GPU" in page([other, record])


def test_no_problem_of_a_record_has_other_bytes() -> None:
    for each in records():
        found = each["correctness"]
        assert found["problems"]
        assert not found["different"]
        assert {one["patterns"]["all"] for one in found["invariance"]} == {1}


def test_gpus_have_the_same_bytes() -> None:
    digests = [each["digests"] for each in records() if "digests" in each]
    assert all(each == digests[0] for each in digests)


def test_a_step_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path / "record.json"), "--steps", "decode,encode"])
    assert "there are no steps encode" in capsys.readouterr().err


def test_drawn_shapes_are_counted_by_the_ratio_that_they_reach() -> None:
    case = {"batch": 3, "keys": 700, "heads": 8, "groups": 2, "depth": 64, "page": 0, "seed": 1, "held_out": True}
    found = [
        {"case": case, "seconds": {"bitwise": 1.0, "cudnn": each}, "bytes": 1, "errors": {}} for each in (1.0, 0.5)
    ]
    text = page([records()[-1] | {"uneven": {"results": found}}])
    assert "1 of 2 have a ratio of 0.95 or more; the least is 0.50, the geometric mean 0.71" in text
    assert "| *3 x 700* | 8 / 2 | 64 | - |" in text


def test_pages_are_compared_with_what_takes_the_same_keys() -> None:
    case = {"batch": 3, "keys": 700, "heads": 8, "groups": 2, "depth": 64, "page": 16}
    seconds = {"bitwise": 1.0, "cudnn": 0.9, "flex": 4.0, "gathered, cudnn": 3.0, "gathered, flash": None}
    slower = {**seconds, "flex": 2.0}
    found = [{"case": case, "seconds": each, "bytes": 9e9, "errors": {}} for each in (seconds, slower)]
    text = page([records()[-1] | {"pages": {"results": found}}])
    assert "takes 2.00 to 3.00 times as long as ours in 2 cases, 2.45 in the geometric mean: " in text
    assert "cuDNN after a gather in 1, FlexAttention from pages in 1." in text
    assert "| 3 x 700 | 8 / 2 | 64 | 16 | 9 | 10 | 2 | 3 | 0.90 | 3.00 |" in text


def test_drawn_shapes_do_not_depend_on_the_process() -> None:
    """A record names the shapes, and another process draws the same."""
    first, again = (drawn.equal_lengths(5, 8) + drawn.pages(5, 8) + drawn.uneven(5, 8) for _ in range(2))
    assert first == again
    for case in drawn.uneven(5, 8):
        lengths = drawn.lengths_of(case)
        assert len(lengths) == case["batch"]
        assert max(lengths) == case["keys"]


def test_repeated_calls_of_earlier_kernels_are_named() -> None:
    races = {"runs": 300, "divisions": 3, "different": []}
    first = records()[0]
    assert "with 3 divisions among programs were repeated 300 times" in page([first | {"races": races}])
    assert "with 3 divisions of earlier kernels among" in page([first | {"races": races | {"kernels": "a"}}])
