"""Candidate schedules of a product, ranked by their expected times.  The ranking does not affect the bits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from bitwise_nvidia_sm90.gemm.device_costs import DeviceCosts, Numbers, costs_of
from bitwise_nvidia_sm90.gemm.expected_times import (
    ALIGNED,
    PLAIN,
    Finishing,
    expected_seconds,
    expected_seconds_by_pointers,
    expected_seconds_gathered,
    expected_seconds_packed,
)
from bitwise_nvidia_sm90.gemm.packed_operands import packed_plan
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, Plan, ScalarPlan, SinglePrecisionPlan
from bitwise_nvidia_sm90.gemm.schedule import Schedule, fallback
from bitwise_nvidia_sm90.gemm.schedule_candidates import (
    gathered_schedules,
    lane_schedules,
    mapped_schedules,
    packed_schedules,
    pointer_schedules,
)

_KEPT = 4
"""The products whose candidates are kept: a call with an epilogue compares those of two."""
_PER_TILE = 5
"""The largest number of candidates with one tile shape."""


def schedules_to_try(
    plan: Plan,
    m: int,
    n: int,
    device: DeviceCosts | None = None,
    most: int = 32,
    k_contiguous: tuple[bool, bool] = (True, True),
    mapped: tuple[bool, bool, bool] = (True, True, True),
    alignments: tuple[int, int] = ALIGNED,
    finishing: Finishing = PLAIN,
) -> list[Schedule]:
    """Return up to `most` candidate schedules, those with the least expected time first, and the fallback last.

    `device`, `k_contiguous` and `alignments` are as in `expected_seconds`; `mapped` says of A, B and the output
    whether there is a tensor map of it.
    """
    last = fallback(plan, m, n)
    if isinstance(plan, SinglePrecisionPlan) or (isinstance(plan, ScalarPlan) and plan.fp16_sums):
        return [last]
    if isinstance(plan, MatrixPlan) and plan.fp16_sums:
        return [*[each for each in pointer_schedules(plan, m, n) if each != last][: most - 1], last]
    if not isinstance(plan, MatrixPlan):
        lanes = [each for each in lane_schedules(plan, m, n, k_contiguous, mapped[:2]) if each != last]
        return [*lanes[: most - 1], last]
    every, seconds = _timed(plan, m, n, device or costs_of(), k_contiguous, mapped, alignments, finishing)
    found = _ranked(every, seconds) or [each for each in pointer_schedules(plan, m, n) if each != last]
    return [*found[: most - 1], last]


def least_seconds(
    plan: Plan, m: int, n: int, device: DeviceCosts | None = None, k_contiguous: tuple[bool, bool] = (True, True),
    mapped: tuple[bool, bool, bool] = (True, True, True), alignments: tuple[int, int] = ALIGNED,
    finishing: Finishing = PLAIN,
) -> float | None:  # fmt: skip
    """Return the least expected time of the candidate schedules, None where there is no model of their times.

    The arguments are those of `schedules_to_try`.
    """
    if not isinstance(plan, MatrixPlan) or plan.fp16_sums:
        return None
    _, seconds = _timed(plan, m, n, device or costs_of(), k_contiguous, mapped, alignments, finishing)
    return float(seconds.min()) if len(seconds) else None


@lru_cache(maxsize=_KEPT)
def _timed(
    plan: MatrixPlan, m: int, n: int, device: DeviceCosts, k_contiguous: tuple[bool, bool],
    mapped: tuple[bool, bool, bool], alignments: tuple[int, int], finishing: Finishing,
) -> tuple[list[Schedule], Numbers]:  # fmt: skip
    """Return the candidates whose times are modelled, except the fallback, and their expected seconds; cached."""
    programs = device.multiprocessors
    if not plan.short_first and not plan.instruction_k8 and all(mapped[:2]):
        every = list(mapped_schedules(plan, m, n, programs, k_contiguous))
    else:
        last = fallback(plan, m, n)
        every = [
            *(each for each in pointer_schedules(plan, m, n) if each != last), *packed_schedules(plan, m, n, programs),
            *gathered_schedules(plan, m, n, programs, k_contiguous),
        ]  # fmt: skip
    return every, seconds_of_schedules(plan, every, m, n, device, k_contiguous, mapped, alignments, finishing)


def seconds_of_schedules(
    plan: MatrixPlan, every: Sequence[Schedule], m: int, n: int, device: DeviceCosts,
    k_contiguous: tuple[bool, bool] = (True, True), mapped: tuple[bool, bool, bool] = (True, True, True),
    alignments: tuple[int, int] = ALIGNED, finishing: Finishing = PLAIN,
) -> Numbers:  # fmt: skip
    """Return the expected seconds of a product under schedules of any kind.

    The arguments are those of `schedules_to_try`.
    """
    found = np.zeros(len(every))
    kinds = np.array([_kind(each) for each in every])
    for kind in sorted(set(kinds.tolist())):
        places = np.flatnonzero(kinds == kind)
        chosen = [every[place] for place in places.tolist()]
        if kind == "mapped":
            own = expected_seconds(plan, chosen, m, n, k_contiguous, mapped[2], device, alignments, finishing)
        elif kind == "packed":
            keeps = packed_plan(plan) == plan
            packs = not (keeps and mapped[0]), not (keeps and mapped[1])
            own = expected_seconds_packed(plan, chosen, m, n, packs, mapped[2], device, finishing, k_contiguous)
        elif kind == "gathered":
            own = expected_seconds_gathered(plan, chosen, m, n, k_contiguous, device)
        else:
            own = expected_seconds_by_pointers(plan, chosen, m, n, device.costs, device.multiprocessors)
        found[places] = own
    return found


def _kind(given: Schedule) -> str:
    """Return how a schedule brings operands to matrix units, by which its time is modelled."""
    if given.gathering:
        return "gathered"
    return "packed" if given.packed else "mapped" if given.tma else "pointers"


def _ranked(schedules: Sequence[Schedule], seconds: Numbers) -> list[Schedule]:
    """Return schedules in the order of their times, but only the first _PER_TILE of each tile shape."""
    return _few_per_tile([schedules[int(place)] for place in np.argsort(seconds, kind="stable")])


def _few_per_tile(ranked: list[Schedule]) -> list[Schedule]:
    """Return the first _PER_TILE schedules of each tile shape, in order."""
    seen: dict[tuple[object, ...], int] = {}
    found = []
    for each in ranked:
        tile = (
            each.block_m, each.block_n, each.block_k, each.warps, each.transposed, each.consumers, each.ping_pong,
            each.packed, each.resident, each.overlap, each.gathering,
        )  # fmt: skip
        seen[tile] = seen.get(tile, 0) + 1
        if seen[tile] <= _PER_TILE:
            found.append(each)
    return found
