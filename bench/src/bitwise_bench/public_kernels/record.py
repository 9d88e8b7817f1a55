"""Record the kernels that operators of public packages launch, and the bytes that they return on a GPU.

    python -m bitwise_bench.public_kernels.fetch --into packages
    python -m bitwise_bench.public_kernels.record --packages packages --out public-kernels --seconds 420

Every launch is compiled in several configurations, and each is run from the same inputs.  `--without-gpu` compiles them
for sm_90 and runs none.  A run continues where the previous run of its folder ended.  `--archive` also writes the
folder as one file, and every source as a file of its own as soon as its last case is done.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.public_kernels.agreement import PARTS, part_of
from bitwise_bench.public_kernels.sources import SOURCES, Source

SUMMARY = "case.json"
"""The file of a case that is done, in its folder."""

TURNS = 3
"""Processes that run kernels at the same time."""

CASES_OF_A_PROCESS = 2
"""The most.  To import a package takes seconds; a fault of the device ends the process."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the recorder; the exit status is 1 where nothing was recorded."""
    parser = command_parser("public_kernels.record", __doc__)
    parser.add_argument("--packages", type=Path, required=True, help="the folder that `fetch` wrote")
    parser.add_argument("--out", type=Path, required=True, help="write the launches to this folder")
    parser.add_argument("--sources", nargs="*", default=[], help="these sources only")
    parser.add_argument("--cases", nargs="*", default=[], help="these cases only, as source/case")
    parser.add_argument("--part", choices=PARTS, help="the cases of this part only, by a hash of source/case")
    parser.add_argument("--seconds", type=float, default=420.0, help="start no case after this time (default 420)")
    parser.add_argument("--case-seconds", type=float, default=60.0, help="time for one case (default 60)")
    parser.add_argument("--processes", type=int, default=14, help="worker processes (default 14)")
    parser.add_argument("--configurations", type=int, default=8, help="configurations of a launch (default 8)")
    parser.add_argument("--launches", type=int, default=60, help="launches of a case, at equal distances (default 60)")
    parser.add_argument("--without-gpu", action="store_true", help="compile for sm_90, and run nothing")
    parser.add_argument("--targets", nargs="*", default=[], help="compile for these too, into a folder OUT-TARGET")
    parser.add_argument("--target-launches", type=int, default=60, help="launches of a case that are (default 60)")
    parser.add_argument("--archive", type=Path, help="write the folder to this .tar.xz")
    parser.add_argument("--list", action="store_true", help="list the cases")
    chosen = parser.parse_args(arguments)
    unknown = sorted(set(chosen.sources) - SOURCES.keys())
    if unknown:
        parser.error(f"there is no source {unknown[0]}; the sources are {', '.join(SOURCES)}")
    start = time.time()
    settings = {
        "packages": str(chosen.packages.resolve()),
        "out": str(chosen.out.resolve()),
        "gpu": not chosen.without_gpu,
        "deadline": start + chosen.seconds,
        "case seconds": chosen.case_seconds,
        "configurations": chosen.configurations,
        "launches": chosen.launches,
        "targets": chosen.targets,
        "target launches": chosen.target_launches,
    }
    os.environ.update({"OMP_NUM_THREADS": "1", "TRITON_DISABLE_LINE_INFO": "1", "TOKENIZERS_PARALLELISM": "false"})
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    names = [name for name in planned(chosen.sources) if not chosen.cases or name in chosen.cases]
    names = [name for name in names if chosen.part in (None, part_of(name))]
    if chosen.list:
        print("\n".join(names))
        return 0
    waiting = [name for name in names if not (chosen.out / name / SUMMARY).exists()]
    chosen.out.mkdir(parents=True, exist_ok=True)
    archives = SourceArchives(chosen.out, chosen.archive, waiting) if chosen.archive else None
    _run(waiting, settings, chosen.processes, chosen.case_seconds, archives)
    (chosen.out / "environment.json").write_text(json.dumps(_environment(settings["gpu"]), indent=1) + "\n")
    kernels = _report(chosen.out, names)
    if chosen.archive is not None:
        write_archive(chosen.out, chosen.archive)
        print(f"wrote {chosen.archive} ({chosen.archive.stat().st_size} bytes) after {time.time() - start:.0f} s")
    return 0 if kernels else 1


def planned(sources: Sequence[str] = ()) -> list[str]:
    """Return the cases as source/case."""
    chosen = [source for source in SOURCES.values() if not sources or source.name in sources]
    return [f"{source.name}/{case}" for source in chosen for case in source.drivers()]


