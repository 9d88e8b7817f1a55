"""Small products whose bytes cuBLASLt returned on a GPU, checked against their descriptors on any CPU.

    python -m bitwise_cublas_profiles.sample record sample.json     where the GPU is
    python -m bitwise_cublas_profiles.sample check sample.json      anywhere

Operands are drawn from the shape's number by NumPy, bit for bit the same on both machines; the file holds hashes of the
outputs.  Shapes are chosen so that every configuration met takes part about equally often.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_core.numeric import FLOAT_FORMATS, storage
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.profile import Declined, profile
from bitwise_cublas_profiles.provenance import asked_of
from bitwise_cublas_profiles.question import Answer, CublasError, Question
from bitwise_cublas_profiles.shapes import drawn

MAXIMUM_PRODUCTS = 1 << 20
COLUMNS = (
    "number", "m", "n", "k", "a", "transposes", "c", "algorithm", "tile", "stages", "split_k", "reduction", "custom",
    "cluster_shape", "sha256",
)  # fmt: skip
_EXPONENTS = {"fp16": 5, "bf16": 12, "e4m3": 3, "e5m2": 5}

Bits = npt.NDArray[Any]


def operands(asked: Question, number: int) -> tuple[Bits, Bits]:
    """The patterns of A (m, k) and B (k, n): all signs and fractions, exponents around that of 1, zeros now and then.

    Sums stay finite.
    """
    source = np.random.Generator(np.random.PCG64(number))

    def matrix(shape: tuple[int, int], dtype: str) -> Bits:
        form, reach = FLOAT_FORMATS[dtype], _EXPONENTS[dtype]
        words = source.integers(0, 1 << 32, shape, dtype=np.uint64)
        fraction = words & np.uint64((1 << form.mantissa_bits) - 1)
        exponent = np.uint64(form.bias - reach) + (words >> np.uint64(12)) % np.uint64(reach + 1)
        sign = words >> np.uint64(31) << np.uint64(form.magnitude_bits)
        zero = (words >> np.uint64(20)) % np.uint64(64) == 0
        magnitude = np.where(zero, np.uint64(0), exponent << np.uint64(form.mantissa_bits) | fraction)
        return (sign | magnitude).astype(storage(form.bits))

    return matrix((asked.m, asked.k), asked.a), matrix((asked.k, asked.n), asked.b)


def hashed(patterns: Bits) -> str:
    """The digest of an output, row by row."""
    return hashlib.sha256(np.ascontiguousarray(patterns).tobytes()).hexdigest()


def chosen(library: Any, seed: int, count: int, numbers: int) -> Iterator[tuple[int, Question, Answer]]:
    """Small shapes that a profile describes, configurations in turn: the first of each, the second of each, ..."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    known = profile(library.version, f"{properties.major}.{properties.minor}")
    found: dict[tuple[Any, ...], list[tuple[int, Question, Answer]]] = {}
    for number in range(numbers):
        asked = drawn(seed, number, 0.3).asked
        if asked.m * asked.n * asked.k > MAXIMUM_PRODUCTS:
            continue
        try:
            answer = library.ask(asked)[0]
            descriptor_of(asked, answer.configuration, known)
        except CublasError:
            continue
        each = answer.configuration
        key = (asked.a, each.algorithm, each.stages, each.custom if each.algorithm != 66 else 0, each.reduction)
        found.setdefault(key, []).append((number, asked, answer))
    taken = 0
    for turn in range(count):
        for shapes in found.values():
            if turn < len(shapes) and taken < count:
                taken += 1
                yield shapes[turn]


def record(library: Any, seed: int, count: int, numbers: int) -> dict[str, Any]:
    """What cuBLASLt returned for `count` shapes out of the first `numbers` of a seed."""
    import torch

    from bitwise_cublas_profiles.tensors import run, torch_type

    def upload(patterns: Bits, dtype: str, transposed: bool) -> Any:
        stored = np.ascontiguousarray(patterns.T if transposed else patterns)
        matrix = torch.from_numpy(stored.view(f"i{stored.itemsize}")).cuda().view(torch_type(dtype))
        return matrix.t() if transposed else matrix

    rows = []
    for number, asked, answer in chosen(library, seed, count, numbers):
        left, right = operands(asked, number)
        a, b = upload(left, asked.a, asked.transpose_a), upload(right, asked.b, asked.transpose_b)
        out = torch.full((asked.m, asked.n), -7.0, dtype=torch_type(asked.c), device="cuda")
        run(library, asked, answer, a, b, out)
        found = out.view(torch.int32 if out.element_size() == 4 else torch.int16).cpu().numpy()
        each = answer.configuration
        rows.append([
            number, asked.m, asked.n, asked.k, asked.a, asked.letters, asked.c, each.algorithm, each.tile, each.stages,
            each.split_k, each.reduction, each.custom, each.cluster_shape, hashed(found),
        ])  # fmt: skip
    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name, "capability": f"{properties.major}.{properties.minor}", "library": library.version,
        "torch": torch.__version__, "seed": seed, "columns": list(COLUMNS), "rows": rows,
    }  # fmt: skip


def checked(content: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Each shape and what became of it: `equal`, `different`, or why it is declined."""
    from bitwise_core.installed import evaluate

    known = profile(content["library"], content["capability"])
    for row in content["rows"]:
        line = dict(zip(content["columns"], row, strict=True))
        asked, configuration = asked_of(line)
        try:
            desc = descriptor_of(asked, configuration, known)
        except Declined as error:
            yield line, str(error)
            continue
        same = hashed(evaluate(desc, *operands(asked, line["number"]))) == line["sha256"]
        yield line, "equal" if same else "different"


def main(arguments: Sequence[str] | None = None) -> int:
    """Record on a GPU, or check; the exit status of a check is 1 where bytes differ."""
    parser = argparse.ArgumentParser(prog="bitwise_cublas_profiles.sample", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("record", "check"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--seed", type=int, default=100, help="of the shapes (default 100)")
    parser.add_argument("--count", type=int, default=500, help="how many shapes to record (default 500)")
    parser.add_argument("--numbers", type=int, default=40_000, help="how many shapes to choose from (default 40000)")
    parser.add_argument("--library", help="path of a libcublasLt (default: the one of the installed PyTorch)")
    given = parser.parse_args(arguments)
    if given.what == "record":
        from bitwise_cublas_profiles.library import Library

        with Library(given.library) as library:
            content = record(library, given.seed, given.count, given.numbers)
        given.file.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
        print(f"{len(content['rows'])} shapes", file=sys.stderr)
        return 0
    outcomes: Counter[tuple[int, str, str]] = Counter()
    begun = time.time()
    for line, outcome in checked(json.loads(given.file.read_text(encoding="utf-8"))):
        outcomes[line["algorithm"], line["a"], outcome] += 1
        if outcome == "different":
            print(json.dumps(line))
    for (algorithm, dtype, outcome), count in sorted(outcomes.items()):
        print(f"algorithm {algorithm} {dtype}: {count} {outcome}")
    print(f"{time.time() - begun:.0f} s", file=sys.stderr)
    return 1 if any(outcome == "different" for _, _, outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
