"""Sampled output elements of many GEMMs of cuBLASLt, and their check by evaluation of the descriptors on a CPU.

    python -m bitwise_bench.cublas.samples.element_samples measure --out fp32.json --dtype fp32 --count 20000
    python -m bitwise_bench.cublas.samples.element_samples check fp32.json

For every shape the heuristic's first result runs on flat and on wide operands, and nine output elements are stored.
Their operands are hashed from counters, so that the check needs neither a GPU nor PyTorch; with --check the processes
that measure also check. One shape in sixteen has a k of at most 4. `torch.mm equal` counts the shapes for which
`torch.mm` returned the same bytes of the whole output.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from bitwise_bench.compressed_text import read_text
from bitwise_bench.cublas.portable_operands import DRAWS, POOL, Operands, patterns
from bitwise_bench.cublas.sweeps.random_queries import random_query
from bitwise_bench.cublas.worker_processes import run_workers
from bitwise_core.descriptors import GEMMDesc
from bitwise_core.numerics import Bits
from bitwise_core.plugins.installed import evaluate
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.profile import RowNotCovered, profile
from bitwise_cublas_profiles.query import Configuration, GemmQuery

CONFIGURATION = tuple(each.name for each in fields(Configuration))
_ELEMENTS = 5 + len(CONFIGURATION) + 2
"""The place of the elements in a row, after the workspace and whether torch.mm is equal."""


def query_of_number(seed: int, number: int, dtype: str) -> GemmQuery | None:
    """The query of a number; None if it is too large."""
    source = random.Random(f"{seed}:{number}:elements")
    query = random_query(seed, number, 0.0, ((dtype, 1.0),)).query
    if number % 16 == 0:
        query = replace(query, k=source.randint(1, 4))
    if query.m * query.n * query.k > 1 << 31 or max(query.m * query.k, query.k * query.n, query.m * query.n) > 1 << 23:
        return None
    return replace(
        query, transpose_a=query.m > 1 and source.random() < 0.4, transpose_b=query.n > 1 and source.random() < 0.4
    )


def sampled(seed: int, number: int, query: GemmQuery) -> tuple[list[int], list[int]]:
    """The sampled rows and columns, ascending, with the first and the last ones."""
    source = random.Random(f"{seed}:{number}:places")
    rows, columns = (sorted({0, length - 1, source.randrange(length)}) for length in (query.m, query.n))
    return rows, columns


def _stored(seed: int, number: int, query: GemmQuery, draw: str) -> list[tuple[int, int, bool]]:
    """The first counter of A and B, the length of their stored rows, and whether they are stored transposed.

    It is that of `Operands.draw`.
    """
    source = random.Random(f"{seed}:{number}:{draw}")
    found = []
    for (rows, columns), transposed in ((query.stored_a, query.transpose_a), (query.stored_b, query.transpose_b)):
        found.append((source.randrange(0, (POOL - rows * columns) // 256) * 256, columns, transposed))
    return found


def operands_of(
    seed: int, number: int, query: GemmQuery, draw: str, rows: list[int], columns: list[int]
) -> tuple[Bits, Bits]:
    """The patterns of the sampled rows of A and columns of B."""
    found = []
    for lines, (start, width, transposed), across in zip(
        (rows, columns), _stored(seed, number, query, draw), (False, True), strict=True
    ):
        line, k = np.asarray(lines, dtype=np.int64)[:, None], np.arange(query.k, dtype=np.int64)[None, :]
        along_k = transposed == across
        counters: Any = start + (line * width + k if along_k else k * width + line)
        found.append(np.asarray(patterns(counters, seed, query.a, draw)).astype(np.uint32))
    return found[0], np.ascontiguousarray(found[1].T)


def rows_of(start: int, step: int, deadline: float, given: argparse.Namespace) -> Iterator[list[Any]]:
    """The measured shapes of one process."""
    import torch

    from bitwise_cublas_profiles.library import Library
    from bitwise_cublas_profiles.tensors import run

    torch.backends.cuda.matmul.allow_tf32 = given.dtype == "tf32"
    library, operands = Library(given.library), Operands(given.seed)
    about = _about(given) if given.check else None
    number = start
    while time.time() < deadline and number < given.count:
        query = query_of_number(given.seed, number, given.dtype)
        if query is not None:
            result = library.heuristic(query)[0]
            rows, columns = sampled(given.seed, number, query)
            values, same = [], True
            for draw in DRAWS:
                a, b = operands.draw(query, number, draw)
                out = torch.full((query.m, query.n), -7.0, device="cuda")
                run(library, query, result, a, b, out)
                same &= bool(torch.equal(torch.mm(a, b).view(torch.int32), out.view(torch.int32)))
                values += out[rows][:, columns].contiguous().view(torch.int32).flatten().tolist()
            row = [number, query.m, query.n, query.k, query.transposes, *result.configuration.record().values(),
                   result.workspace, int(same), values]  # fmt: skip
            yield row if about is None else [*row, *outcome(row, about)]
        number += step


def descriptor_of_row(row: Sequence[Any], about: dict[str, Any]) -> tuple[GemmQuery, GEMMDesc]:
    """The query and the descriptor of a measured shape. Raises RowNotCovered."""
    query = query_of_number(about["seed"], row[0], about["dtype"])
    assert query is not None
    assert [query.m, query.n, query.k, query.transposes] == row[1:5]
    end = 5 + len(CONFIGURATION)
    configuration = Configuration(*row[5:end])
    known = profile(about["library"].split()[-1], about["capability"])
    return query, descriptor_of(query, configuration, known, workspace=row[end])


def outcome(row: Sequence[Any], about: dict[str, Any]) -> tuple[str, str]:
    """Whether the elements of a measured shape are those of its descriptor, and why it is declined."""
    try:
        query, desc = descriptor_of_row(row, about)
    except RowNotCovered as error:
        return "declined", str(error).split(" is not described: ")[-1].split(" (algorithm")[0]
    rows, columns = sampled(about["seed"], row[0], query)
    got = np.concatenate(
        [evaluate(desc, *operands_of(about["seed"], row[0], query, draw, rows, columns)).ravel() for draw in DRAWS]
    )
    equal = got.astype(np.int64).tolist() == [each & 0xFFFFFFFF for each in row[_ELEMENTS]]
    return ("equal", "") if equal else ("different", f"{query.description}: {row[5:_ELEMENTS]}")


def check(path: Path, most: int) -> Counter[str]:
    """Evaluate the descriptors of at most `most` shapes; return the counts of outcomes."""
    about = json.loads(read_text(path))
    return _counted(outcome(row, about) for row in about["rows"][:most])


def _counted(outcomes: Iterable[tuple[str, str]]) -> Counter[str]:
    """The counts of outcomes, and of reasons why shapes are declined; shapes that differ are printed."""
    counts: Counter[str] = Counter()
    for found, why in outcomes:
        counts[found] += 1
        if found == "declined":
            counts[why] += 1
        elif found == "different":
            print(why, file=sys.stderr)
    return counts


def _about(given: argparse.Namespace) -> dict[str, Any]:
    """The library, the device, and the seed and type of the shapes."""
    from bitwise_cublas_profiles.library_profile import PYTORCH_LIBRARY

    return {**PYTORCH_LIBRARY.provenance(given.library), "seed": given.seed, "dtype": given.dtype}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure or check. The exit status is 1 if elements differ or a process failed."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.samples.element_samples", description=(__doc__ or "").split("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="run the library and store elements")
    measuring.add_argument("--out", type=Path, required=True)
    measuring.add_argument("--dtype", choices=("fp32", "tf32"), required=True)
    measuring.add_argument("--seed", type=int, default=51)
    measuring.add_argument("--count", type=int, default=20_000, help="number of candidate shapes (default 20,000)")
    measuring.add_argument("--seconds", type=float, default=60.0)
    measuring.add_argument("--processes", type=int, default=8, help="processes for each GPU (default 8)")
    measuring.add_argument("--check", action="store_true", help="evaluate the descriptors while shapes are measured")
    measuring.add_argument("--library", help="path of a libcublasLt (default: PyTorch's)")
    checking = commands.add_parser("check", help="evaluate the descriptors of a file")
    checking.add_argument("file", type=Path)
    checking.add_argument("--count", type=int, default=1 << 30, help="number of shapes (default: all)")
    given = parser.parse_args(arguments)
    if given.command == "check":
        counts = check(given.file, given.count)
        print(json.dumps(dict(counts), indent=1))
        return 1 if counts["different"] else 0
    rows, died = run_workers(rows_of, given.processes, given.seconds, given)
    rows.sort(key=lambda row: int(row[0]))
    about = {
        **_about(given), "shapes": len(rows), "torch.mm equal": sum(int(row[_ELEMENTS - 1]) for row in rows),
        "died": died,
        "columns": ["number", "m", "n", "k", "transposes", *CONFIGURATION, "workspace", "torch.mm", "elements"],
    }  # fmt: skip
    if given.check:
        about["checked"] = dict(_counted((row[-2], row[-1]) for row in rows))
    lines = ",\n".join(json.dumps(row[: _ELEMENTS + 1], separators=(",", ":")) for row in rows)
    given.out.write_text(f'{json.dumps(about)[:-1]}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    print(json.dumps({name: about[name] for name in ("shapes", "torch.mm equal", "checked", "died") if name in about}))
    return 1 if died or about.get("checked", {}).get("different") else 0


if __name__ == "__main__":
    sys.exit(main())
