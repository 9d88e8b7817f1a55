"""`matmul(a, b, like="cublas")` beside `torch.mm`, on a GPU: bytes, what is declined, and the host's time of a call.

    python -m bitwise_cublas_profiles.parity --out parity.json

Needs the plugins installed, with their entry points.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bitwise_core.products import DroppedWarning, Undescribed, describe, matmul
from bitwise_cublas_profiles.shapes import drawn


def compared(seed: int, count: int) -> dict[str, Any]:
    """Outcomes over the 16-bit shapes among the first `count` of a seed, and the first differences."""
    import torch

    outcomes: Counter[str] = Counter()
    different: list[str] = []
    for number in range(count):
        asked = drawn(seed, number, 0.4).asked
        if asked.a not in ("fp16", "bf16") or asked.c == "fp32":
            continue
        dtype = torch.float16 if asked.a == "fp16" else torch.bfloat16

        def operand(rows: int, columns: int, transposed: bool, dtype: Any = dtype) -> Any:
            shape = (columns, rows) if transposed else (rows, columns)
            made = torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype)
            return made.t() if transposed else made

        a, b = operand(asked.m, asked.k, asked.transpose_a), operand(asked.k, asked.n, asked.transpose_b)
        try:
            ours = matmul(a, b, like="cublas")
        except Undescribed as error:
            outcomes["declined"] += 1
            outcomes["declined: " + str(error).split(" is not described: ")[-1].split(" (algorithm")[0][:90]] += 1
            continue
        theirs = torch.mm(a, b)
        same = bool(torch.equal(ours.view(torch.int16), theirs.view(torch.int16)))
        outcomes["equal" if same else "different"] += 1
        if not same and len(different) < 20:
            different.append(f"{asked.words}: {describe(a, b, like='cublas').to_text()}")
    return {"outcomes": dict(outcomes), "different": different}


def host_time(launch: Callable[[], Any]) -> float:
    """Microseconds of the host for one call, the median of 20 runs of 50 calls."""
    import torch

    for _ in range(50):
        launch()
    found = []
    for _ in range(20):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(50):
            launch()
        found.append((time.perf_counter() - begun) / 50)
    torch.cuda.synchronize()
    return round(statistics.median(found) * 1e6, 2)


def overheads() -> dict[str, float]:
    """The host's microseconds for one small product: through torch, the public function, the launcher, and a launch of
    a plain kernel of Triton."""
    import torch

    from bitwise_core import registry
    from bitwise_core.launchers import ProductLauncher
    from bitwise_cublas_profiles.kernels import plain

    a, b = (torch.randn(64, 64, device="cuda", dtype=torch.float16) for _ in range(2))
    out = torch.empty(64, 64, device="cuda", dtype=torch.float16)
    desc = describe(a, b, like="cublas")
    launcher = next(
        each
        for each in registry.default().launchers
        if isinstance(each, ProductLauncher) and each.serves(desc, a.device)
    )
    compiled = torch.compile(lambda x, y: matmul(x, y, like="cublas"), backend="eager", fullgraph=True)
    assert torch.equal(compiled(a, b), torch.mm(a, b))
    return {
        "torch.mm": host_time(lambda: torch.mm(a, b, out=out)),
        "matmul like": host_time(lambda: matmul(a, b, like="cublas", out=out)),
        "matmul desc": host_time(lambda: matmul(a, b, desc=desc, out=out)),
        "Triton launch": host_time(lambda: plain.run((64, 64, 64, 4, 3), a, b, out)),
        "launcher": host_time(lambda: launcher.product(desc, a, b, out)),
        "compiled": host_time(lambda: compiled(a, b)),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and time; the exit status is 1 where bytes differ."""
    parser = argparse.ArgumentParser(prog="bitwise_cublas_profiles.parity", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=50)
    parser.add_argument("--count", type=int, default=400, help="how many shapes to draw (default 400)")
    given = parser.parse_args(arguments)
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = compared(given.seed, given.count)
        ones = torch.ones(128, 11528, device="cuda", dtype=torch.float16)
        sums = [float(matmul(ones, ones.t().contiguous(), like="cublas").min())]
        sums.append(float(torch.mm(ones, ones.t().contiguous()).min()))
    found["ones of 11528"] = sums
    found["warnings"] = [str(each.message) for each in caught if each.category is DroppedWarning]
    found["host microseconds"] = overheads()
    found["gpu"] = torch.cuda.get_device_properties(0).name
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))
    return 1 if found["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
