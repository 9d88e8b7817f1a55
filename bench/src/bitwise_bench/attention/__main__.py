"""The bytes and the speed of attention on a GPU, as a record.

    python -m bitwise_bench.attention --out records/attention-sm90-h100.json

It returns 1 where bytes differ.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bitwise_bench.attention import invariance, random_problems, timing
from bitwise_bench.command_line import command_parser
from bitwise_bench.pinned_reductions.record import environment


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the record, and return whether bytes differ."""
    parser = command_parser(__doc__)
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

    patterns = [{"case": case, "patterns": invariance.patterns_of(case)} for case in invariance.CASES]
    keep("invariance", patterns)
    keep("prefill", [timing.prefill(case) for case in timing.PREFILL])
    keep("decode", [timing.decode(case) for case in timing.DECODE])
    keep("training", [timing.training(case) for case in timing.TRAINING])
    count, different = random_problems.compare_all(given.problems, given.workers)
    keep("evaluated", {"problems": count, "different": [str(one) for one in different]})
    good = not different and all(one["patterns"]["all"] == 1 for one in patterns)
    print(f"{count} problems, {len(different)} with other bytes; patterns: {[one['patterns'] for one in patterns]}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
