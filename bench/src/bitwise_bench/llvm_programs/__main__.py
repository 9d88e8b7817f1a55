"""Compare executions of compiled random programs for gfx942 with what NumPy computes.

    python -m bitwise_bench.llvm_programs --seconds 60 --seed 1

Triton's LLVM compiles the programs.  The exit status is 1 if an element differs.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence

from bitwise_bench.command_line import command_parser
from bitwise_bench.llvm_programs.comparison import compared
from bitwise_core.errors import BitwiseError


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare programs for a time."""
    parser = command_parser("llvm_programs", __doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to run (default 60)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first program (default 0)")
    chosen = parser.parse_args(arguments)
    if chosen.seconds <= 0:
        parser.error("--seconds must be positive")
    end, seed = time.monotonic() + chosen.seconds, chosen.seed
    counts: Counter[str] = Counter()
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
