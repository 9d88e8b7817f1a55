"""`matmul(a, b, like="cublas")` against `torch.mm` on a GPU: bytes and coverage.

    python -m bitwise_bench.cublas.torch_parity --out parity.json

The plugins must be installed with their entry points.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.sweeps.random_queries import random_query
from bitwise_torch import DroppedWarning, NotCovered, describe, matmul, tune

LAUNCHER = "bitwise_nvidia_sm90.gemm.run"
"""The module whose `triton_launch` launches a product through Triton's own dispatch."""


def compared(seed: int, count: int) -> dict[str, Any]:
    """Outcomes over the 16-bit shapes among the first `count` of a seed, and the first differences."""
    import torch

    outcomes: Counter[str] = Counter()
    different: list[str] = []
    for number in range(count):
        query = random_query(seed, number, 0.4).query
        if query.a not in ("fp16", "bf16") or query.c == "fp32":
            continue
        dtype = torch.float16 if query.a == "fp16" else torch.bfloat16

        def operand(rows: int, columns: int, transposed: bool, dtype: Any = dtype) -> Any:
            shape = (columns, rows) if transposed else (rows, columns)
            made = torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype)
            return made.t() if transposed else made

        a, b = operand(query.m, query.k, query.transpose_a), operand(query.k, query.n, query.transpose_b)
        try:
            ours = matmul(a, b, like="cublas")
        except NotCovered as error:
            outcomes["declined"] += 1
            outcomes["declined: " + str(error).split(" is not described: ")[-1].split(" (algorithm")[0][:90]] += 1
            continue
        theirs = torch.mm(a, b)
        same = bool(torch.equal(ours.view(torch.int16), theirs.view(torch.int16)))
        outcomes["equal" if same else "different"] += 1
        if not same and len(different) < 20:
            different.append(f"{query.description}: {describe(a, b, like='cublas').to_text()}")
    return {"outcomes": dict(outcomes), "different": different}


def large() -> dict[str, bool]:
    """Whether products of matrices of more than 2^31 elements (A, B and the output in turn) have torch.mm's bytes."""
    import torch

    found = {}
    for m, n, k in ((70_000, 64, 32_768), (64, 70_000, 32_768), (131_200, 16_640, 64)):
        a = torch.empty(m, k, device="cuda", dtype=torch.float16).normal_()
        b = torch.empty(k, n, device="cuda", dtype=torch.float16).normal_()
        ours, theirs = matmul(a, b, like="cublas"), torch.mm(a, b)
        found[f"{m}x{n}x{k}"] = bool(torch.equal(ours.view(torch.int16), theirs.view(torch.int16)))
    return found


def strided() -> dict[str, bool]:
    """Whether strided operands have the bytes of dense ones under one descriptor."""
    import torch

    base = torch.empty(600, 1500, device="cuda", dtype=torch.float16).normal_()
    found = {}
    for name, a, b in (
        ("steps in both axes", base[::2, ::3], base.t()[1:1001:2, ::5]),
        ("columns apart", base[:, : 2 * 512 : 2], base.t()[:512]),
        ("one column again and again", base[:, :1].expand(600, 512), base[:512]),
        ("an odd first element", base.view(-1)[3 : 3 + 600 * 512].view(600, 512), base[:512]),
        ("rows that nothing divides", base[:, :77], base[:77, :333]),
    ):
        dense = tuple(each.clone(memory_format=torch.contiguous_format) for each in (a, b))
        desc = describe(*dense, like="cublas")
        wanted = matmul(*dense, desc=desc)
        out = torch.empty(b.shape[1], 2 * a.shape[0], device="cuda", dtype=torch.float16)[:, ::2].t()
        equal = torch.equal(matmul(a, b, desc=desc), wanted) and torch.equal(matmul(a, b, desc=desc, out=out), wanted)
        found[name] = bool(equal and torch.equal(wanted, torch.mm(*dense)))
    return found


