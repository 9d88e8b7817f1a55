"""Measure the heuristic and the kernels of one GPU's cuBLASLt with every instrument of this repository.

    python -m bitwise_bench.cublas.library_measurements --recorded heuristics.json --out measured.json

The sections are independent: a failure is written to its section and the next one runs.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bitwise_cublas_profiles import report
from bitwise_cublas_profiles.audit import audit
from bitwise_cublas_profiles.library import Library
from bitwise_cublas_profiles.query import DTYPES, EPILOGUES, CublasError, GemmQuery, HeuristicResult, gemm_query
from bitwise_torch.operands import TensorArrays

# Attributes that can change bits. Tiles, clusters and swizzles only move work.
_DECIDING = ("algorithm", "stages", "split_k", "reduction", "custom")


def environment(library: Library) -> dict[str, Any]:
    """The GPU, the CUDA version and the library."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name, "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count, "torch": torch.__version__, "cuda": torch.version.cuda,
        "library": library.path.name, "library version": library.version,
    }  # fmt: skip


def kinds(library: Library, _: argparse.Namespace) -> list[dict[str, Any]]:
    """One shape in every type, transposed, batched, strided, with every epilogue and without workspace."""
    queries: list[GemmQuery] = []
    for dtype in DTYPES:
        for transposes in ("NN", "NT", "TN", "TT"):
            options: dict[str, Any] = {"transpose_a": transposes[0] == "T", "transpose_b": transposes[1] == "T"}
            queries.append(gemm_query(256, 512, 1024, dtype, **options))
        queries.append(gemm_query(256, 512, 1024, dtype, out="fp32"))
        queries.append(gemm_query(256, 512, 1024, dtype, batch=8))
        queries.append(gemm_query(16, 512, 8192, dtype, workspace=0))
    queries += [gemm_query(256, 512, 1024, "fp16", epilogue=epilogue) for epilogue in EPILOGUES]
    base = gemm_query(256, 512, 1024)
    queries += [
        replace(base, ld_a=1032, ld_b=520, ld_c=520), replace(base, alignment=(2, 2, 2)),
        replace(base, batch=8, stride_b=0), gemm_query(256, 512, 1024, "e4m3", fast_accumulation=True),
    ]  # fmt: skip
    return [_answered(library, each) for each in queries]


def _answered(library: Library, query: GemmQuery) -> dict[str, Any]:
    extra = {name: getattr(query, name) for name in ("epilogue", "workspace", "alignment", "ld_a", "fast_accumulation")}
    try:
        result = library.heuristic(query)[0]
    except CublasError as error:
        return {"question": query.description, **extra, "error": str(error)}
    return {"question": query.description, **extra, **result.configuration.record(), "needs": result.workspace}


def recorded(path: Path) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of a recorded table of heuristic results."""
    table = json.loads(path.read_text())
    return table["columns"], table["rows"]


def comparison(library: Library, chosen: argparse.Namespace) -> dict[str, Any]:
    """The recorded queries repeated: how many results differ, and in which attributes."""
    columns, rows = recorded(chosen.recorded)
    names = columns[4:]
    fields: Counter[str] = Counter()
    differing, results, deciding = [], [], 0
    start = time.perf_counter()
    for m, n, k, dtype, *_ in rows:
        results.append(library.heuristic(gemm_query(m, n, k, dtype))[0])
    seconds = time.perf_counter() - start
    for row, result in zip(rows, results, strict=True):
        now = result.configuration.record()
        moved = [name for name, value in zip(names, row[4:], strict=True) if now[name] != value]
        fields.update(moved)
        deciding += any(name in _DECIDING for name in moved)
        if moved:
            differing.append([*row[:4], *(now[name] for name in names)])
    return {
        "asked": len(rows), "microseconds a question": round(seconds / len(rows) * 1e6, 1), "differ": len(differing),
        "differ in a deciding field": deciding, "fields": dict(fields), "answers that differ": differing,
    }  # fmt: skip


def bytes_of_answers(library: Library, chosen: argparse.Namespace) -> dict[str, Any]:
    """Random operands through a heuristic result, through the library's own choice and through torch.mm, compared."""
    import torch

    from bitwise_cublas_profiles.tensors import operands, run

    _, rows = recorded(chosen.recorded)
    picked = [row for row in rows if row[0] * row[1] * row[2] < 1 << 34 and (row[0] + row[1]) * row[2] < 1 << 28]
    random.Random(1).shuffle(picked)
    counts: Counter[str] = Counter()
    unequal: list[dict[str, Any]] = []
    for m, n, k, dtype, *_ in picked[: chosen.samples]:
        query = gemm_query(m, n, k, dtype)
        result = library.heuristic(query)[0]
        a, b, out = operands(query)
        a.normal_()
        b.normal_()
        again, own = torch.empty_like(out), torch.empty_like(out)
        run(library, query, result, a, b, out)
        run(library, query, result, a, b, again)
        run(library, query, None, a, b, own)
        through = torch.mm(a, b)
        same = {
            "itself": _same(out, again), "its own choice": _same(out, own), "torch.mm": _same(out, through),
        }  # fmt: skip
        counts.update(name for name, equal in same.items() if equal)
        counts["shapes"] += 1
        if not all(same.values()):
            unequal.append({"shape": [m, n, k, dtype], **same, **result.configuration.record()})
    return {"equal": dict(counts), "parted": unequal}


