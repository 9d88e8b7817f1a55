"""Simulated bytes of the corpus for an architecture: every kernel executed on bit patterns, without a GPU.

    python -m bitwise_bench.simulation.recorder --target gfx942 --out records/bytes-gfx942-simulated-triton-3.6.0.json

Approximate instructions whose bits are not documented are executed by surrogate functions, and products that the
assembler fuses into sums are fused.  Every configuration is executed on the kinds of input that distinguish most
kernels, then on as many more as the time of its group allows, the same ones for a whole group; a kind that was not
executed is recorded as an empty hash.  Fewer kinds distinguish fewer kernels, so the number of byte classes is a lower
bound.  The record is written repeatedly during the run and contains complete groups only, so an interrupted run leaves
a valid record.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.draws.inputs import DRAWS
from bitwise_bench.environment import analysis_environment
from bitwise_bench.readings.assumed import reading
from bitwise_bench.recorded_bytes import save_records
from bitwise_bench.simulation.execution import outputs, size
from bitwise_bench.simulation.surrogates import surrogate_rows, surrogates_of
from bitwise_core.execution.architecture import Arch, BitSupport
from bitwise_core.plugins import registry

FIRST = ("normal", "wide", "special", "subnormal", "negative_zero", "zeros")
ORDER = (*FIRST, *(kind for kind in DRAWS if kind not in FIRST))
"""All kinds of input; those that distinguish most kernels come first."""

FEWEST = 6
"""The number of kinds on which every kernel is executed, regardless of the time limit."""

_BATCH = 6
_BATCH_SECONDS = 20.0
"""The size of a batch for one worker: a number of configurations of a group, or their estimated time in seconds."""

SAVE_EVERY = 10.0
"""Seconds between writes of the record."""


def with_surrogates(arch: Arch) -> Arch:
    """Return the architecture with a function for every operation and a row for every matrix instruction.

    Raises ValueError where its plugin does not execute kernels on bit patterns.
    """
    if arch.bits is None:
        raise ValueError(f"the plugin of {arch.name} does not execute kernels on bit patterns")
    functions = {**surrogates_of(arch.name), **arch.bits.functions}
    return replace(arch, bits=BitSupport(functions, (*arch.bits.matrix_units, *surrogate_rows(arch.name))))


def simulate_case(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Compile a configuration and execute it on a range of ORDER; a job for `worker_pool.run_all`.

    `settings["parts"]` gives the range (first, end) by group; the default is the first FEWEST kinds.  With
    `settings["folder"]` the compiled kernel is read from that folder.
    """
    from bitwise_bench.compilation.sources import compile_source, stored_source
    from bitwise_bench.corpus import catalogue
    from bitwise_core.checker.analysis import prepare

    case = catalogue.by_id(settings["target"])[name]
    folder = settings.get("folder")
    source, digest = stored_source(case, Path(folder)) if folder else compile_source(case)[:2]
    answer: dict[str, Any] = {"outputs": [array.name for array in case.outputs], "digest": digest, "captured": digest}
    first, end = settings["parts"].get(f"{case.family}/{case.group}", (0, FEWEST))
    chosen = ORDER[first:end]
    known = _KNOWN.setdefault((case.family, case.group, digest, str(source.launch)), {})
    start = time.perf_counter()
    left = [draw for draw in chosen if draw not in known]
    if left:
        prepared = prepare(source, with_surrogates(registry.default().arch(case.target)), reading(case.target))
        known |= outputs(case, prepared, left)
    blank = [""] * len(case.outputs)
    return {
        **answer,
        "seconds": time.perf_counter() - start,
        "repeated": True,
        "hashes": [list(known[draw]) if draw in chosen else blank for draw in DRAWS],
    }


_KNOWN: dict[tuple[str, str, str, str], dict[str, tuple[str, ...]]] = {}
"""Hashes computed by this process, since several compile options often give the same text."""


def kinds_by_group(first: Mapping[str, Mapping[str, Any]], budget: float) -> dict[str, int]:
    """Return the number of kinds by group, at least FEWEST: its slowest configuration takes about `budget` seconds."""
    slowest: dict[str, float] = {}
    for name, answer in first.items():
        group = name.rsplit("/", 1)[0]
        slowest[group] = max(slowest.get(group, 0.0), _of_one_draw(answer))
    return {group: min(len(ORDER), max(FEWEST, int(budget / max(seconds, 1e-3)))) for group, seconds in slowest.items()}


def _of_one_draw(answer: Mapping[str, Any]) -> float:
    return float(answer.get("seconds", 0.0)) / FEWEST


def budget_for_total(first: Mapping[str, Mapping[str, Any]], total: float) -> float:
    """Return the budget per configuration with which all kinds but the first FEWEST take `total` seconds of a core."""
    low, high = 0.0, 1e4
    for _ in range(40):
        middle = (low + high) / 2
        counts = kinds_by_group(first, middle)
        needed = sum((counts[name.rsplit("/", 1)[0]] - FEWEST) * _of_one_draw(answer) for name, answer in first.items())
        low, high = (middle, high) if needed <= total else (low, middle)
    return low


