"""What a pair of the corpus across architectures is: one kernel, compiled twice, and the verdict that is expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from bitwise_conformance.cases import Argument, Case, DrawKind
from bitwise_conformance.corpus._build import configure, given, numbers, result

Expected: TypeAlias = Literal["equal", "unproved"]
SIDES = ("sm_90", "gfx942")
FUSING: Mapping[str, Any] = {"enable_fp_fusion": True}


@dataclass(frozen=True, slots=True)
class Pair:
    """One kernel for two architectures; `nodes` are the operations at which a difference is seen, where it is one.

    `same_bytes`: the trees differ, and no input is known on which the bytes do.
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
    """The kernel with the options of each side beside no fusion.

    Among a side's options may be its own `grid`, `warps`, `stages` and, by their names, its own constants.
    """
    sides = []
    for target, given_options in zip(SIDES, (left, right), strict=True):
        options = dict(given_options or {})
        own = {each: options.pop(each) for each in list(options) if each in constants}
        # The compilers agree on no option's default but what both are told here.
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
    """A kernel of x, y, z and count, of the constants KIND and BLOCK: equal, or with a first divergence at `nodes`."""
    count, out = 1000, out or dtype
    drawn: DrawKind = "integer" if integers else "float"
    arguments = [given("x", dtype, count, drawn), given("y", dtype, count, drawn), result("z", out, count)]
    settings = {"KIND": kind, "BLOCK": 256, **settings}
    return pair(
        name or f"{kind}-{dtype}-{out}", function, [*arguments, *numbers(count=count)], (4,),
        "equal" if nodes is None else "unproved", nodes, **settings,
    )  # fmt: skip
