"""Simulated bytes: how draws are dealt out, and one family of gfx942 recorded and read against its record."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bitwise_amd_gfx942.corpus.stand_ins import STAND_INS
from bitwise_conformance import bench, simulated
from bitwise_conformance.draws import DRAWS
from bitwise_conformance.records import load_records
from bitwise_core import registry


def test_the_draws_that_tell_most_come_first_and_none_is_left_out() -> None:
    assert simulated.ORDER[:3] == ("normal", "wide", "special")
    assert sorted(simulated.ORDER) == sorted(DRAWS)
    answers = {
        "f/g/a": {"seconds": 0.01},
        "f/g/b": {"seconds": 0.5},
        "f/h/a": {"seconds": 0.01},
        "f/i/a": {"seconds": 9},
    }
    assert 2.9 < simulated.budget_for(answers, 0.01 * 32 * 2 + 0.5 * 6 + 9 * 4) < 3.6
    assert simulated.counts_of(answers, 3.0) == {"f/g": 6, "f/h": len(DRAWS), "f/i": simulated.FEWEST}


def test_stand_ins_serve_the_comparison_alone() -> None:
    arch = registry.default().arch("gfx942")
    assert arch.bits is not None
    assert not set(STAND_INS) & set(arch.bits.functions)
    stood_in = simulated.with_stand_ins(arch).bits
    assert stood_in is not None
    assert set(STAND_INS) < set(stood_in.functions)


def test_a_stand_in_is_exact_where_it_can_be_and_within_a_unit_elsewhere() -> None:
    power = STAND_INS["ex2.approx.fp32@gfx942"]
    numbers = np.array([0.0, -0.0, 3.0, -140.0, np.inf, -np.inf, 128.0], dtype=np.float32)
    found = power(numbers.view(np.uint32)).view(np.float32)
    assert found.tolist() == [1.0, 1.0, 8.0, 2.0**-140, np.inf, 0.0, np.inf]
    drawn = np.random.default_rng(1).uniform(-8, 8, 4096).astype(np.float32)
    below = np.nextafter(np.exp2(drawn.astype(np.float64)).astype(np.float32), np.float32(0))
    above = np.nextafter(np.exp2(drawn.astype(np.float64)).astype(np.float32), np.float32(np.inf))
    value = power(drawn.view(np.uint32)).view(np.float32)
    assert ((value >= below) & (value <= above)).all()
    # Neither always up nor always down.
    up = value.astype(np.float64) > np.exp2(drawn.astype(np.float64))
    assert 1000 < int(up.sum()) < 3000
    flushed = STAND_INS["rcp.approx.ftz.fp32@gfx942"](np.array([1, 0x7F000000, 0x40000000], dtype=np.uint32))
    assert [hex(each) for each in flushed] == ["0x7f800000", "0x0", "0x3f000000"]


def test_a_family_is_recorded_and_read_against_its_record(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    out = tmp_path / "bytes.json"
    arguments = ["--target", "gfx942", "--families", "gather_partials", "--processes", "1"]
    assert simulated.main([*arguments, "--out", str(out), "--budget", "0.1"]) == 0
    recorded = load_records(out)
    assert recorded.environment["architecture"] == "gfx942"
    assert "simulated" in recorded.environment
    ran = [index for index, draw in enumerate(DRAWS) if draw in simulated.ORDER[: simulated.FEWEST]]
    for case in recorded.cases:
        assert case.usable
        assert all(all(case.hashes[index]) for index in ran)
    results = [bench.measure_named(("gfx942", case.id)) for case in recorded.cases]
    found = bench.agreement_of(results, "launch", recorded.by_id())
    assert (found.kernels, found.compared, found.unknown, found.mixed) == (14, 14, 0, ())
    assert found.classes == found.byte_classes
