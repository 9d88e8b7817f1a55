"""Costs that are fitted to times, and the sets of problems that they are fitted to and judged by."""

from __future__ import annotations

import json
import math
import random
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bitwise_bench.cublas import cost_fit
from bitwise_bench.cublas.cost_fit import Costs, Measured, mean_regret
from bitwise_bench.cublas.problem_sets import SETS, Problem
from bitwise_core.descriptors import GEMMDesc
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, plan
from bitwise_nvidia_sm90.gemm.schedule_ranking import costs, expected_seconds, schedules_to_try


def descriptor(k: int) -> GEMMDesc:
    return GEMMDesc.from_text(
        f"gemm(k={k} left_dtype=bf16 right_dtype=bf16 output_dtype=bf16 path=matrix "
        "instruction=instruction(architecture=sm_90 family=wgmma k=16) instruction_k=16)"
    )


def timed(problem: Problem, true: Costs, dice: random.Random) -> Measured | None:
    planned = plan(descriptor(problem.k))
    assert isinstance(planned, MatrixPlan)
    tried = [each for each in schedules_to_try(planned, problem.m, problem.n, most=12) if each.tma]
    noise = [math.exp(dice.gauss(0, 0.01)) for _ in tried]
    seconds = [
        expected_seconds(planned, each, problem.m, problem.n, given=true) * factor
        for each, factor in zip(tried, noise, strict=True)
    ]
    if len(tried) < 2:
        return None
    return Measured(problem.group, problem.m, problem.n, planned, (True, True), tuple(tried), tuple(seconds))


@pytest.fixture(scope="module")
def problems() -> tuple[Costs, list[Measured]]:
    dice = random.Random(7)
    true = {name: cost * math.exp(dice.gauss(0, 0.4)) for name, cost in costs().items()}
    return true, [each for each in (timed(problem, true, dice) for problem in SETS["fitted"]()[:24]) if each]


def test_a_fit_finds_the_fastest_schedules_of_other_costs(problems: tuple[Costs, list[Measured]]) -> None:
    true, timed = problems
    found = cost_fit.fit(timed, costs())
    assert mean_regret(timed, found) < 1 + (mean_regret(timed, costs()) - 1) / 2
    assert mean_regret(timed, found) <= mean_regret(timed, true) + 0.01
    assert mean_regret([replace(timed[0], seconds=(1.0,) * len(timed[0].seconds))], found) == 1.0


def test_the_command_reports_models_that_the_fit_left_out(
    problems: tuple[Costs, list[Measured]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, timed = problems
    rows = [
        {
            "group": each.group, "m": each.m, "n": each.n, "layout": "nt",
            "descriptor": descriptor(each.plan.k).to_text(),
            "times": [[asdict(one), 1e6 * time] for one, time in zip(each.schedules, each.seconds, strict=True)],
        }
        for each in timed
    ]  # fmt: skip
    times, out = tmp_path / "times.json", tmp_path / "costs.json"
    times.write_text(json.dumps({"environment": {"gpu": "G"}, "rows": [*rows, {"group": "g", "declined": "why"}]}))
    assert cost_fit.main([str(times), "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["environment"] == {"gpu": "G"}
    assert found["costs"].keys() == costs().keys()
    printed = capsys.readouterr().out
    assert all(each.model in printed for each in timed)
    times.write_text(json.dumps({"environment": {}, "rows": []}))
    with pytest.raises(SystemExit):
        cost_fit.main([str(times)])


def test_no_size_that_is_held_out_is_in_the_set_of_the_fit() -> None:
    held_out = SETS["held-out"]()
    assert not {(each.m, each.n, each.k) for each in held_out} & {(each.m, each.n, each.k) for each in SETS["fitted"]()}
    for name, make in SETS.items():
        assert len(set(make())) == len(make()) > 0, name
    assert {each.layout for each in held_out} == {"nt", "nn", "tn"}
