"""Probes with products below the fp32 range: initial values of sums and rounding of products, for any configuration.

    python -m bitwise_bench.cublas.orders.underflow_probes record probes.json.xz    on the GPU
    python -m bitwise_bench.cublas.orders.underflow_probes check probes.json.xz     on any machine

Operands are bf16, whose products may be below the least subnormal of fp32. A sum of negative products that all
underflow is -0 unless +0 is added to it. Products that are odd multiples of half the least subnormal distinguish a
fused multiply-add from two roundings. Every configuration that the library accepts is run, including those that its
heuristic never selects. The file has the corner elements of the outputs; `check` compares them with the descriptors of
a profile.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_bench.cublas.orders.order_survey import DOT, SCALAR, TRANSPOSES, VECTOR, Case, cases
from bitwise_bench.cublas.worker_processes import run_workers
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.profile import Profile, RowNotCovered, profile
from bitwise_cublas_profiles.query import Configuration, CublasError, GemmQuery, gemm_query

DRAWS = ("vanishing", "halves", "halves of both signs")
"""Negative products of 2^-160; 1, 3, 5 or 7 times 2^-150, or twice that, of one sign or of both."""
COLUMNS = (
    "m", "n", "k", "transposes", "c", *(each.name for each in fields(Configuration)), "draw", "corners",
)  # fmt: skip
"""Columns of a row. `corners` are the bit patterns of the four corner elements of the output."""

Bits = npt.NDArray[Any]


def operands(query: GemmQuery, draw: str) -> tuple[Bits, Bits]:
    """Bit patterns of A (m, k) and B (k, n), the same on every machine."""
    source = np.random.Generator(np.random.PCG64(query.k))
    shapes = (query.m, query.k), (query.k, query.n)
    if draw == "vanishing":
        left, right = np.full(shapes[0], -(2.0**-80)), np.full(shapes[1], 2.0**-80)
    else:
        left = (2.0 * source.integers(0, 4, shapes[0]) + 1) * 2.0**-75
        right = 2.0 ** (source.integers(0, 2, shapes[1]) - 75.0)
        if draw == "halves of both signs":
            left *= 1 - 2.0 * source.integers(0, 2, shapes[0])
    a, b = ((each.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16) for each in (left, right))
    return a, b


def corners(matrix: Any) -> Any:
    """The four corner elements of a matrix."""
    return matrix[[0, -1]][:, [0, -1]]


def listed(library: Any) -> list[Case]:
    """The cases: vectors and small products in every layout, lanes without values of k, and split K."""
    found = [case for case in cases(library, ["bf16"]) if case[1][0].algorithm not in (VECTOR, DOT)]
    vectors = [case for case in cases(library, ["bf16"]) if case[1][0].algorithm == VECTOR and case[0].k == 333]
    for query, (plain, *_) in vectors:
        short = replace(query, m=min(query.m, 32), n=min(query.n, 32))
        found += [(replace(short, k=k), (plain,)) for k in (3, 20, 333, 2311)]
        found.append((replace(short, k=2311), (replace(plain, split_k=3, reduction=2),)))
    for query, configurations in list(found):
        if configurations[0].algorithm not in (VECTOR, *SCALAR) and query.k == 264:
            for reduction in (1, 2, 4):
                sliced = tuple(replace(each, split_k=3, reduction=reduction) for each in configurations)
                found += [(query, sliced), (replace(query, c="bf16"), sliced)]
        elif configurations[0].algorithm in SCALAR:
            found.append((replace(query, k=5), configurations))
    for blocks, k in ((1, 5), (1, 3000), (4, 600), (5, 3000), (32, 9000), (33, 9000)):
        for transposes in TRANSPOSES:
            for m, n in ((32, 1), (1, 32)):
                query = gemm_query(m, n, k, "bf16", "fp32")
                query = replace(query, transpose_a=transposes[0] == "T", transpose_b=transposes[1] == "T")
                found.append((query, (Configuration(DOT, 0, 0, blocks, 2, 0, 0, 0, 0),)))
    return found


def rows_of(start: int, step: int, deadline: float, given: argparse.Namespace) -> Iterator[list[Any]]:
    """The rows of one process."""
    import torch

    from bitwise_cublas_profiles.library import Library
    from bitwise_cublas_profiles.tensors import run, torch_type

    def upload(patterns: Bits, transposed: bool) -> Any:
        stored = np.ascontiguousarray(patterns.T if transposed else patterns).view(np.int16)
        matrix = torch.from_numpy(stored).cuda().view(torch.bfloat16)
        return matrix.t() if transposed else matrix

    with Library(given.library) as library:
        for query, configurations in listed(library)[start::step]:
            if time.time() > deadline:
                return
            result = None
            for each in configurations:
                try:
                    result = library.check_configuration(query, each)
                    break
                except CublasError:
                    continue
            if result is None:
                continue
            about = [query.m, query.n, query.k, query.transposes, query.c, *result.configuration.record().values()]
            for draw in DRAWS:
                left, right = operands(query, draw)
                a, b = upload(left, query.transpose_a), upload(right, query.transpose_b)
                out = torch.full((query.m, query.n), -7.0, dtype=torch_type(query.c), device="cuda")
                run(library, query, result, a, b, out)
                found = out.view(torch.int32 if out.element_size() == 4 else torch.int16).cpu().numpy()
                yield [*about, draw, corners(found).tolist()]


def query_and_configuration(line: dict[str, Any]) -> tuple[GemmQuery, Configuration]:
    """The query and the configuration of a row."""
    query = gemm_query(line["m"], line["n"], line["k"], "bf16", line["c"])
    first, second = (letter == "T" for letter in line["transposes"])
    configuration = Configuration(**{each.name: line[each.name] for each in fields(Configuration)})
    return replace(query, transpose_a=first, transpose_b=second), configuration


def outcome(line: dict[str, Any], known: Profile) -> str:
    """`equal`, `different`, or why there is no descriptor. Layouts without rows are extrapolated."""
    from bitwise_core.plugins.installed import evaluate

    query, configuration = query_and_configuration(line)
    try:
        desc = descriptor_of(query, configuration, known, extrapolate=True)
    except RowNotCovered as error:
        return "declined: " + str(error).split(" is not described: ")[-1].split(" (algorithm")[0]
    left, right = operands(query, line["draw"])
    ours = evaluate(desc, left[[0, -1]], right[:, [0, -1]])
    return "equal" if (ours == np.array(line["corners"]).astype(ours.dtype)).all() else "different"


def _order(row: Sequence[Any]) -> tuple[Any, ...]:
    """Sort key: algorithm and custom option first."""
    line = dict(zip(COLUMNS, row, strict=True))
    return line["algorithm"], line["custom"], line["stages"], line["split_k"], str(row)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record on a GPU, or check. The exit status of a check is 1 if bytes differ."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.orders.underflow_probes", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("what", choices=("record", "check"))
    parser.add_argument("file", type=Path, help="compressed JSON (.json.xz)")
    parser.add_argument("--every", type=int, default=1, help="check every so many rows (default 1: all)")
    parser.add_argument(
        "--seconds", type=float, default=40.0, help="start no new case after this many seconds (default 40)"
    )
    parser.add_argument("--processes", type=int, default=12, help="worker processes on the GPU (default 12)")
    parser.add_argument("--library", help="path of a libcublasLt (default: PyTorch's)")
    given = parser.parse_args(arguments)
    if given.what == "record":
        from bitwise_cublas_profiles.library_profile import PYTORCH_LIBRARY

        rows, died = run_workers(rows_of, given.processes, given.seconds, given)
        head = {**PYTORCH_LIBRARY.provenance(given.library), "died": died, "columns": list(COLUMNS)}
        lines = ",\n".join(json.dumps(each, separators=(",", ":")) for each in sorted(rows, key=_order))
        given.file.write_bytes(lzma.compress(f'{json.dumps(head)[:-1]}, "rows": [\n{lines}\n]}}\n'.encode()))
        print(f"{len(rows)} rows", *died, file=sys.stderr)
        return 1 if died else 0
    content = json.loads(lzma.decompress(given.file.read_bytes()))
    known = profile(content["library"].removeprefix("cuBLASLt "), content["capability"])
    found: Counter[str] = Counter()
    for row in content["rows"][:: given.every]:
        line = dict(zip(content["columns"], row, strict=True))
        said = outcome(line, known)
        found[f"algorithm {line['algorithm']} {line['draw']}: {said[:90]}"] += 1
        if said == "different":
            print(json.dumps(line))
    print(json.dumps(dict(sorted(found.items())), indent=1))
    return 1 if any(key.endswith(": different") for key in found) else 0


if __name__ == "__main__":
    sys.exit(main())
