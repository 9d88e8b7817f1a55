"""Products too small for fp32: what sums start from, and whether products are rounded, by any configuration.

    python -m bitwise_cublas_profiles.vanishing record vanishing.json.xz    where the GPU is
    python -m bitwise_cublas_profiles.vanishing check vanishing.json.xz     anywhere

Operands are bf16, whose products may lie below all of fp32: a sum of negative ones that all vanish is -0, unless
something adds +0 to it, and halves of the least number of fp32 tell a fused addition from two roundings.  Every
configuration that the library accepts is run so, and not only those of its heuristic; the file holds the outputs in the
corners, which `check` holds against the descriptors of a profile.
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

from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.processes import together
from bitwise_cublas_profiles.profile import Declined, Profile, profile
from bitwise_cublas_profiles.question import Configuration, CublasError, Question, question
from bitwise_cublas_profiles.survey import DOT, LETTERS, SCALAR, VECTOR, Case, cases

DRAWS = ("vanishing", "halves", "halves of both signs")
"""Negative products of 2^-160; 1, 3, 5 or 7 halves of 2^-149, or as many whole ones, of one sign or of both."""
COLUMNS = (
    "m", "n", "k", "transposes", "c", *(each.name for each in fields(Configuration)), "draw", "corners",
)  # fmt: skip
"""Columns of a row; `corners` are the patterns of the first and the last row's first and last elements."""

Bits = npt.NDArray[Any]


def operands(asked: Question, draw: str) -> tuple[Bits, Bits]:
    """The patterns of A (m, k) and B (k, n), the same on every machine."""
    source = np.random.Generator(np.random.PCG64(asked.k))
    shapes = (asked.m, asked.k), (asked.k, asked.n)
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
    """The first and the last row's first and last elements."""
    return matrix[[0, -1]][:, [0, -1]]


def listed(library: Any) -> list[Case]:
    """What to try: vectors and small products in every layout, with lanes that have no k, and in slices."""
    found = [case for case in cases(library, ["bf16"]) if case[1][0].algorithm not in (VECTOR, DOT)]
    vectors = [case for case in cases(library, ["bf16"]) if case[1][0].algorithm == VECTOR and case[0].k == 333]
    for asked, (plain, *_) in vectors:
        short = replace(asked, m=min(asked.m, 32), n=min(asked.n, 32))
        found += [(replace(short, k=k), (plain,)) for k in (3, 20, 333, 2311)]
        found.append((replace(short, k=2311), (replace(plain, split_k=3, reduction=2),)))
    for asked, configurations in list(found):
        if configurations[0].algorithm not in (VECTOR, *SCALAR) and asked.k == 264:
            for reduction in (1, 2, 4):
                sliced = tuple(replace(each, split_k=3, reduction=reduction) for each in configurations)
                found += [(asked, sliced), (replace(asked, c="bf16"), sliced)]
        elif configurations[0].algorithm in SCALAR:
            found.append((replace(asked, k=5), configurations))
    for blocks, k in ((1, 5), (1, 3000), (4, 600), (5, 3000), (32, 9000), (33, 9000)):
        for letters in LETTERS:
            for m, n in ((32, 1), (1, 32)):
                asked = question(m, n, k, "bf16", "fp32")
                asked = replace(asked, transpose_a=letters[0] == "T", transpose_b=letters[1] == "T")
                found.append((asked, (Configuration(DOT, 0, 0, blocks, 2, 0, 0, 0, 0),)))
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
        for asked, configurations in listed(library)[start::step]:
            if time.time() > deadline:
                return
            answer = None
            for each in configurations:
                try:
                    answer = library.configured(asked, each)
                    break
                except CublasError:
                    continue
            if answer is None:
                continue
            about = [asked.m, asked.n, asked.k, asked.letters, asked.c, *answer.configuration.record().values()]
            for draw in DRAWS:
                left, right = operands(asked, draw)
                a, b = upload(left, asked.transpose_a), upload(right, asked.transpose_b)
                out = torch.full((asked.m, asked.n), -7.0, dtype=torch_type(asked.c), device="cuda")
                run(library, asked, answer, a, b, out)
                found = out.view(torch.int32 if out.element_size() == 4 else torch.int16).cpu().numpy()
                yield [*about, draw, corners(found).tolist()]


def asked_of(line: dict[str, Any]) -> tuple[Question, Configuration]:
    """The question and the configuration of a row."""
    asked = question(line["m"], line["n"], line["k"], "bf16", line["c"])
    first, second = (letter == "T" for letter in line["transposes"])
    configuration = Configuration(**{each.name: line[each.name] for each in fields(Configuration)})
    return replace(asked, transpose_a=first, transpose_b=second), configuration


def outcome(line: dict[str, Any], known: Profile) -> str:
    """`equal`, `different`, or why there is no descriptor; layouts without rows of their own take part."""
    from bitwise_core.installed import evaluate

    asked, configuration = asked_of(line)
    try:
        desc = descriptor_of(asked, configuration, known, beyond=True)
    except Declined as error:
        return "declined: " + str(error).split(" is not described: ")[-1].split(" (algorithm")[0]
    left, right = operands(asked, line["draw"])
    ours = evaluate(desc, left[[0, -1]], right[:, [0, -1]])
    return "equal" if (ours == np.array(line["corners"]).astype(ours.dtype)).all() else "different"


def _order(row: Sequence[Any]) -> tuple[Any, ...]:
    """By algorithm and custom option first."""
    line = dict(zip(COLUMNS, row, strict=True))
    return line["algorithm"], line["custom"], line["stages"], line["split_k"], str(row)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record on a GPU, or check; the exit status of a check is 1 where bytes differ."""
    parser = argparse.ArgumentParser(
        prog="bitwise_cublas_profiles.vanishing", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("what", choices=("record", "check"))
    parser.add_argument("file", type=Path, help="compressed JSON (.json.xz)")
    parser.add_argument("--every", type=int, default=1, help="check every so many rows (default 1: all)")
    parser.add_argument("--seconds", type=float, default=40.0, help="for how long cases are begun (default 40)")
    parser.add_argument("--processes", type=int, default=12, help="on the one GPU (default 12)")
    parser.add_argument("--library", help="path of a libcublasLt (default: the one of the installed PyTorch)")
    given = parser.parse_args(arguments)
    if given.what == "record":
        from bitwise_cublas_profiles.plugin import LOADED

        rows, died = together(rows_of, given.processes, given.seconds, given)
        head = {**LOADED.provenance(given.library), "died": died, "columns": list(COLUMNS)}
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
