"""Seconds of the first call of a product that times schedules, by the number of schedules that it times.

    python -m bitwise_bench.cublas.times.first_calls --out first-calls.json

Each case has a process of its own for each number of schedules, first with empty caches of the compilers and then with
full ones.  The process has multiplied the same matrices without the epilogue before, and has compared the activation
with PyTorch's operator.  Products without an epilogue have gaps between the lines of their operands, and the process
has multiplied dense matrices before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.times.fused_epilogues import Case
from bitwise_nvidia_sm90.gemm.tuning import FIRST_CALL_VARIABLE

CASES = (
    Case("residual", "drawn", 486, 18672, 9624), Case("residual", "drawn", 64, 4096, 4096),
    Case("SwiGLU", "drawn", 2048, 12800, 4096),
)  # fmt: skip
ALONE = ((120, 1696, 1680, 4), (256, 5000, 3000, 3))
"""m, n, k and the elements between the lines of the operands of products without an epilogue."""
NUMBERS = {"none": "0", "default": None}
"""The values of FIRST_CALL_VARIABLE, None where it is not set."""
CACHES = ("empty", "full")
_SECONDS = 120.0
"""The most seconds of a process."""


def measure(number: int) -> dict[str, float]:
    """Return the seconds of the first call of a case, and the microseconds of a later one on the device."""
    import torch

    from bitwise_bench.cublas.times.fused_epilogues import Operands
    from bitwise_nvidia_sm90.gemm.graph_times import launch_graph
    from bitwise_torch import matmul

    if number >= len(CASES):
        return _alone(*ALONE[number - len(CASES)])
    case = CASES[number]
    small = Operands(Case(case.epilogue, case.model, 16, 64, 64))
    given = Operands(case)
    with torch.no_grad():
        small.ours()
        matmul(given.a, given.b, like="cublas")
        torch.cuda.synchronize()
        begun = time.perf_counter()
        given.ours()
        torch.cuda.synchronize()
        taken = time.perf_counter() - begun
        return {"seconds": round(taken, 3), "microseconds later": round(launch_graph(given.ours).microseconds(), 2)}


def _alone(m: int, n: int, k: int, gap: int) -> dict[str, float]:
    """Return what `measure` does for a product without an epilogue."""
    import torch

    from bitwise_nvidia_sm90.gemm.graph_times import launch_graph
    from bitwise_torch import matmul

    matmul(*(torch.randn(64, 64, device="cuda").half() for _ in "ab"), like="cublas")
    a, b = (torch.randn(lines, length + gap, device="cuda").half()[:, :length] for lines, length in ((m, k), (k, n)))
    torch.cuda.synchronize()
    begun = time.perf_counter()
    matmul(a, b, like="cublas")
    torch.cuda.synchronize()
    taken = time.perf_counter() - begun
    later = launch_graph(lambda: matmul(a, b, like="cublas"))
    return {"seconds": round(taken, 3), "microseconds later": round(later.microseconds(), 2)}


def _process(number: int, variable: str | None, folder: str) -> dict[str, Any]:
    """Return what a new process measures with the compilers' caches in a folder."""
    environment = {**os.environ, "XDG_CACHE_HOME": folder, "TRITON_CACHE_DIR": f"{folder}/triton"}
    environment.pop(FIRST_CALL_VARIABLE, None)
    if variable is not None:
        environment[FIRST_CALL_VARIABLE] = variable
    command = [sys.executable, "-m", "bitwise_bench.cublas.times.first_calls", "--one", str(number)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if found.returncode:
        return {"failed": found.stderr[-300:]}
    result: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every case and write the record.  The exit status is 1 if one failed."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.times.first_calls", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--out", type=Path, help="where to write the record (JSON)")
    parser.add_argument("--alone", action="store_true", help="measure products without an epilogue only")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one is not None:
        print(json.dumps(measure(given.one)))
        return 0
    if given.out is None:
        parser.error("give --out, the file to write the record to")
    from bitwise_bench.cublas.product_forms import environment

    record: dict[str, Any] = {"environment": environment(), "rows": []}
    names = [(case.epilogue, case.m, case.n, case.k) for case in CASES]
    names += [("none", m, n, k) for m, n, k, _ in ALONE]
    for number, (epilogue, m, n, k) in list(enumerate(names))[len(CASES) if given.alone else 0 :]:
        for name, variable in NUMBERS.items():
            with tempfile.TemporaryDirectory() as folder:
                for cache in CACHES:
                    row = {"epilogue": epilogue, "m": m, "n": n, "k": k, "timed": name}
                    record["rows"].append({**row, "caches": cache, **_process(number, variable, folder)})
                    given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record["rows"]))
    return int(any("failed" in row for row in record["rows"]))


if __name__ == "__main__":
    sys.exit(main())
