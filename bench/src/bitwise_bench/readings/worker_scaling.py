"""Time and memory of `bitwise partition` with several worker processes.

    python -m bitwise_bench.readings.worker_scaling --workers 1 8 --out records/worker-scaling.json

Kernels of the corpus are compiled into one folder, which is read without the cache of readings once with each number of
workers, after a first run that fills the assembler's cache.  Then it is read twice with an empty cache of readings.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.corpus.cases import DEFAULT_TARGET, Case
from bitwise_bench.environment import analysis_environment

_PARTITION = "import sys; from bitwise_core.cli import main; sys.argv[0] = 'bitwise'; main()"


class RunFailed(RuntimeError):
    """The command ended with an error; the message is what it printed."""


def sample(cases: Sequence[Case], count: int) -> list[Case]:
    """Return at most `count` of the cases, evenly spaced over the corpus."""
    step = max(1, len(cases) // count)
    return list(cases[::step][:count])


def write_kernels(folder: Path, cases: Sequence[Case], target: str, processes: int) -> int:
    """Compile the cases into one folder with a manifest, and return the number of kernels; others are left out."""
    from bitwise_bench.compilation.capture import compile_job
    from bitwise_bench.worker_pool import run_all
    from bitwise_triton.configurations import write_folder

    settings = {"target": target, "keep": True}
    batches = [[case.id] for case in cases]
    answers = run_all(compile_job, batches, settings, processes=processes, seconds=90.0, report=lambda *_: None)
    kernels = [answers[case.id]["kernel"] for case in cases if "kernel" in answers[case.id]]
    write_folder(kernels, folder, [f"{index:04}" for index in range(len(kernels))])
    return len(kernels)


def measure(folder: Path, workers: int, cache: Path | None = None) -> dict[str, Any]:
    """Return the wall-clock seconds of one partition, the CPU seconds, and the memory of the largest process in MiB.

    `cache` is the folder of the cache of readings; None: it is not used.  Raises RunFailed where the command fails.
    """
    command = [sys.executable, "-c", _PARTITION, "partition", str(folder), "--json", "--workers", str(workers)]
    environment = dict(os.environ) if cache is None else {**os.environ, "XDG_CACHE_HOME": str(cache)}
    start = time.monotonic()
    with subprocess.Popen(
        [*command, *(() if cache is not None else ("--no-cache",))],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        message = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - start
    if process.returncode:
        raise RunFailed(message.strip() or f"bitwise partition ended with status {process.returncode}")
    return {
        "workers": workers,
        "seconds": round(seconds, 2),
        "CPU seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "largest process, MiB": usage.ru_maxrss >> 10,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; the exit status is 1 where a partition fails."""
    parser = command_parser("readings.worker_scaling", __doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="the numbers of workers (default 1 2)")
    parser.add_argument("--kernels", type=int, default=400, help="kernels of the corpus (default 400)")
    parser.add_argument("--target", default=DEFAULT_TARGET, help=f"compile for this target (default {DEFAULT_TARGET})")
    parser.add_argument("--out", type=Path, help="write the measurements here, as JSON")
    chosen = parser.parse_args(arguments)
    if chosen.kernels < 1 or min(chosen.workers) < 1:
        parser.error("--kernels and --workers must be at least 1")
    from bitwise_bench.corpus import catalogue

    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        cases = sample(catalogue.cases(chosen.target), chosen.kernels)
        count = write_kernels(folder, cases, chosen.target, cores)
        try:
            measure(folder, max(chosen.workers))
            runs = [measure(folder, workers) for workers in chosen.workers]
            with tempfile.TemporaryDirectory() as cache:
                cached = [measure(folder, max(chosen.workers), Path(cache)) for _ in range(2)]
        except RunFailed as error:
            print(error, file=sys.stderr)
            return 1
    for run in runs:
        run["times as fast"] = round(runs[0]["seconds"] / run["seconds"], 2)
        print(
            f"{run['workers']:3} workers: {run['seconds']:7.2f} s, {run['times as fast']:5.2f} times as fast, "
            f"{run['CPU seconds']:7.2f} s of CPU, largest process {run['largest process, MiB']} MiB"
        )
    print(f"with the cache: {cached[0]['seconds']} s, and {cached[1]['seconds']} s again")
    environment = {**analysis_environment(), "cores": cores}
    record = {
        "environment": environment,
        "target": chosen.target,
        "kernels": count,
        "runs": runs,
        "with the cache": cached,
    }
    if chosen.out:
        chosen.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