def _same(left: Any, right: Any) -> bool:
    import torch

    return bool((left.view(torch.int16) == right.view(torch.int16)).all())


def losses(library: Library, chosen: argparse.Namespace) -> dict[str, Any]:
    """The audit with runs on ones: the published shapes in both 16-bit types and outputs, fp8, and recorded shapes."""
    from bitwise_cublas_profiles.tensors import count_ones

    candidates = [gemm_query(1, 2, 1032)]
    for m, n in ((1, 8), (2, 512), (4, 512), (16, 512), (32, 32), (64, 64), (128, 128)):
        for k in (8648, 11520, 11528, 57608, 57616):
            candidates += [gemm_query(m, n, k, dtype, out) for dtype in ("fp16", "bf16") for out in (None, "fp32")]
    for k in (16 + 128 * 36, 16 + 128 * 90, 64 + 128 * 180):
        candidates += [gemm_query(m, n, k, "e4m3") for m, n in ((16, 16), (64, 64), (128, 128))]
    _, rows = recorded(chosen.recorded)
    candidates += [gemm_query(*row[:4]) for row in rows if (row[0] + row[1]) * row[2] < 1 << 26]
    deadline = time.monotonic() + chosen.seconds / 4
    queries = (each for each in candidates if time.monotonic() < deadline)
    found = list(audit(library, queries, lambda each, result: count_ones(library, each, result)))
    reported = [
        each.record()
        for each in found
        if each.dropped_k is None or each.dropped_k.count != 0 or each.confirmed is not True
    ]
    return {"queries": len(candidates), **report.summary(found), "reported": reported}


