"""Compare PyTorch's products under settings with cuBLASLt's under the query that the profile makes for the settings.

    python -m bitwise_bench.cublas.settings_parity --out settings.json --seconds 20

Every setting has a process of its own, since PyTorch and cuBLAS read environment variables once. A product is equal if
`torch.mm` or `torch.addmm` returns the bytes of the heuristic's first result for that query. `changed` counts products
whose configuration differs from that of PyTorch's defaults.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.sweeps.random_queries import random_query
from bitwise_bench.cublas.sweeps.sweep_operands import Pools
from bitwise_bench.cublas.worker_processes import visible_devices
from bitwise_cublas_profiles.query import CublasError, GemmQuery
from bitwise_cublas_profiles.workspaces import BIAS_WORKSPACE

_REDUCED = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")
FP16_ACCUMULATION = "fp16 accumulation"
"""The setting that `fp16_accumulation` measures by kernels."""
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "CUBLAS_WORKSPACE_CONFIG=:4096:8": {"environment": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}},
    "CUBLAS_WORKSPACE_CONFIG=:16:8": {"environment": {"CUBLAS_WORKSPACE_CONFIG": ":16:8"}},
    "CUBLAS_WORKSPACE_CONFIG=:0:0": {"environment": {"CUBLAS_WORKSPACE_CONFIG": ":0:0"}},
    "CUBLASLT_WORKSPACE_SIZE=0": {"environment": {"CUBLASLT_WORKSPACE_SIZE": "0"}},
    "CUBLASLT_WORKSPACE_SIZE=4096": {"environment": {"CUBLASLT_WORKSPACE_SIZE": "4096"}},
    "CUBLASLT_WORKSPACE_SIZE=65536": {"environment": {"CUBLASLT_WORKSPACE_SIZE": "65536"}},
    "no reduced precision": {"flags": dict.fromkeys(_REDUCED, False)},
    "no reduced precision, :16:8": {
        "flags": dict.fromkeys(_REDUCED, False), "environment": {"CUBLAS_WORKSPACE_CONFIG": ":16:8"},
    },
    "no split K": {"flags": dict.fromkeys(_REDUCED, (False, False))},
    "no split K, :16:8, cuBLASLt preferred": {
        "flags": dict.fromkeys(_REDUCED, (False, False)), "prefer": "cublaslt",
        "environment": {"CUBLAS_WORKSPACE_CONFIG": ":16:8", "CUBLASLT_WORKSPACE_SIZE": "1"},
    },
    "cuBLASLt preferred": {"prefer": "cublaslt"},
    "allow_tf32": {"flags": {"allow_tf32": True}},
    FP16_ACCUMULATION: {"flags": {"allow_fp16_accumulation": True}},
    "allow_tf32, :16:8": {
        "flags": {"allow_tf32": True}, "environment": {"CUBLAS_WORKSPACE_CONFIG": ":16:8"},
    },
}  # fmt: skip
KINDS = ("mm fp16", "mm bf16", "mm fp32", "bias fp16", "bias bf16", "bias fp32")


def query_of_number(seed: int, number: int) -> tuple[str, GemmQuery] | None:
    """The kind and the query of a number under PyTorch's defaults; None if it is too large."""
    source = random.Random(f"{seed}:{number}:settings")
    kind = source.choice(KINDS)
    query = random_query(seed, number, 0.0, ((kind.split()[1], 1.0),)).query
    if query.m * query.n * query.k > 1 << 31 or max(query.m * query.k, query.k * query.n, query.m * query.n) > 1 << 23:
        return None
    query = replace(
        query, transpose_a=query.m > 1 and source.random() < 0.3, transpose_b=query.n > 1 and source.random() < 0.5
    )
    if kind.startswith("mm"):
        return kind, query
    if min(query.m, query.n) == 1:
        return None
    return kind, replace(query, epilogue="bias", workspace=BIAS_WORKSPACE)


