"""Compare executions of compiled random programs for gfx942 with what NumPy computes.

    python -m bitwise_bench.llvm_programs --seconds 60 --seed 1
    python -m bitwise_bench.llvm_programs --seconds 600 --mutants 20

Triton's LLVM compiles the programs.  With --mutants, so many mutants of each program are judged by the checker, and
those that are Equal are executed.  The exit status is 1 if an element differs.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence

from bitwise_bench.command_line import command_parser
from bitwise_bench.llvm_programs.comparison import compared
from bitwise_bench.llvm_programs.mutants import judged
from bitwise_core.errors import BitwiseError


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare programs for a time."""
    parser = command_parser("llvm_programs", __doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to run (default 60)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first program (default 0)")
    parser.add_argument("--mutants", type=int, default=0, help="judge so many mutants of each program (default 0)")
    chosen = parser.parse_args(arguments)
    if chosen.seconds <= 0 or chosen.mutants < 0:
        parser.error("--seconds must be positive, and --mutants not negative")
    end, seed = time.monotonic() + chosen.seconds, chosen.seed
    counts: Counter[str] = Counter()
    if chosen.mutants:
        while time.monotonic() < end:
            found = judged(seed, chosen.mutants)
            counts += found.counts
            counts["wrong"] += len(found.wrong)
            for each in found.wrong:
                print(f"wrong Equal: {each}", flush=True)
            seed += 1
        print(dict(+counts))
        return int(bool(counts["wrong"]))
    while time.monotonic() < end:
        try:
            different = compared(seed)
        except BitwiseError as reason:
            counts["not executed"] += 1
            print(f"program {seed}: {reason}")
        else:
            counts["different" if different else "equal"] += 1
            for each in different:
                print(f"program {seed} differs: {each}")
        seed += 1
    print(dict(counts))
    return int(bool(counts["different"]))


if __name__ == "__main__":
    sys.exit(main())
