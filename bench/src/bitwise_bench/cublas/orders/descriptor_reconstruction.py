r"""Descriptors reconstructed from the outputs of GEMMs and sums on a GPU, compared with the known ones.

    python -m bitwise_bench.cublas.orders.descriptor_reconstruction --shapes records/cublas-sample-sm90-h100-13.1.json \
        --out records/read-back-sm90-h100.json

The reference of torch.mm is the profile, that of the launcher's kernels is the descriptor passed to them, and that of
the plain Triton kernels is their source. torch.sum has no reference.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bitwise_core.descriptors import GEMMDesc, Instruction, per_mma, single_pass, split_k
from bitwise_torch.operands import TensorArrays

Task = tuple[str, tuple[Any, ...]]

_TORCH = {"fp16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "fp32": "float32"}


def tasks(path: Path, each: int) -> list[Task]:
    """The smaller shapes of every configuration in a record of shapes, and the other callables."""
    record = json.loads(path.read_text())
    families: dict[tuple[Any, ...], list[Task]] = {}
    for values in record["rows"]:
        row = dict(zip(record["columns"], values, strict=True))
        m, n, k = row["m"], row["n"], row["k"]
        fp8 = row["a"].startswith("e")
        wanted = "bf16" if fp8 else row["a"]
        if row["c"] != wanted or row["transposes"] != ("NT" if fp8 else "NN") or not 60 <= k <= 4000:
            continue
        # Probes are laid out along the longer axis; fp8 needs both.
        if (min(m, n) if fp8 else max(m, n)) < 16 or (fp8 and (n % 16 or k % 16)) or m * n * k > 1 << 26:
            continue
        key = (row["algorithm"], row["split_k"] > 1, row["reduction"], row["a"], row["stages"])
        families.setdefault(key, []).append(("mm", (m, n, k, row["a"])))
    found = [task for group in families.values() for task in sorted(group, key=_cost)[:each]]
    return sorted(found, key=_cost) + OTHERS


def _cost(task: Task) -> float:
    m, n, k = task[1][:3]
    return float(k * k / max(m, n) + k)


def _unit(family: str, k: int) -> Instruction:
    return Instruction(architecture="sm_90", family=family, k=k)


GIVEN: dict[str, GEMMDesc] = {
    "one accumulator": single_pass(200, "fp16", _unit("wgmma", 16)),
    "slices": split_k(600, "fp16", _unit("wgmma", 16), slices=3, tile=64),
    "slices, values left out": split_k(584, "bf16", _unit("wgmma", 16), slices=9, tile=64, k_dropped=8),
    "short turn first": per_mma(300, "fp16", _unit("mma.sync", 16), k_loop_step=64),
    "blocks of 128": single_pass(384, "e4m3", _unit("wgmma", 32), block=128, output_dtype="bf16"),
}
"""Descriptors passed to the launcher."""

OTHERS: list[Task] = [
    *(("launcher", (name,)) for name in GIVEN),
    ("triton", (128, 64, 200, "fp16", 64)),
    ("triton", (128, 64, 200, "bf16", 32)),
    ("sum", (256, 1024, "fp32")),
    ("sum", (256, 1000, "fp32")),
    ("sum", (256, 1024, "fp16")),
    ("sum", (4, 4096, "fp32")),
    ("triton sum", (256, 1024, "fp32", 4)),
    ("triton sum", (256, 1000, "fp32", 8)),
    ("triton sum", (256, 512, "fp16", 1)),
]


def _callable(task: Task) -> tuple[Callable[..., Any], tuple[Any, ...], GEMMDesc | None, dict[str, Any]]:
    """A function, the arguments of its reconstruction, and the reference descriptor."""
    import torch

    from bitwise_torch import describe, matmul

    kind, about = task
    if kind == "sum":
        rows, length, dtype = about
        return lambda x: torch.sum(x, dim=1), (rows, length, _TORCH[dtype]), None, {}
    if kind in ("triton", "triton sum"):
        from bitwise_bench.cublas.kernels.reconstructed import product, row_sum

        if kind == "triton sum":
            rows, length, dtype, warps = about
            return lambda x: row_sum(x, warps), (rows, length, _TORCH[dtype]), None, {}
        m, n, k, dtype, block = about
        desc = single_pass(k, dtype, _unit("wgmma", 16))
        return lambda a, b: product(a, b, block), (m, n, k, _TORCH[dtype]), desc, {}
    if kind == "launcher":
        desc = GIVEN[about[0]]
        fp8 = desc.left_dtype.startswith("e")
        shape = (64, 64) if fp8 else (128, 16)
        arguments = (*shape, desc.k, _TORCH[desc.left_dtype])
        return lambda a, b: matmul(a, b, desc=desc), arguments, desc, {"transpose_b": fp8}
    m, n, k, dtype = about
    arguments = (m, n, k, _TORCH[dtype])
    if not dtype.startswith("e"):
        a, b = (torch.ones(shape, dtype=getattr(torch, _TORCH[dtype]), device="cuda") for shape in ((m, k), (k, n)))
        return torch.mm, arguments, describe(a, b, like="cublas"), {}
    one = torch.ones((), dtype=torch.float32, device="cuda")

    def scaled(a: Any, b: Any) -> Any:
        return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    types = [getattr(torch, _TORCH[name]) for name in (dtype, "e4m3")]
    a = torch.ones((m, k), device="cuda").to(types[0])
    b = torch.ones((n, k), device="cuda").to(types[1]).t()
    return scaled, arguments, describe(a, b, like="cublas"), {"transpose_b": True, "dtype_b": "float8_e4m3fn"}


def read(task: Task) -> dict[str, Any]:
    """The reconstruction of one callable: its descriptor or the open questions, and whether it equals the reference."""
    from bitwise_core.plugins import registry
    from bitwise_core.probing.reconstruction import reconstruct_product, reconstruct_sum, same_computation

    start, units = time.monotonic(), registry.default().matrix_units
    found: dict[str, Any] = {"task": task[0], "of": list(task[1])}
    try:
        function, arguments, known, options = _callable(task)
        if known is None:
            made = reconstruct_sum(function, *arguments, arrays=TensorArrays("cuda"), **options)
        else:
            made = reconstruct_product(
                function, *arguments, units=units, arrays=TensorArrays("cuda"), architecture="sm_90", **options
            )
        among = [each for each in made.survivors if known is not None and isinstance(each, GEMMDesc)]
        found |= {
            "descriptor": str(made.desc) if made.desc is not None else None, "open": list(made.unresolved),
            "known": str(known) if known is not None else None, "survivors": [str(each) for each in made.survivors],
            "alike": list(made.equivalent_instructions),
            "parted": dict(Counter(kind for _, kind, _ in made.rejected)), "walk": made.revealed.method,
            "probes": made.revealed.probes, "launches": made.revealed.launches,
        }  # fmt: skip
        if known is not None:
            right = any(same_computation(each, known, units) for each in among)
            found["outcome"] = ("equal" if made.desc is not None else "among") if right else (
                "different" if made.desc is not None else "open"
            )  # fmt: skip
        else:
            found["outcome"] = "described" if made.desc is not None else "open"
    except Exception as error:  # one failure must not lose the other rows
        found |= {"outcome": "failed", "error": f"{type(error).__name__}: {str(error)[:400]}"}
    return {**found, "seconds": round(time.monotonic() - start, 2)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Reconstruct and write the record. The exit status is 1 if a descriptor differs from the reference."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.orders.descriptor_reconstruction", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--shapes", type=Path, required=True, help="a record of shapes and their configurations (JSON)")
    parser.add_argument("--out", type=Path, required=True, help="where to write the record (JSON)")
    parser.add_argument("--each", type=int, default=2, help="shapes of every configuration (default 2)")
    parser.add_argument("--processes", type=int, default=12, help="processes at once (default 12)")
    parser.add_argument("--seconds", type=float, default=40, help="time limit in seconds (default 40)")
    chosen = parser.parse_args(arguments)
    listed = tasks(chosen.shapes, chosen.each)
    # The other callables first: they are few.
    listed = listed[-len(OTHERS) :] + listed[: -len(OTHERS)]
    end = time.monotonic() + chosen.seconds
    rows: list[dict[str, Any]] = []
    pool = ProcessPoolExecutor(chosen.processes, mp_context=get_context("spawn"))
    waiting = [pool.submit(read, task) for task in listed]
    try:
        for done in as_completed(waiting, timeout=chosen.seconds):
            rows.append(done.result())
            if time.monotonic() > end:
                break
    except TimeoutError:
        pass
    for each in waiting:
        each.cancel()
    write_record(chosen.out, rows, len(listed))
    print(json.dumps(Counter(f"{row['task']}: {row['outcome']}" for row in rows), indent=1), flush=True)
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    return 1 if any(row["outcome"] == "different" for row in rows) else 0


def write_record(path: Path, rows: list[dict[str, Any]], total: int) -> None:
    """Write the record: the environment, counts of outcomes, and one line for each callable."""
    from bitwise_bench.cublas.library_measurements import environment
    from bitwise_cublas_profiles.library import Library

    try:
        with Library(None) as library:
            about = environment(library)
    except Exception as error:
        about = {"error": f"{type(error).__name__}: {error}"}
    outcomes = Counter(f"{row['task']}: {row['outcome']}" for row in rows)
    head = {"environment": about, "asked": total, "finished": len(rows), "outcomes": dict(sorted(outcomes.items()))}
    rows = sorted(rows, key=lambda row: (row["task"], json.dumps(row["of"])))
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    path.write_text(json.dumps(head, indent=1)[:-2] + f',\n "rows": [\n  {lines}\n ]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