def measure(setting: dict[str, Any], seed: int, seconds: float, start: int = 0, step: int = 1) -> dict[str, Any]:
    """The counts of one setting, whose environment variables are set, and the first products that differ.

    The products have the numbers after `start`, by `step`.
    """
    import torch

    from bitwise_cublas_profiles.library import Library
    from bitwise_cublas_profiles.pytorch_settings import current_settings
    from bitwise_cublas_profiles.tensors import run, torch_type

    for name, value in setting.get("flags", {}).items():
        setattr(torch.backends.cuda.matmul, name, tuple(value) if isinstance(value, list) else value)
    if "prefer" in setting:
        torch.backends.cuda.preferred_blas_library(setting["prefer"])
    library, settings, pools = Library(), current_settings(), Pools(seed, elements=1 << 24)
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    different: list[Any] = []
    deadline, number = time.time() + seconds, start
    while time.time() < deadline:
        number += step
        found = query_of_number(seed, number)
        if found is None:
            continue
        kind, plain = found
        a, b = pools.operands(plain, number, 1)
        bias = pools.pool(plain.c, True)[number % 4096 * 16 :][: plain.n] if plain.epilogue == "bias" else None
        try:
            query = settings.applied(plain)
        except CublasError:
            counts[kind]["declined"] += 1
            continue
        result = library.heuristic(query)[0]
        theirs = torch.mm(a, b) if bias is None else torch.addmm(bias, a, b)
        ours = torch.full((query.m, query.n), -7.0, dtype=torch_type(query.c), device="cuda")
        run(library, query, result, a, b, ours, bias=bias)
        form = torch.int32 if ours.element_size() == 4 else torch.int16
        equal = bool(torch.equal(theirs.view(form), ours.view(form)))
        counts[kind]["equal" if equal else "different"] += 1
        counts[kind]["changed"] += library.heuristic(plain)[0].configuration != result.configuration
        if not equal and len(different) < 20:
            different.append([kind, number, query.m, query.n, query.k, query.transposes, result.configuration.record()])
    return {"counts": {kind: dict(found) for kind, found in counts.items()}, "different": different,
            "library": library.version, "torch": torch.__version__, "gpu": torch.cuda.get_device_name()}  # fmt: skip


def _only(device: str) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": device} if device else {}


def _result(process: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
    """What a process printed, or why it failed."""
    try:
        text, _ = process.communicate(timeout=seconds + 90)
        found: dict[str, Any] = json.loads(text.splitlines()[-1])
    except (subprocess.TimeoutExpired, IndexError, ValueError) as error:
        process.kill()
        return {"failed": f"{type(error).__name__}: {error}"}
    return found


def merged(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The counts of the processes of one setting together, and the first products that differ."""
    failed = next((each for each in parts if "failed" in each), None)
    if failed is not None:
        return failed
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for each in parts:
        for kind in KINDS:
            counts[kind].update(each["counts"][kind])
    different = [row for each in parts for row in each["different"]]
    return {**parts[0], "counts": {kind: dict(found) for kind, found in counts.items()}, "different": different[:20]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every setting. The exit status is 1 if bytes differ or a process failed."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.settings_parity", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, help="where to write the counts (JSON)")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds for each setting (default 20)")
    parser.add_argument("--seed", type=int, default=41, help="seed of the shapes (default 41)")
    parser.add_argument("--only", action="append", metavar="SETTING", help="measure this setting; may be repeated")
    parser.add_argument("--processes", type=int, default=1, help="processes for each setting and GPU (default 1)")
    parser.add_argument("--one", nargs=3, metavar=("SETTING", "START", "STEP"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one is not None:
        name, start, step = given.one
        print(json.dumps(measure(SETTINGS[name], given.seed, given.seconds, int(start), int(step))))
        return 0
    command = [sys.executable, "-m", "bitwise_bench.cublas.settings_parity", "--seconds", str(given.seconds),
               "--seed", str(given.seed), "--one"]  # fmt: skip
    devices = visible_devices()
    count = given.processes * len(devices)
    started = {
        name: [
            subprocess.Popen(
                [*command, name, str(start), str(count)], stdout=subprocess.PIPE, text=True,
                env={**os.environ, **setting.get("environment", {}), **_only(devices[start % len(devices)])},
            )
            for start in range(count)
        ]
        for name, setting in SETTINGS.items() if given.only is None or name in given.only
    }  # fmt: skip
    found = {name: merged([_result(each, given.seconds) for each in each_one]) for name, each_one in started.items()}
    about: dict[str, Any] = next((each for each in found.values() if "counts" in each), {})
    head = {name: about.get(name) for name in ("gpu", "library", "torch")}
    record = {"environment": {**head, "seed": given.seed}, "settings": {
        name: {part: each[part] for part in ("counts", "different", "failed") if part in each}
        for name, each in found.items()
    }}  # fmt: skip
    if given.out is not None:
        given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    wrong = False
    for name, each in record["settings"].items():
        print(f"{name}: {json.dumps(each.get('counts', each))}")
        wrong |= "failed" in each or bool(each["different"])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
