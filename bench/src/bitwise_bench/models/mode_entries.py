"""What entering the batch-invariant mode takes, time after time, and what the kernels cost that then stay replaced.

    python -m bitwise_bench.models.mode_entries --out entries.json

Times of the host are processor seconds of small calls, the least of several turns: with PyTorch's kernels, with those
that the mode left in place, and after `restore_kernels`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.models.model_locks import environment
from bitwise_torch import batch_invariant, calls_in_c
from bitwise_torch.interception import restore_kernels

_CALLS, _TURNS, _ENTRIES = 3000, 7, 8


def entries() -> list[dict[str, float]]:
    """Return the milliseconds that each of some entries takes, and each exit."""
    found = []
    for _ in range(_ENTRIES):
        mode = batch_invariant()
        times = [time.perf_counter()]
        mode.__enter__()
        times.append(time.perf_counter())
        mode.__exit__()
        times.append(time.perf_counter())
        found.append({"enter": 1e3 * (times[1] - times[0]), "exit": 1e3 * (times[2] - times[1])})
    return found


def host_times(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the microseconds of the host that each call takes."""
    import torch

    found = {}
    for name, call in calls.items():
        least = float("inf")
        for _ in range(_TURNS):
            torch.cuda.synchronize()
            begun = time.process_time()
            for _ in range(_CALLS):
                call()
            least = min(least, time.process_time() - begun)
        found[name] = round(1e6 * least / _CALLS, 2)
    return found


def measured() -> dict[str, Any]:
    """Return the record."""
    import torch

    x = torch.randn(64, 64, device="cuda", dtype=torch.float16)
    heads = x[None, None]
    calls: dict[str, Callable[[], Any]] = {
        "mm": lambda: torch.mm(x, x), "addmm": lambda: torch.addmm(x, x, x), "sum": lambda: x.sum(-1),
        "softmax": lambda: torch.softmax(x, -1),
        "attention": lambda: torch.nn.functional.scaled_dot_product_attention(heads, heads, heads),
    }  # fmt: skip
    record: dict[str, Any] = {"environment": environment(), "in C": calls_in_c.module() is not None}
    with torch.no_grad():
        host_times(calls)
        record["microseconds of PyTorch"] = host_times(calls)
        record["milliseconds of entries"] = entries()
        record["microseconds with replaced kernels"] = host_times(calls)
        restore_kernels()
        record["microseconds after restore_kernels"] = host_times(calls)
    return record


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure on the GPU, and write the record."""
    parser = command_parser("models.mode_entries", __doc__)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    record = measured()
    given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
