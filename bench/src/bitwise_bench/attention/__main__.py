"""The bytes and the speed of attention on a GPU, as a record.

    python -m bitwise_bench.attention --out records/attention-sm90-h100.json
    python -m bitwise_bench.attention --out records/attention-sm90-h200.json --steps digests
    python -m bitwise_bench.attention --page records/attention-sm90-h200.json records/attention-sm90-h100.json

The record is written after each result.  A step that reaches its time ends, and the record says what is missing.  The
command returns 1 where bytes differ.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing import TimeoutError as NoResult
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

from bitwise_bench.attention import digests, timing
from bitwise_bench.attention.invariance import CASES, PARTS, digests_of, patterns_of
from bitwise_bench.attention.page import page
from bitwise_bench.attention.random_problems import PROBLEMS, compare_configuration
from bitwise_bench.command_line import command_parser
from bitwise_bench.pinned_reductions.record import environment

STEPS = ("correctness", "digests", *timing.STEPS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the record, and return whether bytes differ."""
    parser = command_parser("attention", __doc__)
    parser.add_argument("--out", type=Path, help="the record to write; results of other steps in it are kept")
    parser.add_argument("--page", type=Path, nargs="+", help="print the page of the records of GPUs, without measuring")
    parser.add_argument("--steps", default=",".join(STEPS), help=f"what to measure, of {', '.join(STEPS)}")
    parser.add_argument("--problems", type=int, default=1000, help="random problems that a CPU evaluates as well")
    parser.add_argument("--workers", type=int, default=12, help="processes that compare random problems")
    parser.add_argument("--seconds", type=float, default=900, help="the time of each step")
    given = parser.parse_args(arguments)
    if given.page is not None:
        sys.stdout.write(page([json.loads(each.read_text()) for each in given.page]))
        return 0
    steps = given.steps.split(",")
    unknown = sorted(set(steps) - set(STEPS))
    if given.out is None or unknown:
        parser.error(f"there are no steps {', '.join(unknown)}" if unknown else "give --out, the record to write")
    import torch

    record: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    record["environment"] = {
        **environment(), "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
        "driver": timing.driver_version(), "kernels": _kernels(),
    }  # fmt: skip

    def keep(step: str, found: object) -> None:
        record[step] = found
        given.out.write_text(json.dumps(record, indent=1) + "\n")

    with get_context("spawn").Pool(given.workers) as pool:
        # The kernels of the timings compile while problems are compared.
        compiled = [
            pool.apply_async(timing.compile_case, (step, place))
            for step in steps if step in timing.STEPS
            for place in range(timing.cases(step))
        ]  # fmt: skip
        if "correctness" in steps:
            for found in _correctness(pool, given.problems, given.seconds):
                keep("correctness", found)
        if "digests" in steps:
            keep("digests", dict(pool.map(digests.digest_of, range(len(digests.CASES)), chunksize=1)))
        end = time.monotonic() + given.seconds
        for each in compiled:
            each.wait(max(0.0, end - time.monotonic()))
        pool.terminate()
    for step in steps:
        if step in timing.STEPS:
            for found in timing.results(step, given.seconds):
                keep(step, found)
    return 0 if _good(record.get("correctness", {})) else 1


def _kernels() -> str:
    """Return a digest of the sources of the kernels and of their launches, which tells records apart."""
    from bitwise_nvidia_sm90 import attention

    digest = hashlib.sha256()
    for file in sorted(Path(attention.__path__[0]).rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _good(found: dict[str, Any]) -> bool:
    return not found.get("different") and all(each["patterns"]["all"] == 1 for each in found.get("invariance", ()))


def _correctness(pool: Pool, problems: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Yield the comparison with evaluation and the invariance of rows so far."""
    end = time.monotonic() + seconds
    counted = [[pool.apply_async(digests_of, (case, part)) for part in PARTS] for case in CASES]
    compared = pool.imap_unordered(compare_configuration, range(-(-problems // PROBLEMS)))
    found: dict[str, Any] = {"problems": 0, "configurations": 0, "different": [], "invariance": []}
    while time.monotonic() < end:
        try:
            each = compared.next(timeout=1)
        except StopIteration:
            break
        except NoResult:
            continue
        found["configurations"] += 1
        found["problems"] += each.problems
        if each.different:
            found["different"].append({"configuration": each.configuration, "problems": list(each.different)})
        yield found
    for case, parts in zip(CASES, counted, strict=True):
        digests = {}
        for part, one in zip(PARTS, parts, strict=True):
            with suppress(NoResult):
                digests[part] = one.get(timeout=max(0.1, end - time.monotonic()))
        found["invariance"].append(
            {"case": case, "patterns": patterns_of(digests.values()), "missing": sorted(set(PARTS) - set(digests))}
        )
        yield found


if __name__ == "__main__":
    sys.exit(main())
