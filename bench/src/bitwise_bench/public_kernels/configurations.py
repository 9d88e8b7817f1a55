"""Which configurations of a launch are compiled and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

WARPS = (1, 2, 4, 8)
STAGES = (1, 2, 4)
_DEFAULT_WARPS, _DEFAULT_STAGES = 4, 3

Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class Configuration:
    """The values of all parameters of a kernel in one configuration, its compile options, and its grid in programs.

    The grid is None for a kernel of TorchInductor, whose launcher knows it.  `hook` is called with all values before a
    launch: it sets tensors to zero, for example.
    """

    values: Mapping[str, Any]
    options: Mapping[str, Any]
    grid: tuple[int, int, int] | None
    hook: Callable[[dict[str, Any]], object] | None = None


def variations(settings: Mapping[str, Any]) -> list[Any]:
    """Return `triton.Config`s of a kernel that its package does not tune: other warps, and then other stages.

    `settings` are the arguments of the call.  The first configuration is that of the call.
    """
    from triton import Config

    warps = int(settings.get("num_warps") or _DEFAULT_WARPS)
    stages = int(settings.get("num_stages") or _DEFAULT_STAGES)
    pairs = [(warps, stages), *((each, stages) for each in WARPS), *((warps, each) for each in STAGES)]
    base = {"num_ctas": int(settings.get("num_ctas") or 1), "maxnreg": settings.get("maxnreg")}
    return [Config({}, num_warps=first, num_stages=second, **base) for first, second in dict.fromkeys(pairs)]


def chosen_configurations(found: Sequence[Item], maximum: int) -> list[Item]:
    """Return at most `maximum` of the configurations: the first, and others at equal distances."""
    if len(found) <= maximum:
        return list(found)
    return [found[place * len(found) // maximum] for place in range(maximum)]
