"""The bytes and the speed of attention on a GPU, as a record.

    python -m bitwise_bench.attention --out records/attention-sm90-h100.json
    python -m bitwise_bench.attention --out records/attention-sm90-h200.json --steps digests
    python -m bitwise_bench.attention --evaluate FOLDER
    python -m bitwise_bench.attention --page records/attention-sm90-h200.json records/attention-sm90-h100.json

The record is written after each result.  A step that reaches its time ends, and the record says what is missing.
Random problems may be evaluated before, on a machine without a GPU.  The command returns 1 where bytes differ.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from multiprocessing import TimeoutError as NoResult
from multiprocessing import get_context
from multiprocessing.pool import AsyncResult, Pool
from pathlib import Path
from typing import Any

from bitwise_bench.attention import digests, errors, races, timing
from bitwise_bench.attention.divisions import compile_divisions
from bitwise_bench.attention.invariance import CASES, PARTS, digests_of, patterns_of
from bitwise_bench.attention.page import page
from bitwise_bench.attention.random_problems import NUMBERS, compare_configuration, evaluate_configuration
from bitwise_bench.command_line import command_parser
from bitwise_bench.pinned_reductions.record import environment
from bitwise_core.output_files import write_text

STEPS = ("correctness", "invariance", "races", "digests", "errors", *timing.STEPS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the record, and return whether bytes differ."""
    parser = command_parser("attention", __doc__)
    parser.add_argument("--out", type=Path, help="the record to write; results of other steps in it are kept")
    parser.add_argument("--page", type=Path, nargs="+", help="print the page of the records of GPUs, without measuring")
    parser.add_argument("--steps", default=",".join(STEPS), help=f"what to measure, of {', '.join(STEPS)}")
    parser.add_argument(
        "--configurations", default="63-125", help="random problems: the numbers of their configurations, and ranges"
    )
    parser.add_argument("--evaluate", type=Path, metavar="FOLDER", help="evaluate random problems alone, and keep them")
    parser.add_argument("--evaluated", type=Path, metavar="FOLDER", help="where problems have been evaluated before")
    parser.add_argument("--workers", type=int, default=12, help="processes that compare random problems")
    parser.add_argument("--seconds", type=float, default=900, help="the time of each step")
    parser.add_argument("--compiled", action="store_true", help="the kernels of timed cases have been compiled before")
    parser.add_argument("--no-flex", action="store_true", help="leave FlexAttention out, which is compiled first")
    given = parser.parse_args(arguments)
    configurations = _numbers(given.configurations)
    if given.evaluate is not None:
        given.evaluate.mkdir(parents=True, exist_ok=True)
        with get_context("spawn").Pool(given.workers) as pool:
            one = partial(evaluate_configuration, folder=given.evaluate)
            for number in pool.imap_unordered(one, configurations):
                print(f"configuration {number}", flush=True)
        return 0
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
        "driver": timing.driver_version(), "kernels": _kernels(), "descriptors": _descriptors(),
    }  # fmt: skip

    def keep(step: str, found: object) -> None:
        # The random problems and the invariance of rows are parts of one result.
        record[step] = {**record.get(step, {}), **found} if step == "correctness" and isinstance(found, dict) else found
        write_text(given.out, json.dumps(record, indent=1) + "\n")

    timed = [each for each in steps if each in timing.STEPS]
    if not given.compiled or len(timed) < len(steps):
        _with_processes(given, steps, keep)
    if "races" in steps:
        for repeated in races.results(given.seconds):
            keep("races", repeated)
    for step in timed:
        for found in timing.results(step, given.seconds, flex=not given.no_flex):
            keep(step, found)
    return 0 if _good(record.get("correctness", {})) and not record.get("races", {}).get("different") else 1


def _with_processes(given: Namespace, steps: Sequence[str], keep: Callable[[str, object], None]) -> None:
    """Take the steps of which processes compute parts, and compile the kernels of the others."""
    with get_context("spawn").Pool(given.workers) as pool:
        # The kernels of the timings compile while problems are compared.
        compiled = [
            pool.apply_async(timing.compile_case, (step, place, not given.no_flex))
            for step in steps if step in timing.STEPS and not given.compiled
            for place in range(timing.cases(step))
        ]  # fmt: skip
        if "races" in steps:
            compiled += [
                pool.apply_async(compile_divisions, (kind, case, (text,))) for kind, case, text, _ in races.calls()
            ]
        if "correctness" in steps:
            for found in _correctness(pool, _numbers(given.configurations), given.evaluated, given.seconds):
                keep("correctness", found)
        if "invariance" in steps:
            for patterns in _invariance(pool, given.seconds):
                keep("correctness", {"invariance": patterns})
        if "digests" in steps:
            for known in _digests(pool, given.seconds):
                keep("digests", known)
        if "errors" in steps:
            for measured in _errors(pool, given.seconds):
                keep("errors", measured)
        end = time.monotonic() + given.seconds
        for each in compiled:
            each.wait(max(0.0, end - time.monotonic()))
        pool.terminate()


