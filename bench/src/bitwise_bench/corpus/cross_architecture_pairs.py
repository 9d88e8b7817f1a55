"""Pairs of one kernel compiled for two architectures, with the expected verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from bitwise_bench.corpus.cases import Argument, Case, DrawKind
from bitwise_bench.corpus.configurations import configure, given, numbers, result

Expected: TypeAlias = Literal["equal", "unproved"]
SIDES = ("sm_90", "gfx942")
FUSING: Mapping[str, Any] = {"enable_fp_fusion": True}


@dataclass(frozen=True, slots=True)
class Pair:
    """One kernel for two architectures.

    `nodes` are the two operations of the expected first divergence, for a pair expected to be different.  `same_bytes`
    marks a pair whose trees differ although no input is known on which the bytes do.
    """

    name: str
    left: Case
    right: Case
    expected: Expected
    nodes: tuple[str, str] | None = None
    same_bytes: bool = False


def pair(
    name: str,
    function: Any,
    arguments: Sequence[Argument],
    grid: tuple[int, ...],
    expected: Expected = "equal",
    nodes: tuple[str, str] | None = None,
    *,
    left: Mapping[str, Any] | None = None,
    right: Mapping[str, Any] | None = None,
    same_bytes: bool = False,
    warps: int = 4,
    **constants: Any,
) -> Pair:
    """Return a kernel with the options of each side, contraction disabled by default.

    The options of a side may include its own `grid`, `warps`, `stages` and, by name, constants.
    """
    sides = []
    for target, given_options in zip(SIDES, (left, right), strict=True):
        options = dict(given_options or {})
        own = {each: options.pop(each) for each in list(options) if each in constants}
        # The defaults of the two compilers differ, so each option is stated.
        case = configure(
            "across", name, function, arguments, options.pop("grid", grid), warps=options.pop("warps", warps),
            stages=options.pop("stages", 2), options={"enable_fp_fusion": False, **options}, **{**constants, **own},
        )  # fmt: skip
        sides.append(replace(case, target=target))
    return Pair(name, sides[0], sides[1], expected, nodes, same_bytes)


def of_values(
    function: Any, kind: str, dtype: str = "fp32", out: str = "", nodes: tuple[str, str] | None = None, *,
    name: str = "", integers: bool = False, **settings: Any,
) -> Pair:  # fmt: skip
    """Return a pair of a kernel with arguments x, y, z, count and constants KIND, BLOCK.

    The expected verdict is unproved where `nodes` is given, else equal.
    """
    count, out = 1000, out or dtype
    drawn: DrawKind = "integer" if integers else "float"
    arguments = [given("x", dtype, count, drawn), given("y", dtype, count, drawn), result("z", out, count)]
    settings = {"KIND": kind, "BLOCK": 256, **settings}
    return pair(
        name or f"{kind}-{dtype}-{out}", function, [*arguments, *numbers(count=count)], (4,),
        "equal" if nodes is None else "unproved", nodes, **settings,
    )  # fmt: skip
