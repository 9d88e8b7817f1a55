"""Compile, read and run the published corpus, and write its record.

    python -m bitwise_bench.published_corpus --target sm_90 --rows table --records published-corpus --seconds 540

A run continues where the previous run of its folder ended, and stops after `--seconds`.  Groups whose kernels changed,
and incomplete groups that were read by other code, are measured again.  `--out` writes the record.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.environment import analysis_environment
from bitwise_bench.published_corpus.catalogue import TARGETS, Group, cases_of, chosen_groups, definition_of
from bitwise_bench.published_corpus.record import record_of
from bitwise_bench.published_corpus.shards import append, keep_only, read_shard, repair, shard_path, valid_entries
from bitwise_core.checker.readings import environment

BATCH = 48
"""Configurations that a process measures in turn: neighbours in a grid share stages of compilation and texts."""

FLUSH_SECONDS = 5.0
"""Seconds between writes of results."""

LIMIT = 120.0
"""Seconds after which a process that measures one configuration is stopped."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; the exit status is 1 where a class has different bytes, else 0."""
    parser = command_parser("published_corpus", __doc__)
    parser.add_argument("--target", default="sm_90", choices=TARGETS, help="the architecture (default sm_90)")
    parser.add_argument(
        "--rows", nargs="*", default=["all"], help="rows or kernels, `table` for the published rows (default all)"
    )
    parser.add_argument("--records", type=Path, required=True, help="the folder of results, which a run continues")
    parser.add_argument("--out", type=Path, help="write the record here, as JSON")
    parser.add_argument("--seconds", type=float, default=540.0, help="the time of this run (default 540)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: all cores)")
    parser.add_argument("--sample", type=int, help="of each group, this many configurations across its grid")
    parser.add_argument("--no-gpu", action="store_true", help="compile and read only")
    parser.add_argument("--list", action="store_true", help="list the groups and their sizes")
    chosen = parser.parse_args(arguments)
    deadline = time.time() + chosen.seconds
    try:
        groups = chosen_groups(chosen.target, chosen.rows)
    except ValueError as error:
        parser.error(str(error))
    if chosen.list:
        for group in groups:
            print(f"{group.name:40} {group.row:28} {len(cases_of(group, chosen.target)):6}")
        return 0
    gpu = not chosen.no_gpu
    if gpu and chosen.target != "sm_90":
        parser.error(f"there are no bytes of {chosen.target} on this GPU; add --no-gpu to compile and read only")
    folder = chosen.records / chosen.target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "environment.json").write_text(json.dumps(_environment(gpu), indent=1) + "\n")
    _measure_all(groups, chosen, folder, deadline)
    record = record_of(chosen.records, chosen.target)
    if chosen.out is not None:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(record, indent=1) + "\n")
    print(summary(record))
    return 1 if record["total"]["wrong merges"] else 0


def _environment(gpu: bool) -> dict[str, str]:
    if gpu:
        from bitwise_bench.gpu import launching

        return {**analysis_environment(), **launching.environment()}
    return {**analysis_environment(), "machine": platform.machine()}


def _names(group: Group, target: str, sample: int | None) -> list[str]:
    names = [case.id for case in cases_of(group, target)]
    return names if sample is None else names[:: max(1, len(names) // sample)][:sample]


def _batches(groups: Sequence[Group], chosen: argparse.Namespace, folder: Path, reader: str) -> Iterator[list[str]]:
    """Yield what is not done yet.  Results that are measured again are removed."""
    for group in groups:
        path = shard_path(folder, group)
        repair(path)
        stored, whole = read_shard(path), {case.id for case in cases_of(group, chosen.target)}
        measured = {
            name: entry for name, entry in stored.items() if "bytes" in entry or "error" in entry or chosen.no_gpu
        }
        valid = valid_entries(measured, whole, definition_of(group, chosen.target), reader)
        if len(valid) < len(stored):
            keep_only(path, valid)
        names = [name for name in _names(group, chosen.target, chosen.sample) if name not in valid]
        yield from (names[first : first + BATCH] for first in range(0, len(names), BATCH))


def _measure_all(groups: Sequence[Group], chosen: argparse.Namespace, folder: Path, deadline: float) -> None:
    from bitwise_bench.published_corpus.measuring import measure
    from bitwise_bench.worker_pool import run_all

    os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread in each worker process
    by_name = {group.name: group for group in groups}
    reader = (environment() or secrets.token_hex(6))[:12]  # of unknown code, no result is kept for another run
    batches = list(_batches(groups, chosen, folder, reader))
    total = sum(map(len, batches))
    start = flushed = time.monotonic()
    waiting: dict[Group, list[dict[str, Any]]] = {}
    done = 0

    def flush() -> None:
        for group, entries in waiting.items():
            append(shard_path(folder, group), entries)
        waiting.clear()

    def report(name: str, answer: dict[str, Any]) -> None:
        nonlocal done, flushed
        if answer.get("late"):
            return
        done += 1
        # An answer without a name is that of the pool: the job failed.
        entry = answer if "id" in answer else {"id": name, "failure": answer["error"]}
        if "failure" in entry:
            print(f"FAILED {name}: {entry['failure'][:300]}", file=sys.stderr, flush=True)
        waiting.setdefault(by_name["/".join(name.split("/")[:2])], []).append(entry)
        if time.monotonic() > flushed + FLUSH_SECONDS:
            flush()
            flushed = time.monotonic()
            rate = done / (flushed - start)
            print(f"{flushed - start:5.0f} s: {done} of {total}, {rate:.1f} a second: {name[:60]}", flush=True)

    with tempfile.TemporaryDirectory(prefix="bitwise-corpus-") as cache:
        settings = {"target": chosen.target, "gpu": not chosen.no_gpu, "deadline": deadline, "cache": cache}
        settings["reader"] = reader
        run_all(measure, batches, settings, processes=chosen.workers, seconds=LIMIT, report=report)
    flush()
    print(f"{done} of {total} configurations in {time.monotonic() - start:.0f} s", flush=True)


def summary(record: dict[str, Any]) -> str:
    """Return the figures of every row as text."""
    columns = ("planned", "done", "texts", "classes", "byte classes", "ratio", "unknown", "not run", "failed")
    lines = [f"{'row':28}" + "".join(f"{name:>13}" for name in (*columns, "wrong merges", "read, s"))]
    for name, each in [*record["rows"].items(), ("whole corpus", record["total"])]:
        merges = "-" if each["wrong merges"] is None else len(each["wrong merges"])
        cells = (*("-" if each[column] is None else each[column] for column in columns), merges)
        lines.append(f"{name:28}" + "".join(f"{cell!s:>13}" for cell in (*cells, each["seconds"]["read"]["median"])))
    lines += [f"{each['configurations']:6} {each['reason']}, as {each['example']}" for each in record["reasons"]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
