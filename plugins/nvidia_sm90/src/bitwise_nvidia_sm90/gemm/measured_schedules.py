"""The schedules of a product in the order to try them; those that `tune` measured and stored come first."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.json_text import parse_json
from bitwise_core.output_files import write_text
from bitwise_nvidia_sm90.gemm.device_costs import DeviceCosts, costs_of_device
from bitwise_nvidia_sm90.gemm.expected_times import Finishing
from bitwise_nvidia_sm90.gemm.matrix_layouts import alignment_of_lines, has_map
from bitwise_nvidia_sm90.gemm.plan import Plan
from bitwise_nvidia_sm90.gemm.schedule import Schedule
from bitwise_nvidia_sm90.gemm.schedule_ranking import least_seconds, schedules_to_try

if TYPE_CHECKING:
    import torch

FILE_VARIABLE = "BITWISE_SCHEDULES"
"""The environment variable that names the file of tuned schedules."""
_TYPES = {each.name: each.type for each in fields(Schedule)}
_tuned: dict[str, Schedule] = {}
"""Tuned schedules of this process, by `schedule_key`."""


class ScheduleMismatch(RuntimeError):
    """Schedules of one descriptor returned different bytes: a defect of this package or of the compiler."""


def schedule_file() -> Path:
    """Return the file of tuned schedules: $BITWISE_SCHEDULES, or bitwise/schedules.json in the user's cache folder."""
    given = os.environ.get(FILE_VARIABLE)
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(folder) / "bitwise" / "schedules.json"


def schedule_key(desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> str:
    """Return the key of a tuned schedule: descriptor, shape, strides, device and Triton version."""
    import torch

    strides = " ".join(f"{name}{tuple(each.stride())}" for name, each in (("a", a), ("b", b), ("out", out)))
    shape = f"{out.shape[0]}x{out.shape[1]}"
    return f"{desc.to_text()} {shape} {strides} {torch.cuda.get_device_name(out.device)} triton {version('triton')}"


def candidates(
    desc: GEMMDesc, plan: Plan, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, most: int, loads: int = 0
) -> Iterator[Schedule]:
    """Yield schedules in the order to try them: tuned, ranked by the cost model, and the fallback last.

    `most` bounds the number of the last two.  `loads` is the number of an epilogue's operands as large as the output.
    """
    _load_file(schedule_file())
    found = _tuned.get(schedule_key(desc, a, b, out)) if _tuned else None
    if found is not None:
        yield found
    yield from ranked(plan, a, b, out, most, loads)


def is_tuned(desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> bool:
    """Return whether there is a tuned schedule for operands of these layouts."""
    _load_file(schedule_file())
    return schedule_key(desc, a, b, out) in _tuned


def ranked(
    plan: Plan, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, most: int, loads: int = 0
) -> list[Schedule]:
    """Return the schedules that the cost model ranks first for operands of these layouts, and the fallback last."""
    m, n = (int(each) for each in out.shape)
    return schedules_to_try(
        plan, m, n, most=most, **_layouts(a, b, out), finishing=Finishing(out.element_size(), loads)
    )


def least_expected(
    plan: Plan, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, output_bytes: int, loads: int = 0
) -> float | None:
    """Return the least expected time of a product with the output's layout, and elements of `output_bytes`.

    None where there is no model of it.
    """
    m, n = (int(each) for each in out.shape)
    return least_seconds(plan, m, n, **_layouts(a, b, out), finishing=Finishing(output_bytes, loads))


class _Layouts(TypedDict):
    """The arguments of `schedules_to_try` that tensors decide."""

    device: DeviceCosts
    k_contiguous: tuple[bool, bool]
    mapped: tuple[bool, bool, bool]
    alignments: tuple[int, int]


def _layouts(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> _Layouts:
    return {
        "device": costs_of_device(out.device), "k_contiguous": (a.stride()[1] == 1, b.stride()[0] == 1),
        "mapped": (has_map(a), has_map(b), has_map(out)), "alignments": (alignment_of_lines(a), alignment_of_lines(b)),
    }  # fmt: skip


@cache
def _load_file(path: Path) -> None:
    """Load a file of tuned schedules into `_tuned`.  A file or an entry that cannot be read is ignored."""
    try:
        rows = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    for key, given in rows.items() if isinstance(rows, dict) else ():
        # Another version of this package may have written an entry with other fields.
        if isinstance(given, dict) and all(_TYPES.get(name) == type(value).__name__ for name, value in given.items()):
            with suppress(TypeError):
                _tuned.setdefault(key, Schedule(**given))


def store(key: str, chosen: Schedule, path: Path) -> None:
    """Add a schedule to a file, and to the tuned schedules of this process."""
    _tuned[key] = chosen
    try:
        rows = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        rows = {}
    rows = {**(rows if isinstance(rows, dict) else {}), key: asdict(chosen)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(rows, indent=1) + "\n")