def _kernels() -> str:
    """Return a digest of the sources of the kernels and of their launches, which tells records apart."""
    from bitwise_nvidia_sm90 import attention

    digest = hashlib.sha256()
    for file in sorted(Path(attention.__path__[0]).rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _descriptors() -> str:
    """Return a digest of the descriptors of all widths, which tells apart what decides bits."""
    from bitwise_core.plugins.attention_calls import AttentionForm
    from bitwise_nvidia_sm90.attention.tree import WIDTHS, attention_descriptor, attention_gradient_descriptor

    forms = [AttentionForm("bf16", depth, width, 1.0, causal=True) for depth, width in WIDTHS]
    found = [each(form) for form in forms for each in (attention_descriptor, attention_gradient_descriptor)]
    return hashlib.sha256("\n".join(each.to_text() for each in found).encode()).hexdigest()[:12]


def _good(found: dict[str, Any]) -> bool:
    return (
        not found.get("different")
        and not found.get("failed")
        and all(each["patterns"]["all"] == 1 for each in found.get("invariance", ()))
    )


def _numbers(text: str) -> list[int]:
    """Return the numbers of a list of numbers and ranges, as of 1,4-6."""
    ranges = [[int(one) for one in each.split("-")] for each in text.split(",")]
    return [number for each in ranges for number in range(each[0], each[-1] + 1)]


def _correctness(
    pool: Pool, configurations: Sequence[int], evaluated: Path | None, seconds: float
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield the comparison with evaluation so far."""
    end = time.monotonic() + seconds
    compared = pool.imap_unordered(partial(compare_configuration, folder=evaluated), configurations)
    found: dict[str, Any] = {
        "problems": 0, "configurations": 0, "numbers": NUMBERS, "different": [], "failed": [],
    }  # fmt: skip
    for each in _before(end, compared):
        if isinstance(each, Exception):
            found["failed"].append(f"{type(each).__name__}: {each}")
            continue
        found["configurations"] += 1
        found["problems"] += each.problems
        print(f"{each.configuration}: {each.problems} problems, {len(each.different)} different", flush=True)
        if each.different:
            found["different"].append({"configuration": each.configuration, "problems": list(each.different)})
        yield found


def _invariance(pool: Pool, seconds: float) -> Iterator[list[dict[str, Any]]]:
    """Yield the numbers of byte patterns of rows so far."""
    end = time.monotonic() + seconds
    counted = [[pool.apply_async(digests_of, (case, part)) for part in PARTS] for case in CASES]
    for one in chain(*counted):
        one.wait(max(0.1, end - time.monotonic()))
        yield _patterns(counted)


def _patterns(counted: Sequence[Sequence[AsyncResult[Any]]]) -> list[dict[str, Any]]:
    """Return the numbers of byte patterns of each case by the parts that have results, and the other parts."""
    found = []
    for case, parts in zip(CASES, counted, strict=True):
        digests = {part: one.get() for part, one in zip(PARTS, parts, strict=True) if one.ready() and one.successful()}
        missing = sorted(set(PARTS) - set(digests))
        found.append({"case": case, "patterns": patterns_of(digests.values()), "missing": missing})
    return found


def _digests(pool: Pool, seconds: float) -> Iterator[dict[str, str]]:
    """Yield the digests of calls so far."""
    found: dict[str, str] = {}
    results = pool.imap_unordered(digests.digest_of, range(len(digests.CASES)))
    for each in _before(time.monotonic() + seconds, results):
        if isinstance(each, Exception):
            found["failed"] = f"{type(each).__name__}: {each}"
        else:
            found[each[0]] = each[1]
        yield dict(sorted(found.items()))


def _errors(pool: Pool, seconds: float) -> Iterator[dict[str, Any]]:
    """Yield the errors of several seeds of the cases so far."""
    found: dict[str, Any] = {"results": [], "failed": []}
    for each in _before(time.monotonic() + seconds, pool.imap(errors.errors, errors.CASES)):
        if isinstance(each, Exception):
            found["failed"].append(f"{type(each).__name__}: {each}")
        else:
            found["results"].append(each)
            ratio, deviation, above = errors.paired(each["errors"]["bitwise"], each["errors"]["flash"])
            print(f"{each['case']}: error over flash's {ratio:.4f} +- {deviation:.4f}, {above} seeds above", flush=True)
        yield found


def _before(end: float, results: Any) -> Iterator[Any]:
    """Yield the results that processes return before a time, and the errors that they raise instead."""
    while time.monotonic() < end:
        try:
            yield results.next(timeout=1)
        except StopIteration:
            return
        except NoResult:
            continue
        except Exception as error:  # the others still count
            yield error


if __name__ == "__main__":
    sys.exit(main())