def batches(names: Sequence[str], size: int = CASES_OF_A_PROCESS) -> list[list[str]]:
    """Return the cases in batches of one source each, so that every source has its turn early."""
    by_source: dict[str, list[str]] = {}
    for name in names:
        by_source.setdefault(name.split("/")[0], []).append(name)
    queues = [[mine[at : at + size] for at in range(0, len(mine), size)] for mine in by_source.values()]
    rounds = max(map(len, queues), default=0)
    return [queue[place] for place in range(rounds) for queue in queues if place < len(queue)]


class SourceArchives:
    """Writes the archive of each source when the last of its waiting cases is done.

    The archive of the source `liger` beside `all.tar.xz` is `all-liger.tar.xz`.
    """

    def __init__(self, out: Path, archive: Path, waiting: Sequence[str]) -> None:
        self._out, self._archive = out, archive
        self._left = Counter(name.split("/")[0] for name in waiting)

    def done(self, name: str) -> None:
        """Note that the case `source/case` is done."""
        source = name.split("/")[0]
        self._left[source] -= 1
        if self._left[source] == 0 and any((self._out / source).glob(f"*/{SUMMARY}")):
            write_archive(self._out, self._archive.with_name(f"{_stem(self._archive)}-{source}.tar.xz"), source)


def _stem(archive: Path) -> str:
    return archive.name.removesuffix(".tar.xz")


