"""Search for kernels that the checker calls Equal though they return different bytes.

    python -m bitwise_bench.adversary --seconds 600 --jobs 2 --record records/adversary.json
    python -m bitwise_bench.adversary --gpu --seconds 240 --jobs 14 --record records/adversary-sm90.json
    python -m bitwise_bench.adversary --merge part-1.json part-2.json --record records/adversary.json
    python -m bitwise_bench.adversary --replay found/1 found/2

The counts so far are printed, and written to the record, every few seconds, so that a run that is ended keeps them.
The exit status is 1 where such a pair was found, or is still Equal with different bytes; 2 where the run itself failed.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bitwise_bench.adversary import folders
from bitwise_bench.adversary.campaign import Tally, device_environment, worker
from bitwise_bench.adversary.device import DeviceError
from bitwise_bench.adversary.folders import ReplayError, WrongEqual
from bitwise_bench.adversary.kernel_families.families import FAMILIES
from bitwise_bench.adversary.record import counts_so_far, failed, merged, record_of, summary
from bitwise_bench.command_line import command_parser
from bitwise_core.output_files import write_text

SECONDS_BETWEEN_REPORTS = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the adversary, merge records, or replay what was found."""
    start = time.monotonic()
    parser = command_parser("adversary", __doc__)
    parser.add_argument(
        "--seconds",
        type=float,
        default=600.0,
        help="how long to run, the start of the processes included (default 600)",
    )
    parser.add_argument("--jobs", type=int, default=1, help="worker processes (default 1)")
    parser.add_argument("--gpu", action="store_true", help="run every Equal pair on a GPU of sm_90, too")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random numbers (default 0)")
    parser.add_argument("--record", type=Path, help="write the counts here, as JSON")
    parser.add_argument("--blocks", action="store_true", help="only kernels whose threads work together")
    parser.add_argument(
        "--families", nargs="+", default=(), metavar="FAMILY", choices=sorted(FAMILIES),
        help="only kernels of these families, whose threads work together",
    )  # fmt: skip
    parser.add_argument("--orders", action="store_true", help="only kernels that are executed in several orders")
    parser.add_argument("--mutants", action="store_true", help="only mutants of compiled kernels")
    parser.add_argument("--found", type=Path, help="write each wrong Equal to a folder of its own here")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="RECORD", help="merge records instead of a search")
    parser.add_argument(
        "--replay", type=Path, nargs="+", metavar="FOLDER", help="compare and run what --found has written"
    )
    chosen = parser.parse_args(arguments)
    if chosen.jobs < 1 or chosen.seconds <= 0:
        parser.error("--jobs and --seconds must be positive")
    if chosen.merge:
        try:
            parts = [json.loads(path.read_text()) for path in chosen.merge]
            whole = merged(parts)
        except (OSError, ValueError, KeyError, TypeError) as error:
            parser.error(f"--merge: a file is not a record of the adversary ({error})")
        return _finish(whole, chosen.record)
    if chosen.replay:
        try:
            replayed = [folders.replay(folder) for folder in chosen.replay]
        except ReplayError as error:
            parser.error(f"--replay: {error}")
        for folder, each in zip(chosen.replay, replayed, strict=True):
            print(f"{folder}: {each}")
        return int(any(each.wrong for each in replayed))
    try:
        record = _search(chosen, start)
    except DeviceError as error:
        parser.error(f"--gpu: {error}")
    return _finish(record, chosen.record)


def _search(chosen: Any, start: float) -> dict[str, Any]:
    """Return the record of a search that began at a time of the monotonic clock.  Raises DeviceError."""
    lost: list[str] = []
    # Workers are forked: all modules are imported once, and a GPU is opened by workers alone.
    with (
        tempfile.TemporaryDirectory() as shared,
        ProcessPoolExecutor(chosen.jobs, mp_context=get_context("fork")) as pool,
    ):
        device = pool.submit(device_environment).result() if chosen.gpu else {}
        left = chosen.seconds - (time.monotonic() - start)
        jobs = [
            pool.submit(
                worker, chosen.seed, number, left, chosen.gpu,
                only_blocks=chosen.blocks, only_ordered=chosen.orders, only_mutants=chosen.mutants,
                families=chosen.families, counts=Path(shared) / f"{number}.json",
            )
            for number in range(chosen.jobs)
        ]  # fmt: skip
        while wait(jobs, timeout=SECONDS_BETWEEN_REPORTS).not_done:
            _report(chosen, device, sorted(Path(shared).glob("*.json")), time.monotonic() - start)
        tallies = [tally for number, job in enumerate(jobs) if (tally := _result(job, number, lost)) is not None]
    found: list[WrongEqual] = []
    for tally in tallies:
        found += [*tally.findings, *tally.wrong_pairs, *tally.wrong_mutants]
    for number, each in enumerate(found, 1):
        print(f"WRONG EQUAL: {each.entry()}")
        if chosen.found is not None:
            folders.write(each, chosen.found / str(number))
    return record_of(
        [tally.portable() for tally in tallies], lost, device,
        seed=chosen.seed, jobs=chosen.jobs, seconds=time.monotonic() - start,
    )  # fmt: skip


def _result(job: Future[Tally], number: int, lost: list[str]) -> Tally | None:
    """Return the counts of a worker; None for one that failed, which is noted: the counts of the others are kept."""
    try:
        return job.result()
    except Exception as error:
        lost.append(f"worker {number} failed: {type(error).__name__}: {error}"[:2000])
        return None


def _report(chosen: Any, device: Mapping[str, str], counts: Sequence[Path], seconds: float) -> None:
    """Print what the workers have counted so far, and write it to the record."""
    parts = [json.loads(each.read_text()) for each in counts]
    if not parts:
        return
    record = record_of(parts, (), device, seed=chosen.seed, jobs=chosen.jobs, seconds=seconds)
    print(counts_so_far(record), flush=True)
    if chosen.record is not None:
        write_text(chosen.record, json.dumps(record, indent=1, sort_keys=True) + "\n")


def _finish(record: dict[str, Any], path: Path | None) -> int:
    if path is not None:
        write_text(path, json.dumps(record, indent=1, sort_keys=True) + "\n")
    print(summary(record))
    for error in record["errors"][:5]:
        print(f"error: {error.splitlines()[0][:300]}", file=sys.stderr)
    if failed(record):
        return 1
    return 2 if record["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
