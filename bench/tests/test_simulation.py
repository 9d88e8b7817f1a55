"""Simulated bytes: the choice of inputs, and one family of gfx942 recorded and compared with its record."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bitwise_bench.draws.inputs import DRAWS
from bitwise_bench.gpu import recorder as gpu_recorder
from bitwise_bench.readings import precision
from bitwise_bench.recorded_bytes import load_records
from bitwise_bench.simulation import recorder
from bitwise_bench.simulation.surrogates import surrogates_of
from bitwise_core.plugins import registry

SURROGATES = surrogates_of("gfx942")


def test_all_kinds_of_input_are_ordered() -> None:
    assert recorder.ORDER[:3] == ("normal", "wide", "special")
    assert sorted(recorder.ORDER) == sorted(DRAWS)
    answers: dict[str, dict[str, float]] = {
        "f/g/a": {"seconds": 0.06},
        "f/g/b": {"seconds": 1.8},
        "f/h/a": {"seconds": 0.06},
        "f/i/a": {"seconds": 54.0},
    }
    # Of the kinds after the first six, h gets 26, g 4 for each configuration, i none.
    assert 2.9 < recorder.budget_for_total(answers, 0.01 * 26 + (0.01 + 0.3) * 4) < 3.31
    assert recorder.kinds_by_group(answers, 3.1) == {"f/g": 10, "f/h": len(DRAWS), "f/i": recorder.FEWEST}


def test_an_interrupted_record_contains_complete_groups() -> None:
    groups = {"f/g": ["f/g/a", "f/g/b"], "f/h": ["f/h/a", "f/h/b"], "f/i": ["f/i/a", "f/i/b"]}
    first = {name: {"hashes": [["1"], [""]]} for name in ("f/g/a", "f/g/b", "f/h/a", "f/h/b", "f/i/a")}
    more = {name: {"hashes": [[""], ["2"]]} for name in ("f/g/a", "f/g/b", "f/h/a")}
    both, one = {"hashes": [["1"], ["2"]]}, {"hashes": [["1"], [""]]}
    assert recorder.complete_groups(first, {}, groups) == dict.fromkeys(("f/g/a", "f/g/b", "f/h/a", "f/h/b"), one)
    found = recorder.complete_groups(first, more, groups)
    assert found == {"f/g/a": both, "f/g/b": both, "f/h/a": one, "f/h/b": one}
    # A failure in the second pass keeps the answers of the first pass; one that failed in the first is not run again.
    failed = {"error": "no answer"}
    assert recorder.complete_groups(first, more | {"f/g/b": failed}, groups)["f/g/a"] == one
    assert recorder.complete_groups(first | {"f/g/b": failed}, {"f/g/a": more["f/g/a"]}, groups)["f/g/a"] == both


def test_fast_groups_come_first_and_batches_of_slow_ones_are_small() -> None:
    groups = {"f/g": ["f/g/a", "f/g/b"], "f/h": [f"f/h/{each}" for each in "abcdefgh"]}
    pieces = recorder.batches_of(groups, {"f/g/a": 15.0, "f/h/a": 0.1})
    assert pieces == [groups["f/h"][:6], groups["f/h"][6:], ["f/g/a"], ["f/g/b"]]


def test_surrogates_are_used_for_simulated_bytes_only() -> None:
    arch = registry.default().arch("gfx942")
    assert arch.bits is not None
    assert not set(SURROGATES) & set(arch.bits.functions)
    extended = recorder.with_surrogates(arch).bits
    assert extended is not None
    assert set(SURROGATES) < set(extended.functions)


def test_a_surrogate_is_exact_if_possible_and_within_one_ulp_otherwise() -> None:
    power = SURROGATES["ex2.approx.fp32@gfx942"]
    numbers = np.array([0.0, -0.0, 3.0, -140.0, np.inf, -np.inf, 128.0], dtype=np.float32)
    found = power(numbers.view(np.uint32)).view(np.float32)
    assert found.tolist() == [1.0, 1.0, 8.0, 2.0**-140, np.inf, 0.0, np.inf]
    drawn = np.random.default_rng(1).uniform(-8, 8, 4096).astype(np.float32)
    below = np.nextafter(np.exp2(drawn.astype(np.float64)).astype(np.float32), np.float32(0))
    above = np.nextafter(np.exp2(drawn.astype(np.float64)).astype(np.float32), np.float32(np.inf))
    value = power(drawn.view(np.uint32)).view(np.float32)
    assert ((value >= below) & (value <= above)).all()
    # Rounded up for some operands and down for others.
    up = value.astype(np.float64) > np.exp2(drawn.astype(np.float64))
    assert 1000 < int(up.sum()) < 3000
    near = np.float32(-(2.0**-102)) * np.arange(1, 2, 2.0**-10, dtype=np.float32)
    ones = power(near.view(np.uint32)).view(np.float32)
    assert sorted(set(ones.tolist())) == [1.0 - 2.0**-24, 1.0]
    assert set(power(np.array([1, 0x807FFFFF], dtype=np.uint32))) == {0x3F800000}  # subnormal operands
    flushed = SURROGATES["rcp.approx.ftz.fp32@gfx942"](np.array([1, 0x7F000000, 0x40000000], dtype=np.uint32))
    assert [hex(each) for each in flushed] == ["0x7f800000", "0x0", "0x3f000000"]


@pytest.mark.usefixtures("without_machine_code")
def test_a_reciprocal_of_data_uses_the_surrogate() -> None:
    from bitwise_bench.corpus import catalogue

    name = next(each.id for each in catalogue.cases("gfx942") if each.group == "logarithm-2000")
    found = recorder.simulate_case(name, {"target": "gfx942", "parts": {"function/logarithm-2000": (0, 2)}})
    assert [bool(hashes[0]) for hashes in found["hashes"]] == [draw in recorder.ORDER[:2] for draw in DRAWS]


@pytest.mark.usefixtures("without_machine_code")
def test_a_family_is_recorded_and_compared_with_its_record(tmp_path: Path) -> None:
    out = tmp_path / "bytes.json"
    arguments = ["--families", "gather_partials", "--target", "gfx942"]
    assert gpu_recorder.main(["--dry-run", "--folder", str(tmp_path / "corpus"), *arguments]) == 0
    arguments += ["--folder", str(tmp_path / "corpus"), "--processes", "1"]
    assert recorder.main([*arguments, "--out", str(out), "--budget", "0"]) == 0
    recorded = load_records(out)
    assert recorded.environment["architecture"] == "gfx942"
    assert "simulated" in recorded.environment
    ran_on = {"kinds": len(DRAWS), "configurations": 14, "on all": 0, "fewest": recorder.FEWEST}
    assert precision.draws_run(recorded) == ran_on
    ran = [index for index, draw in enumerate(DRAWS) if draw in recorder.ORDER[: recorder.FEWEST]]
    for case in recorded.cases:
        assert case.usable
        assert all(all(case.hashes[index]) for index in ran)
    results = [
        precision.measure_named(("gfx942", case.id, None, precision.modes_of("gfx942"))) for case in recorded.cases
    ]
    found = precision.agreement_of(results, "launch", recorded)
    assert (found.kernels, found.compared, found.unknown, found.mixed) == (14, 14, 0, ())
    assert found.classes == found.byte_classes
