"""Record the output bytes of every kernel of the corpus on a GPU.

    python -m bitwise_bench.gpu.recorder --out records/bytes-h100.json

With `--dry-run` every configuration is compiled and none is launched; failures are listed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.corpus.cases import DEFAULT_TARGET
from bitwise_bench.recorded_bytes import label_cases, save_records
from bitwise_core.plugins.registry import UnknownArchError

_BATCH = 12


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the recorder; the exit status is 1 where a configuration did not compile or run, else 0."""
    parser = command_parser("gpu.recorder", __doc__)
    parser.add_argument("--out", type=Path, help="write the record here, as JSON, compressed if the name ends in .gz")
    parser.add_argument("--target", default=DEFAULT_TARGET, help="the architecture (default sm_90)")
    parser.add_argument("--families", nargs="*", default=[], help="these families only")
    parser.add_argument("--sample", type=int, default=0, help="at most this many configurations of a family (0: all)")
    parser.add_argument("--whole", nargs="*", default=[], help="with --sample: all configurations of these families")
    parser.add_argument("--processes", type=int, default=14, help="worker processes (default 14)")
    parser.add_argument("--repeats", type=int, default=2, help="launches for each kind of input (default 2)")
    parser.add_argument("--seconds", type=float, default=90.0, help="time limit of one configuration (default 90)")
    parser.add_argument("--dry-run", action="store_true", help="compile without launching")
    parser.add_argument("--folder", type=Path, help="with --dry-run: write the compiled kernels to this folder")
    parser.add_argument("--list", action="store_true", help="list the families and their sizes")
    chosen = parser.parse_args(arguments)
    if not (chosen.list or chosen.dry_run or chosen.out):
        parser.error("give --out to write the record, or --dry-run to compile only")

    if not (chosen.list or chosen.dry_run):
        from bitwise_bench.gpu.launching import missing_architecture

        missing = missing_architecture(chosen.target)
        if missing is not None:
            parser.error(f"{missing}; add --dry-run to compile them only")
    from bitwise_bench.corpus import catalogue
    from bitwise_bench.corpus.targets import sampled

    try:
        listed = catalogue.cases(chosen.target)
    except UnknownArchError as error:
        parser.error(str(error))
    families = list(dict.fromkeys(case.family for case in listed))
    unknown = sorted(set(chosen.families) - set(families))
    if unknown:
        parser.error(f"unknown family {', '.join(unknown)}; the families are {', '.join(families)}")
    chosen_cases = sampled(listed, chosen.sample, chosen.whole)
    cases = [case for case in chosen_cases if not chosen.families or case.family in chosen.families]
    if chosen.list:
        groups = {(case.family, case.group) for case in cases}
        by_family = Counter(family for family, _ in groups)
        for family, count in Counter(case.family for case in cases).items():
            print(f"{family:32} {by_family[family]:4} groups {count:5} configurations")
        print(f"{len(by_family)} families, {len(groups)} groups, {len(cases)} configurations")
        return 0
    results = _run(cases, chosen)
    if chosen.out and not chosen.dry_run:
        from bitwise_bench.draws.inputs import DRAWS
        from bitwise_bench.gpu.launching import environment

        save_records(chosen.out, environment(), DRAWS, results)
        print(f"wrote {chosen.out} ({chosen.out.stat().st_size} bytes)")
    return 0 if all(entry.get("error") is None for entry in results) else 1


def _run(cases: list[Any], chosen: argparse.Namespace) -> list[dict[str, Any]]:
    from bitwise_bench.compilation.capture import compile_job, write_folders
    from bitwise_bench.worker_pool import run_all

    os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread in each worker process
    settings: dict[str, Any] = {"repeats": chosen.repeats, "keep": bool(chosen.folder), "target": chosen.target}
    if chosen.dry_run:
        job = compile_job
    else:
        from bitwise_bench.gpu.launching import record_case as job
    batches: dict[tuple[str, str], list[str]] = {}
    for case in cases:
        batches.setdefault((case.family, case.group), []).append(case.id)
    chunks = [names[i : i + _BATCH] for names in batches.values() for i in range(0, len(names), _BATCH)]
    start, done = time.monotonic(), 0

    def report(name: str, answer: dict[str, Any]) -> None:
        nonlocal done
        done += 1
        if answer.get("error"):
            print(f"FAILED {name}: {answer['error']}", file=sys.stderr, flush=True)
        if done % 50 == 0:
            print(f"{done} of {len(cases)} after {time.monotonic() - start:.0f} s", flush=True)

    answers = run_all(job, chunks, settings, processes=chosen.processes, seconds=chosen.seconds, report=report)
    if chosen.dry_run and chosen.folder:
        write_folders(chosen.folder, cases, answers)
    results = [{"id": case.id, "family": case.family, "group": case.group, **answers[case.id]} for case in cases]
    _summarise(results, chosen.dry_run)
    print(f"{len(results)} configurations in {time.monotonic() - start:.0f} s")
    return results


def _summarise(results: list[dict[str, Any]], dry_run: bool) -> None:
    families = dict.fromkeys(entry["family"] for entry in results)
    labelled = label_cases(results) if not dry_run else results
    for family in families:
        members = [entry for entry in labelled if entry["family"] == family]
        failed = sum(entry.get("error") is not None for entry in members)
        line = f"{family:32} {len(members):4} cases {failed:3} failed {len({e['group'] for e in members}):3} groups"
        if not dry_run:
            classes = len({(entry["group"], entry["label"]) for entry in members if entry["label"] is not None})
            nondeterministic = sum(not entry.get("repeated", True) for entry in members)
            unlike_dry_run = sum(
                entry.get("digest") != entry.get("captured") for entry in members if not entry.get("error")
            )
            line += (
                f" {classes:4} byte classes {nondeterministic:3} nondeterministic {unlike_dry_run:3} unlike --dry-run"
            )
        else:
            line += (
                f" {len({entry.get('captured') for entry in members if not entry.get('error')}):4} different kernels"
            )
        print(line)


if __name__ == "__main__":
    sys.exit(main())
