"""A job that crashes, hangs, fails or leaves its process unusable affects no other job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from bitwise_bench.worker_pool import run_all

JOBS = """
import os
import time

from bitwise_bench.worker_pool import PoisonedProcess


def job(name, settings):
    if name == "crash":
        os._exit(9)
    if name == "hang":
        time.sleep(60)
    if name == "fail":
        raise ValueError("not\\nthis one")
    if name == "poison":
        raise PoisonedProcess("device fault")
    return {"process": os.getpid(), "value": settings["value"]}
"""


def test_a_failure_affects_only_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "worker_pool_jobs.py").write_text(JOBS)
    monkeypatch.syspath_prepend(str(tmp_path))
    from worker_pool_jobs import job  # type: ignore[import-not-found]

    reported: list[str] = []

    def report(name: str, answer: dict[str, Any]) -> None:
        reported.append(name)

    names = ["one", "fail", "two", "crash", "three", "poison", "four", "hang", "five"]
    for seconds in (5, 30):  # a busy machine may start no process within the lesser time
        reported.clear()
        answers = run_all(job, [names], {"value": 7}, processes=1, seconds=seconds, report=report)
        assert reported == names
        if all("value" in answers[name] for name in ("one", "two", "three", "four", "five")):
            break
    assert {name: answer.get("error") for name, answer in answers.items()} == {
        "one": None,
        "fail": "ValueError: not this one",
        "two": None,
        "crash": "the process died with exit code 9",
        "three": None,
        "poison": "PoisonedProcess: device fault",
        "four": None,
        "hang": f"no answer within {seconds} s; the process was stopped",
        "five": None,
    }
    processes = [answers[name]["process"] for name in ("one", "two", "three", "four", "five")]
    # After a failure the process continues; a crash, an unusable device context and a time-out each end it.
    assert processes[0] == processes[1]
    assert len(set(processes)) == 4
    assert os.getpid() not in processes
    assert all(answers[name]["value"] == 7 for name in ("one", "five"))