def orders(library: Library, chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """One shape of every kind of configuration: its kernels, and its summation order inferred from its outputs."""
    _, rows = recorded(chosen.recorded)
    shapes: list[GemmQuery] = []
    for k in (256, 264, 1000, 1032, 2048, 2056):
        for m, n in ((128, 128), (64, 512), (1, 512), (512, 1), (8, 512), (256, 256)):
            shapes += [gemm_query(m, n, k, dtype) for dtype in DTYPES]
    shapes += [gemm_query(*row[:4]) for row in rows if 32 <= max(row[0], row[1]) <= 4096 and row[2] <= 3000]
    kinds_: dict[tuple[object, ...], tuple[GemmQuery, HeuristicResult]] = {}
    for query in sorted(shapes, key=lambda each: each.m * each.n * each.k):
        try:
            result = library.heuristic(query)[0]
        except CublasError:
            continue
        config = result.configuration
        key = (query.a, query.compute, config.algorithm, config.stages, config.custom, config.reduction,
               min(config.split_k, 2), query.k % 64 != 0)  # fmt: skip
        kinds_.setdefault(key, (query, result))
    deadline = time.monotonic() + chosen.seconds / 2
    found: list[dict[str, Any]] = []
    for query, result in kinds_.values():
        if time.monotonic() > deadline:
            found.append({"skipped for time": query.description})
            continue
        found.append({"question": query.description, **result.configuration.record(), **_order(library, query, result)})
    return found


def _order(library: Library, query: GemmQuery, result: HeuristicResult) -> dict[str, Any]:
    import torch

    from bitwise_core.probing import describe_shape, product_instrument, reveal, tree_shape
    from bitwise_cublas_profiles.tensors import operands, run, torch_type
    from bitwise_torch.kernel_launches import profile

    def multiply(a: Any, b: Any) -> Any:
        out = torch.empty((query.m, query.n), dtype=torch_type(query.c), device="cuda")
        run(library, query, result, a, b, out)
        return out

    entry: dict[str, Any] = {}
    try:
        a, b, _ = operands(query)
        seen = profile(multiply, a, b)
        entry["kernels"] = [[each.name, list(each.grid), list(each.block)] for each in seen.kernels]
        entry["workspace seen"] = seen.memory
    except Exception as error:  # the order is measured even if the profiler fails
        entry["kernels"] = f"{type(error).__name__}: {error}"
    try:
        names = [str(torch_type(each)).removeprefix("torch.") for each in (query.a, query.b)]
        subject = product_instrument(
            multiply, query.m, query.n, query.k, names[0], dtype_b=names[1], arrays=TensorArrays("cuda"),
            transpose_b=query.transpose_b,
        )  # fmt: skip
        start = time.monotonic()
        revealed = reveal(subject)
        form = tree_shape(revealed.tree) if revealed.tree is not None else None
        entry |= {
            "words": describe_shape(form)[:2000] if form else None, "form": form.record() if form else None,
            "open": list(revealed.open), "dropped": list(revealed.dropped), "walk": revealed.walk,
            "probes": revealed.probes, "launches": revealed.launches, "seconds": round(time.monotonic() - start, 2),
        }  # fmt: skip
        if len(json.dumps(entry["form"])) > 20_000:
            entry["form"] = None
    except Exception as error:
        entry["error"] = f"{type(error).__name__}: {error}"
    return entry


def callables(library: Library, _: argparse.Namespace) -> dict[str, Any]:
    """PyTorch's own sums and products, measured by the same instruments."""
    import torch

    from bitwise_core.probing import describe_shape, product_instrument, reduction_instrument, reveal, tree_shape

    sums: dict[str, tuple[Callable[[Any], Any], int, int, str]] = {
        "sum": (lambda x: torch.sum(x, dim=1), 256, 1000, "float32"),
        "sum of few long rows": (lambda x: torch.sum(x, dim=1), 4, 3000, "float32"),
        "sum of columns": (lambda x: torch.sum(x.T.contiguous(), dim=0), 256, 1000, "float32"),
        "sum of float16": (lambda x: torch.sum(x, dim=1), 256, 1000, "float16"),
        "mean": (lambda x: torch.mean(x, dim=1) * x.shape[1], 256, 1024, "float32"),
    }
    products: dict[str, tuple[Callable[[Any, Any], Any], int, int, int, str]] = {
        f"mm {m}x{n}x{k} {dtype}": (torch.mm, m, n, k, dtype)
        for m, n, k in ((128, 128, 1000), (1, 512, 2056), (64, 64, 11528))
        for dtype in ("float16", "bfloat16", "float32")
    }
    found: dict[str, Any] = {}
    for name, subject in [
        *((name, partial(reduction_instrument, *given, arrays=TensorArrays("cuda"))) for name, given in sums.items()),
        *((name, partial(product_instrument, *given, arrays=TensorArrays("cuda"))) for name, given in products.items()),
    ]:
        try:
            revealed = reveal(subject())
            text = describe_shape(tree_shape(revealed.tree))[:2000] if revealed.tree is not None else None
            found[name] = {"words": text, "open": list(revealed.open), "dropped": list(revealed.dropped),
                           "probes": revealed.probes, "launches": revealed.launches}  # fmt: skip
        except Exception as error:
            found[name] = {"error": f"{type(error).__name__}: {error}"}
    return found


SECTIONS: dict[str, Callable[[Library, argparse.Namespace], Any]] = {
    "kinds": kinds, "comparison": comparison, "bytes": bytes_of_answers, "losses": losses, "orders": orders,
    "callables": callables,
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write. The exit status is 1 if a section failed."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.library_measurements", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="where to write the record (JSON)")
    parser.add_argument("--recorded", type=Path, required=True, help="a table of recorded heuristic results (JSON)")
    parser.add_argument("--library", type=Path, help="a libcublasLt.so; default: PyTorch's")
    parser.add_argument("--sections", nargs="*", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--samples", type=int, default=200, help="shapes whose bytes are compared (default 200)")
    parser.add_argument("--seconds", type=float, default=420, help="approximate time limit (default 420)")
    chosen = parser.parse_args(arguments)
    import torch

    torch.zeros(1, device="cuda")
    with Library(chosen.library) as library:
        found: dict[str, Any] = {"environment": environment(library)}
        failed = list(_run_sections(found, library, chosen))
    print(f"wrote {chosen.out}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def _run_sections(found: dict[str, Any], library: Library, chosen: argparse.Namespace) -> Iterable[str]:
    """Fill in the sections, write after each, and yield the names of those that failed."""
    for name in chosen.sections:
        start = time.monotonic()
        try:
            found[name] = SECTIONS[name](library, chosen)
        except Exception as error:
            found[name] = {
                "error": f"{type(error).__name__}: {error}",
                "where": traceback.format_exc().splitlines()[-6:],
            }
            yield name
        print(f"{name}: {time.monotonic() - start:.1f} s", flush=True)
        chosen.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
