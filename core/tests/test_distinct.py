"""Ascending vectors of numbers: which numbers they hold, and what two hold together."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.execution.values.distinct import among_sorted, joined_sorted, sorted_distinct


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("counts", [(0, 0), (0, 4), (4, 0), (1, 1), (30, 7), (7, 30), (40, 40)])
def test_they_are_sets(seed: int, counts: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    known, others = (sorted_distinct(rng.integers(0, 50, count, dtype=np.uint64)) for count in counts)
    assert among_sorted(others, known).tolist() == [each in known.tolist() for each in others.tolist()]
    joined = joined_sorted(known, others)
    assert joined.tolist() == sorted({*known.tolist(), *others.tolist()})
    assert joined_sorted(joined, others) is joined


def test_the_largest_numbers_are_found() -> None:
    known = np.array([0, 2**64 - 1], dtype=np.uint64)
    assert among_sorted(np.array([[2**64 - 1, 2**64 - 2], [0, 1]], dtype=np.uint64), known).tolist() == [
        [True, False],
        [True, False],
    ]
