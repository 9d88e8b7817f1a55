"""Kernels into classes of proved equals, over all cores."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from bitwise_core import registry
from bitwise_core.checker import Options, Reading, Source, buffer_numbers, read

Progress = Callable[[int, int], None]
"""Called with the number of kernels read and their total."""


@dataclass(frozen=True, slots=True)
class Partition:
    """Classes in the order of their first kernels; Unknown kernels are classes of their own."""

    classes: tuple[tuple[str, ...], ...]
    unknown: Mapping[str, str]
    scope: str
    seconds: float
    readings: tuple[Reading, ...]
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """The form that the command line prints."""
        return {
            "classes": [list(each) for each in self.classes],
            "unknown": dict(self.unknown),
            "scope": self.scope,
            "seconds": round(self.seconds, 3),
            "notes": list(self.notes),
        }


def read_all(sources: Sequence[Source], target: str, options: Options, *, workers: int | None = None, progress: Progress | None = None) -> list[Reading]:
    """The readings of all kernels, in their order, made by up to `workers` processes (all cores by default).

    Raises KeyError where no plugin has the target.
    """
    registry.default().arch(target)
    buffers = buffer_numbers({name for source in sources if source.launch is not None for name in source.launch.buffers()})
    count = min(workers or os.cpu_count() or 1, len(sources))
    jobs = [(source, target, buffers, options) for source in sources]
    found: list[Reading] = []
    if count <= 1:
        for job in jobs:
            found.append(_read(job))
            if progress is not None:
                progress(len(found), len(jobs))
        return found
    with ProcessPoolExecutor(count) as pool:
        for reading in pool.map(_read, jobs, chunksize=max(1, min(8, len(jobs) // (4 * count)))):
            found.append(reading)
            if progress is not None:
                progress(len(found), len(jobs))
    return found


def _read(job: tuple[Source, str, Mapping[str, int], Options]) -> Reading:
    source, target, buffers, options = job
    return read(source, registry.default().arch(target), buffers, options)


def partition(sources: Sequence[Source], target: str, options: Options, *, workers: int | None = None, progress: Progress | None = None) -> Partition:
    """Partitions kernels by proved equality.  Raises KeyError where no plugin has the target."""
    start = time.perf_counter()
    readings = read_all(sources, target, options, workers=workers, progress=progress)
    classes: dict[bytes, list[str]] = {}
    ordered: list[list[str]] = []
    unknown: dict[str, str] = {}
    for reading in readings:
        if reading.signature is None:
            unknown[reading.name] = reading.unknown or "unknown"
            ordered.append([reading.name])
        elif reading.signature in classes:
            classes[reading.signature].append(reading.name)
        else:
            classes[reading.signature] = [reading.name]
            ordered.append(classes[reading.signature])
    notes = tuple(dict.fromkeys(note for reading in readings for note in reading.notes))
    return Partition(tuple(tuple(each) for each in ordered), unknown, options.scope, time.perf_counter() - start, tuple(readings), notes)
