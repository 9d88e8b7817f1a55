"""Small GEMMs run by cuBLASLt on a GPU, checked against their descriptors on any CPU.

    python -m bitwise_bench.cublas.samples.cpu_samples record sample.json     on the GPU
    python -m bitwise_bench.cublas.samples.cpu_samples check sample.json      on any machine

NumPy generates the operands from the shape's number, with identical bits on both machines. The file has hashes of the
outputs. Shapes are selected so that every configuration occurs about equally often.
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

from bitwise_bench.cublas.row_evidence import query_and_configuration
from bitwise_bench.cublas.sweeps.random_queries import random_query
from bitwise_core.numerics import FLOAT_FORMATS, storage
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.profile import RowNotCovered, profile
from bitwise_cublas_profiles.query import CublasError, GemmQuery, HeuristicResult

MAXIMUM_PRODUCTS = 1 << 20
COLUMNS = (
    "number", "m", "n", "k", "a", "transposes", "c", "algorithm", "tile", "stages", "split_k", "reduction", "custom",
    "cluster_shape", "sha256",
)  # fmt: skip
_EXPONENTS = {"fp16": 5, "bf16": 12, "e4m3": 3, "e5m2": 5}

Bits = npt.NDArray[Any]


def operands(query: GemmQuery, number: int) -> tuple[Bits, Bits]:
    """Bit patterns of A (m, k) and B (k, n): any sign and fraction, exponents near that of 1, and occasional zeros.

    The ranges keep sums finite.
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

    return matrix((query.m, query.k), query.a), matrix((query.k, query.n), query.b)


def hashed(patterns: Bits) -> str:
    """SHA-256 of an output in row-major order."""
    return hashlib.sha256(np.ascontiguousarray(patterns).tobytes()).hexdigest()


def chosen(library: Any, seed: int, count: int, numbers: int) -> Iterator[tuple[int, GemmQuery, HeuristicResult]]:
    """Small shapes that a profile covers, round-robin over the configurations."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    known = profile(library.version, f"{properties.major}.{properties.minor}")
    found: dict[tuple[Any, ...], list[tuple[int, GemmQuery, HeuristicResult]]] = {}
    for number in range(numbers):
        query = random_query(seed, number, 0.3).query
        if query.m * query.n * query.k > MAXIMUM_PRODUCTS:
            continue
        try:
            result = library.heuristic(query)[0]
            descriptor_of(query, result.configuration, known)
        except CublasError:
            continue
        each = result.configuration
        key = (query.a, each.algorithm, each.stages, each.custom if each.algorithm != 66 else 0, each.reduction)
        found.setdefault(key, []).append((number, query, result))
    taken = 0
    for position in range(count):
        for shapes in found.values():
            if position < len(shapes) and taken < count:
                taken += 1
                yield shapes[position]


def record(library: Any, seed: int, count: int, numbers: int) -> dict[str, Any]:
    """What cuBLASLt returned for `count` shapes among the first `numbers` of a seed."""
    import torch

    from bitwise_cublas_profiles.tensors import run, torch_type

    def upload(patterns: Bits, dtype: str, transposed: bool) -> Any:
        stored = np.ascontiguousarray(patterns.T if transposed else patterns)
        matrix = torch.from_numpy(stored.view(f"i{stored.itemsize}")).cuda().view(torch_type(dtype))
        return matrix.t() if transposed else matrix

    rows = []
    for number, query, result in chosen(library, seed, count, numbers):
        left, right = operands(query, number)
        a, b = upload(left, query.a, query.transpose_a), upload(right, query.b, query.transpose_b)
        out = torch.full((query.m, query.n), -7.0, dtype=torch_type(query.c), device="cuda")
        run(library, query, result, a, b, out)
        found = out.view(torch.int32 if out.element_size() == 4 else torch.int16).cpu().numpy()
        each = result.configuration
        rows.append([
            number, query.m, query.n, query.k, query.a, query.transposes, query.c, each.algorithm, each.tile,
            each.stages, each.split_k, each.reduction, each.custom, each.cluster_shape, hashed(found),
        ])  # fmt: skip
    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name, "capability": f"{properties.major}.{properties.minor}", "library": library.version,
        "torch": torch.__version__, "seed": seed, "columns": list(COLUMNS), "rows": rows,
    }  # fmt: skip


def checked(content: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Each shape and its outcome: `equal`, `different`, or the reason why it is not covered."""
    from bitwise_core.plugins.installed import evaluate

    known = profile(content["library"], content["capability"])
    for row in content["rows"]:
        line = dict(zip(content["columns"], row, strict=True))
        query, configuration = query_and_configuration(line)
        try:
            desc = descriptor_of(query, configuration, known)
        except RowNotCovered as error:
            yield line, str(error)
            continue
        same = hashed(evaluate(desc, *operands(query, line["number"]))) == line["sha256"]
        yield line, "equal" if same else "different"


def main(arguments: Sequence[str] | None = None) -> int:
    """Record on a GPU, or check. The exit status of a check is 1 if bytes differ."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.samples.cpu_samples", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("what", choices=("record", "check"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--seed", type=int, default=100, help="seed of the shapes (default 100)")
    parser.add_argument("--count", type=int, default=500, help="how many shapes to record (default 500)")
    parser.add_argument("--numbers", type=int, default=40_000, help="how many shapes to choose from (default 40000)")
    parser.add_argument("--library", help="path of a libcublasLt (default: PyTorch's)")
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
