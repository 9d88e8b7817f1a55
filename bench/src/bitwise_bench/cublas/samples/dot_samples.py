"""Bits of `torch.dot` of fp32 on vectors from seeds, and their check by evaluation of the descriptors on a CPU.

    python -m bitwise_bench.cublas.samples.dot_samples measure --out dots.json
    python -m bitwise_bench.cublas.samples.dot_samples check records/cublas-dots-fp32-sm90-h200-13.1.json --longest 4096

The draws are normal numbers, numbers over fourteen binades, products that cancel in pairs, products of -0, and products
that underflow to -0. A row of the record lists a length and the bits of its draws; some rows lack the last one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_core.descriptors.problem import GEMMProblem
from bitwise_core.plugins.installed import evaluate
from bitwise_cublas_profiles.dots import dot_of
from bitwise_cublas_profiles.profile import Profile, profile

DRAWS = ("normal", "wide", "cancelling", "-0", "underflow")
_LONGEST = 1 << 19
Vector = npt.NDArray[np.float32]


def vectors(length: int, draw: int) -> tuple[Vector, Vector]:
    """The vectors of a draw, the same on every machine."""
    source = np.random.RandomState(1000 * draw + length % 100003)
    a, b = (source.standard_normal(length).astype(np.float32) for _ in range(2))
    half = length // 2
    if DRAWS[draw] == "wide":
        a *= np.exp2(source.randint(-6, 7, length)).astype(np.float32)
    elif DRAWS[draw] == "cancelling":
        a[half : 2 * half], b[half : 2 * half] = -a[:half], b[:half]
    elif DRAWS[draw] == "-0":
        a[:] = -0.0
    elif DRAWS[draw] == "underflow":
        a[:], b[:] = -1e-30, 1e-30
    return a, b


def lengths() -> list[int]:
    """The lengths to measure: about even in their logarithms, and powers of two with their neighbours."""
    even = np.unique(np.round(np.exp(np.linspace(0, np.log(_LONGEST), 500))))
    powers = [(1 << exponent) + step for exponent in range(20) for step in (-1, 0, 1)]
    return sorted({int(each) for each in even} | {each for each in powers if 0 < each <= _LONGEST})


def measured() -> list[list[Any]]:
    """The bits of every length on the current GPU."""
    import torch

    found: list[list[Any]] = []
    for length in lengths():
        bits = []
        for draw in range(len(DRAWS)):
            a, b = (torch.from_numpy(each).cuda() for each in vectors(length, draw))
            bits.append(int(torch.dot(a, b).view(torch.int32).item()))
        found.append([length, bits])
    return found


def differing(rows: Iterable[Sequence[Any]], known: Profile) -> list[tuple[int, str]]:
    """The lengths and draws whose bits are not those of the descriptor."""
    found = []
    for length, bits in rows:
        desc = dot_of(GEMMProblem(m=1, n=1, k=length, a="fp32", b="fp32", out="fp32", dot=True), known)
        for draw, expected in enumerate(bits):
            a, b = vectors(length, draw)
            got = evaluate(desc, a[None].view(np.uint32), b[:, None].view(np.uint32))
            if int(got[0, 0]) != expected & 0xFFFFFFFF:
                found.append((length, DRAWS[draw]))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure or check. The exit status is 1 if bits differ."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.samples.dot_samples", description=(__doc__ or "").split("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="run torch.dot and store the bits")
    measuring.add_argument("--out", type=Path, required=True)
    checking = commands.add_parser("check", help="evaluate the descriptors of a file")
    checking.add_argument("file", type=Path)
    checking.add_argument("--longest", type=int, default=_LONGEST, help="the longest vectors to check (default: all)")
    given = parser.parse_args(arguments)
    if given.command == "measure":
        from bitwise_bench.cublas.product_forms import environment

        record = {"environment": environment(), "draws": DRAWS, "rows": measured()}
        given.out.write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8")
        return 0
    record = json.loads(given.file.read_text(encoding="utf-8"))
    rows = [row for row in record["rows"] if row[0] <= given.longest]
    wrong = differing(rows, profile(record["environment"]["library"], "9.0"))
    print(f"{len(rows)} lengths, different: {wrong[:20]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
