"""CPU seconds in which the kernels that `record` wrote are read, beside those in which Triton compiled them.

    python -m bitwise_bench.public_kernels.times public-kernels --out times.json --workers 8

Every kernel is read by itself, without the cache of readings: once if the cache of the assembler has its answers, as
after `read`.
"""

from __future__ import annotations

import hashlib
import json
import resource
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.environment import analysis_environment
from bitwise_bench.public_kernels.agreement import PARTS, part_of
from bitwise_bench.public_kernels.read import EXTENSIONS, TARGET, launch_folders, unpacked
from bitwise_bench.readings.assumed import reading
from bitwise_bench.readings.compile_times import cpu_seconds, spread
from bitwise_bench.worker_pool import run_all
from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.kernel_files import read_folder
from bitwise_core.checker.sources import buffers_of
from bitwise_core.errors import InputError
from bitwise_core.plugins import registry


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; the exit status is 1 where no kernel was read."""
    parser = command_parser("public_kernels.times", __doc__)
    parser.add_argument("folder", type=Path, help="the folder that `record` wrote, or its archive")
    parser.add_argument("--out", type=Path, required=True, help="write the seconds here, as JSON")
    parser.add_argument("--target", default=TARGET, help=f"the target of kernels that name none (default {TARGET})")
    parser.add_argument("--part", choices=PARTS, help="the launches of this part only")
    parser.add_argument(
        "--workers", type=int, default=1, help="processes; use no more than there are cores (default 1)"
    )
    parser.add_argument("--until", type=float, default=600.0, help="start no launch after this time (default 600 s)")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = unpacked(chosen.folder, Path(temporary))
        names = [place.relative_to(folder).as_posix() for place in launch_folders(folder)]
        names = [name for name in names if chosen.part in (None, part_of(name))]
        names.sort(key=lambda name: hashlib.sha256(name.encode()).digest())
        settings = {"folder": str(folder), "target": chosen.target, "until": time.time() + chosen.until}
        answers: dict[str, dict[str, Any]] = {}

        def keep(name: str, answer: dict[str, Any]) -> None:
            answers[name] = answer
            if "error" in answer:
                print(f"{name}: {answer['error']}", file=sys.stderr)
            chosen.out.write_text(json.dumps(_record(answers, chosen.workers), indent=1) + "\n")

        run_all(times_of, [[name] for name in names], settings, processes=chosen.workers, seconds=900.0, report=keep)
    record = _record(answers, chosen.workers)
    print(json.dumps(record["summary"]))
    return 0 if record["launches"] else 1


def _record(answers: Mapping[str, Mapping[str, Any]], workers: int) -> dict[str, Any]:
    launches = {name: answer["kernels"] for name, answer in sorted(answers.items()) if "kernels" in answer}
    return {
        "environment": analysis_environment(),
        "workers": workers,
        "largest process, MiB": max([0, *(answer.get("MiB", 0) for answer in answers.values())]),
        "summary": summary(launches),
        "launches": launches,
    }


def times_of(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Read the kernels of a launch; a job for `worker_pool.run_all`.

    Returns by file the configuration, the CPU seconds of reading and of compiling, and why a kernel is Unknown.
    """
    if time.time() > settings["until"]:
        return {"error": "out of time"}
    place = Path(settings["folder"]) / name
    described = {each["file"]: each for each in json.loads((place / "bytes.json").read_text())["kernels"]}
    try:
        sources = read_folder(place, EXTENSIONS).sources
    except InputError as error:
        return {"error": str(error)}
    arch = registry.default().arch(settings["target"])
    kernels = {}
    for source in sources:
        used = cpu_seconds()
        result = analyse(source, arch, buffers_of([source]), reading(arch.name))
        kernels[source.name] = {
            "configuration": described[source.name]["name"],
            "reading": round(cpu_seconds() - used, 4),
            "compiling": described[source.name].get("compile CPU seconds") or None,
            "unknown": result.unknown,
        }
    return {"kernels": kernels, "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}


def summary(launches: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the spreads of seconds and of ratios, of all kernels and of those that have both times."""
    every = [kernel for launch in launches.values() for kernel in launch.values()]
    both = [kernel["reading"] / kernel["compiling"] for kernel in every if kernel["compiling"]]
    return {
        "kernels": len(every),
        "seconds": spread([kernel["reading"] for kernel in every]),
        "above 60 s": sum(kernel["reading"] > 60 for kernel in every),
        "with both": len(both),
        "reading over compiling": spread(both),
    }


if __name__ == "__main__":
    sys.exit(main())
