"""Costs that are fitted to times, and the sets of problems that they are fitted to and judged by."""

from __future__ import annotations

import json
import math
import random
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from bitwise_bench.cublas.problem_sets import SETS, Problem
from bitwise_bench.cublas.times import cost_fit, regression_trees
from bitwise_bench.cublas.times.cost_fit import Costs, Measured, Unaligned, mean_regret
from bitwise_bench.cublas.times.regression_trees import DEPTH, boosted_trees
from bitwise_bench.cublas.times.schedule_timing import row_class
from bitwise_core.descriptors import GEMMDesc
from bitwise_nvidia_sm90.gemm.device_costs import DeviceCosts, correction_of, costs_of
from bitwise_nvidia_sm90.gemm.expected_times import modelled_seconds, quantities
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, plan
from bitwise_nvidia_sm90.gemm.schedule_ranking import schedules_to_try


def descriptor(k: int) -> GEMMDesc:
    return GEMMDesc.from_text(
        f"gemm(k={k} left_dtype=bf16 right_dtype=bf16 output_dtype=bf16 path=matrix "
        "instruction=instruction(architecture=sm_90 family=wgmma k=16) instruction_k=16)"
    )


def timed(problem: Problem, true: Costs, dice: random.Random) -> Measured | None:
    planned = plan(descriptor(problem.k))
    assert isinstance(planned, MatrixPlan)
    tried = [each for each in schedules_to_try(planned, problem.m, problem.n, most=40) if each.tma][::3]
    if len(tried) < 2:
        return None
    given = quantities(planned, tried, problem.m, problem.n, (True, True), True)
    seconds = [each * math.exp(dice.gauss(0, 0.01)) for each in modelled_seconds(given, true).tolist()]
    return Measured(problem.group, problem.m, problem.n, planned, (True, True), tuple(tried), tuple(seconds), given)


@pytest.fixture(scope="module")
def problems() -> tuple[Costs, list[Measured]]:
    dice = random.Random(7)
    true = {name: cost * math.exp(dice.gauss(0, 0.4)) for name, cost in costs_of().costs.items()}
    return true, [each for each in (timed(problem, true, dice) for problem in SETS["fitted"]()[:24]) if each]


def test_a_fit_finds_the_fastest_schedules_of_other_costs(problems: tuple[Costs, list[Measured]]) -> None:
    true, timed = problems
    found = cost_fit.fit(timed, costs_of().costs)
    assert found.keys() == costs_of().costs.keys()
    assert mean_regret(timed, found, None) < 1 + (mean_regret(timed, costs_of().costs, None) - 1) / 2
    assert mean_regret(timed, found, None) <= mean_regret(timed, true, None) + 0.02
    assert mean_regret([replace(timed[0], seconds=(1.0,) * len(timed[0].seconds))], found, None) == 1.0


@pytest.fixture(scope="module")
def products() -> tuple[Costs, list[Unaligned]]:
    dice = random.Random(11)
    true = {name: cost * math.exp(dice.gauss(0, 0.6)) for name, cost in costs_of().costs.items()}
    found = []
    for problem in SETS["spread-unaligned"]()[:12]:
        planned = plan(descriptor(problem.k))
        assert isinstance(planned, MatrixPlan)
        k_contiguous = (problem.layout[0] == "n", problem.layout[1] == "t")
        mapped = (False, False, False)
        every = schedules_to_try(planned, problem.m, problem.n, most=400, k_contiguous=k_contiguous, mapped=mapped)
        tried = [each for each in every if each.gathering] + [each for each in every if each.packed][::40]
        if not any(each.gathering for each in tried):
            continue
        made = Unaligned(problem.group, problem.m, problem.n, planned, k_contiguous, mapped, tuple(tried), np.zeros(0))
        noise = np.array([math.exp(dice.gauss(0, 0.01)) for _ in tried])
        found.append(replace(made, seconds=made.expected(of_costs(true)) * noise))
    return true, found


def of_costs(given: Costs) -> DeviceCosts:
    """Return costs without a correction of gathering."""
    return replace(costs_of(), costs=given, gathering=correction_of({"indices": [], "bounds": [], "leaves": []}))


def test_a_fit_of_gathering_finds_other_costs(products: tuple[Costs, list[Unaligned]]) -> None:
    true, timed = products

    def error(given: Costs) -> float:
        errors = [np.log(each.expected(of_costs(given)) / each.seconds)[each.gathering] for each in timed]
        return float(np.abs(np.concatenate(errors)).max())

    start = {**true, **{name: costs_of().costs[name] for name in cost_fit.OF_GATHERING}}
    found = cost_fit.fit_gathering(timed, start)
    assert {name for name in found if found[name] != float(f"{true[name]:.4g}")} <= cost_fit.OF_GATHERING
    assert error(found) < 0.06 < error(start)


def test_a_correction_of_gathering_makes_the_regret_smaller(products: tuple[Costs, list[Unaligned]]) -> None:
    given, slower = of_costs(dict(costs_of().costs)), []
    for each in products[1]:  # narrow tiles take longer than any costs say
        tried = tuple(one for one in each.schedules if one.gathering)
        only = replace(each, schedules=tried)
        seconds = only.expected(given) * [1.5 if one.block_n < 96 else 1.0 for one in tried]
        slower.append(replace(only, seconds=seconds))
    corrected = replace(given, gathering=cost_fit.fit_correction_of_gathering(slower, given))
    assert math.prod(each.regret(corrected) for each in slower) < math.prod(each.regret(given) for each in slower)


