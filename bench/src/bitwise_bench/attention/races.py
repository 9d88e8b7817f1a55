"""Repeated calls of attention under load, with every division of few rows: each call must have one byte pattern.

Other streams copy memory and multiply matrices meanwhile, so that programs start, wait and end in other orders.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from bitwise_bench.attention.divisions import call_of, divisions_of, operands_of

CASES = (
    ("decode", {"batch": 5, "keys": 2300, "heads": 16, "groups": 4, "depth": 128}),
    ("uneven", {"batch": 47, "keys": 2900, "heads": 12, "groups": 2, "depth": 64, "page": 0, "seed": 1}),
    ("uneven", {"batch": 21, "keys": 4000, "heads": 24, "groups": 8, "depth": 128, "page": 32, "seed": 2}),
    ("pages", {"batch": 3, "keys": 9000, "heads": 8, "groups": 2, "depth": 96, "page": 16}),
    ("decode", {"batch": 7, "keys": 3000, "heads": 4, "groups": 4, "depth": 192, "width": 128}),
    ("uneven", {"batch": 9, "keys": 5000, "heads": 10, "groups": 2, "depth": 256, "page": 0, "seed": 3}),
)
REPETITIONS = 100


def calls() -> list[tuple[str, dict[str, Any], str, bool]]:
    """Return the kind, the case, the division and the order of the parts of every call that is repeated."""
    return [
        (kind, dict(case), text, ordered)
        for kind, case in CASES for text in divisions_of(case) for ordered in {False, kind != "decode"}
    ]  # fmt: skip


def results(seconds: float) -> Iterator[dict[str, Any]]:
    """Yield the numbers of runs, and the calls of which runs have other bytes, so far."""
    import torch

    end = time.monotonic() + seconds
    found: dict[str, Any] = {"runs": 0, "divisions": 0, "different": []}
    load = [torch.cuda.Stream() for _ in range(2)]
    matrix = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)
    words = torch.zeros(1 << 24, device="cuda", dtype=torch.int32)
    for kind, case, text, ordered in calls():
        desc, operands = operands_of(kind, case)
        call = call_of(case, desc, operands, text, ordered)
        if call is None or time.monotonic() > end:
            continue
        out = operands.out
        outputs, first = [], None
        for repetition in range(REPETITIONS):
            with torch.cuda.stream(load[repetition % 2]):
                for _ in range(repetition % 3):
                    words[: (repetition + 1) << 17].add_(1)
                    torch.mm(matrix, matrix)
            call()
            patterns = out.view(torch.int16)
            first = patterns.clone() if repetition == 0 else first
            outputs.append((patterns != first).sum())
        torch.cuda.synchronize()
        found["runs"] += REPETITIONS
        found["divisions"] += 1
        other = sum(int(each) > 0 for each in outputs)
        if other:
            found["different"].append({"kind": kind, "case": case, "division": text, "ordered": ordered, "runs": other})
        yield found
