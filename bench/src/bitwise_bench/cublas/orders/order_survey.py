"""Survey the summation order of every configuration that a library accepts, including those its heuristic never
selects.

    python -m bitwise_bench.cublas.orders.order_survey --out survey.jsonl --seconds 90

Every algorithm of a type is configured with each of its custom options or stages, for small products and vectors of
all layouts, and run on probes. Each line of the file is one case with the digest of its summation tree.
`bitwise_bench.cublas.orders.order_survey_check` compares them with a profile. Needs a GPU, PyTorch and NumPy.
"""

from __future__ import annotations

import argparse
import base64
import json
import multiprocessing
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.library_measurements import environment
from bitwise_bench.cublas.orders.summation_trees import digest
from bitwise_core.probing.summation_tree import SumTree
from bitwise_cublas_profiles.library import Library
from bitwise_cublas_profiles.query import Configuration, CublasError, GemmQuery, HeuristicResult, gemm_query
from bitwise_torch.operands import TensorArrays

TRANSPOSES = ("NN", "NT", "TN", "TT")
VECTOR, DOT = 13, 14
"""Algorithms of matrices times vectors."""
SCALAR = (11, 12, 16)
"""Algorithms of small products that have no tile parameter."""
_DOTS = ((5, 3000), (12, 3500), (33, 9000))


def packed(tree: SumTree) -> str:
    """A tree as text."""
    return base64.b85encode(zlib.compress(json.dumps(tree.nodes, separators=(",", ":")).encode(), 9)).decode()


def unpacked(text: str) -> SumTree:
    """The inverse of `packed`."""
    return SumTree(tuple(tuple(node) for node in json.loads(zlib.decompress(base64.b85decode(text)))))


def layouts(m: int, n: int, k: int, dtype: str, out: str) -> Iterator[GemmQuery]:
    """The query of a shape in every layout."""
    base = gemm_query(m, n, k, dtype, out)
    for transposes in TRANSPOSES:
        yield replace(base, transpose_a=transposes[0] == "T", transpose_b=transposes[1] == "T")


Case = tuple[GemmQuery, tuple[Configuration, ...]]
"""A query, and candidate configurations; the first one that the library accepts is measured."""


def cases(library: Library, dtypes: Iterable[str]) -> list[Case]:
    """All cases, short sums first."""
    found: list[Case] = []
    for dtype in dtypes:
        base = gemm_query(64, 64, 256, dtype, "fp32")
        for algorithm in library.algorithms(base):
            try:
                able = library.capabilities(base, algorithm)
            except CublasError:
                continue
            found += _cases(Configuration(algorithm, 0, 0, 1, 0, 0, 0, 0, 0), able, dtype)
    return sorted(found, key=lambda case: case[0].k)


def _cases(plain: Configuration, able: dict[str, tuple[int, ...]], dtype: str) -> Iterator[Case]:
    customs = [(replace(plain, custom=custom),) for custom in range((able["customs"] or (0,))[0] + 1)]
    if plain.algorithm == DOT:
        for blocks, k in _DOTS:
            for m, n in ((96, 1), (1, 96)):
                chosen = replace(plain, split_k=blocks, reduction=2)
                yield from ((query, (chosen,)) for query in layouts(m, n, k, dtype, "fp32"))
    elif plain.algorithm in (VECTOR, *SCALAR):
        vector = plain.algorithm == VECTOR
        for k in (333, 1100, 2311) if vector else (50, 333, 1100):
            for m, n in ((512, 1), (1, 512)) if vector else ((64, 48), (9, 52), (3, 40)):
                for query in layouts(m, n, k, dtype, "fp32"):
                    yield from ((query, configurations) for configurations in customs)
    else:
        for k in (264, 75):
            for query in layouts(64, 64, k, dtype, "fp32"):
                for stages in able["stages"] or (0,):
                    tiles = able["tiles"] or (0,)
                    yield query, tuple(replace(plain, stages=stages, tile=tile) for tile in tiles)