def test_trees_fit_steps_of_the_inputs_and_leave_other_inputs_alone() -> None:
    dice = np.random.default_rng(3)
    inputs = dice.normal(size=(3000, 4))
    targets = np.where(inputs[:, 1] > 0.3, 0.5, -0.25) + np.where(inputs[:, 2] > -0.5, 0.1, 0.0)
    trees = boosted_trees(inputs, targets, np.ones(3000))
    assert trees.indices.shape[1] + 1 == trees.leaves.shape[1] == 2**DEPTH
    unseen = dice.normal(size=(1000, 4))
    wanted = np.where(unseen[:, 1] > 0.3, 0.5, -0.25) + np.where(unseen[:, 2] > -0.5, 0.1, 0.0)
    error = trees.of(unseen) - wanted
    assert np.sqrt(np.mean(error**2)) < 0.25 * np.std(wanted)
    assert trees.of(unseen[:0]).shape == (0,)


def test_a_correction_makes_the_regret_smaller(problems: tuple[Costs, list[Measured]]) -> None:
    _, timed = problems
    slower = [  # schedules with clusters take longer than any costs say
        replace(
            each,
            seconds=tuple(
                time * (1.4 if one.cluster_m * one.cluster_n > 1 else 1)
                for time, one in zip(each.seconds, each.schedules, strict=True)
            ),
        )
        for each in timed
    ]
    given = costs_of().costs
    corrected = cost_fit.fit_correction(slower, given)
    assert mean_regret(slower, given, corrected) < mean_regret(slower, given, None)


def test_the_command_reports_models_that_the_fit_left_out(
    problems: tuple[Costs, list[Measured]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The command fits costs and trees once for each model that it leaves out.
    _, every = problems
    models = sorted({each.model for each in every})[:3]
    timed = [each for each in every if each.model in models]
    assert len(models) == 3
    monkeypatch.setattr(regression_trees, "_TREES", 10)
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
    assert found["costs"].keys() == costs_of().costs.keys()
    trees = correction_of(found["correction"])
    assert trees.indices.shape[0] == trees.bounds.shape[0] == trees.leaves.shape[0] > 1
    printed = capsys.readouterr().out
    assert all(each.model in printed for each in timed)
    few, own = tmp_path / "few.json", tmp_path / "own.json"
    own.write_text(json.dumps({"environment": {"gpu": "G"}, "rows": [{**each, "group": "one"} for each in rows[:3]]}))
    assert (
        cost_fit.main([str(own), "--only", "memory", "--beside", str(own), "--weight", "0.5", "--out", str(few)]) == 0
    )
    one = json.loads(few.read_text())
    assert {name for name, each in one["costs"].items() if each != costs_of().costs[name]} == {"memory"}
    assert one["correction"] != found["correction"]
    assert "and, with the weight 0.5, to those of an H100" in one["provenance"]
    with pytest.raises(SystemExit):
        cost_fit.main([str(times), "--only", "memroy"])
    times.write_text(json.dumps({"environment": {}, "rows": []}))
    with pytest.raises(SystemExit):
        cost_fit.main([str(times)])


def test_no_size_that_is_held_out_is_in_a_set_of_the_fit() -> None:
    made = {name: make() for name, make in SETS.items()}
    layers_of = {name: {(each.n, each.k) for each in found} for name, found in made.items()}
    sizes_of = {name: {(each.m, each.n, each.k) for each in found} for name, found in made.items()}
    held_out = made["held-out"]
    assert not sizes_of["held-out"] & sizes_of["fitted"]
    second = layers_of["second-held-out"]
    for other in ("fitted", "spread", "few-rows", "spread-unaligned", "broad", "held-out"):
        assert not second & layers_of[other], other
    third = layers_of["third-held-out"]
    fitted = ("fitted", "spread", "spread-unaligned", "between", "tails", "drawn", "small", "broad", "slow")
    for other in (*fitted, "held-out", "second-held-out"):
        assert not third & layers_of[other], other
    assert not second & layers_of["slow"]
    fourth = made["fourth-held-out"]
    layers = {(each.n, each.k) for each in fourth if "gradient" not in each.group}
    for other in (*fitted[:-1], "varied", "held-out", "second-held-out", "third-held-out"):
        assert not layers & layers_of[other], other
        assert not sizes_of["fourth-held-out"] & sizes_of[other], other
    fifth = {(each.n, each.k) for each in made["fifth-held-out"] if "gradient" not in each.group}
    for other in (*fitted, "varied", "unaligned-lines", "held-out", "second-held-out", "third-held-out"):
        assert not fifth & layers_of[other], other
    for last, count in (("sixth-held-out", 150), ("seventh-held-out", 160)):
        given = made[last]
        layers = {(each.n, each.k) for each in given if "gradient" not in each.group}
        assert len(given) == count
        for other in (each for each in SETS if each != last):
            assert not layers & layers_of[other], other
            assert not sizes_of[last] & sizes_of[other], other
    for last in ("eighth-held-out", "ninth-held-out", "tenth-held-out", "eleventh-held-out", "twelfth-held-out"):
        assert {each.layout for each in made[last]} == {"nn", "nt", "tn", "tt"}
        for other in (each for each in SETS if each not in (last, "published")):
            assert not layers_of[last] & layers_of[other], other
        assert not sizes_of[last] & sizes_of["published"]
    assert not layers_of["few-lines"] & layers_of["few-lines-held-out"]
    varied = layers_of["varied"]
    assert not varied & (second | third | {(each.n, each.k) for each in (*held_out, *fourth)})
    for other in ("spread", "spread-unaligned"):
        assert not layers_of["held-out"] & layers_of[other], other
    assert {*made["few-rows"]} <= {*made["fitted"], *made["spread"]}
    for name, found in made.items():
        assert len(set(found)) == len(found) > 0, name
        assert SETS[name]() == found, name
    assert {each.layout for each in held_out} == {"nt", "nn", "tn"}
    assert len({row_class(each.m) for each in made["second-held-out"]}) == 7
