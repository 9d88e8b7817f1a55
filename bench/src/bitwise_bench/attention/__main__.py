"""The bytes and the speed of attention on a GPU, as a record.

    python -m bitwise_bench.attention --out records/attention-sm90-h100.json

It returns 1 where bytes differ.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from bitwise_bench.attention import timing
from bitwise_bench.attention.invariance import CASES, patterns_of
from bitwise_bench.attention.random_problems import FORMS, compare_form
from bitwise_bench.command_line import command_parser
from bitwise_bench.pinned_reductions.record import environment


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the record, and return whether bytes differ."""
    parser = command_parser("attention", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="the record to write")
    parser.add_argument("--problems", type=int, default=1000, help="random problems that a CPU evaluates as well")
    parser.add_argument("--workers", type=int, default=12, help="processes that compare random problems")
    given = parser.parse_args(arguments)
    import torch

    record: dict[str, object] = {
        "environment": {**environment(), "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    }

    def keep(name: str, value: object) -> None:
        record[name] = value
        given.out.write_text(json.dumps(record, indent=1) + "\n")

    each = -(-given.problems // len(FORMS))
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        counted = [pool.submit(patterns_of, case) for case in CASES]
        compared = [pool.submit(compare_form, place, range(each)) for place in range(len(FORMS))]
        patterns = [one.result() for one in counted]
        results = [one.result() for one in compared]
    keep("invariance", [{"case": case, "patterns": one} for case, one in zip(CASES, patterns, strict=True)])
    problems, different = sum(count for count, _ in results), [str(one) for _, found in results for one in found]
    keep("evaluated", {"problems": problems, "different": different})
    print(
        f"{problems} problems, of which {len(different)} have other bytes: {different[:5]}; byte patterns: {patterns}"
    )
    for name, measure, cases in (
        ("prefill", timing.prefill, timing.PREFILL),
        ("decode", timing.decode, timing.DECODE),
        ("training", timing.training, timing.TRAINING),
    ):
        keep(name, [measure(case) for case in cases])
    good = not different and all(one["all"] == 1 for one in patterns)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
