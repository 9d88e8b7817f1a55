"""The comparison of tuned models: processes that measure in turns, and what their rounds say."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bitwise_bench.inductor import same_bits
from bitwise_bench.inductor.same_bits import rounds_ratio, summary

TUNED = {
    "digest": "d", "launchers": {"kernels": 3}, "tuning seconds": 2.0, "proof seconds": 1.0, "kernels tuned": 4,
    "kernels": [],
    "graph error": "", "step seconds": [], "host seconds": [], "pipelined step seconds": [], "GPU seconds": [],
    "graph seconds": [],
}  # fmt: skip
CHILD = """
import json, os, sys, time
log, name, tuned = sys.argv[1:]
if name == "fails":
    sys.exit("out of memory")
if name == "hangs":
    time.sleep(60)
print(tuned, flush=True)
for line in sys.stdin:
    with open(log, "a") as file:
        file.write(f"{line.strip()} {name}\\n")
    if name == "stops" and line.strip() == "kernels":
        sys.exit("lost the GPU")
    answer = {"steps": {"step seconds": 0.25}, "kernels": {"GPU seconds": 0.5}, "graph": {"graph error": "no"}}
    print(json.dumps(answer[line.strip()]), flush=True)
"""


def measured(monkeypatch: pytest.MonkeyPatch, log: Path, modes: list[str], end: float, to_measure: float = 10.0) -> Any:
    def started(job: Any, jobs: Any, folder: Path, caches: Path) -> Any:
        folder.mkdir()
        command = [sys.executable, "-c", CHILD, str(log), job.mode, json.dumps(TUNED)]
        pipe = subprocess.PIPE
        with open(folder / "errors", "wb") as errors:
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, bufsize=0)
        return same_bits._Process(job, folder, process)

    monkeypatch.setattr(same_bits, "_started", started)
    monkeypatch.setattr(same_bits, "_SECONDS_TO_MEASURE", to_measure)
    jobs = [same_bits._Job("mlp", mode) for mode in modes]
    stages: list[Any] = []
    same_bits._side_by_side(jobs, 2, time.time() + end, lambda *each: stages.append(each), log.parent / "logs")
    assert len(stages) == len(modes) + 3 * 2  # each tuning, and each turn of each question
    assert (log.parent / "logs" / "0" / "errors").exists()
    return stages[-1]


def test_processes_measure_in_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, missing = measured(monkeypatch, tmp_path / "log", ["free", "same bits"], 40.0)
    assert missing == []
    turns = [(question, name) for question in ("steps", "kernels", "graph") for name in ("free", "same bits") * 2]
    assert (tmp_path / "log").read_text().splitlines() == [" ".join(each) for each in turns]
    assert [each["mode"] for each in found] == ["free", "same bits"]
    assert [each["step seconds"] for each in found] == [[0.25, 0.25]] * 2
    assert [each["GPU seconds"] for each in found] == [[0.5, 0.5]] * 2
    assert [each["graph error"] for each in found] == ["no", "no"]


def test_a_process_without_a_result_stops_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    modes = ["fails", "free", "hangs", "stops"]
    for end in (7.0, 40.0):  # a busy machine may start no process before the lesser time ends
        start, log = time.time(), tmp_path / f"{end:g}" / "log"
        log.parent.mkdir()
        found, missing = measured(monkeypatch, log, modes, end, end / 2)
        seconds = time.time() - start
        if seconds < end and [each["mode"] for each in found] == ["free"]:
            break
    assert seconds < end
    assert [each["mode"] for each in found] == ["free"]
    reasons = {each["mode"]: each["reason"] for each in missing}
    assert reasons == {"fails": "out of memory", "hangs": "no time was left", "stops": "lost the GPU"}


def test_without_time_processes_keep_what_they_have(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(same_bits, "_SECONDS_OF_A_TURN", 1000)
    found, missing = measured(monkeypatch, tmp_path / "log", ["free", "same bits"], 40.0)
    assert missing == []
    assert [each["step seconds"] for each in found] == [[], []]
    assert not (tmp_path / "log").exists()
    assert "host-bound" not in summary({"runs": found, "unfinished": missing})


def run(mode: str, digest: str, steps: list[float], host: float = 0.1) -> dict[str, Any]:
    return {**TUNED, "model": "mlp", "mode": mode, "digest": digest, "step seconds": steps,
            "host seconds": [host] * len(steps), "GPU seconds": [2.0], "graph seconds": []}  # fmt: skip


def test_a_ratio_is_taken_round_by_round() -> None:
    # The machine is slower in the second round.
    free, same = (
        [run("free", "a", [1.0, 2.0, 1.0])],
        [run("same bits", "b", [1.25, 2.5]), run("same bits", "b", [1.75, 3.5])],
    )
    assert rounds_ratio(same, free, "step seconds") == [1.5, 1.5]
    assert rounds_ratio(same, free, "graph seconds") == []


@pytest.mark.parametrize(("host", "bound"), [(1.6, True), (1.5, False)])
def test_the_summary_says_which_steps_the_host_decides(host: float, bound: bool) -> None:
    runs = [
        run("free", "a", [1.0, 1.0]),
        run("same bits", "b", [1.5, 2.0], host),
        run("same bits", "c", [1.5, 2.0], host),
    ]
    text = summary({"runs": runs, "unfinished": []})
    assert "same bits: 2 byte patterns in 2 processes" in text
    assert "same bits takes 1.750 of the free step seconds (1.500 to 2.000 in 2 rounds)" in text
    assert "same bits takes 1.000 of the free GPU seconds (1.000 to 1.000 in 1 rounds)" in text
    assert "free graph seconds" not in text
    assert ("host-bound" in text) == bound
