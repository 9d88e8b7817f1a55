"""Compile in a pool of processes.

Processes, since Triton's front end holds the GIL. Forked, since a function defined inside another one, as kernels often
are, cannot be pickled.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from bitwise_triton.errors import CaptureError

Result = TypeVar("Result")

# The task and its jobs. A forked worker inherits them, so that nothing is pickled.
_inherited: list[tuple[Callable[[Any], Any], Sequence[Any]]] = []


def run_in_processes(
    task: Callable[[Any], Result],
    jobs: Sequence[Any],
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Result | CaptureError]:
    """`task` of every job, in order; a CaptureError raised by `task` takes the place of its result.

    `workers` defaults to the processors available to this process. `progress` gets the number of finished and of all
    jobs.
    """
    if workers is not None and workers < 1:
        raise CaptureError(f"There are {workers} worker processes; use 1 or more.")
    count = min(workers or _processors(), len(jobs))
    if count < 2 or "fork" not in multiprocessing.get_all_start_methods():
        return [_reported(task, job, index, len(jobs), progress) for index, job in enumerate(jobs)]
    return _in_processes(task, jobs, count, progress)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _attempt(task: Callable[[Any], Result], job: Any) -> Result | CaptureError:
    try:
        return task(job)
    except CaptureError as error:
        return error


def _reported(
    task: Callable[[Any], Result], job: Any, index: int, total: int, progress: Callable[[int, int], None] | None
) -> Result | CaptureError:
    result = _attempt(task, job)
    if progress:
        progress(index + 1, total)
    return result


def _prepare(task: Callable[[Any], Any], jobs: Sequence[Any]) -> None:
    _inherited[:] = [(task, jobs)]
    # Prevents a worker from finalising objects of its parent, such as loaded GPU modules.
    gc.freeze()


def _worker(index: int) -> Any:
    [(task, jobs)] = _inherited
    return _attempt(task, jobs[index])


def _in_processes(
    task: Callable[[Any], Result], jobs: Sequence[Any], count: int, progress: Callable[[int, int], None] | None
) -> list[Result | CaptureError]:
    results: dict[int, Result | CaptureError] = {}
    context = multiprocessing.get_context("fork")
    try:
        with (
            warnings.catch_warnings(),
            ProcessPoolExecutor(count, mp_context=context, initializer=_prepare, initargs=(task, jobs)) as pool,
        ):
            # The workers only compile; they use neither the threads nor the GPU of this process.
            warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
            futures = {pool.submit(_worker, index): index for index in range(len(jobs))}
            for done, future in enumerate(as_completed(futures), 1):
                results[futures[future]] = future.result()
                if progress:
                    progress(done, len(jobs))
    except BrokenProcessPool:
        raise CaptureError(
            "A compile worker ended without a result, probably out of memory; use fewer workers."
        ) from None
    return [results[index] for index in range(len(jobs))]
