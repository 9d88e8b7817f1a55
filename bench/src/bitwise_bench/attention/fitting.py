"""Numbers for `few_rows.DEVICES`, fitted to the times of divisions that `divisions` measured.

    python -m bitwise_bench.attention.fitting FILE [FILE ...]

It prints the table, and how much longer the chosen divisions take than the fastest ones, with the table that is used
and with the new one.  A division is left out where the others choose as well without it.  The table in use with other
numbers is the new one where it chooses better than one that is fitted from nothing.  A table that chooses best for the
shapes of a fit may choose worse for others, so that it replaces the one in use after a measurement of shapes that the
fit has not seen.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bitwise_bench.attention import drawn
from bitwise_bench.command_line import command_parser
from bitwise_nvidia_sm90.attention.few_rows import DEVICES, Device, Division, Work, division_of, seconds_of

PROCESSORS = 132
_LEAST, _NEAR = 4, 1.01
"""The least number of divisions of a table, and how much longer than the fastest one a division takes that it has."""
_FITTED = 0.15
"""How much errors of times count beside those of choices."""
_RATES = (4.0, 400.0)
_SHARES = (0.5, 1.3)
_STARTS = (0.0, 5.0)


@dataclass(frozen=True, slots=True)
class Measured:
    """The seconds of the divisions of a launch, by the division without its fitted numbers; `best` is a backend's."""

    work: Work
    seconds: Mapping[Division, float]
    best: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, and print."""
    parser = command_parser("attention.fitting", __doc__)
    parser.add_argument("files", type=Path, nargs="+", help="results of `divisions`")
    given = parser.parse_args(arguments)
    groups: dict[tuple[int, bool], list[Measured]] = defaultdict(list)
    for file in given.files:
        for result in json.loads(file.read_text())["results"]:
            measured = measured_of(result)
            groups[measured.work.depth, measured.work.ragged].append(measured)
    fitted: dict[int, dict[bool, list[Division]]] = defaultdict(dict)
    for (depth, ragged), cases in sorted(groups.items()):
        device = DEVICES[depth]
        before = device.ragged if ragged else device.equal
        kept = min(
            (chosen_divisions(device, ragged, cases), refined(device, before, ragged, cases)),
            key=lambda each: regret(device, each, ragged, cases),
        )
        fitted[depth][ragged] = kept
        print(
            f"# {depth}, {'ragged' if ragged else 'equal'}, {len(cases)} cases: over the fastest division "
            f"{regret(device, before, ragged, cases):.4f} before, {regret(device, kept, ragged, cases):.4f} now"
        )
        for case in cases:
            name, seconds = choice(device, kept, ragged, case)
            found = min(case.seconds, key=lambda each: case.seconds[each])
            print(
                f"#   {case.work}: {1e6 * seconds:.1f} us by {described(name)}; fastest {described(found)} "
                f"{1e6 * case.seconds[found]:.1f}; backend {1e6 * case.best:.1f} = {case.best / seconds:.3f}"
            )
    for depth, both in fitted.items():
        print(f"    {depth}: Device(\n        {DEVICES[depth].memory:.3g},")
        for ragged in (False, True):
            print("        (")
            for each in both.get(ragged, ()):
                print(f"            {described(each)},")
            print("        ),")
        print("    ),")
    return 0


def measured_of(result: Mapping[str, Any]) -> Measured:
    """Return one result of `divisions`."""
    case = result["case"]
    depth, share = case["depth"], case["heads"] // case["groups"]
    page = case.get("page", 0)
    keys = -(-case["keys"] // page) * page if page else case["keys"]
    ragged = result["kind"] != "decode"
    lengths = drawn.lengths_of(case) if result["kind"] == "uneven" else [keys]
    mean = min(1.0, sum(lengths) / len(lengths) / keys)
    work = Work(case["batch"] * case["groups"], keys, share, depth, case.get("width", depth), ragged, mean=mean)
    seconds = {
        bare(Division(**each["division"])): each["seconds"] for each in result["divisions"] if each["seconds"]
    }  # fmt: skip
    best = min((each for each in result["backends"].values() if each), default=math.nan)
    return Measured(work, seconds, best)


def bare(division: Division) -> Division:
    """Return a division without the numbers that are fitted."""
    return replace(division, rate=1.0, share=1.0, start=0.0)


def described(division: Division) -> str:
    """Return a division as the table has it."""
    split = "_SPLIT" if division.split else "_WHOLE"
    kind = "_ALONE" * division.alone + "_ONCE" * division.once
    numbers = f"{division.rate:.3g}, {division.share:.3g}, {division.start:.3g}"
    shape = f"{division.blocks}, {division.resident}, {division.stages}, {division.columns}"
    return f"Division({split}, {shape}, {numbers}{f', **{kind}' if kind else ''})"


def expected(work: Work, division: Division) -> float:
    """Return what the model expects of a division."""
    programs = min(division.resident * PROCESSORS, work.units(division))
    return seconds_of(work, division, programs, PROCESSORS)


def fit(division: Division, cases: Iterable[tuple[Work, float]]) -> Division:
    """Return the division with the numbers that agree best with its times, by the squares of logarithms of ratios."""
    known = list(cases)

    def distance(numbers: Sequence[float]) -> float:
        rate, share, start = numbers
        one = replace(division, rate=rate, share=share, start=start)
        # What a division that is slow takes decides nothing, so far ratios count less; few times leave usual numbers.
        unusual = 0.01 * math.log(share) ** 2 + 0.001 * math.log(rate / 40) ** 2 + 0.001 * start**2
        return unusual + sum(min(math.log(expected(work, one) / seconds) ** 2, 0.04) for work, seconds in known)

    best = min(
        ((rate, share, 0.5) for rate in (10.0, 15.0, 22.0, 33.0, 50.0, 75.0, 110.0) for share in (0.7, 0.85, 1.0)),
        key=distance,
    )
    found, step = distance(best), 0.3
    while step > 0.005:
        rate, share, start = best
        rates = [min(max(rate * one, _RATES[0]), _RATES[1]) for one in (1 + step, 1 / (1 + step))]
        shares = [min(max(share * one, _SHARES[0]), _SHARES[1]) for one in (1 + step / 2, 1 / (1 + step / 2))]
        starts = [min(max(start + one, _STARTS[0]), _STARTS[1]) for one in (4 * step, -4 * step)]
        tried = [
            *((each, share, start) for each in rates), *((rate, each, start) for each in shares),
            *((rate, share, each) for each in starts),
        ]  # fmt: skip
        nearest = min(tried, key=distance)
        if distance(nearest) < found - 1e-9:
            best, found = nearest, distance(nearest)
        else:
            step /= 2
    rate, share, start = (float(f"{each:.3g}") for each in best)
    return replace(division, rate=rate, share=share, start=start)


def choice(
    device: Device, divisions: Sequence[Division], ragged: bool, case: Measured
) -> tuple[Division, float]:  # fmt: skip
    """Return the division that the model chooses for a case, of those that were timed for it, and its seconds."""
    divisions = [each for each in divisions if bare(each) in case.seconds]
    own = replace(device, ragged=tuple(divisions)) if ragged else replace(device, equal=tuple(divisions))
    chosen, _ = division_of(case.work, PROCESSORS, own)
    return chosen, case.seconds[bare(chosen)]


def regret(device: Device, divisions: Sequence[Division], ragged: bool, cases: Sequence[Measured]) -> float:
    """Return the geometric mean of the times of the chosen divisions over those of the fastest ones."""
    logarithms = []
    for case in cases:
        fastest = min(case.seconds.values())
        try:
            taken = choice(device, divisions, ragged, case)[1]
        except ValueError:  # no division applies
            taken = math.inf
        logarithms.append(math.log(min(taken / fastest, 10.0)))
    return math.exp(sum(logarithms) / len(logarithms))


def chosen_divisions(device: Device, ragged: bool, cases: Sequence[Measured]) -> list[Division]:
    """Return the fitted divisions of which one is nearly the fastest for a case, without those that mislead choices."""
    near = {
        each for case in cases for each, seconds in case.seconds.items()
        if seconds <= _NEAR * min(case.seconds.values())
    }  # fmt: skip
    every = {each for case in cases for each in case.seconds}
    near |= {each for each in every if _serves_all([each])}
    kept = [
        fit(each, [(case.work, case.seconds[each]) for case in cases if each in case.seconds])
        for each in sorted(near, key=repr)
    ]
    while len(kept) > _LEAST:
        others = [[each for each in kept if each is not one] for one in kept]
        others = [each for each in others if _serves_all(each)]
        fewer = min(others, key=lambda each: regret(device, each, ragged, cases))
        if regret(device, fewer, ragged, cases) > regret(device, kept, ragged, cases) * (1 - 1e-4):
            break
        kept = fewer
    return refined(device, kept, ragged, cases)


def _serves_all(divisions: Sequence[Division]) -> bool:
    """Return whether one of the divisions serves any number of rows and keys."""
    return any(not each.split and each.columns == 1 for each in divisions)


def refined(
    device: Device, divisions: Sequence[Division], ragged: bool, cases: Sequence[Measured]
) -> list[Division]:  # fmt: skip
    """Return the divisions with numbers near the fitted ones, with which the model chooses better."""
    kept = list(divisions)

    def loss(changed: Sequence[Division]) -> float:
        errors = [
            min(abs(math.log(expected(case.work, each) / case.seconds[bare(each)])), 0.2)
            for case in cases for each in changed if bare(each) in case.seconds
        ]  # fmt: skip
        return math.log(regret(device, changed, ragged, cases)) + _FITTED * sum(errors) / len(errors)

    least, improved = loss(kept), True
    while improved:
        improved = False
        for place, each in enumerate(kept):
            for other in (
                *(replace(each, rate=float(f"{each.rate * one:.3g}")) for one in (0.8, 0.92, 1.08, 1.25)),
                *(replace(each, share=float(f"{each.share * one:.3g}")) for one in (0.95, 0.98, 1.02, 1.05)),
                *(replace(each, start=max(0.0, round(each.start + one, 3))) for one in (-0.5, 0.5)),
            ):
                changed = [*kept[:place], other, *kept[place + 1 :]]
                found = loss(changed)
                if found < least - 1e-4:
                    kept, least, improved = changed, found, True
    return kept


if __name__ == "__main__":
    sys.exit(main())
