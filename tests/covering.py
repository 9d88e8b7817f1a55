"""Covering sets: few of many cases, in which every pair of values of two parameters appears that appears in all.

A fault that one value or two values together show is shown by a covering set as by all cases.  The other cases have the
marker `exhaustive`; `nox -s exhaustive` runs them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")
Values = Mapping[str, Hashable]
"""The values of a case, by the names of its parameters."""


def pairs_of(values: Values) -> frozenset[Hashable]:
    """Return the pairs of values of two parameters that a case has, or its one value."""
    named = sorted(values.items(), key=lambda each: each[0])
    return frozenset(combinations(named, 2)) if len(named) > 1 else frozenset(named)


def covering(cases: Sequence[Values], costs: Sequence[float] | None = None) -> list[int]:
    """Return the places of cases that together have every pair of values which any case has, in ascending order.

    In each turn the case with the most new pairs for its cost is taken, of equal ones the first; then each case is left
    out, the dearest first, whose pairs the others have.
    """
    prices = [1.0] * len(cases) if costs is None else costs
    pairs = [pairs_of(each) for each in cases]
    missing = frozenset[Hashable]().union(*pairs)
    taken: list[int] = []
    while missing:
        best = max(range(len(cases)), key=lambda place: (len(pairs[place] & missing) / prices[place], -place))
        taken.append(best)
        missing -= pairs[best]
    for place in sorted(taken, key=lambda each: (-prices[each], -each)):
        others = frozenset[Hashable]().union(*(pairs[each] for each in taken if each != place))
        if pairs[place] <= others:
            taken.remove(place)
    return sorted(taken)


def rows_of(parameters: Mapping[str, Iterable[Hashable]]) -> Iterator[dict[str, Any]]:
    """Yield every combination of values of parameters."""
    for values in product(*parameters.values()):
        yield dict(zip(parameters, values, strict=True))


def covering_params(
    cases: Sequence[Case],
    values_of: Callable[[Case], Values],
    *,
    name: Callable[[Case], str] = str,
    cost: Callable[[Case], float] = lambda _: 1.0,
) -> list[Any]:
    """Return the cases as parameters of a test; those outside of the covering set have the marker `exhaustive`."""
    kept = frozenset(covering([values_of(each) for each in cases], [cost(each) for each in cases]))
    return [
        pytest.param(each, id=name(each), marks=() if place in kept else pytest.mark.exhaustive)
        for place, each in enumerate(cases)
    ]


EXHAUSTIVE = "BITWISE_EXHAUSTIVE"
"""The environment variable with which Hypothesis draws all examples of a test; `nox -s exhaustive` sets it."""


def examples(count: int) -> int:
    """Return how many examples Hypothesis draws of `count`: a quarter, or all in the exhaustive session."""
    return count if os.environ.get(EXHAUSTIVE) else count // 4


def drawn_params(seeds: Iterable[int], kept: Callable[[int], bool]) -> list[Any]:
    """Return seeds of random programs as parameters; those that are not kept have the marker `exhaustive`."""
    return [pytest.param(each, marks=() if kept(each) else pytest.mark.exhaustive) for each in seeds]
