"""Kernels into classes of proved equals, over all cores."""

from __future__ import annotations

import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
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


def read_all(
    sources: Sequence[Source],
    target: str,
    options: Options,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Reading]:
    """The readings of all kernels, in their order, made by up to `workers` processes (all cores by default).

    Raises KeyError where no plugin has the target.
    """
    registry.default().arch(target)
    buffers = buffer_numbers(
        {name for source in sources if source.launch is not None for name in source.launch.buffers()}
    )
    count = min(workers or cores(), len(sources))
    jobs = [(source, target, buffers, options) for source in sources]
    if count <= 1:
        return list(_counted(map(_read, jobs), len(jobs), progress))
    # Workers touch neither the threads nor the device of this process, so a fork of it is safe and starts at once.
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
        with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context(method)) as pool:
            futures = [(source, pool.submit(_read, job)) for source, job in zip(sources, jobs, strict=True)]
            return list(_counted((_result(source, future) for source, future in futures), len(jobs), progress))


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _counted(readings: Iterable[Reading], total: int, progress: Progress | None) -> Iterator[Reading]:
    for done, reading in enumerate(readings, 1):
        if progress is not None:
            progress(done, total)
        yield reading


def _result(source: Source, future: Future[Reading]) -> Reading:
    try:
        return future.result()
    except BrokenProcessPool:
        return Reading(
            source.name, None, "the process that read it ended without an answer, most likely for lack of memory"
        )


def _read(job: tuple[Source, str, Mapping[str, int], Options]) -> Reading:
    source, target, buffers, options = job
    return read(source, registry.default().arch(target), buffers, options)


def partition(
    sources: Sequence[Source],
    target: str,
    options: Options,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Partition:
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
    return Partition(
        tuple(tuple(each) for each in ordered),
        unknown,
        options.scope,
        time.perf_counter() - start,
        tuple(readings),
        notes,
    )
