"""Which values of k PyTorch adds first where it accumulates fp16 in fp16, from products with three values of k.

    python -m bitwise_bench.cublas.orders.fp16_sum_orders --out orders.json --seconds 60 --kinds tiles chains

One value of k has the product 1, and two others have 2^-11, half of a unit in the last place of 1. The sum is 1 + 2^-10
if the two are added before the first one joins them, and 1 otherwise. All elements of a product have the same values,
so that one product asks all tiles.

`tiles` are products of which several blocks share tiles along k (SPLITK_NUM -1 with a workspace for sums). A row has
the bounds of k between the parts of each tile, and for tiles with three parts or more which two of three are added
first. `chains` are products of few rows by other algorithms than those of matrix units. With up to _WHOLE values of k a
row has the answer for every three of them, else for pairs at some distances.

A drawn product of another kind of kernel has a row without answers, and one that failed a row with its number and the
reason. The exit status is 1 if no product was asked or one failed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.product_forms import environment
from bitwise_bench.cublas.worker_processes import numbered_rows, run_workers

SMALL = 2.0**-11
_STEP = 16
"""The values of k of an instruction: no bound is between those of one."""
_TILE = 64
"""The elements, along each axis, of which one is looked at."""
_COUNTERS = 4096
"""The most bytes of a workspace that has room for counters only."""
_WHOLE = 40
_LONGEST = 4000
"""The most values of k of a product of few rows."""
_DISTANCES = (1, 2, 4, 8, 16, 32, 64)
_MOST_PARTS, _MOST_SETS = 6, 8
"""The parts of a tile, and the sets of bounds of a product, whose order is asked."""
_NOT_ASKED = 8
"""The columns of a row without answers."""
_MATRIX_UNITS = (21, 23, 24, 39, 41, 42)
"""Algorithms whose sums are those of matrix units."""


class Probe:
    """One product of PyTorch, whose operands are zero but for some values of k."""

    device = "cuda"

    def __init__(self, m: int, n: int, k: int, transposes: str) -> None:
        import torch

        self.torch, self.k = torch, k
        shape_a, shape_b = ((k, m) if transposes[0] == "T" else (m, k)), ((n, k) if transposes[1] == "T" else (k, n))
        a = torch.zeros(shape_a, device=self.device, dtype=torch.float16)
        b = torch.ones(shape_b, device=self.device, dtype=torch.float16)
        self.a, self.b = a.t() if transposes[0] == "T" else a, b.t() if transposes[1] == "T" else b
        self.out = torch.empty(m, n, device=self.device, dtype=torch.float16)

    def joined(self, first: int, one: int, other: int, apart: tuple[int, int]) -> Any:
        """Return whether the values `one` and `other` of k are added before `first` joins them.

        The result has the elements whose row and column are multiples of the numbers `apart`.
        """
        self.a.zero_()
        self.a[:, first] = 1.0
        self.a[:, one] = SMALL
        self.a[:, other] = SMALL
        self.torch.mm(self.a, self.b, out=self.out)
        return self.out[:: apart[0], :: apart[1]] != 1.0


def answer_of(library: Any, probe: Probe) -> Any:
    """Return the library's answer to the query that PyTorch makes for the product."""
    from bitwise_cublas_profiles.pytorch_settings import current_settings
    from bitwise_cublas_profiles.tensors import query_of_tensors

    return library.heuristic(current_settings().applied(query_of_tensors(probe.a, probe.b, probe.out)))[0]


def shared_tiles(probe: Probe) -> tuple[list[list[int]], list[list[int]], list[list[Any]]]:
    """Return the sets of bounds, the set of each tile by its place, and the order of parts of some sets.

    A bound is the first value of k of a part. An order is the number of a set, three of its parts, and whether the last
    two are added before the first one joins them.
    """
    torch = probe.torch
    # Values of two parts may join before a large one of the first part, or of the last one, but not before both.
    found = [
        probe.joined(0, start, start + _STEP, (_TILE, _TILE))
        & probe.joined(probe.k - 1, start, start + _STEP, (_TILE, _TILE))
        for start in range(_STEP, probe.k - _STEP - 1, _STEP)
    ]
    bits = torch.stack(found).cpu().numpy()  # [t]: values of k at (t + 1) and (t + 2) times _STEP are added first
    sets: dict[tuple[int, ...], int] = {}
    places = [
        [sets.setdefault(bounds_of(bits[:, row, column].tolist()), len(sets)) for column in range(bits.shape[2])]
        for row in range(bits.shape[1])
    ]
    orders = []
    for bounds, number in list(sets.items())[:_MOST_SETS]:
        parts = [0, *bounds][:_MOST_PARTS]
        row, column = next(
            (row, line.index(number)) for row, line in enumerate(places) if number in line
        )  # fmt: skip
        for three in itertools.combinations(range(len(parts)), 3):
            for first in three:
                one, other = (each for each in three if each != first)
                values = parts[first], parts[one], parts[other]
                answer = probe.joined(*values, (_TILE, _TILE))[row, column]
                orders.append([number, [first, one, other], bool(answer)])
    return [list(each) for each in sets], places, orders


