"""Schedules found fast by measurement: those that came with this package, and those that `tune` kept."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from bitwise_core.descriptors import GEMMDesc
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, Plan
from bitwise_nvidia_sm90.gemm.schedule import Schedule
from bitwise_nvidia_sm90.gemm.schedule_ranking import choices

if TYPE_CHECKING:
    import torch

VARIABLE = "BITWISE_SCHEDULES"
"""Names the file in which `tune` keeps schedules, instead of the one in the user's cache folder."""
_tuned: dict[str, Schedule] = {}


class Unequal(RuntimeError):
    """Schedules of one descriptor returned different bytes: a defect of this package, or of the compiler below it."""


def kept_in() -> Path:
    """The file in which `tune` keeps schedules."""
    given = os.environ.get(VARIABLE)
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(folder) / "bitwise" / "schedules.json"


def key_of(desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> str:
    """What a measured schedule holds for: descriptor, shape, strides, device and compiler."""
    import torch

    strides = " ".join(f"{name}{tuple(each.stride())}" for name, each in (("a", a), ("b", b), ("out", out)))
    shape = f"{out.shape[0]}x{out.shape[1]}"
    return f"{desc.to_text()} {shape} {strides} {torch.cuda.get_device_name(out.device)} triton {version('triton')}"


def candidates(
    desc: GEMMDesc, plan: Plan, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, most: int
) -> Iterator[Schedule]:
    """Schedules to try in order: measured ones, then those expected to be fast, and one that runs everywhere."""
    m, n = (int(each) for each in out.shape)
    _read(kept_in())
    for found in (_tuned.get(key_of(desc, a, b, out)) if _tuned else None, shipped(plan, m, n)):
        if found is not None:
            yield found
    yield from choices(plan, m, n, most=most)


def shipped(plan: Plan, m: int, n: int) -> Schedule | None:
    """The schedule that was measured fastest for this shape, None for shapes without one."""
    if not isinstance(plan, MatrixPlan) or plan.first or plan.half:
        return None
    return _table().get((m, n, plan.k, plan.slices.number, plan.block))


@cache
def _table() -> dict[tuple[int, ...], Schedule]:
    text = files(__package__).joinpath("data/schedules-sm90.json").read_text(encoding="utf-8")
    return {tuple(row["shape"]): Schedule(**row["schedule"]) for row in json.loads(text)["rows"]}


@cache
def _read(path: Path) -> None:
    """Takes in a file of kept schedules; one that cannot be read holds none."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        found = {str(key): Schedule(**row) for key, row in rows.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return
    for key, each in found.items():
        _tuned.setdefault(key, each)


def keep(key: str, chosen: Schedule, path: Path) -> None:
    """Adds a schedule to a file, and to those of this process."""
    _tuned[key] = chosen
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        rows = {}
    rows = {**(rows if isinstance(rows, dict) else {}), key: asdict(chosen)}
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_suffix(f".{os.getpid()}")
    made.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    made.replace(path)
