"""A pool of processes that is started once, and only where there is something to share out."""

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
Answer = TypeVar("Answer")
Progress = Callable[[int, int], None]
"""Called with the number of jobs done and their total."""


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerPool(Generic[State]):
    """Up to `count` processes (by default one for each core), but no more than `jobs`; one means this process itself.

    `state` makes what each process keeps from one call of `map` to the next; a task gets it with every job.
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
            # Workers touch neither the threads nor the device of this process, so a fork of it is safe, and quick.
            method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
            context = multiprocessing.get_context(method)
            self._pool = ProcessPoolExecutor(self.count, context, _begin, (self._make,))
        else:
            self._state = self._make()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=kind is not None)

    def map(self, task: Callable[[State, Job], Answer], jobs: Sequence[Job]) -> list[Answer | None]:
        """The task's answer for every job, in order; None where the process that had it ended without an answer."""
        if self._pool is None:
            assert self._state is not None
            state = self._state
            return [self._counted(task(state, job), done, len(jobs)) for done, job in enumerate(jobs, 1)]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
            try:
                futures = [self._pool.submit(_call, task, job) for job in jobs]
            except BrokenProcessPool:
                return [None for _ in jobs]
            return [self._counted(_result(future), done, len(jobs)) for done, future in enumerate(futures, 1)]

    def _counted(self, answer: Answer, done: int, total: int) -> Answer:
        if self.progress is not None:
            self.progress(done, total)
        return answer


_of_worker: list[Any] = []
"""In a worker process its state; nowhere else anything."""


def _begin(make: Callable[[], Any]) -> None:
    _of_worker[:] = [make()]


def _call(task: Callable[[Any, Job], Answer], job: Job) -> Answer:
    return task(_of_worker[0], job)


def _result(future: Future[Answer]) -> Answer | None:
    try:
        return future.result()
    except BrokenProcessPool:
        return None