def fp8() -> dict[str, bool]:
    """Whether fp8 products have cuBLASLt's bytes under several schedules of the launcher."""
    import torch

    from bitwise_cublas_profiles.library import Library
    from bitwise_cublas_profiles.tensors import query_of_tensors, run

    library, found = Library(), {}
    with tempfile.TemporaryDirectory() as folder:
        for m, n, k in ((512, 1024, 2048), (16, 2048, 8192)):
            for left, right in (("e4m3fn", "e4m3fn"), ("e5m2", "e4m3fn")):
                a = torch.empty(m, k, device="cuda").normal_().to(getattr(torch, f"float8_{left}"))
                b = torch.empty(n, k, device="cuda").normal_().to(getattr(torch, f"float8_{right}")).t()
                theirs = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
                query = query_of_tensors(a, b, theirs)
                run(library, query, library.heuristic(query)[0], a, b, theirs)
                ours = matmul(a, b, like="cublas", out_dtype=torch.bfloat16)
                tune(a, b, like="cublas", out_dtype=torch.bfloat16, path=Path(folder) / "kept.json", most=10)
                again = matmul(a, b, like="cublas", out_dtype=torch.bfloat16)
                equal = torch.equal(ours.view(torch.int16), theirs.view(torch.int16))
                found[f"{m}x{n}x{k} {left} {right}"] = bool(equal and torch.equal(again, ours))
    return found


def attempted(check: Callable[[], Mapping[str, bool]]) -> dict[str, Any]:
    """The result of a check, or its error."""
    try:
        return dict(check())
    except Exception as error:
        return {"broke off": f"{type(error).__name__}: {error}"[:300]}


def dispatched() -> dict[str, bool]:
    """Whether launches through the driver have the bytes of the same launches through Triton's dispatch."""
    import torch

    triton_launch = importlib.import_module(LAUNCHER).triton_launch
    found = {}
    for m, n, k in ((64, 64, 64), (1024, 1024, 1024), (17, 4096, 4096), (128, 128, 8192), (100, 24, 1000)):
        a, b = (torch.randn(shape, device="cuda").half() for shape in ((m, k), (k, n)))
        desc, out = describe(a, b, like="cublas"), torch.empty(m, n, device="cuda", dtype=torch.float16)
        triton_launch(desc, a, b, out)()
        found[f"{m}x{n}x{k}"] = all(torch.equal(matmul(a, b, desc=desc), out) for _ in range(2))
    return found


CHECKS: dict[str, Callable[[], Mapping[str, bool]]] = {
    "Triton's dispatch": dispatched, "strides": strided, "more than 2^31 elements": large, "fp8": fp8,
}  # fmt: skip
"""Further checks: names, and whether bytes are equal."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare. The exit status is 1 if bytes differ or a check failed."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.torch_parity", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=50)
    parser.add_argument("--count", type=int, default=400, help="how many shapes to draw (default 400)")
    given = parser.parse_args(arguments)
    import torch

    found: dict[str, Any] = {
        "environment": {
            "gpu": torch.cuda.get_device_properties(0).name, "torch": torch.__version__, "cuda": torch.version.cuda,
            "triton": version("triton"), "seed": given.seed, "count": given.count,
        },
    }  # fmt: skip

    def write() -> None:
        """What is found so far: the GPU may be lost."""
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    for name, check in CHECKS.items():
        found[name] = attempted(check)
        write()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found |= compared(given.seed, given.count)
        ones = torch.ones(128, 11528, device="cuda", dtype=torch.float16)
        sums = [float(matmul(ones, ones.t().contiguous(), like="cublas").min())]
        sums.append(float(torch.mm(ones, ones.t().contiguous()).min()))
    found["ones of 11528"] = sums
    found["warnings"] = [str(each.message) for each in caught if each.category is DroppedWarning]
    write()
    print(json.dumps(found, indent=1))
    sound = all(value is True for name in CHECKS for value in found[name].values())
    return 0 if sound and not found["different"] else 1


if __name__ == "__main__":
    sys.exit(main())
