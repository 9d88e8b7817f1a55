"""Random queries for byte comparisons, by number: a seed and a number determine the query on every machine."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bitwise_cublas_profiles.query import FP8, GemmQuery, gemm_query

REGIMES = ("aligned", "unaligned", "deep", "vector", "tall", "small")
DTYPES = (("fp16", 60), ("bf16", 20), ("e4m3", 15), ("e5m2", 5))

MAXIMUM_OUTPUT = 1 << 25
MAXIMUM_OPERAND = 1 << 26
MAXIMUM_PRODUCTS = 1 << 34


@dataclass(frozen=True, slots=True)
class RandomQuery:
    """A query, its regime, and whether it is a candidate: its layout or output type has no profile row."""

    number: int
    regime: str
    query: GemmQuery
    candidate: bool


def regime_of(number: int) -> str:
    """The regime of the query of a number."""
    return REGIMES[number % len(REGIMES)]


def random_query(
    seed: int, number: int, candidates: float = 0.0, shares: Sequence[tuple[str, float]] = DTYPES
) -> RandomQuery:
    """The query of a number. A share `candidates` has transposed 16-bit operands or an fp32 output.

    `shares` gives the frequency of each operand type.
    """
    source = random.Random(f"{seed}:{number}")
    regime = regime_of(number)
    dtype = source.choices([name for name, _ in shares], [share for _, share in shares])[0]
    candidate = source.random() < candidates
    while True:
        m, n, k = _SHAPES[regime](source)
        if dtype in FP8:
            n, k = -(-n // 16) * 16, -(-k // 16) * 16
        if (
            m * n <= MAXIMUM_OUTPUT
            and max(m * k, k * n) <= MAXIMUM_OPERAND
            and m * n * k <= MAXIMUM_PRODUCTS
            and k <= 300_000
        ):
            break
    query = gemm_query(m, n, k, dtype)
    if candidate and dtype not in FP8 and source.random() < 0.7:
        first, second = source.choice([(False, True), (True, False), (True, True)])
        query = replace(query, transpose_a=first, transpose_b=second)
    elif candidate:
        query = replace(query, c="fp32")
    return RandomQuery(number, regime, query, candidate)


def _spread(source: random.Random, low: float, high: float) -> int:
    """A log-uniform integer from `low` to `high`."""
    return max(int(low), min(int(high), int(math.exp(source.uniform(math.log(low), math.log(high + 1))))))


def _grained(source: random.Random, *dimensions: int) -> list[int]:
    """The dimensions, all but the first rounded up to a multiple of 1, 2, 8 or 64."""
    grain = source.choice([1, 1, 2, 8, 8, 64])
    return [dimensions[0], *(-(-each // grain) * grain for each in dimensions[1:])]


def _aligned(source: random.Random) -> tuple[int, int, int]:
    grain = source.choice([8, 16, 64, 128])
    m, n, k = (grain * _spread(source, 1, 4096 / grain) for _ in range(3))
    return m, n, k * source.choice([1, 1, 1, 4])


def _unaligned(source: random.Random) -> tuple[int, int, int]:
    m, n, k = _grained(source, _spread(source, 1, 4096), _spread(source, 1, 4096), _spread(source, 8, 8192))
    return m, n, k


def _deep(source: random.Random) -> tuple[int, int, int]:
    m, n, k = _grained(source, _spread(source, 1, 256), _spread(source, 1, 256), _spread(source, 4096, 299_000))
    return m, n, k


def _vector(source: random.Random) -> tuple[int, int, int]:
    _, k, long = _grained(source, 1, _spread(source, 8, 60_000), _spread(source, 1, 120_000))
    return (1, long, k) if source.random() < 0.7 else (long, 1, k)


def _tall(source: random.Random) -> tuple[int, int, int]:
    long, short, k = _spread(source, 1024, 120_000), _spread(source, 1, 64), _spread(source, 8, 4096)
    _, long, short, k = _grained(source, 1, long, short, k)
    return (short, long, k) if source.random() < 0.5 else (long, short, k)


def _small(source: random.Random) -> tuple[int, int, int]:
    m, n, k = _grained(source, _spread(source, 1, 64), _spread(source, 1, 64), _spread(source, 8, 1200))
    return m, n, k


_SHAPES: dict[str, Callable[[random.Random], tuple[int, int, int]]] = {
    "aligned": _aligned, "unaligned": _unaligned, "deep": _deep, "vector": _vector, "tall": _tall, "small": _small,
}  # fmt: skip
