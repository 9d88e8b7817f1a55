"""Tune the schedule of a product: measure candidates and store the fastest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bitwise_core.descriptors import GEMMDesc
from bitwise_nvidia_sm90.gemm.fusions import Fusion
from bitwise_nvidia_sm90.gemm.graph_times import launch_graphs, times_in_turn
from bitwise_nvidia_sm90.gemm.measured_schedules import (
    ScheduleMismatch,
    candidates,
    is_tuned,
    ranked,
    schedule_file,
    schedule_key,
    store,
)
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, UnsupportedGEMM
from bitwise_nvidia_sm90.gemm.prepared_launches import PreparedProduct
from bitwise_nvidia_sm90.gemm.run import clear_cache, expected_seconds_of, planned, run, run_fused
from bitwise_nvidia_sm90.gemm.schedule import Schedule

if TYPE_CHECKING:
    import torch

FIRST_CALL_VARIABLE = "BITWISE_TIMED_SCHEDULES"
"""The environment variable with the number of schedules that are timed at the first call of a product.

Without it none is, except those of products without tensor maps of their operands (`firsts_of_kinds`), and those of
products with an epilogue for which `timed_with_epilogue` says so.
"""
_RANKED = 400
"""The schedules among which the first one of each kind is."""
TIMED_WHERE_CLOSE = 4
"""The schedules that are timed where a kernel with the epilogue is expected to save little."""
CLOSE = 1.4
"""The ratio of expected times below which a kernel saves little: of 192 products on an H200, those above 1.2 had at
least 1.13 times the speed of PyTorch's operators without being timed, and one of 96 others, at 1.21, had 0.99 times."""
CLEARLY_FASTER = 0.99
_LAUNCHES, _REPLAYS = 10, 5
"""The most launches of a graph, and its replays."""
_TURNS, _REPLAYS_IN_TURN = 3, 2
"""The rounds in which kernels are timed in turn, and the replays of each of them."""


def tune(
    desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *, most: int = 32, path: Path | None = None,
    tried: Sequence[Schedule] = (),
) -> tuple[Schedule, float]:  # fmt: skip
    """Return the fastest of `most` schedules, or of those `tried`, for operands of this layout, and its seconds.

    Later products use it.  It is stored in `path` (default: `schedule_file()`).  `out` is overwritten.  Raises
    ScheduleMismatch if two schedules return different bytes, and UnsupportedGEMM for a descriptor that these kernels do
    not implement.
    """
    import torch

    plan = planned(desc)
    wanted, right = None, list[Schedule]()
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32}[out.element_size()]
    for chosen in reversed(tried or ranked(plan, a, b, out, most)):
        try:
            run(desc, a, b, out, chosen)
        except UnsupportedGEMM:
            continue
        found = out.contiguous().view(bits)
        if wanted is None:
            wanted = found.clone()
        elif not torch.equal(found, wanted):
            raise ScheduleMismatch(
                f"{chosen} and the schedules before it returned different bytes for {desc.to_text()}"
            )
        right.append(chosen)
    if not right:
        raise UnsupportedGEMM(f"no schedule runs {desc.to_text()} on these operands")
    graphs = launch_graphs(
        {str(place): partial(run, desc, a, b, out, chosen) for place, chosen in enumerate(right)}, _LAUNCHES
    )
    times = {name: 1e-6 * each.microseconds(_REPLAYS) for name, each in graphs.items()}
    name = min(times, key=lambda each: times[each])
    fastest, best = times[name], right[int(name)]
    store(schedule_key(desc, a, b, out), best, path or schedule_file())
    clear_cache()
    return best, fastest


def fastest_fused(
    desc: GEMMDesc, fusion: Fusion, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, most: int
) -> PreparedProduct:
    """Compute out = the epilogue of a b by the fastest of up to `most` schedules, and return the prepared product.

    Nothing is stored.  Raises UnsupportedGEMM where `run_fused` does.
    """
    run_fused(desc, fusion, a, b, out)  # where separate kernels are expected to be faster, nothing is timed
    places = [int(each.data_ptr()) for each in (a, b, out, *fusion.operands)]
    found: list[PreparedProduct] = []
    for chosen in candidates(desc, planned(desc), a, b, out, most + 1, fusion.matrices):
        with suppress(UnsupportedGEMM):
            found.append(run_fused(desc, fusion, a, b, out, chosen))
        if len(found) == most:
            break
    return fastest_of(found, places)