def read(library: Library, query: GemmQuery, result: HeuristicResult, trees: bool = False) -> dict[str, Any]:
    """The summation order of a result: the tree's digest (and the tree, with `trees`), or the open questions."""
    import torch

    from bitwise_core.probing import describe_shape, product_instrument, reveal, tree_shape
    from bitwise_cublas_profiles.tensors import run, torch_type

    out = torch.empty((query.m, query.n), dtype=torch_type(query.c), device="cuda")

    def multiply(a: Any, b: Any) -> Any:
        a = a.t().contiguous().t() if query.transpose_a else a.contiguous()
        b = b.t().contiguous().t() if query.transpose_b else b.contiguous()
        out.fill_(float("nan"))
        run(library, query, result, a, b, out)
        return out

    names = [str(torch_type(each)).removeprefix("torch.") for each in (query.a, query.b)]
    subject = product_instrument(
        multiply, query.m, query.n, query.k, names[0], dtype_b=names[1], arrays=TensorArrays("cuda")
    )
    found = reveal(subject)
    entry: dict[str, Any] = {"open": list(found.unresolved), "dropped": len(found.dropped)}
    if found.tree is not None:
        entry |= {"words": describe_shape(tree_shape(found.tree))[:120], "digest": digest(found.tree)}
        if trees:
            entry["tree"] = packed(found.tree)
    return entry


def line(
    library: Library, query: GemmQuery, configurations: Iterable[Configuration], trees: bool = False
) -> dict[str, Any] | None:  # fmt: skip
    """The line of one case, or None if the library rejects every configuration."""
    for configuration in configurations:
        try:
            result = library.check_configuration(query, configuration)
            break
        except CublasError:
            continue
    else:
        return None
    about = {
        "m": query.m, "n": query.n, "k": query.k, "a": query.a, "transposes": query.transposes, "c": query.c,
        **{name: value for name, value in result.configuration.record().items() if value},
    }  # fmt: skip
    try:
        return {**about, **read(library, query, result, trees)}
    except Exception as error:
        if "CUDA" in str(error):  # the CUDA context is unusable
            raise
        return {**about, "open": [f"{type(error).__name__}: {error}"]}


def _able(library: Library, base: GemmQuery, algorithm: int) -> Any:
    try:
        return library.capabilities(base, algorithm)
    except CublasError as error:
        return str(error)


def _work(part: int, given: argparse.Namespace, deadline: float, results: Any) -> None:
    try:
        import torch

        torch.zeros(1, device="cuda")
        with Library(given.library) as library:
            for query, configurations in cases(library, given.dtypes)[part :: given.processes]:
                if time.time() > deadline:
                    break
                found = line(library, query, configurations, given.trees)
                if found is not None:
                    results.put(found)
    except Exception as error:
        results.put({"died": f"process {part}: {type(error).__name__}: {error}"})
    results.put(None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Survey and write. The exit status is 1 if a process failed."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.orders.order_survey", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dtypes", nargs="+", default=["fp16"], help="operand types (default fp16)")
    parser.add_argument(
        "--seconds", type=float, default=90.0, help="start no new case after this many seconds (default 90)"
    )
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--trees", action="store_true", help="write the trees as well as their digests")
    parser.add_argument("--library", help="path of a libcublasLt (default: PyTorch's)")
    given = parser.parse_args(arguments)
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    deadline = time.time() + given.seconds
    workers = [
        context.Process(target=_work, args=(part, given, deadline, results), daemon=True)
        for part in range(given.processes)
    ]
    for each in workers:
        each.start()
    ended = died = count = 0
    with given.out.open("w", encoding="utf-8") as file, Library(given.library) as library:
        about: dict[str, Any] = {**environment(library), "algorithms": {}}
        for dtype in given.dtypes:
            base = gemm_query(64, 64, 256, dtype, "fp32")
            for number in library.algorithms(base):
                about["algorithms"][f"{dtype} {number}"] = _able(library, base, number)
        file.write(json.dumps(about) + "\n")
        while ended < len(workers) and time.time() < deadline + 60:
            try:
                found = results.get(timeout=2)
            except Exception:
                if not any(each.is_alive() for each in workers):
                    break
                continue
            if found is None:
                ended += 1
                continue
            died += "died" in found
            count += 1
            file.write(json.dumps(found, separators=(",", ":")) + "\n")
            file.flush()
    for each in workers:
        each.terminate()
    print(f"{count} cases, {died} processes died", file=sys.stderr)
    return 1 if died else 0


if __name__ == "__main__":
    sys.exit(main())
