"""The choices among divisions of few rows, fitted to the times that `divisions` recorded.

    python -m bitwise_bench.attention.fitting records/attention-divisions-sm90-h200.json

prints the module `few_rows_choices` of the plugin.  A choice has few branches, each with several cases on both sides,
so that it holds for other shapes too: every case adds the logarithm of its time over that of its fastest division,
every branch a constant, and the choice with the least sum is taken.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bitwise_bench.attention.divisions import division_of_text
from bitwise_bench.command_line import command_parser
from bitwise_nvidia_sm90.attention.few_rows import MEASURES, Branch, Choice, Division, Work

PROCESSORS = 132
DEPTH, LEAST, BRANCH = 2, 5, 0.3
"""The most branches that follow each other, the least cases on a side of one, and what one costs."""
_MOST = 0.7
"""The most that a case counts, so that no case decides alone."""
_SHORT = 1100
"""Cases of at most so many keys stand for those of one chunk."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The seconds of the divisions of a work."""

    work: Work
    seconds: Mapping[Division, float]

    def loss(self, division: Division) -> float | None:
        """Return the logarithm of the time of a division over that of the fastest; None where it was not timed."""
        taken = self.seconds.get(division)
        return None if taken is None else min(_MOST, math.log(taken / min(self.seconds.values())))


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, and print the module; how far the choices are from the fastest divisions goes to the standard error."""
    parser = command_parser("attention.fitting", __doc__)
    parser.add_argument("record", type=Path, help="the record of `divisions`")
    given = parser.parse_args(arguments)
    sys.stdout.write(module_of(json.loads(given.record.read_text())))
    return 0


def measured_of(record: Mapping[str, Any]) -> Iterator[Measured]:
    """Yield the results of a record of `divisions`, with the seconds of the order of parts that a launch has."""
    for run in record["runs"]:
        for result in run["results"]:
            case, ragged = result["case"], result["kind"] != "decode"
            depth, page = case["depth"], case.get("page", 0)
            keys = -(-case["keys"] // page) * page if page else case["keys"]
            share = case["heads"] // case["groups"]
            work = Work(case["batch"] * case["groups"], keys, share, depth, case.get("width", depth), ragged)
            found: dict[Division, float] = {}
            for text, seconds in result["seconds"].items():
                division = division_of_text(text)
                parts = work.rows * (work.chunks if division.split else 1)
                ordered = result["kind"] == "uneven" and not page and parts > division.resident * PROCESSORS
                found[division] = result.get("ordered", {}).get(text, seconds) if ordered else seconds
            yield Measured(work, found)


def module_of(record: Mapping[str, Any]) -> str:
    """Return the text of the module of the choices that are fitted to a record."""
    cases = list(measured_of(record))
    lines = [
        '"""The choices among divisions of few rows, by the width of query and key.',
        "",
        "`python -m bitwise_bench.attention.fitting` prints this module from a record of the times of divisions.",
        '"""',
        "",
        "from bitwise_nvidia_sm90.attention.few_rows import Branch, Choices, Division",
        "",
        "# fmt: off",
        "CHOICES = {",
    ]
    for depth in sorted({each.work.depth for each in cases}):
        lines.append(f"    {depth}: Choices(")
        for name, choice in choices_of([each for each in cases if each.work.depth == depth]).items():
            lines += [f"        {name}={written(choice, 8)},"]
        lines.append("    ),")
    return "\n".join([*lines, "}", "# fmt: on", ""])


def written(choice: Choice, indent: int) -> str:
    """Return the expression of a choice."""
    if isinstance(choice, Division):
        return repr(choice)
    inner = " " * (indent + 4)
    sides = "".join(f"{inner}{written(each, indent + 4)},\n" for each in (choice.below, choice.above))
    return f"Branch(\n{inner}{choice.measure!r}, {choice.limit:g},\n{sides}{' ' * indent})"


def choices_of(cases: Sequence[Measured]) -> dict[str, Choice]:
    """Return the choices for the cases of one width, by the name of the field of `Choices`.

    Where no case has lengths that may differ, the others stand for them.
    """
    found: dict[str, Choice] = {}
    for name, ragged in (("equal", False), ("ragged", True)):
        some = [each for each in cases if each.work.ragged == ragged] or list(cases)
        whole = [
            Measured(each.work, {one: taken for one, taken in each.seconds.items() if not one.split})
            for each in sorted(some, key=lambda each: each.work.keys)
        ]  # fmt: skip
        short = [each for each in whole if each.work.keys <= _SHORT]
        found[name] = fitted([each for each in some if each.work.chunks > 1], DEPTH)[1]
        found[f"{name}_chunk"] = fitted(short if len(short) >= LEAST else whole[:LEAST], 0)[1]
    return found


def fitted(cases: Sequence[Measured], depth: int) -> tuple[float, Choice]:
    """Return the least sum of losses of cases with so many branches in a row, and its choice."""
    known = sorted({one for each in cases for one in each.seconds}, key=repr)
    losses = np.array([[each.loss(one) for one in known] for each in cases], np.float64)
    numbers = {name: np.array([of(each.work, PROCESSORS) for each in cases]) for name, of in MEASURES.items()}
    return _fitted(losses, numbers, known, depth)


def _fitted(
    losses: Any, numbers: Mapping[str, Any], known: Sequence[Division], depth: int
) -> tuple[float, Choice]:  # fmt: skip
    """Fit cases by their losses (cases, divisions), NaN for divisions that were not timed, and by their measures."""
    best: tuple[float, Choice] = chosen(losses, known)
    if depth == 0:
        return best
    for measure, of in numbers.items():
        for low, high in pairwise(sorted(set(of.tolist()))):
            limit = float(f"{math.sqrt(low * high):.3g}")
            below = of <= limit
            if min(below.sum(), (~below).sum()) < LEAST:
                continue
            sides = []
            for side in (below, ~below):
                sides.append(
                    _fitted(losses[side], {name: each[side] for name, each in numbers.items()}, known, depth - 1)
                )
                if sum(each[0] for each in sides) + BRANCH >= best[0]:
                    break
            else:
                best = sum(each[0] for each in sides) + BRANCH, Branch(measure, limit, *(each[1] for each in sides))
    return best


def chosen(losses: Any, known: Sequence[Division]) -> tuple[float, Choice]:
    """Return the least sum of losses of cases with one division, and the division.

    A division that was timed in half of the cases at least counts as much in the others.
    """
    timed = (~np.isnan(losses)).sum(axis=0)
    sums = np.where(2 * timed >= len(losses), np.nansum(losses, axis=0) / np.maximum(timed, 1) * len(losses), np.inf)
    place = int(sums.argmin())
    return float(sums[place]), known[place]


if __name__ == "__main__":
    sys.exit(main())
