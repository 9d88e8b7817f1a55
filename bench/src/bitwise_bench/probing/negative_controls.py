"""Negative controls of the probes: orders of summation with one wrong parameter, and which tests detect them.

python -m bitwise_bench.probing.negative_controls --out records/probe-controls.json
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_bench.command_line import command_parser
from bitwise_core.descriptors import Cut
from bitwise_core.descriptors.cuts import Positions
from bitwise_core.descriptors.merge_orders import MERGE_ORDERS
from bitwise_core.probing.accumulation_order import reveal
from bitwise_core.probing.elimination import eliminate, normal_draw, wide_draw
from bitwise_core.probing.instrument import reduction_instrument
from bitwise_core.probing.summation_tree import SumTree, evaluate, from_nested

DRAWS = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """An order of summation of `length` values: parts of `span`, each a chain of steps of `width`, then a merge.

    With `strided`, part i holds the values i, i + parts, ...; otherwise parts are contiguous.  `short_first` places the
    short part, and the short step of a part, first.  `apart` adds the values of a step before the accumulator.  `merge`
    names one of `MERGE_ORDERS`, for any number of parts.
    """

    length: int
    span: int
    width: int = 1
    strided: bool = False
    short_first: bool = False
    apart: bool = False
    merge: str = "chain"

    def tree(self) -> SumTree:
        """Return the plan as a tree."""
        cut = Cut(layout="strided", count=-(-self.length // self.span)) if self.strided else self._cut(self.span)
        parts: list[Any] = [self._chain(each) for each in cut.parts(np.arange(self.length))]
        return from_nested(MERGE_ORDERS[self.merge].steps(len(parts)).run(parts, None, lambda one, other: (one, other)))

    def _cut(self, size: int) -> Cut:
        return Cut(span=size, remainder="short-first" if self.short_first else "short-last")

    def _chain(self, positions: Positions) -> Any:
        found: Any = None
        for step in self._cut(self.width).parts(positions):
            group: Any = tuple(step.tolist()) if len(step) > 1 else int(step[0])
            if found is None:
                found = group
            elif self.apart or len(step) == 1:
                found = (found, group)
            else:
                found = (found, *group)
        return found


FAMILIES: dict[str, Plan] = {
    "sequential": Plan(200, 200),
    "fused steps": Plan(200, 200, width=16),
    "fused steps, short first": Plan(200, 200, width=16, short_first=True),
    "split k": Plan(200, 48),
    "split k of fused steps": Plan(200, 64, width=16),
    "chunks of steps added apart": Plan(192, 64, width=8, apart=True),
    "lanes": Plan(192, 12, strided=True, merge="neighbours"),
    "lanes, a remainder": Plan(201, 13, strided=True, merge="neighbours"),
    "pairwise": Plan(128, 1, merge="neighbours"),
}


def wrong_plans(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Yield the plan with one parameter changed, without those that give the same tree."""
    changes: list[tuple[str, dict[str, Any]]] = [
        ("a span one shorter", {"span": max(1, plan.span - 1)}),
        ("a span one longer", {"span": plan.span + 1}),
        ("half the span", {"span": max(1, plan.span // 2)}),
        ("half the step", {"width": max(1, plan.width // 2)}),
        ("twice the step", {"width": plan.width * 2}),
        ("dealt, not cut" if not plan.strided else "cut, not dealt", {"strided": not plan.strided}),
        ("the short one at the other end", {"short_first": not plan.short_first}),
        ("steps apart" if not plan.apart else "steps into the accumulator", {"apart": not plan.apart}),
        ("another merge", {"merge": "chain" if plan.merge == "neighbours" else "neighbours"}),
        ("merged backwards", {"merge": "chain-down"}),
    ]
    right, seen = plan.tree(), {plan.tree().nodes}
    for name, change in changes:
        changed = replace(plan, **change)
        tree = changed.tree()
        if tree.nodes not in seen and tree != right:
            seen.add(tree.nodes)
            yield name, changed


def survey(seed: int = 0, rows: int = 1) -> dict[str, Any]:
    """Reveal every family, and apply each test to every wrong plan; return the record.

    The experiments detect a wrong plan if they revealed the right tree, which it is not; random inputs of `rows` sums
    detect it if a byte differs in any of DRAWS trials.
    """
    families: dict[str, dict[str, Any]] = {}
    for name, plan in FAMILIES.items():
        tree = plan.tree()
        revealed = reveal(reduction_instrument(partial(evaluate, tree), 64, plan.length), seed)
        controls: dict[str, dict[str, bool]] = {}
        for change, other in wrong_plans(plan):
            candidates = {change: partial(evaluate, other.tree())}  # unlike the right tree, or it would not be here
            controls[change] = {"experiments": revealed.tree == tree}
            for kind, draw in (("flat", normal_draw), ("wide", wide_draw)):
                arguments = partial(_arguments, draw, (rows, plan.length))
                parted = eliminate(partial(evaluate, tree), candidates, arguments, DRAWS, seed).first_difference
                controls[change][kind] = parted[change] is not None
        families[name] = {
            "plan": asdict(plan), "read back": revealed.tree == tree, "probes": revealed.probes,
            "launches": revealed.launches, "controls": controls,
        }  # fmt: skip
    tests = ("experiments", "flat", "wide")
    every = [caught for found in families.values() for caught in found["controls"].values()]
    totals = {test: sum(bool(caught[test]) for caught in every) for test in tests}
    return {"draws": DRAWS, "sums a draw": rows, "controls": len(every), "caught": totals, "families": families}


def _arguments(draw: Any, shape: tuple[int, int], random: np.random.Generator) -> tuple[npt.NDArray[np.float32]]:
    return (draw(random, shape).astype(np.float32),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the survey into the record, keeping its other sections.

    The exit status is 1 where a family was not revealed or the experiments did not detect a control.
    """
    parser = command_parser("probing.negative_controls", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="write the survey here, as JSON")
    chosen = parser.parse_args(arguments)
    found = survey()
    earlier = json.loads(chosen.out.read_text(encoding="utf-8")) if chosen.out.exists() else {}
    others = {name: section for name, section in earlier.items() if name not in found}
    chosen.out.write_text(json.dumps({**found, **others}, indent=1) + "\n", encoding="utf-8")
    print(f"{found['controls']} controls, detected: {found['caught']}")
    whole = all(each["read back"] for each in found["families"].values())
    return 0 if whole and found["caught"]["experiments"] == found["controls"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
