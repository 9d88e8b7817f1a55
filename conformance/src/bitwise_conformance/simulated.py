"""The bytes of the corpus for an architecture without its GPU: every kernel run on bit patterns, as a record.

    python -m bitwise_conformance.simulated --target gfx942 --out records/bytes-gfx942-simulated-triton-3.6.0.json

Approximations whose bits are not public are stood in for by the functions of the plugin's `corpus.stand_ins`, in this
comparison alone.  Every case runs on the draws that tell most, and then on as many more as its group's time allows, the
same for a group; what was not run is recorded as an empty hash.  Two kernels whose hashes agree form one byte class:
fewer draws part fewer kernels, so that the number of byte classes is a lower bound.  The record is written as the run
goes on and holds whole groups, so that one that is cut short is a record too.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bitwise_conformance.corpus.targets import package_of
from bitwise_conformance.draws import DRAWS
from bitwise_conformance.environment import reading_environment
from bitwise_conformance.execution import outputs, size
from bitwise_conformance.records import save_records
from bitwise_core import registry
from bitwise_core.machine.arch import Arch, BitPatterns

FIRST = ("normal", "wide", "special", "subnormal", "negative_zero", "zeros")
ORDER = (*FIRST, *(kind for kind in DRAWS if kind not in FIRST))
"""The draws, those first that tell most."""

FEWEST = 6
"""Draws on which every kernel runs first, however long that takes."""

_BATCH = 6
_BATCH_SECONDS = 20.0
"""A worker takes so many cases of a group at once, or those that take about so long."""

SAVE_EVERY = 10.0
"""Seconds between writes of what is there so far."""


def with_stand_ins(arch: Arch) -> Arch:
    """The architecture with functions for all its operations.  Raises ValueError where it is not run on patterns."""
    if arch.bits is None:
        raise ValueError(f"kernels of {arch.name} are not run on bit patterns")
    module = f"{package_of(arch.name)}.corpus.stand_ins"
    if find_spec(module) is None:
        return arch
    functions = {**import_module(module).STAND_INS, **arch.bits.functions}
    return replace(arch, bits=BitPatterns(functions, arch.bits.matrix_units))


def simulate_case(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Compile the case called `name` and run it on its group's part of ORDER; a job for the pool.

    `settings["parts"]` gives the first and the end of the part by group; without them they are the first draws.
    With `settings["folder"]` the kernel is taken from there.
    """
    from bitwise_conformance import corpus
    from bitwise_conformance.agreement import compile_source, stored_source
    from bitwise_core.checker import Options, prepare

    case = corpus.by_id(settings["target"])[name]
    folder = settings.get("folder")
    source, digest = stored_source(case, Path(folder)) if folder else compile_source(case)[:2]
    answer: dict[str, Any] = {"outputs": [array.name for array in case.outputs], "digest": digest, "captured": digest}
    first, end = settings["parts"].get(f"{case.family}/{case.group}", (0, FEWEST))
    chosen = ORDER[first:end]
    known = _KNOWN.setdefault((case.family, case.group, digest, str(source.launch)), {})
    start = time.perf_counter()
    left = [draw for draw in chosen if draw not in known]
    if left:
        prepared = prepare(
            source, with_stand_ins(registry.default().arch(case.target)), Options(audit_contraction=False)
        )
        known |= outputs(case, prepared, left)
    blank = [""] * len(case.outputs)
    return {
        **answer,
        "seconds": time.perf_counter() - start,
        "repeated": True,
        "hashes": [list(known[draw]) if draw in chosen else blank for draw in DRAWS],
    }


_KNOWN: dict[tuple[str, str, str, str], dict[str, tuple[str, ...]]] = {}
"""What this process has run: several options of a compiler often give one text."""


def counts_of(first: Mapping[str, Mapping[str, Any]], budget: float) -> dict[str, int]:
    """How many draws each group gets: as many as its slowest case runs in `budget` seconds, FEWEST at least."""
    slowest: dict[str, float] = {}
    for name, answer in first.items():
        group = name.rsplit("/", 1)[0]
        slowest[group] = max(slowest.get(group, 0.0), _of_one_draw(answer))
    return {group: min(len(ORDER), max(FEWEST, int(budget / max(seconds, 1e-3)))) for group, seconds in slowest.items()}


def _of_one_draw(answer: Mapping[str, Any]) -> float:
    return float(answer.get("seconds", 0.0)) / FEWEST


def budget_for(first: Mapping[str, Mapping[str, Any]], total: float) -> float:
    """The budget of one case with which the draws beyond the first take about `total` seconds of one core."""
    low, high = 0.0, 1e4
    for _ in range(40):
        middle = (low + high) / 2
        counts = counts_of(first, middle)
        needed = sum((counts[name.rsplit("/", 1)[0]] - FEWEST) * _of_one_draw(answer) for name, answer in first.items())
        low, high = (middle, high) if needed <= total else (low, middle)
    return low


