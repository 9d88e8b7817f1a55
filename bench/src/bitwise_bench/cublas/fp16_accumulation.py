"""Products of fp16 that PyTorch accumulates in fp16, against their descriptors, by the library's configuration.

    python -m bitwise_bench.cublas.fp16_accumulation --out fp16.json --seconds 60

With `torch.backends.cuda.matmul.allow_fp16_accumulation`, random products of all layouts run by `torch.mm`. The library
is asked for the configuration of each, and nine elements are evaluated on the CPU by its descriptor. Rows of the
profile's table `features` count the products of a record, whose `configuration` names the attributes that it has. The
exit status is 1 if elements differ.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from bitwise_bench.cublas.product_forms import environment
from bitwise_bench.cublas.sweeps.random_queries import random_query
from bitwise_bench.cublas.worker_processes import run_workers
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.profile import RowNotCovered, profile
from bitwise_cublas_profiles.query import Configuration

COLUMNS = ("number", "m", "n", "k", "transposes", "configuration", "outcome")
RECORD = Path(__file__).resolve().parents[4] / "records" / "cublas-fp16-accumulation-sm90-h200-13.1.json"
FEATURE = "fp16 accumulation"
"""The feature of the profile's rows."""
_LARGEST, _DEEPEST, _MOST_PRODUCTS = 1 << 22, 1 << 14, 1 << 31
_BINADES = (-3, 2)
"""The exponents by which elements differ in magnitude."""


def rows_of(start: int, step: int, deadline: float, seed: int) -> Iterable[list[Any]]:
    """The products of one process."""
    import torch

    from bitwise_cublas_profiles.library import Library
    from bitwise_cublas_profiles.pytorch_settings import current_settings
    from bitwise_cublas_profiles.tensors import query_of_tensors

    torch.backends.cuda.matmul.allow_fp16_accumulation = True
    library, generator = Library(), torch.Generator(device="cuda")
    known = profile(library.version, "{}.{}".format(*torch.cuda.get_device_capability()))

    def matrix(rows: int, columns: int, transposed: bool, scale: float) -> Any:
        shape = (columns, rows) if transposed else (rows, columns)
        found = torch.randn(shape, device="cuda", generator=generator) * scale
        found *= torch.randint(*_BINADES, shape, device="cuda", generator=generator).float().exp2()
        return found.half().t() if transposed else found.half()

    number = start
    while time.time() < deadline:
        number += step
        query = random_query(seed, number, 0.0, (("fp16", 1),)).query
        m, n, k, source = query.m, query.n, query.k, random.Random(f"{seed}:{number}:fp16 accumulation")
        if m * n * k > _MOST_PRODUCTS or max(m * k, k * n, m * n) > _LARGEST or k > _DEEPEST:
            continue
        generator.manual_seed(number)
        first, second = m > 1 and source.random() < 0.3, n > 1 and source.random() < 0.5
        a, b = matrix(m, k, first, 1.0), matrix(k, n, second, 1 / math.sqrt(k))
        out = torch.mm(a, b)
        query = current_settings().applied(query_of_tensors(a, b, out))
        found = library.heuristic(query)[0]
        row = [number, m, n, k, query.transposes, list(found.configuration.record().values())]
        try:
            # The feature is what is measured here: rows that state it do not decide what is compared.
            desc = descriptor_of(query, found.configuration, known, extrapolate=True, workspace=found.workspace)
        except RowNotCovered as error:
            yield [*row, f"not described: {str(error).split(' is not described: ')[-1]}"]
            continue
        rows, columns = (sorted({0, size - 1, source.randrange(size)}) for size in (m, n))
        left, right = _patterns(a[rows]), _patterns(b.t()[columns].t())
        wanted = _patterns(out[rows][:, columns])
        yield [*row, "equal" if np.array_equal(_evaluated(desc, left, right), wanted) else "different"]


def _patterns(matrix: Any) -> Any:
    import torch

    return matrix.cpu().contiguous().view(torch.int16).numpy().view(np.uint16)


def _evaluated(desc: Any, left: Any, right: Any) -> Any:
    from bitwise_core.plugins.installed import evaluate

    return evaluate(desc, left, right)


def by_kernel(rows: Iterable[Sequence[Any]]) -> dict[str, dict[str, int]]:
    """The outcomes by algorithm, slices and REDUCTION_SCHEME."""
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        algorithm, _, _, split, reduction, *_ = row[COLUMNS.index("configuration")]
        name = f"algorithm {algorithm}, {'slices' if split > 1 else 'no slices'}, REDUCTION_SCHEME {reduction}"
        counts.setdefault(name, Counter())[str(row[-1]).split(":")[0]] += 1
    return {name: dict(counts[name]) for name in sorted(counts)}


def products() -> list[list[Any]]:
    """The rows of the record of this campaign."""
    found: list[list[Any]] = json.loads(RECORD.read_text(encoding="utf-8"))["rows"]
    return found


def counted(row: Mapping[str, Any], rows: Iterable[Sequence[Any]]) -> tuple[int, int]:
    """The numbers of equal and of different products of a row of `features`."""
    outcomes: Counter[str] = Counter()
    for each in rows:
        algorithm, _, _, split, reduction, *_ = each[COLUMNS.index("configuration")]
        if (algorithm, split > 1) == (row["algorithm"], row["sliced"]) and reduction in row["reductions"]:
            outcomes[each[-1]] += 1
    return outcomes["equal"], outcomes["different"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, write the record and print the outcomes."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.fp16_accumulation", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="where to write the record (JSON)")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds (default 60)")
    parser.add_argument("--seed", type=int, default=91, help="seed of the products (default 91)")
    parser.add_argument("--processes", type=int, default=8, help="processes for each GPU (default 8)")
    given = parser.parse_args(arguments)
    rows, died = run_workers(rows_of, given.processes, given.seconds, given.seed)
    rows.sort(key=lambda row: int(row[0]))
    attributes = [each.name for each in fields(Configuration)]
    record = {"environment": environment(), "seed": given.seed, "columns": COLUMNS, "configuration": attributes}
    record["rows"] = rows
    given.out.write_text(json.dumps(record) + "\n", encoding="utf-8")
    different = [row for row in rows if row[-1] == "different"]
    for name, each in by_kernel(rows).items():
        print(f"{name}: {json.dumps(each)}")
    print(f"{len(rows)} products, {len(different)} different: {different[:5]}; {died[:3]}")
    return 1 if different or died else 0


if __name__ == "__main__":
    sys.exit(main())