def bounds_of(joined: Sequence[bool]) -> tuple[int, ...]:
    """Return the bounds of a tile: `joined` says of neighbouring steps, from the second on, if they are added first.

    Neighbours of the first part, which has the large value, are not.
    """
    if not any(joined):
        return ()
    start = joined.index(True)
    bounds = [(start + 1) * _STEP]
    bounds += [(place + 2) * _STEP for place in range(start, len(joined)) if not joined[place]]
    return tuple(bounds)


def chain_answers(probe: Probe) -> list[Any]:
    """Return for three values of k, or pairs at distances, whether the last two are added before the first joins."""
    k, found = probe.k, []
    if k <= _WHOLE:
        asked = [
            (first, one, other) for one, other in itertools.combinations(range(k), 2) for first in range(k)
            if first not in (one, other)
        ]  # fmt: skip
    else:
        firsts = sorted({0, 1, k // 3, k // 2, k - 1})
        asked = [
            (first, one, one + distance) for first in firsts for distance in _DISTANCES for one in range(k - distance)
            if first not in (one, one + distance)
        ]  # fmt: skip
    step = max(1, probe.out.shape[1] // 7)
    answers = [probe.joined(*each, (1, step)) for each in asked]
    stacked = probe.torch.stack(answers)
    first = stacked[:, :1, :1]
    same = bool((stacked == first).all())
    text = "".join("01"[each] for each in first.flatten().int().tolist())
    found += [same, text]
    if not same:
        found.append(["".join("01"[each] for each in stacked[:, -1, -1].int().tolist())])
    return found


def drawn_tiles(dice: random.Random) -> tuple[int, int, int, str]:
    """Return a product of medium size."""
    step = dice.choice((8, 16, 64, 128, 128))

    def size(first: int, last: int) -> int:
        return step * max(1, round(math.exp(dice.uniform(math.log(first), math.log(last))) / step))

    k = 64 * round(math.exp(dice.uniform(math.log(1024), math.log(14000))) / 64) + dice.choice((0, 0, 0, 8, 16, 32))
    return size(64, 4096), size(64, 4096), k, dice.choice(("NN", "NT", "TN", "TT"))


def drawn_chains(dice: random.Random) -> tuple[int, int, int, str]:
    """Return a product of few rows."""
    m = dice.randint(1, 16)
    if dice.random() < 0.2:
        n, k = round(math.exp(dice.uniform(math.log(5000), math.log(100000)))), dice.randint(8, _WHOLE)
    else:
        n = round(math.exp(dice.uniform(math.log(4000), math.log(60000))))
        k = round(math.exp(dice.uniform(math.log(_WHOLE + 1), math.log(_LONGEST))))
    return m, n, k, dice.choice(("NN", "NN", "NT"))


def rows_of(start: int, step: int, deadline: float, given: tuple[int, Sequence[str]]) -> Iterable[list[Any]]:
    """The rows of one process."""
    import torch

    from bitwise_cublas_profiles.library import Library

    torch.backends.cuda.matmul.allow_fp16_accumulation = True
    library = Library()
    return numbered_rows(
        lambda number: _row(library, number, given), start - step, step, deadline,
        lambda number, reason: [number, f"failed: {reason}"[:300]],
    )  # fmt: skip


def _row(library: Any, number: int, given: tuple[int, Sequence[str]]) -> list[Any]:
    seed, kinds = given
    dice = random.Random(f"{seed}:{number}")
    kind = dice.choice(list(kinds))
    m, n, k, transposes = (drawn_tiles if kind == "tiles" else drawn_chains)(dice)
    probe = Probe(m, n, k, transposes)
    found = answer_of(library, probe)
    row = [number, kind, m, n, k, transposes, list(found.configuration.record().values()), found.workspace]
    if kind == "tiles" and found.configuration.split_k == -1 and found.workspace > _COUNTERS:
        return [*row, *shared_tiles(probe)]
    if kind == "chains" and found.configuration.algorithm not in _MATRIX_UNITS:
        return [*row, *chain_answers(probe)]
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.orders.fp16_sum_orders", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="where to write the record (JSON)")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds (default 60)")
    parser.add_argument("--seed", type=int, default=41, help="seed of the products (default 41)")
    parser.add_argument("--processes", type=int, default=2, help="processes for each GPU (default 2)")
    parser.add_argument("--kinds", nargs="+", choices=("tiles", "chains"), default=["tiles", "chains"])
    parser.add_argument("--rows", type=Path, help="a file of lines to which all rows are appended")
    given = parser.parse_args(arguments)
    rows, died = run_workers(rows_of, given.processes, given.seconds, (given.seed, given.kinds), kept=given.rows)
    rows.sort(key=lambda row: int(row[0]))
    record = {"environment": environment(), "seed": given.seed, "rows": rows}
    given.out.write_text(json.dumps(record) + "\n", encoding="utf-8")
    asked = sum(len(row) > _NOT_ASKED for row in rows)
    failed = [row for row in rows if len(row) < _NOT_ASKED]
    print(f"{asked} of {len(rows)} products asked, {len(failed)} failed; {[*died, *failed][:3]}")
    return 1 if died or failed or not asked else 0


if __name__ == "__main__":
    sys.exit(main())
