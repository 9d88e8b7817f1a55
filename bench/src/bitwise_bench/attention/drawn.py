"""Drawn shapes on which nothing is tuned: decoding of equal lengths, of pages and of lengths that differ; prefills."""

from __future__ import annotations

import random
from typing import Any

_WIDTHS = ((64, 64), (64, 64), (96, 96), (128, 128), (128, 128), (192, 128), (256, 256))
_PAGES = (16, 32, 64, 128, 256)
_SMALLEST, _LARGEST = 5e5, 4e9
"""The bytes of keys and values of a case."""
_PREFILL_DEPTHS = (128, 128, 64)
_MOST = 6e9
"""The most pairs of a query and a key of all heads of a prefill."""


def _drawn(rng: random.Random) -> dict[str, Any]:
    """Draw a case: 1 to 256 sequences of 512 to 131,072 keys, and 1 to 16 heads in each of 1 to 32 groups."""
    while True:
        depth, width = rng.choice(_WIDTHS)
        batch, keys = round(2 ** rng.uniform(0, 8)), round(2 ** rng.uniform(9, 17))
        share, groups = rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 12, 16)), rng.choice((1, 2, 4, 5, 8, 8, 16, 32))
        case = {"batch": batch, "keys": keys, "heads": share * groups, "groups": groups, "depth": depth}
        if share * groups <= 128 and _SMALLEST <= 2 * batch * keys * groups * (depth + width) <= _LARGEST:
            return case | ({} if width == depth else {"width": width}) | {"held_out": True}


def equal_lengths(seed: int, count: int) -> tuple[dict[str, Any], ...]:
    """Return cases of contiguous keys."""
    rng = random.Random(seed)
    return tuple(_drawn(rng) for _ in range(count))


def pages(seed: int, count: int) -> tuple[dict[str, Any], ...]:
    """Return cases of keys in pages of 16 to 256."""
    rng = random.Random(seed)
    return tuple({**_drawn(rng), "page": rng.choice(_PAGES)} for _ in range(count))


def uneven(seed: int, count: int) -> tuple[dict[str, Any], ...]:
    """Return cases of lengths that differ, contiguous ones and, of page 16 to 256, those in pages, in turn."""
    rng = random.Random(seed)
    cases: list[dict[str, Any]] = []
    while len(cases) < count:
        case = _drawn(rng)
        if case["batch"] > 1:
            page = rng.choice(_PAGES) if len(cases) % 2 else 0
            cases.append({**case, "page": page, "seed": rng.randrange(1 << 16)})
    return tuple(cases)


def prefills(seed: int, count: int, causal: float = 1.0) -> tuple[dict[str, Any], ...]:
    """Return cases of 4,096 to 16,384 queries of as many keys, of which the share `causal` is causal."""
    rng = random.Random(seed)
    cases: list[dict[str, Any]] = []
    while len(cases) < count:
        depth = rng.choice(_PREFILL_DEPTHS)
        batch, queries = rng.choice((1, 1, 2, 3)), round(2 ** rng.uniform(12, 14))
        share, groups = rng.choice((1, 2, 3, 4, 5, 7, 8)), rng.choice((1, 2, 4, 8, 8, 16))
        case = {"batch": batch, "queries": queries, "heads": share * groups, "groups": groups, "depth": depth}
        if share * groups >= 8 and batch * share * groups * queries**2 <= _MOST:
            cases.append(case | ({} if rng.random() < causal else {"causal": False}) | {"held_out": True})
    return tuple(cases)


def lengths_of(case: dict[str, Any]) -> list[int]:
    """Return the lengths of an uneven case: one has all its keys, and the others have an eighth of them or more."""
    rng = random.Random(case["seed"])
    found = [rng.randint(-(-case["keys"] // 8), case["keys"]) for _ in range(case["batch"])]
    found[rng.randrange(case["batch"])] = case["keys"]
    return found
