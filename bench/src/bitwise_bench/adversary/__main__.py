"""Search for kernels that the checker calls Equal though they return different bytes.

    python -m bitwise_bench.adversary --seconds 600 --jobs 2 --record records/adversary.json
    python -m bitwise_bench.adversary --gpu --seconds 240 --jobs 14 --record records/adversary-sm90.json
    python -m bitwise_bench.adversary --merge part-1.json part-2.json --record records/adversary.json
    python -m bitwise_bench.adversary --replay found/1 found/2

The exit status is 1 where such a pair was found, or is still Equal with different bytes; 2 where the run itself failed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bitwise_bench.adversary import folders
from bitwise_bench.adversary.campaign import worker
from bitwise_bench.adversary.device import Device, DeviceError
from bitwise_bench.adversary.folders import ReplayError, WrongEqual
from bitwise_bench.adversary.record import failed, merged, record_of, summary
from bitwise_bench.command_line import command_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the adversary, merge records, or replay what was found."""
    parser = command_parser("adversary", __doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to search (default 600)")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes (default 1)")
    parser.add_argument("--gpu", action="store_true", help="run every Equal pair on a GPU of sm_90, too")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random numbers (default 0)")
    parser.add_argument("--record", type=Path, help="write the counts here, as JSON")
    parser.add_argument("--blocks", action="store_true", help="only kernels whose threads work together")
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
        device = Device().environment() if chosen.gpu else {}
    except DeviceError as error:
        parser.error(f"--gpu: {error}")
    return _finish(_search(chosen, device), chosen.record)


def _search(chosen: Any, device: dict[str, str]) -> dict[str, Any]:
    start = time.monotonic()
    tallies = []
    lost = []
    with ProcessPoolExecutor(chosen.jobs, mp_context=get_context("spawn")) as pool:
        jobs = [
            pool.submit(worker, chosen.seed, number, chosen.seconds, chosen.gpu, only_blocks=chosen.blocks)
            for number in range(chosen.jobs)
        ]
        for number, job in enumerate(jobs):
            try:
                tallies.append(job.result())
            except Exception as error:  # the counts of the other workers are kept
                lost.append(f"worker {number} failed: {type(error).__name__}: {error}"[:2000])
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


def _finish(record: dict[str, Any], path: Path | None) -> int:
    if path is not None:
        path.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    print(summary(record))
    for error in record["errors"][:5]:
        print(f"error: {error.splitlines()[0][:300]}", file=sys.stderr)
    if failed(record):
        return 1
    return 2 if record["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
