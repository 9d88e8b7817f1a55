"""Host time of one product: `torch.mm`, and `matmul` with a library or a descriptor, with and without `out`.

`torch.addmm` and `torch.nn.functional.linear` are measured beside `addmm` with a library, and under a lock.

    python -m bitwise_bench.cublas.times.host_time --out times.json

The plugins must be installed with their entry points.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bitwise_bench.environment import processor_name
from bitwise_torch import addmm, describe, locked_products, matmul, recorded_products

SHAPES = ((64, 64, 64), (1024, 1024, 1024), (17, 4096, 4096), (128, 128, 8192))
"""m, n and k of the products; cuBLASLt splits k of the last two."""
_WARM_UP = 60
_TURNS, _FEW_ROUNDS = 3, 9
"""How often calls without and with a lock take turns, and the rounds of each."""


def host_times(calls: Mapping[str, Callable[[], Any]], rounds: int = 21, count: int = 50) -> dict[str, float]:
    """Return the host microseconds of one call: the median of rounds, each of `count` calls after a synchronisation.

    The calls take turns, so that all see the same machine.
    """
    import torch

    found: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(_WARM_UP):
            call()
    for _ in range(rounds):
        for name, call in calls.items():
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for _ in range(count):
                call()
            found[name].append((time.perf_counter() - begun) / count)
    torch.cuda.synchronize()
    return {name: round(statistics.median(each) * 1e6, 2) for name, each in found.items()}


def product_times(m: int, n: int, k: int) -> dict[str, float]:
    """Return the host microseconds of a product of fp16 matrices by call."""
    import torch

    a, b = (torch.randn(shape, device="cuda").half() for shape in ((m, k), (k, n)))
    out = torch.empty(m, n, device="cuda", dtype=torch.float16)
    desc = describe(a, b, like="cublas")
    return host_times(
        {
            "torch.mm": lambda: torch.mm(a, b),
            "torch.mm out": lambda: torch.mm(a, b, out=out),
            "like": lambda: matmul(a, b, like="cublas"),
            "like out": lambda: matmul(a, b, like="cublas", out=out),
            "desc": lambda: matmul(a, b, desc=desc),
            "desc out": lambda: matmul(a, b, desc=desc, out=out),
        }
    )


def layer_times(m: int, n: int, k: int) -> dict[str, float]:
    """Return the host microseconds of a layer with a bias, of fp16, by call, without and with a lock."""
    import torch

    x, weight, bias = (torch.randn(shape, device="cuda").half() for shape in ((m, k), (n, k), (n,)))
    transposed = weight.t()
    calls: dict[str, Callable[[], Any]] = {
        "torch.addmm": lambda: torch.addmm(bias, x, transposed),
        "torch linear": lambda: torch.nn.functional.linear(x, weight, bias),
        "torch linear without bias": lambda: torch.nn.functional.linear(x, weight),
    }
    with torch.no_grad():
        with recorded_products("cublas") as recording:
            for call in calls.values():
                call()
        lock = recording.lock()
        like = {"addmm like": lambda: addmm(bias, x, transposed, like="cublas")}
        found: dict[str, list[float]] = {}
        for _ in range(_TURNS):
            times = host_times({**calls, **like}, _FEW_ROUNDS)
            with locked_products(lock):
                locked = host_times({f"{name}, locked": call for name, call in calls.items()}, _FEW_ROUNDS)
            for name, each in (times | locked).items():
                found.setdefault(name, []).append(each)
    return {name: statistics.median(each) for name, each in found.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the times."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.times.host_time", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    import torch

    from bitwise_cublas_profiles.driver import driver_version

    found = {
        "environment": {
            "gpu": torch.cuda.get_device_name(), "driver": driver_version(), "cpu": processor_name(),
            "torch": torch.__version__, "python": platform.python_version(), "triton": version("triton"),
            "cuda-bindings": version("cuda-bindings"),
        },
        "host microseconds": {f"{m}x{n}x{k}": product_times(m, n, k) for m, n, k in SHAPES},
        "host microseconds of layers": {f"{m}x{n}x{k}": layer_times(m, n, k) for m, n, k in SHAPES},
    }  # fmt: skip
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
