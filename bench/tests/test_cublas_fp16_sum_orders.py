"""The order of sums of fp16 that probes of three values find."""

from __future__ import annotations

import itertools
import json
import lzma
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bitwise_bench.cublas.orders import fp16_sum_orders
from bitwise_bench.cublas.orders.fp16_sum_orders import SMALL, bounds_of, chain_answers, rows_of, shared_tiles
from bitwise_core.descriptors import GEMMDesc
from bitwise_core.plugins.installed import evaluate
from bitwise_cublas_profiles import library
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.profile import RowNotCovered, profile
from bitwise_cublas_profiles.query import Configuration, gemm_query

torch = pytest.importorskip("torch")
RECORDS = sorted((Path(__file__).resolve().parents[2] / "records").glob("cublas-fp16-sum-orders-sm90-h200-13.1-*"))
SHORT = 30
"""The longest sums whose every three values are evaluated."""


class OfParts(fp16_sum_orders.Probe):
    """A product on the CPU whose sums are those of parts of k; the last part comes first, or the first one."""

    def __init__(self, m: int, n: int, k: int, bounds: Callable[[int, int], list[int]], *, down: bool) -> None:
        self.torch, self.k, self.m, self.n, self.bounds, self.down = torch, k, m, n, bounds, down
        self.out = torch.empty(m, n)

    def joined(self, first: int, one: int, other: int, apart: tuple[int, int]) -> Any:
        values = np.zeros(self.k, np.float16)
        values[first], values[one], values[other] = 1.0, SMALL, SMALL
        rows = []
        for row in range(0, self.m, apart[0]):
            line = []
            for column in range(0, self.n, apart[1]):
                ends = [0, *self.bounds(row, column), self.k]
                parts = []
                for start, end in itertools.pairwise(ends):
                    total = np.float16(0)
                    for value in values[start:end][values[start:end] != 0]:
                        total = np.float16(total + value)
                    parts.append(total)
                total = np.float16(0)
                for part in parts[::-1] if self.down else parts:
                    total = np.float16(total + part)
                line.append(bool(total != 1))
            rows.append(line)
        return torch.tensor(rows)


def test_bounds_and_the_order_of_parts_are_found_by_tile() -> None:
    def bounds(row: int, column: int) -> list[int]:
        return [64, 160] if (row // 64 + column // 64) % 2 else [112]

    for down in (False, True):
        sets, places, orders = shared_tiles(OfParts(128, 128, 256, bounds, down=down))
        assert [[sets[number] for number in line] for line in places] == [[[112], [64, 160]], [[64, 160], [112]]]
        number = sets.index([64, 160])
        # The first two parts of the sum join before the third one does.
        early = {1, 2} if down else {0, 1}
        assert orders == [[number, list(three), set(three[1:]) == early] for three in ((0, 1, 2), (1, 0, 2), (2, 0, 1))]
    assert shared_tiles(OfParts(64, 64, 256, lambda *_: [], down=False))[0] == [[]]
    assert bounds_of([False] * 5) == ()


def test_chains_have_an_answer_for_every_three_values_or_for_pairs_at_distances() -> None:
    chain = OfParts(1, 7, 8, lambda *_: [], down=False)
    same, answers = chain_answers(chain)
    assert same
    assert len(answers) == 28 * 6
    # In a chain two values join before a later one alone.
    asked = [(first, one, other) for one in range(8) for other in range(one + 1, 8) for first in range(8)
             if first not in (one, other)]  # fmt: skip
    assert answers == "".join("01"[first > other] for first, one, other in asked)
    halves = OfParts(1, 7, 48, lambda *_: [24], down=False)
    same, answers = chain_answers(halves)
    assert same
    assert len(answers) == sum(
        1 for first in (0, 1, 16, 24, 47) for distance in (1, 2, 4, 8, 16, 32) for one in range(48 - distance)
        if first not in (one, one + distance)
    )  # fmt: skip


def test_every_drawn_product_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer_of(_: object, probe: fp16_sum_orders.Probe) -> object:
        if probe.k == 9:
            raise RuntimeError("no answer")
        found = Configuration(39, 20, 35, -1 if probe.k == 64 else 1, 2, 0, 0, 0, 9)
        return SimpleNamespace(configuration=found, workspace=1 << 20)

    drawn = iter([(64, 64, 64, "NN"), (64, 64, 128, "TN"), (64, 64, 9, "NT")])
    monkeypatch.setattr(library, "Library", lambda: None)
    monkeypatch.setattr(fp16_sum_orders.Probe, "device", "cpu")
    monkeypatch.setattr(fp16_sum_orders, "answer_of", answer_of)
    monkeypatch.setattr(fp16_sum_orders, "drawn_tiles", lambda _: next(drawn))
    try:
        asked, other, failed = itertools.islice(rows_of(0, 1, time.time() + 60, (1, ["tiles"])), 3)
    finally:
        torch.backends.cuda.matmul.allow_fp16_accumulation = False
    assert asked[:6] == [0, "tiles", 64, 64, 64, "NN"]
    assert [len(each) for each in (asked, other, failed)] == [11, 8, 2]
    assert failed == [2, "failed: RuntimeError: no answer"]


def described(row: list[Any]) -> GEMMDesc:
    """The descriptor of a row's product."""
    m, n, k, transposes, configuration, workspace = row[2:8]
    first, second = (each == "T" for each in transposes)
    query = replace(gemm_query(m, n, k, "fp16"), compute="fp16", transpose_a=first, transpose_b=second)
    return descriptor_of(query, Configuration(*configuration), profile("13.1", "9.0"), workspace=workspace)


def joined(desc: GEMMDesc, asked: list[tuple[int, int, int]]) -> list[bool]:
    """Whether the last two of three values of k are added before the first one joins them."""
    left = np.zeros((len(asked), desc.k), np.float16)
    for line, (first, one, other) in zip(left, asked, strict=True):
        line[first], line[one], line[other] = 1.0, SMALL, SMALL
    right = np.ones((desc.k, 1), np.float16)
    found = evaluate(desc, left.view(np.uint16), right.view(np.uint16))
    answers: list[bool] = (found[:, 0] != np.float16(1).view(np.uint16)).tolist()
    return answers


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: str(path.name))
def test_the_orders_that_probes_found_are_described(path: Path) -> None:
    rows = json.loads(lzma.decompress(path.read_bytes()))["rows"]
    parts, chains = 0, 0
    for row in (each for each in rows if len(each) > 8):
        if row[1] == "chains" and row[4] <= SHORT:
            k, answers = row[4], row[9]
            asked = [(first, one, other) for one, other in itertools.combinations(range(k), 2) for first in range(k)
                     if first not in (one, other)]  # fmt: skip
            assert (row[8], answers) == (True, "".join("01"[each] for each in joined(described(row), asked))), row[:8]
            chains += 1
        if row[1] == "tiles":
            sets, orders = row[8], row[10]
            try:
                desc = described(row)
            except RowNotCovered:  # some of the tiles are shared, or more than four blocks share them
                assert len(sets) > 1 or len(sets[0]) >= 3
                continue
            lengths = desc.k_cuts[0].lengths(desc.k)
            assert sets == [list(itertools.accumulate(lengths[:-1]))], row[:8]
            starts = [0, *sets[0]]
            asked = [tuple(starts[part] for part in three) for _, three, _ in orders]
            assert joined(desc, asked) == [answer for *_, answer in orders] if orders else True, row[:8]
            parts += 1
    assert parts > 20
    assert chains or not any(row[1] == "chains" for row in rows)
