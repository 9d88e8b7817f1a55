"""Tune the schedule of a product: measure candidates and store the fastest."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bitwise_core.descriptors import GEMMDesc
from bitwise_nvidia_sm90.gemm.graph_times import launch_graph
from bitwise_nvidia_sm90.gemm.measured_schedules import ScheduleMismatch, ranked, schedule_file, schedule_key, store
from bitwise_nvidia_sm90.gemm.plan import UnsupportedGEMM
from bitwise_nvidia_sm90.gemm.run import clear_cache, planned, run
from bitwise_nvidia_sm90.gemm.schedule import Schedule

if TYPE_CHECKING:
    import torch

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