def fastest_of(found: Sequence[PreparedProduct], places: Sequence[int]) -> PreparedProduct:
    """Return the fastest of prepared products with the same matrices, whose addresses are `places`; it runs last.

    They are timed in turn.  One that is not the first counts as faster where it takes less than CLEARLY_FASTER of the
    time of the first one, which has the least expected time.
    """
    launches = {str(place): partial(each.launch, *places) for place, each in enumerate(found)}
    graphs = launch_graphs(launches, _LAUNCHES)
    times = times_in_turn(graphs, _TURNS, _REPLAYS_IN_TURN)
    place = min(times, key=lambda each: times[each])
    fastest = found[int(place) if times[place] < CLEARLY_FASTER * times["0"] else 0]
    fastest.launch(*places)
    return fastest


def fuse_at_first_call(
    desc: GEMMDesc, fusion: Fusion, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor
) -> PreparedProduct:
    """Compute out = the epilogue of a b by the fastest of `timed_with_epilogue` schedules, or by the first one.

    Nothing is timed while a graph is captured.  Raises UnsupportedGEMM.
    """
    import torch

    most = timed_with_epilogue(desc, fusion, a, b, out)
    if most > 1 and not torch.cuda.is_current_stream_capturing():
        return fastest_fused(desc, fusion, a, b, out, most)
    return run_fused(desc, fusion, a, b, out)


def timed_with_epilogue(desc: GEMMDesc, fusion: Fusion, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> int:
    """Return the number of schedules with an epilogue to time at a first call.

    It is that of FIRST_CALL_VARIABLE.  Without it, it is TIMED_WHERE_CLOSE where the expected times of separate kernels
    are less than CLOSE times those of kernels with the epilogue: a kernel that is not the fastest one may then take
    longer than separate ones do.  Raises ValueError.
    """
    given = timed_at_first_call()
    if given is not None:
        return given
    expected = expected_seconds_of(planned(desc), fusion, a, b, out)
    return TIMED_WHERE_CLOSE if expected is not None and expected[1] < CLOSE * expected[0] else 0


def timed_at_first_call() -> int | None:
    """Return the number of schedules to time at the first call of a product, None without FIRST_CALL_VARIABLE.

    Raises ValueError.
    """
    given = os.environ.get(FIRST_CALL_VARIABLE)
    if given is None:
        return None
    if not given.isdecimal():
        raise ValueError(f"{FIRST_CALL_VARIABLE} is {given!r}: give a number of schedules, such as 3, or 0 for none")
    return int(given)


def firsts_of_kinds(desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> list[Schedule]:
    """Return the first schedule that gathers operands, that packs them and that does neither, and the fallback.

    None for a product that has schedules with tensor maps of its operands.  The expected times of different kinds have
    different errors: of 334 products on an H200, whose costs were fitted to others, the schedule that is expected to be
    the fastest takes up to 1.27 times as long as the fastest one.
    """
    try:
        plan = planned(desc)
    except UnsupportedGEMM:
        return []
    if not isinstance(plan, MatrixPlan):
        return []
    found: dict[tuple[bool, bool], Schedule] = {}
    every = ranked(plan, a, b, out, _RANKED)
    for each in every:
        found.setdefault((each.packed, bool(each.gathering)), each)
    kinds = list(found.values())
    if any(each.tma and not each.packed for each in kinds) or len(kinds) == 1:
        return []
    return list(dict.fromkeys([*kinds, every[-1]]))


def tune_at_first_call(desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Tune a product that was not tuned, among `timed_at_first_call()` schedules or `firsts_of_kinds`.

    None is timed while a graph is captured.  Raises ValueError.
    """
    import torch

    most = timed_at_first_call()
    if torch.cuda.is_current_stream_capturing() or (most is not None and most < 2):
        return
    tried = [] if most else firsts_of_kinds(desc, a, b, out)
    if (most or tried) and not is_tuned(desc, a, b, out):
        with suppress(OSError):  # where the file cannot be written, the result is kept for this process
            tune(desc, a, b, out, most=(most or 0) + 1, tried=tried)  # the last one is the fallback
