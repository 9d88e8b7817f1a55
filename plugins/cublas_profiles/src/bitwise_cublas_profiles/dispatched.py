"""torch.mm, addmm and bmm recorded and replayed on one GPU: are the replay's bytes those that PyTorch returned?

    python -m bitwise_cublas_profiles.dispatched --out dispatched.json --seconds 30

Shapes of all regimes, with batches, biases and gaps.
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

from bitwise_cublas_profiles.beyond import Beyond, asked_for
from bitwise_cublas_profiles.processes import together
from bitwise_cublas_profiles.question import CublasError, Question
from bitwise_cublas_profiles.seeded import DRAWS, Operands
from bitwise_torch import locked_products, recorded_products

COLUMNS = ("number", "kind", "m", "n", "k", "batch", "a", "transposes", "outcome", "rounded first", "about")
"""`outcome` is equal, different, or declined; `rounded first` says that of a bias."""


def row(drawing: Any, number: int, kind: str, asked: Question) -> list[Any]:
    """The row of COLUMNS for a question, run by PyTorch and from the lock of that run; `drawing` has `drawn`."""
    head = [number, kind, asked.m, asked.n, asked.k, asked.batch, asked.a, asked.letters]
    outcome, rounded, about = "equal", None, None
    try:
        for draw in DRAWS:
            given = operation(drawing, asked, number, draw, many=kind in ("batch", "strided"))
            with recorded_products("cublas") as recording:
                wanted = given()
            lock = recording.lock()
            if recording.left or lock.declined:
                why = next(iter(recording.left), None) or str(lock.entries[0].declined)
                return [*head, "declined", None, why.split(" is not described: ")[-1].split(" (algorithm")[0][:200]]
            rounded = lock.entries[0].rounded_first
            with locked_products(lock):
                found = given()
            if not drawing.equal(found, wanted):
                outcome, about = "different", f"{draw}: {lock.entries[0].descriptor}"
    except (CublasError, ValueError) as error:
        return [*head, "declined", None, str(error)[:200]]
    return [*head, outcome, rounded, about]


def operation(drawing: Any, asked: Question, number: int, draw: str, *, many: bool) -> Any:
    """What PyTorch is called with for a question, as a function of nothing."""
    import torch

    a, b = drawing.drawn(asked, number, draw, batched=many)
    if many:
        return lambda: torch.bmm(a, b)
    if asked.epilogue == "bias":
        bias = drawing.operands.pool(asked.c, draw)[number * 256 % (1 << 20) :][: asked.n]
        return lambda: torch.addmm(bias, a, b)
    return lambda: torch.mm(a, b)


def rows_of(start: int, step: int, deadline: float, given: argparse.Namespace) -> Iterator[list[Any]]:
    """The rows of one process."""
    import torch

    from bitwise_cublas_profiles.library import Library

    major, minor = torch.cuda.get_device_capability()
    drawing = Beyond(Library(), f"{major}.{minor}", Operands(given.seed))
    number = start
    while time.time() < deadline:
        found = asked_for(given.seed, number)
        if found is not None:
            yield row(drawing, number, *found)
        number += step


def summary(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Outcomes by kind, and why products were declined."""
    at = {name: place for place, name in enumerate(COLUMNS)}
    outcomes = Counter(
        f"{each[at['kind']]}{', rounded first' if each[at['rounded first']] else ''}: {each[at['outcome']]}"
        for each in rows
    )
    declined = Counter(str(each[at["about"]])[:80] for each in rows if each[at["outcome"]] == "declined")
    return {"outcomes": dict(sorted(outcomes.items())), "declined": dict(declined.most_common(12))}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit status is 1 where bytes differ, or where a process died."""
    parser = argparse.ArgumentParser(
        prog="bitwise_cublas_profiles.dispatched", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=20, help="of the shapes and the operands (default 20)")
    parser.add_argument("--seconds", type=float, default=30.0, help="for how long shapes are begun (default 30)")
    parser.add_argument("--processes", type=int, default=14, help="on the one GPU (default 14)")
    given = parser.parse_args(arguments)
    from bitwise_cublas_profiles.plugin import LOADED

    rows, died = together(rows_of, given.processes, given.seconds, given)
    rows.sort(key=lambda each: int(each[0]))
    counted = summary(rows)
    head = json.dumps({**LOADED.provenance(None), "seed": given.seed, **counted, "died": died,
                       "columns": list(COLUMNS)})  # fmt: skip
    lines = ",\n".join(json.dumps(each, separators=(",", ":")) for each in rows)
    given.out.write_text(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    print(json.dumps({**counted, "died": died}, indent=1))
    return 1 if died or any(each[COLUMNS.index("outcome")] == "different" for each in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