def whole_groups(
    first: Mapping[str, Mapping[str, Any]],
    more: Mapping[str, Mapping[str, Any]],
    groups: Mapping[str, Sequence[str]],
) -> dict[str, Mapping[str, Any]]:
    """The answers of a first run with those of a later one, for groups that are whole: one set of draws for each.

    A group that the first run has not ended is left out, one that the later run has not ended is as the first left it.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for names in groups.values():
        if not all(name in first for name in names):
            continue
        ended = all(name in more or first[name].get("error") for name in names)
        failed = any(more[name].get("error") for name in names if name in more)
        found |= {name: _joined(first[name], more.get(name) if ended and not failed else None) for name in names}
    return found


def _joined(first: Mapping[str, Any], more: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """One case's answers: the hashes of both runs."""
    if more is None:
        return first
    hashes = [list(new if any(new) else old) for old, new in zip(first["hashes"], more["hashes"], strict=True)]
    return {**first, "hashes": hashes}


def pieces_of(groups: Mapping[str, Sequence[str]], seconds: Mapping[str, float]) -> list[list[str]]:
    """The cases of each group in pieces for one worker; groups of cases that take little time come first."""

    def slowest(names: Sequence[str]) -> float:
        return max((seconds.get(name, 0.0) for name in names), default=0.0)

    found = []
    for names in sorted(groups.values(), key=slowest):
        size = max(1, min(_BATCH, int(_BATCH_SECONDS / max(slowest(names), 1e-3))))
        found += [list(names[start : start + size]) for start in range(0, len(names), size)]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the corpus and write the record; the exit status is 1 where a case could not be run."""
    parser = argparse.ArgumentParser(prog="bitwise_conformance.simulated", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--target", default="gfx942", help="the architecture (default gfx942)")
    parser.add_argument("--out", type=Path, required=True, help="where to write the record")
    parser.add_argument("--families", nargs="*", default=[], help="these families only")
    parser.add_argument("--folder", type=Path, help="take the kernels from the folder of a corpus, compiled before")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="worker processes (default: all cores)"
    )
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of one case for all draws (default 60)")
    parser.add_argument("--total", type=float, help="let all cases together take about so many seconds instead")
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit of one case (default 300)")
    chosen = parser.parse_args(arguments)
    from bitwise_conformance import corpus
    from bitwise_conformance.pool import run_all

    cases = [each for each in corpus.cases(chosen.target) if not chosen.families or each.family in chosen.families]
    groups: dict[str, list[str]] = {}
    for case in cases:
        groups.setdefault(f"{case.family}/{case.group}", []).append(case.id)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the workers are the parallelism
    start = saved = time.monotonic()
    first: dict[str, Mapping[str, Any]] = {}
    more: dict[str, Mapping[str, Any]] = {}

    def save() -> None:
        environment = {**reading_environment(), "simulated": "bit patterns, with stand-ins for approximations"}
        environment |= {"architecture": chosen.target, "machine": platform.machine()}
        answers = whole_groups(first, more, groups)
        results = [
            {"id": c.id, "family": c.family, "group": c.group, **answers[c.id]} for c in cases if c.id in answers
        ]
        save_records(chosen.out, environment, DRAWS, [_without_seconds(each) for each in results])

    def run(
        into: dict[str, Mapping[str, Any]], pieces: Sequence[Sequence[str]], parts: Mapping[str, tuple[int, int]]
    ) -> None:
        def report(name: str, answer: Mapping[str, Any]) -> None:
            nonlocal saved
            if answer.get("error"):
                print(f"FAILED {name}: {answer['error']}", file=sys.stderr, flush=True)
            into[name] = answer
            if time.monotonic() > saved + SAVE_EVERY:
                save()
                saved = time.monotonic()

        folder = None if chosen.folder is None else str(chosen.folder)
        settings = {"target": chosen.target, "parts": dict(parts), "folder": folder}
        run_all(simulate_case, pieces, settings, processes=chosen.processes, seconds=chosen.seconds, report=report)
        save()

    work = {case.id: 1e-3 * size(case) * ("gemm" in case.family or "attention" in case.family) for case in cases}
    run(first, pieces_of(groups, work), {})
    print(f"{FEWEST} draws of {len(cases)} cases after {time.monotonic() - start:.0f} s", flush=True)
    left = None if chosen.total is None else max(1.0, chosen.total - (time.monotonic() - start))
    # Processes that start, and compiling once more, take time too.
    counts = counts_of(first, chosen.budget if left is None else budget_for(first, 0.8 * left * chosen.processes))
    ran = {
        group: [name for name in names if not first[name].get("error")]
        for group, names in groups.items()
        if counts[group] > FEWEST
    }
    needed = {name: _of_one_draw(first[name]) * (counts[group] - FEWEST) for group in ran for name in ran[group]}
    run(more, pieces_of(ran, needed), {group: (FEWEST, counts[group]) for group in ran})
    failed = sum(1 for each in (*first.values(), *more.values()) if each.get("error"))
    complete = sum(count == len(ORDER) for count in counts.values())
    print(f"{len(cases)} cases, {failed} not run, {complete} of {len(counts)} groups on all {len(ORDER)} draws, "
          f"after {time.monotonic() - start:.0f} s")  # fmt: skip
    return 1 if failed else 0


def _without_seconds(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "seconds"}


if __name__ == "__main__":
    sys.exit(main())
