"""A pool of worker processes, each with a state that persists between jobs."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any, Generic, TypeVar

State = TypeVar("State")
Job = TypeVar("Job")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]
"""Called with the number of jobs done and their total."""


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerPool(Generic[State]):
    """Up to `count` worker processes (default: one per core), at most `jobs`; a count of one is this process itself.

    `state` creates the state of each process, which persists between calls of `map` and is passed to every task.
    """

    def __init__(
        self, state: Callable[[], State], count: int | None, jobs: int, progress: Progress | None = None
    ) -> None:
        self.count, self.progress = min(count or cores(), jobs), progress
        self._make = state
        self._state: State | None = None
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> WorkerPool[State]:
        if self.count > 1:
            # Workers use neither the threads nor the device of this process, so a fork is safe; it is also fast.
            method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
            context = multiprocessing.get_context(method)
            self._pool = ProcessPoolExecutor(self.count, context, _initialise, (self._make,))
        else:
            self._state = self._make()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=kind is not None)

    def map(self, task: Callable[[State, Job], Result], jobs: Sequence[Job]) -> list[Result | None]:
        """The results of a task for all jobs, in order; None where the worker process ended without a result."""
        if self._pool is None:
            assert self._state is not None
            state = self._state
            return [self._report(task(state, job), done, len(jobs)) for done, job in enumerate(jobs, 1)]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
            try:
                futures = [self._pool.submit(_call, task, job) for job in jobs]
            except BrokenProcessPool:
                return [None for _ in jobs]
            return [self._report(_result(future), done, len(jobs)) for done, future in enumerate(futures, 1)]

    def _report(self, result: Result, done: int, total: int) -> Result:
        if self.progress is not None:
            self.progress(done, total)
        return result


_worker_state: list[Any] = []
"""In a worker process, its state; empty elsewhere."""


def _initialise(make: Callable[[], Any]) -> None:
    _worker_state[:] = [make()]


def _call(task: Callable[[Any, Job], Result], job: Job) -> Result:
    return task(_worker_state[0], job)


def _result(future: Future[Result]) -> Result | None:
    try:
        return future.result()
    except BrokenProcessPool:
        return None
