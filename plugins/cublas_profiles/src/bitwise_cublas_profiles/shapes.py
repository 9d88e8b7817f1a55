"""Random questions for byte sweeps, by number: the same seed and number give the same question anywhere."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bitwise_cublas_profiles.question import FP8, Question, question

REGIMES = ("aligned", "unaligned", "deep", "vector", "tall", "small")
DTYPES = (("fp16", 60), ("bf16", 20), ("e4m3", 15), ("e5m2", 5))

MAXIMUM_OUTPUT = 1 << 25
MAXIMUM_OPERAND = 1 << 26
MAXIMUM_PRODUCTS = 1 << 34


@dataclass(frozen=True, slots=True)
class Drawn:
    """A question, its regime, and whether it is a candidate: one whose layout or output type no profile row covers."""

    number: int
    regime: str
    asked: Question
    candidate: bool


def drawn(seed: int, number: int, candidates: float = 0.0, shares: Sequence[tuple[str, float]] = DTYPES) -> Drawn:
    """The question of that number; a share of `candidates` has transposed 16-bit operands, or an output of fp32.

    `shares` says how often each type of operands is drawn.
    """
    source = random.Random(f"{seed}:{number}")
    regime = REGIMES[number % len(REGIMES)]
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
    asked = question(m, n, k, dtype)
    if candidate and dtype not in FP8 and source.random() < 0.7:
        first, second = source.choice([(False, True), (True, False), (True, True)])
        asked = replace(asked, transpose_a=first, transpose_b=second)
    elif candidate:
        asked = replace(asked, c="fp32")
    return Drawn(number, regime, asked, candidate)


def _spread(source: random.Random, low: float, high: float) -> int:
    """A whole number from `low` to `high`, all magnitudes alike."""
    return max(int(low), min(int(high), int(math.exp(source.uniform(math.log(low), math.log(high + 1))))))


def _grained(source: random.Random, *dimensions: int) -> list[int]:
    """Dimensions as they are, or all but the first raised to multiples of 2, of 8 or of 64."""
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
