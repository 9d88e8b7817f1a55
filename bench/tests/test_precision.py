"""The measurements of readings: which recorded bytes they use, and the time and memory of a partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitwise_bench.corpus import catalogue
from bitwise_bench.readings import precision, worker_scaling
from bitwise_bench.readings.precision import RECORDED_BYTES, records_of
from bitwise_bench.recorded_bytes import RecordError
from bitwise_bench.result_tables import pages as result_tables

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("target", RECORDED_BYTES)
def test_the_kept_bytes_are_those_of_the_target_and_its_kernels(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    records = records_of(target)
    assert records.environment["architecture"] == target
    assert {case.id for case in catalogue.cases(target)} == set(records.by_id())


def test_the_bytes_of_another_architecture_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(RecordError, match="holds the bytes of sm_90, not of gfx942"):
        records_of("gfx942", RECORDED_BYTES["sm_90"])
    with pytest.raises(RecordError, match="no bytes are recorded for sm_80; give a file with --records"):
        records_of("sm_80")


def test_the_command_refuses_bytes_of_another_architecture(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as ended:
        precision.main(["--target", "gfx942", "--records", str(RECORDED_BYTES["sm_90"])])
    assert ended.value.code == 2
    assert "holds the bytes of sm_90, not of gfx942" in capsys.readouterr().err


def test_a_sample_covers_the_corpus() -> None:
    cases = catalogue.cases()
    chosen = worker_scaling.sample(cases, 100)
    assert len({case.id for case in chosen}) == len(chosen) == 100
    assert cases.index(chosen[-1]) > 0.9 * len(cases)
    assert worker_scaling.sample(cases[:3], 100) == list(cases[:3])


def test_the_unknown_kernels_of_a_sample_stand_for_those_of_their_families() -> None:
    families = {"whole": {"launch": {"kernels": 9, "unknown": 9}}, "some": {"launch": {"kernels": 4, "unknown": 1}}}
    counts = precision.of_all({"families": families}, {"whole": 9, "some": 40, "not read": 7})
    assert counts == {"kernels of these families": 49, "unknown of these": 19}
    reading = {"modes": {"launch": {"kernels": 13, "unknown": 10}}, "sample": counts}
    assert result_tables._unknown(reading) == "10 in a sample, for 19 of 49 (38.8 %)"


def test_a_partition_that_fails_is_reported(tmp_path: Path) -> None:
    with pytest.raises(worker_scaling.RunFailed, match="missing"):
        worker_scaling.measure(tmp_path / "missing", 1)