def _run(
    names: Sequence[str],
    settings: dict[str, Any],
    processes: int,
    case_seconds: float,
    archives: SourceArchives | None = None,
) -> None:
    from bitwise_bench.worker_pool import run_all

    start, done = time.monotonic(), 0

    def report(name: str, answer: dict[str, Any]) -> None:
        nonlocal done
        done += 1
        words = answer.get("error") or f"{answer['launches']} launches, {answer['kernels']} kernels"
        print(f"{time.monotonic() - start:5.0f} s {done}/{len(names)} {name}: {words}", flush=True)
        if "error" in answer:
            folder = Path(settings["out"]) / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "error.json").write_text(json.dumps(answer) + "\n")
        if archives is not None:
            archives.done(name)

    size = max(1, min(CASES_OF_A_PROCESS, len(names) // processes))
    run_all(
        record_case, batches(names, size), settings, processes=processes, seconds=2 * case_seconds + 60, report=report
    )


def record_case(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Run the driver `source/case` and every configuration of its launches; a job for `worker_pool.run_all`."""
    if time.time() > settings["deadline"]:
        return {"error": "out of time"}
    from bitwise_bench.public_kernels.interception import Interception, intercepted
    from bitwise_bench.public_kernels.tensors import Tensors
    from bitwise_bench.public_kernels.without_gpu import pretended_gpu
    from bitwise_bench.worker_pool import PoisonedProcess

    started = time.monotonic()
    source, case = name.split("/", 1)
    folder = Path(settings["out"]) / name
    gpu = bool(settings["gpu"])
    failure = None
    with ExitStack() as stack:
        if not gpu:
            stack.enter_context(pretended_gpu())
        else:
            _give_scratch_memory()
        prepare_import(SOURCES[source], Path(settings["packages"]))
        interception = Interception(execute=gpu, maximum_configurations=settings["configurations"])
        tensors = Tensors("cuda" if gpu else "cpu")
        with intercepted(interception):
            try:
                SOURCES[source].drivers()[case](tensors)
            except Exception as error:  # the launches before it are recorded
                failure = " ".join(f"{type(error).__name__}: {error}".split())[:400]
                if settings.get("traceback"):
                    import traceback

                    traceback.print_exc()
        launches, kernels, problems, lost = _replayed(interception, folder, settings, started)
    summary = {
        "launches": launches,
        "kernels": kernels,
        "calls": interception.calls,
        "failure": failure,
        "refused": [*tensors.failures, *interception.refused][:20],
        "problems": problems,
        "seconds": round(time.monotonic() - started, 1),
    }
    if not interception.launches:
        return {"error": failure or "; ".join([*tensors.failures, *interception.refused][:3]) or "launched no kernel"}
    (folder / SUMMARY).write_text(json.dumps(summary) + "\n")
    if lost:
        # The pool starts another process for the next case.
        raise PoisonedProcess(f"the device was lost after {launches} launches, which are recorded")
    return summary


def _replayed(
    interception: Any, folder: Path, settings: dict[str, Any], started: float
) -> tuple[int, int, list[str], bool]:
    from bitwise_bench.public_kernels.configurations import chosen_configurations
    from bitwise_bench.public_kernels.replay import (
        DeviceLost,
        check_device,
        compiled_configurations,
        recorded_bytes,
        write_for_target,
        write_launch,
    )

    launches = kernels = 0
    lost = False
    problems: list[str] = []
    numbered = chosen_configurations(list(enumerate(interception.launches)), settings["launches"])
    also = {number for number, _ in chosen_configurations(numbered, settings["target launches"])}
    for place_in_list, (number, launch) in enumerate(numbered):
        if time.monotonic() - started > settings["case seconds"]:
            left = len(numbered) - place_in_list
            problems.append(f"{left} launches were left: the time of the case was over")
            break
        place = folder / f"{number:02d}_{launch.name.rsplit('.', 1)[-1][:60]}"
        try:
            compiled, errors = compiled_configurations(launch)
            if not compiled:
                problems.append(f"{launch.name}: no configuration compiles: {errors[:1]}")
                continue
            with _turn(Path(settings["out"])):
                hashes = recorded_bytes(launch, compiled) if settings["gpu"] else None
            write_launch(place, launch, compiled, errors, hashes)
            for target in settings["targets"] if number in also else ():
                other = Path(f"{settings['out']}-{target}") / place.relative_to(settings["out"])
                write_for_target(other, launch, target, compiled, hashes)
        except DeviceLost as error:
            problems.append(f"{launch.name}: the device was lost: {str(error)[:200]}")
            lost = True
            break
        except Exception as error:  # the other launches are recorded
            problems.append(" ".join(f"{launch.name}: {type(error).__name__}: {error}".split())[:400])
            if settings["gpu"]:
                try:
                    check_device(error)
                except DeviceLost:
                    lost = True
                    break
            continue
        launches, kernels = launches + 1, kernels + len(compiled)
    folder.mkdir(parents=True, exist_ok=True)
    return launches, kernels, problems, lost


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Let few of the processes that write to a folder run kernels: time slices on the GPU would make every run wait."""
    with (folder / f"turn{os.getpid() % TURNS}").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def prepare_import(source: Source, packages: Path) -> None:
    """Make the modules of a source importable."""
    folder = str(packages / source.name / source.root)
    if source.archive != "installed" and folder not in sys.path:
        sys.path.insert(0, folder)


def _give_scratch_memory() -> None:
    import torch
    import triton

    def allocate(size: int, alignment: int, stream: int | None) -> Any:
        return torch.empty(size, dtype=torch.int8, device="cuda")

    triton.set_allocator(allocate)


def _environment(gpu: bool) -> dict[str, str]:
    if gpu:
        from bitwise_bench.gpu.launching import environment

        return {**environment(), "transformers": metadata.version("transformers")}
    from bitwise_bench.environment import analysis_environment

    return analysis_environment()


def _report(out: Path, names: Sequence[str]) -> int:
    """Print what was recorded of each source, and return the number of kernels."""
    total = 0
    for source in dict.fromkeys(name.split("/")[0] for name in names):
        mine = [out / name for name in names if name.startswith(f"{source}/")]
        done = [json.loads((place / SUMMARY).read_text()) for place in mine if (place / SUMMARY).exists()]
        kernels = sum(each["kernels"] for each in done)
        total += kernels
        print(f"{source}: {len(done)} of {len(mine)} cases, {sum(e['launches'] for e in done)} launches, "
              f"{kernels} kernels")  # fmt: skip
        for place in mine:
            if (place / SUMMARY).exists():
                entry = json.loads((place / SUMMARY).read_text())
                words = [entry["failure"]] if entry["failure"] else []
                words += [*entry["refused"][:2], *entry["problems"][:3]]
            else:
                words = [json.loads((place / "error.json").read_text())["error"]] if place.exists() else ["not run"]
            if words:
                print(f"  {place.name}: {' | '.join(words)[:500]}")
    print(f"{total} kernels")
    return total


def write_archive(folder: Path, path: Path, part: str = "") -> None:
    """Write a folder, or one folder in it, as one .tar.xz. An unfinished file never has the name of the archive."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.part")
    with tarfile.open(unfinished, "w:xz", preset=1) as archive:
        archive.add(folder / part, arcname=str(Path(folder.name) / part))
    unfinished.replace(path)


if __name__ == "__main__":
    sys.exit(main())
