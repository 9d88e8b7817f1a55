"""Byte comparison of random GEMMs: cuBLASLt against a launcher of descriptors.

    python -m bitwise_bench.cublas.sweeps.sweep --out sweep.jsonl --seconds 240 --seed 1

The heuristic is queried for every shape. Its result is run, and the descriptor of that result is run by the launcher,
on fourteen draws: ten alternately flat and wide, one of zeros of both signs, one of products too small for the output
type or for fp32, and two whose exact sums are zero. The file has a header and one line for each shape; a run continues
an existing file of the same library and GPU model. As a negative control a wrong descriptor runs on every sixteenth
shape. All visible GPUs are used. Needs only PyTorch, Triton, NumPy and pydantic.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import queue
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.sweeps.random_queries import DTYPES, REGIMES
from bitwise_bench.cublas.sweeps.sweep_operands import KINDS
from bitwise_bench.cublas.sweeps.sweep_records import COLUMNS, read_lines, summary
from bitwise_bench.cublas.sweeps.sweep_worker import Sweep
from bitwise_cublas_profiles.library import Library
from bitwise_cublas_profiles.query import DTYPES as NAMES


def _work(start: int, chosen: argparse.Namespace, done: frozenset[int], deadline: float, results: Any) -> None:
    """One process: its share of the numbers from `start`, until the deadline."""
    number = start
    try:
        sweep = Sweep(chosen)
        while time.time() < deadline and number < chosen.count:
            if number not in done:
                results.put(("row", sweep.row(number)))
            number += chosen.processes
    except BaseException:
        results.put(("died", [number, traceback.format_exc(limit=6)]))
    results.put(("end", start))


def environment(chosen: argparse.Namespace) -> dict[str, Any]:
    """The GPU, the library and the compiler, as in the file's header."""
    import torch
    import triton

    properties = torch.cuda.get_device_properties(0)
    with Library(chosen.library) as library:
        version = library.version
    return {
        "gpu": properties.name, "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count, "library": version, "torch": torch.__version__,
        "triton": triton.__version__, "seed": chosen.seed, "draws": len(KINDS),
        "kinds of draws": list(KINDS), "candidates": chosen.candidates, "workspace": chosen.workspace,
        "reductions": chosen.reductions, "shares": dict(chosen.shares),
        "regimes": list(REGIMES), "columns": list(COLUMNS),
    }  # fmt: skip


def share(text: str) -> tuple[str, float]:
    """An operand type and its frequency, in the form fp16=60. Raises ValueError."""
    name, _, number = text.partition("=")
    if name not in NAMES or not (found := float(number)) > 0:
        raise ValueError(text)
    return name, found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sweep. The exit status is 1 if bytes differ or a process failed."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.sweeps.sweep", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="output file; an existing one is continued")
    parser.add_argument(
        "--seconds", type=float, default=240.0, help="start no new shape after this many seconds (default 240)"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the shapes and the draws (default 1)")
    parser.add_argument("--count", type=int, default=1 << 30, help="number of shapes (default: no limit)")
    parser.add_argument("--processes", type=int, default=12, help="worker processes on every GPU (default 12)")
    parser.add_argument(
        "--no-alternatives", dest="alternatives", action="store_false", help="do not search for alternative descriptors"
    )
    parser.add_argument("--candidates", type=float, default=0.1, help="share of unmeasured layouts (default 0.1)")
    parser.add_argument(
        "--shares", type=share, nargs="+", default=list(DTYPES), metavar="TYPE=SHARE",
        help="frequency of each operand type (default: fp16=60 bf16=20 e4m3=15 e5m2=5)",
    )  # fmt: skip
    parser.add_argument("--workspace", type=int, help="workspace limit in bytes (default: PyTorch's)")
    parser.add_argument("--reductions", type=int, help="mask of REDUCTION_SCHEMEs (default: all)")
    parser.add_argument("--library", help="path of a libcublasLt (default: PyTorch's)")
    parser.add_argument("--launcher", default="bitwise_nvidia_sm90.gemm.run:run", help="module:function to run one")
    chosen = parser.parse_args(arguments)

    now = environment(chosen)
    about, rows = read_lines(chosen.out)
    for name in ("gpu", "library", "seed", "draws", "candidates", "shares") if about is not None else ():
        if about is not None and about.get(name) != now[name]:
            print(f"{chosen.out}: its {name} is {about.get(name)}, and now it is {now[name]}", file=sys.stderr)
            return 2
    died: list[str] = []
    with chosen.out.open("a", encoding="utf-8") as file:
        if about is None:
            file.write(json.dumps(now) + "\n")
        _Processes(chosen, rows, died, file).collect()
    found = summary(rows)
    print(json.dumps({**found, "died": died, "shapes": len(rows)}, indent=1))
    return 1 if found["different"] or died else 0


def visible() -> list[str]:
    """The visible GPUs, each as a value of CUDA_VISIBLE_DEVICES."""
    import torch

    named = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
    return named or [str(number) for number in range(torch.cuda.device_count())]


class _Processes:
    """The worker processes and their results. A process that fails is restarted after the shape at which it failed."""

    def __init__(self, chosen: argparse.Namespace, rows: list[list[Any]], died: list[str], file: Any) -> None:
        self.chosen, self.rows, self.died, self.file = chosen, rows, died, file
        self.context = multiprocessing.get_context("spawn")
        self.results: Any = self.context.Queue()
        self.devices = visible()
        chosen.processes *= len(self.devices)
        self.deadline = time.time() + chosen.seconds
        self.done = frozenset(int(row[0]) for row in rows)
        self.workers = [self._begin(index) for index in range(chosen.processes)]

    def _begin(self, start: int) -> Any:
        arguments = (start, self.chosen, self.done, self.deadline, self.results)
        worker = self.context.Process(target=_work, args=arguments, daemon=True)
        # A spawned process inherits the current environment and so sees one GPU.
        before = os.environ.get("CUDA_VISIBLE_DEVICES")
        os.environ["CUDA_VISIBLE_DEVICES"] = self.devices[start % len(self.devices)]
        try:
            worker.start()
        finally:
            if before is None:
                del os.environ["CUDA_VISIBLE_DEVICES"]
            else:
                os.environ["CUDA_VISIBLE_DEVICES"] = before
        return worker

    def collect(self) -> None:
        """Write results until all processes have ended, or until a minute after the deadline."""
        ended, reported = 0, time.time()
        while ended < len(self.workers) and time.time() < self.deadline + 60:
            try:
                kind, content = self.results.get(timeout=2)
            except queue.Empty:
                if not any(each.is_alive() for each in self.workers):
                    break
                continue
            if kind == "row":
                self._write(content)
            elif kind == "died":
                self._died(*content)
            else:
                ended += 1
            if time.time() - reported > 20:
                reported = time.time()
                self.file.flush()
                print(f"{len(self.rows)} shapes, {len(self.workers) - ended} processes", file=sys.stderr, flush=True)
        for each in self.workers:
            each.terminate()

    def _write(self, row: list[Any]) -> None:
        self.rows.append(row)
        self.file.write(json.dumps(row, separators=(",", ":")) + "\n")

    def _died(self, number: int, why: str) -> None:
        self.died.append(f"at number {number}: {why}")
        print(self.died[-1], file=sys.stderr, flush=True)
        self._write([number, *[None] * (len(COLUMNS) - 5), "failed", why[-300:], None, None])
        if len(self.died) <= self.chosen.processes and time.time() < self.deadline - 20:
            self.workers.append(self._begin(number + self.chosen.processes))


if __name__ == "__main__":
    sys.exit(main())
