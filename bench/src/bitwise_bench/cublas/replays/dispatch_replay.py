"""torch.mm, addmm and bmm recorded and replayed on one GPU, compared byte for byte.

    python -m bitwise_bench.cublas.replays.dispatch_replay --out dispatched.json --seconds 30

The shapes cover all regimes, with batches, biases and padded rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.portable_operands import DRAWS, Operands
from bitwise_bench.cublas.unprofiled_features import FeatureComparison, query_of_number
from bitwise_bench.cublas.worker_processes import run_workers
from bitwise_cublas_profiles.query import CublasError, GemmQuery
from bitwise_torch import locked_products, recorded_products

COLUMNS = ("number", "kind", "m", "n", "k", "batch", "a", "transposes", "outcome", "rounded first", "about")
"""`outcome` is equal, different, or declined. `rounded first` applies to a bias: the sum is rounded before it is added.
"""


def row(drawing: Any, number: int, kind: str, query: GemmQuery) -> list[Any]:
    """The row of COLUMNS for a query, run by PyTorch and from the lock of that run."""
    head = [number, kind, query.m, query.n, query.k, query.batch, query.a, query.transposes]
    outcome, rounded, about = "equal", None, None
    try:
        for draw in DRAWS:
            given = operation(drawing, query, number, draw, many=kind in ("batch", "strided"))
            with recorded_products("cublas", operators=False) as recording:
                wanted = given()
            lock = recording.lock()
            if recording.not_locked or lock.declined:
                why = next(iter(recording.not_locked), None) or str(lock.entries[0].declined)
                return [*head, "declined", None, why.split(" is not described: ")[-1].split(" (algorithm")[0][:200]]
            rounded = lock.entries[0].rounded_first
            with locked_products(lock):
                found = given()
            if not drawing.equal(found, wanted):
                outcome, about = "different", f"{draw}: {lock.entries[0].descriptor}"
    except (CublasError, ValueError) as error:
        return [*head, "declined", None, str(error)[:200]]
    return [*head, outcome, rounded, about]


def operation(drawing: Any, query: GemmQuery, number: int, draw: str, *, many: bool) -> Any:
    """The PyTorch call of a query, as a function without arguments."""
    import torch

    a, b = drawing.operands_of(query, number, draw, batched=many)
    if many:
        return lambda: torch.bmm(a, b)
    if query.epilogue == "bias":
        bias = drawing.operands.pool(query.c, draw)[number * 256 % (1 << 20) :][: query.n]
        return lambda: torch.addmm(bias, a, b)
    return lambda: torch.mm(a, b)


def rows_of(start: int, step: int, deadline: float, given: argparse.Namespace) -> Iterator[list[Any]]:
    """The rows of one process."""
    import torch

    from bitwise_cublas_profiles.library import Library

    major, minor = torch.cuda.get_device_capability()
    drawing = FeatureComparison(Library(), f"{major}.{minor}", Operands(given.seed))
    number = start
    while time.time() < deadline:
        found = query_of_number(given.seed, number)
        if found is not None:
            yield row(drawing, number, *found)
        number += step


def summary(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Counts of outcomes by kind, and reasons of declined products."""
    at = {name: place for place, name in enumerate(COLUMNS)}
    outcomes = Counter(
        f"{each[at['kind']]}{', rounded first' if each[at['rounded first']] else ''}: {each[at['outcome']]}"
        for each in rows
    )
    declined = Counter(str(each[at["about"]])[:80] for each in rows if each[at["outcome"]] == "declined")
    return {"outcomes": dict(sorted(outcomes.items())), "declined": dict(declined.most_common(12))}


def main(arguments: Sequence[str] | None = None) -> int:
    """Record and replay. The exit status is 1 if bytes differ or a process failed."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.replays.dispatch_replay", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=20, help="seed of the shapes and the operands (default 20)")
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="start no new shape after this many seconds (default 30)"
    )
    parser.add_argument("--processes", type=int, default=14, help="worker processes on the GPU (default 14)")
    given = parser.parse_args(arguments)
    from bitwise_cublas_profiles.library_profile import PYTORCH_LIBRARY

    rows, died = run_workers(rows_of, given.processes, given.seconds, given)
    rows.sort(key=lambda each: int(each[0]))
    counted = summary(rows)
    head = json.dumps({**PYTORCH_LIBRARY.provenance(None), "seed": given.seed, **counted, "died": died,
                       "columns": list(COLUMNS)})  # fmt: skip
    lines = ",\n".join(json.dumps(each, separators=(",", ":")) for each in rows)
    given.out.write_text(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    print(json.dumps({**counted, "died": died}, indent=1))
    return 1 if died or any(each[COLUMNS.index("outcome")] == "different" for each in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
