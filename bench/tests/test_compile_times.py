"""Times of reading beside times of compiling: which configurations are chosen, and what is said of their times."""

from __future__ import annotations

from typing import Any

import pytest

from bitwise_bench.corpus import catalogue
from bitwise_bench.readings.compile_times import chosen_ids, main, spread, summary


def test_configurations_that_all_targets_have() -> None:
    cases = {target: {case.id: case for case in catalogue.cases(target)} for target in ("sm_90", "gfx942")}
    both = chosen_ids(cases, 0, 1, [])
    assert sorted(both) == sorted(cases["sm_90"].keys() & cases["gfx942"].keys())
    assert len(chosen_ids(cases, 3, 50, [])) == len(both[3::50])
    named = chosen_ids(cases, 0, 1, ["attention", "row_sum"])
    assert named
    assert all("attention" in each or "row_sum" in each for each in named)
    assert chosen_ids(cases, 0, 1, ["attention", "row_sum"]) == named


def times(read: float, compiled: float) -> dict[str, Any]:
    return {"compile": compiled, "compile, CPU": 2 * compiled, "read": read, "read, CPU": read, "unknown": None}


def test_ratios() -> None:
    rows = [{"id": str(each), "one": times(each, 10), "other": times(2 * each, 10)} for each in range(1, 11)]
    rows.append({"id": "refused", "one": {"error": "no"}, "other": times(1, 1)})
    found = summary(rows, ("one", "other"))
    assert found["one"]["kernels"] == 10
    assert found["one"]["CPU seconds to read"] == {"median": 6, "ninth decile": 10, "most": 10}
    assert found["one"]["reading over compiling"] == {"median": 0.3, "ninth decile": 0.5, "most": 0.5}
    assert found["other over one"] == {"median": 2, "ninth decile": 2, "most": 2, "above 1.5": 10}
    assert spread([3.0]) == {"median": 3, "ninth decile": 3, "most": 3}


def test_wrong_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--stride", "0"])
    assert "--stride must be at least 1" in capsys.readouterr().err
