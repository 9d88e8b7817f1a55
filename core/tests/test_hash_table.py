"""A table finds exactly the keys that were added, with the columns of the first entry of each."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.execution.values.hash_table import HashTable


@pytest.mark.parametrize("seed", range(40))
def test_a_table_finds_what_a_dictionary_finds(seed: int) -> None:
    random = np.random.default_rng(seed)
    # Few distinct first words, so that keys share buckets, first words, or all but one bit.
    top = 1 << int(random.choice([3, 8, 64])) if seed % 4 else 1 << 64
    words = (
        random.integers(0, top, 400, dtype=np.uint64, endpoint=False)
        if top < 1 << 64
        else random.integers(0, (1 << 64) - 1, 400, dtype=np.uint64)
    )
    if seed % 3 == 0:
        words <<= np.uint64(61)
    table = HashTable()
    assert table.find(np.zeros((2, 1), dtype=np.uint64)) is None
    expected: dict[int, tuple[int, int]] = {}
    for _ in range(int(random.integers(1, 5))):
        count = int(random.integers(0, 60))
        keys = np.stack([random.choice(words, count), random.integers(0, 3, count).astype(np.uint64)])
        numbers = random.integers(0, 1 << 30, count)
        table.add(keys, numbers)
        for first, second, number in zip(*keys.tolist(), numbers.tolist(), strict=True):
            expected.setdefault(first, (second, number))
        asked = np.stack([random.choice(words, (3, 7)), random.integers(0, 3, (3, 7)).astype(np.uint64)])
        found = table.find(asked)
        wanted = [
            expected[first][1] if expected.get(first, (None,))[0] == second else None
            for first, second in zip(*asked.reshape(2, -1).tolist(), strict=True)
        ]
        if found is None:
            assert not any(each is not None for each in wanted)
            continue
        present, (column,) = found
        assert present.shape == column.shape == (3, 7)
        held = zip(present.ravel().tolist(), column.ravel().tolist(), strict=True)
        assert [number if is_here else None for is_here, number in held] == wanted