def complete_groups(
    first: Mapping[str, Mapping[str, Any]],
    more: Mapping[str, Mapping[str, Any]],
    groups: Mapping[str, Sequence[str]],
) -> dict[str, Mapping[str, Any]]:
    """Return the merged answers of two passes for complete groups, each with one set of kinds.

    A group that the first pass did not complete is omitted; one that the second pass did not complete keeps the answers
    of the first.
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
    """Return the answers of one configuration with the hashes of both passes."""
    if more is None:
        return first
    hashes = [list(new if any(new) else old) for old, new in zip(first["hashes"], more["hashes"], strict=True)]
    return {**first, "hashes": hashes}


def batches_of(groups: Mapping[str, Sequence[str]], seconds: Mapping[str, float]) -> list[list[str]]:
    """Return batches of configurations of one group each; fast groups come first."""

    def slowest(names: Sequence[str]) -> float:
        return max((seconds.get(name, 0.0) for name in names), default=0.0)

    found = []
    for names in sorted(groups.values(), key=slowest):
        size = max(1, min(_BATCH, int(_BATCH_SECONDS / max(slowest(names), 1e-3))))
        found += [list(names[start : start + size]) for start in range(0, len(names), size)]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Execute the corpus and write the record; the exit status is 1 where a configuration could not be executed."""
    parser = command_parser("simulation.recorder", __doc__)
    parser.add_argument("--target", default="gfx942", help="the architecture (default gfx942)")
    parser.add_argument("--out", type=Path, required=True, help="where to write the record")
    parser.add_argument("--families", nargs="*", default=[], help="these families only")
    parser.add_argument("--sample", type=int, default=0, help="at most this many configurations of a family (0: all)")
    parser.add_argument("--folder", type=Path, help="read compiled kernels from this folder")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="worker processes (default: all cores)"
    )
    parser.add_argument(
        "--budget", type=float, default=60.0, help="seconds of one configuration for all kinds of input (default 60)"
    )
    parser.add_argument(
        "--total", type=float, help="seconds of the whole run, instead of a budget for each configuration"
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit of one configuration (default 300)")
    chosen = parser.parse_args(arguments)
    from bitwise_bench.corpus import catalogue
    from bitwise_bench.corpus.targets import sampled
    from bitwise_bench.worker_pool import run_all

    listed = sampled(catalogue.cases(chosen.target), chosen.sample)
    cases = [each for each in listed if not chosen.families or each.family in chosen.families]
    groups: dict[str, list[str]] = {}
    for case in cases:
        groups.setdefault(f"{case.family}/{case.group}", []).append(case.id)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread in each worker process
    start = saved = time.monotonic()
    first: dict[str, Mapping[str, Any]] = {}
    more: dict[str, Mapping[str, Any]] = {}

    def save() -> None:
        environment = {**analysis_environment(), "simulated": "bit patterns, with surrogates for approximations"}
        environment |= {"architecture": chosen.target, "machine": platform.machine()}
        answers = complete_groups(first, more, groups)
        results = [
            {"id": c.id, "family": c.family, "group": c.group, **answers[c.id]} for c in cases if c.id in answers
        ]
        save_records(chosen.out, environment, DRAWS, [_without_seconds(each) for each in results])

    def run(
        into: dict[str, Mapping[str, Any]], batches: Sequence[Sequence[str]], parts: Mapping[str, tuple[int, int]]
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
        run_all(simulate_case, batches, settings, processes=chosen.processes, seconds=chosen.seconds, report=report)
        save()

    work = {case.id: 1e-3 * size(case) * ("gemm" in case.family or "attention" in case.family) for case in cases}
    run(first, batches_of(groups, work), {})
    print(f"{FEWEST} kinds of input of {len(cases)} configurations after {time.monotonic() - start:.0f} s", flush=True)
    left = None if chosen.total is None else max(1.0, chosen.total - (time.monotonic() - start))
    # The factor leaves time to start processes and to compile again.
    counts = kinds_by_group(
        first, chosen.budget if left is None else budget_for_total(first, 0.8 * left * chosen.processes)
    )
    ran = {
        group: [name for name in names if not first[name].get("error")]
        for group, names in groups.items()
        if counts[group] > FEWEST
    }
    needed = {name: _of_one_draw(first[name]) * (counts[group] - FEWEST) for group in ran for name in ran[group]}
    run(more, batches_of(ran, needed), {group: (FEWEST, counts[group]) for group in ran})
    failed = sum(1 for each in (*first.values(), *more.values()) if each.get("error"))
    complete = sum(count == len(ORDER) for count in counts.values())
    print(
        f"{len(cases)} configurations, {failed} not executed, {complete} of {len(counts)} groups on all "
        f"{len(ORDER)} kinds of input, after {time.monotonic() - start:.0f} s"
    )
    return 1 if failed else 0


def _without_seconds(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "seconds"}


if __name__ == "__main__":
    sys.exit(main())
