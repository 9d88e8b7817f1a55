"""Configurations that a library accepts, whether its heuristic answers with them or not: each one's order, read.

    python -m bitwise_cublas_profiles.survey --out survey.jsonl --seconds 90

Every algorithm that the library names for a type is configured with each of its custom options or stages, for small
products and vectors of all layouts, and run on probes.  A line of the file is one case with the digest of the tree of
its sums; `bitwise_cublas_profiles.surveyed` holds them against a profile.  Needs a GPU, PyTorch and NumPy.
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

from bitwise_core.probe.sums import SumTree
from bitwise_cublas_profiles.library import Library
from bitwise_cublas_profiles.measure import environment
from bitwise_cublas_profiles.orders import digest
from bitwise_cublas_profiles.question import Answer, Configuration, CublasError, Question, question

LETTERS = ("NN", "NT", "TN", "TT")
VECTOR, DOT = 13, 14
"""Algorithms of matrices times vectors."""
SCALAR = (11, 12, 16)
"""Algorithms of small products without tiles to choose."""
_DOTS = ((5, 3000), (12, 3500), (33, 9000))


def packed(tree: SumTree) -> str:
    """A tree as text."""
    return base64.b85encode(zlib.compress(json.dumps(tree.nodes, separators=(",", ":")).encode(), 9)).decode()


def unpacked(text: str) -> SumTree:
    """The tree that `packed` wrote."""
    return SumTree(tuple(tuple(node) for node in json.loads(zlib.decompress(base64.b85decode(text)))))


def layouts(m: int, n: int, k: int, dtype: str, out: str) -> Iterator[Question]:
    """The question of a shape in every layout."""
    base = question(m, n, k, dtype, out)
    for letters in LETTERS:
        yield replace(base, transpose_a=letters[0] == "T", transpose_b=letters[1] == "T")


Case = tuple[Question, tuple[Configuration, ...]]
"""A question, and configurations of which the first one that the library accepts is read."""


def cases(library: Library, dtypes: Iterable[str]) -> list[Case]:
    """What to try, short sums first."""
    found: list[Case] = []
    for dtype in dtypes:
        base = question(64, 64, 256, dtype, "fp32")
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
                yield from ((asked, (chosen,)) for asked in layouts(m, n, k, dtype, "fp32"))
    elif plain.algorithm in (VECTOR, *SCALAR):
        vector = plain.algorithm == VECTOR
        for k in (333, 1100, 2311) if vector else (50, 333, 1100):
            for m, n in ((512, 1), (1, 512)) if vector else ((64, 48), (9, 52), (3, 40)):
                for asked in layouts(m, n, k, dtype, "fp32"):
                    yield from ((asked, configurations) for configurations in customs)
    else:
        for k in (264, 75):
            for asked in layouts(64, 64, k, dtype, "fp32"):
                for stages in able["stages"] or (0,):
                    tiles = able["tiles"] or (0,)
                    yield asked, tuple(replace(plain, stages=stages, tile=tile) for tile in tiles)


def read(library: Library, asked: Question, answer: Answer, trees: bool = False) -> dict[str, Any]:
    """The order of an answer's sums: the tree's digest, with `trees` the tree, or what is open."""
    import torch

    from bitwise_core.probe import form_of, product_subject, reveal, words
    from bitwise_cublas_profiles.tensors import run, torch_type

    out = torch.empty((asked.m, asked.n), dtype=torch_type(asked.c), device="cuda")

    def multiply(a: Any, b: Any) -> Any:
        a = a.t().contiguous().t() if asked.transpose_a else a.contiguous()
        b = b.t().contiguous().t() if asked.transpose_b else b.contiguous()
        out.fill_(float("nan"))
        run(library, asked, answer, a, b, out)
        return out

    names = [str(torch_type(each)).removeprefix("torch.") for each in (asked.a, asked.b)]
    subject = product_subject(multiply, asked.m, asked.n, asked.k, names[0], dtype_b=names[1], device="cuda")
    found = reveal(subject)
    result: dict[str, Any] = {"open": list(found.open), "dropped": len(found.dropped)}
    if found.tree is not None:
        result |= {"words": words(form_of(found.tree))[:120], "digest": digest(found.tree)}
        if trees:
            result["tree"] = packed(found.tree)
    return result


def line(
    library: Library, asked: Question, configurations: Iterable[Configuration], trees: bool = False
) -> dict[str, Any] | None:  # fmt: skip
    """The line of one case, None where the library refuses it."""
    for configuration in configurations:
        try:
            answer = library.configured(asked, configuration)
            break
        except CublasError:
            continue
    else:
        return None
    about = {
        "m": asked.m, "n": asked.n, "k": asked.k, "a": asked.a, "transposes": asked.letters, "c": asked.c,
        **{name: value for name, value in answer.configuration.record().items() if value},
    }  # fmt: skip
    try:
        return {**about, **read(library, asked, answer, trees)}
    except Exception as error:
        if "CUDA" in str(error):  # nothing more runs in this process
            raise
        return {**about, "open": [f"{type(error).__name__}: {error}"]}


def _able(library: Library, base: Question, algorithm: int) -> Any:
    try:
        return library.capabilities(base, algorithm)
    except CublasError as error:
        return str(error)


def _work(part: int, given: argparse.Namespace, deadline: float, results: Any) -> None:
    try:
        import torch

        torch.zeros(1, device="cuda")
        with Library(given.library) as library:
            for asked, configurations in cases(library, given.dtypes)[part :: given.processes]:
                if time.time() > deadline:
                    break
                found = line(library, asked, configurations, given.trees)
                if found is not None:
                    results.put(found)
    except Exception as error:
        results.put({"died": f"process {part}: {type(error).__name__}: {error}"})
    results.put(None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Survey and write; the exit status is 1 where a process died."""
    parser = argparse.ArgumentParser(prog="bitwise_cublas_profiles.survey", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dtypes", nargs="+", default=["fp16"], help="of the operands (default fp16)")
    parser.add_argument("--seconds", type=float, default=90.0, help="for how long cases are begun (default 90)")
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--trees", action="store_true", help="write the trees too, not their digests alone")
    parser.add_argument("--library", help="path of a libcublasLt (default: the one of the installed PyTorch)")
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
            base = question(64, 64, 256, dtype, "fp32")
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
