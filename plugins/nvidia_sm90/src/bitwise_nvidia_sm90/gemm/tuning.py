"""Tune the schedule of a product: measure candidates and store the fastest."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bitwise_core.descriptors import GEMMDesc
from bitwise_nvidia_sm90.gemm.fusions import Fusion
from bitwise_nvidia_sm90.gemm.graph_times import launch_graph
from bitwise_nvidia_sm90.gemm.measured_schedules import (
    ScheduleMismatch,
    candidates,
    is_tuned,
    ranked,
    schedule_file,
    schedule_key,
    store,
)
from bitwise_nvidia_sm90.gemm.plan import UnsupportedGEMM
from bitwise_nvidia_sm90.gemm.prepared_launches import PreparedProduct
from bitwise_nvidia_sm90.gemm.run import clear_cache, planned, run, run_fused
from bitwise_nvidia_sm90.gemm.schedule import Schedule

if TYPE_CHECKING:
    import torch

FIRST_CALL_VARIABLE = "BITWISE_TIMED_SCHEDULES"
"""The environment variable with the number of schedules that are timed at the first call of a product; 0 by default."""
_LAUNCHES, _REPLAYS = 10, 5
"""The most launches of a graph, and its replays."""


def tune(
    desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *, most: int = 32, path: Path | None = None
) -> tuple[Schedule, float]:
    """Return the fastest of `most` schedules for operands of this layout, and its time in seconds.

    Later products use it.  It is stored in `path` (default: `schedule_file()`).  `out` is overwritten.  Raises
    ScheduleMismatch if two schedules return different bytes, and UnsupportedGEMM for a descriptor that these kernels do
    not implement.
    """
    import torch

    plan = planned(desc)
    fastest, best, wanted = math.inf, None, None
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32}[out.element_size()]
    for chosen in reversed(ranked(plan, a, b, out, most)):
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
        taken = 1e-6 * launch_graph(partial(run, desc, a, b, out, chosen), _LAUNCHES).microseconds(_REPLAYS)
        if taken < fastest:
            fastest, best = taken, chosen
    if best is None:
        raise UnsupportedGEMM(f"no schedule runs {desc.to_text()} on these operands")
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
    timed: list[tuple[float, PreparedProduct]] = []
    for chosen in candidates(desc, planned(desc), a, b, out, most + 1, fusion.matrices):
        with suppress(UnsupportedGEMM):
            found = run_fused(desc, fusion, a, b, out, chosen)
            timed.append((launch_graph(partial(found.launch, *places), _LAUNCHES).microseconds(_REPLAYS), found))
        if len(timed) == most:
            break
    _, fastest = min(timed, key=lambda pair: pair[0])
    fastest.launch(*places)
    return fastest


def fuse_at_first_call(
    desc: GEMMDesc, fusion: Fusion, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor
) -> PreparedProduct:
    """Compute out = the epilogue of a b by the fastest of `timed_at_first_call()` schedules, or by the first one.

    Nothing is timed while a graph is captured.  Raises UnsupportedGEMM.
    """
    import torch

    most = timed_at_first_call()
    if most > 1 and not torch.cuda.is_current_stream_capturing():
        return fastest_fused(desc, fusion, a, b, out, most)
    return run_fused(desc, fusion, a, b, out)


def timed_at_first_call() -> int:
    """Return the number of schedules to time at the first call of a product, from FIRST_CALL_VARIABLE.

    Raises ValueError.
    """
    given = os.environ.get(FIRST_CALL_VARIABLE, "0")
    if not given.isdecimal():
        raise ValueError(f"{FIRST_CALL_VARIABLE} is {given!r}: give a number of schedules, such as 3, or 0 for none")
    return int(given)


def tune_at_first_call(desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Tune a product that was not tuned, among `timed_at_first_call()` schedules; none while a graph is captured."""
    import torch

    most = timed_at_first_call()
    if most > 1 and not torch.cuda.is_current_stream_capturing() and not is_tuned(desc, a, b, out):
        with suppress(OSError):  # where the file cannot be written, the result is kept for this process
            tune(desc, a, b, out, most=most + 1)  # the last one is the fallback
