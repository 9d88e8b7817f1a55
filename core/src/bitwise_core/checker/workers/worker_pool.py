"""A pool of worker processes, each with a state that persists between jobs, or an executor of the caller."""

from __future__ import annotations

import heapq
import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_connections
from multiprocessing.process import BaseProcess
from types import FrameType, TracebackType
from typing import Any, Generic, NoReturn, TypeVar

from bitwise_core.errors import BitwiseError
from bitwise_core.execution.time_limit import TimeLimitExceeded

State = TypeVar("State")
Job = TypeVar("Job")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]
"""Called with the number of jobs done and their total."""

_ATTEMPTS = 2
"""A job whose worker ended without a result is given to another worker, after all other jobs, until so many failed."""

_LIMITS_OF_A_JOB = 3
"""A job has at most so many time limits after each other: of two kernels, and of their comparison."""

_GRACE = 5.0
"""A worker that passes all time limits of its job by this number of seconds is killed."""

_SECONDS_TO_END = 2.0
"""A worker that is told to end is killed after this number of seconds."""

_SINGLE_THREADED = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Variables that keep the libraries of linear algebra in one thread: there is one worker for each core."""


@dataclass(frozen=True, slots=True)
class Lost:
    """There is no result of a job, and why."""

    reason: str


class WorkerFailed(BitwiseError, RuntimeError):
    """A job raised an exception in a worker process; the message holds its type and text."""


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerPool(Generic[State]):
    """Up to `count` worker processes (default: one per core), at most `jobs`; a count of one is this process itself.

    `state` creates the state of each process, which persists between calls and is passed to every task.  Processes are
    started when there is a job for them.  `time_limit` is that of each kernel in seconds (None: no limit): a job that
    passes it is expected to end by itself, and its process is killed if it does not.  With an `executor`, the jobs run
    there instead, with a state for each of its threads.
    """

    def __init__(
        self,
        state: Callable[[], State],
        count: int | None,
        jobs: int,
        *,
        time_limit: float | None = None,
        executor: Executor | None = None,
    ) -> None:
        # A daemon of `multiprocessing` may not start processes.
        allowed = 1 if multiprocessing.current_process().daemon else count or cores()
        self.count, self.executor = min(allowed, jobs), executor
        self._make = state
        self._seconds = time_limit
        self._state: list[State] = []
        self._workers: list[_Worker] = []

    def __enter__(self) -> WorkerPool[State]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.end(at_once=worker.busy)
        for worker in self._workers:
            worker.join()
        self._workers = []

    def stream(
        self, task: Callable[[State, Job], Result], jobs: Sequence[Job], costs: Sequence[float] | None = None
    ) -> Iterator[tuple[int, Result | Lost]]:
        """Yield the position and the result of each job when it is done, exactly once.

        The jobs of the highest cost are started first.  An exception of the task is raised here.
        """
        order = list(range(len(jobs)))
        if costs is not None:
            order.sort(key=lambda position: -costs[position])
        if self.executor is not None:
            yield from self._on_executor(self.executor, task, jobs, order)
        elif self.count > 1:
            yield from self._in_processes(task, jobs, order)
        else:
            yield from self._here(task, jobs, order)

    def _here(
        self, task: Callable[[State, Job], Result], jobs: Sequence[Job], order: Sequence[int]
    ) -> Iterator[tuple[int, Result | Lost]]:
        if not self._state:
            self._state.append(self._make())
        for position in order:
            yield position, task(self._state[0], jobs[position])

    def _in_processes(
        self, task: Callable[[State, Job], Result], jobs: Sequence[Job], order: Sequence[int]
    ) -> Iterator[tuple[int, Result | Lost]]:
        # By the number of failed attempts first, so that one that may have exhausted the memory runs among few others.
        pending = [(0, place, position) for place, position in enumerate(order)]
        while pending or any(worker.busy for worker in self._workers):
            self._assign(pending, task, jobs)
            for worker in self._wait():
                entry = worker.entry
                assert entry is not None
                attempts, place, position = entry
                try:
                    succeeded, answer = worker.receive()
                except (EOFError, OSError):
                    reason = self._remove(worker)
                    if attempts + 1 < _ATTEMPTS:
                        heapq.heappush(pending, (attempts + 1, place, position))
                    else:
                        yield position, Lost(reason)
                    continue
                if not succeeded:
                    raise WorkerFailed(str(answer))
                yield position, answer
            for worker in [each for each in self._workers if each.busy and each.deadline < time.monotonic()]:
                assert worker.entry is not None
                position = worker.entry[-1]
                worker.process.kill()
                self._remove(worker)
                yield position, Lost(str(TimeLimitExceeded(self._seconds or 0.0)))

    def _assign(
        self, pending: list[tuple[int, int, int]], task: Callable[[State, Job], Result], jobs: Sequence[Job]
    ) -> None:
        """Give jobs to idle workers, and to new ones up to the count."""
        while pending:
            idle = next((worker for worker in self._workers if not worker.busy), None)
            if idle is None:
                if len(self._workers) >= self.count:
                    return
                idle = _start_worker(self._make, [worker.connection for worker in self._workers])
                self._workers.append(idle)
            entry = heapq.heappop(pending)
            seconds = float("inf") if self._seconds is None else _LIMITS_OF_A_JOB * self._seconds + _GRACE
            try:
                idle.send(entry, task, jobs[entry[-1]], seconds)
            except OSError:
                # It ended while it was idle.
                self._remove(idle)
                heapq.heappush(pending, entry)

    def _wait(self) -> list[_Worker]:
        """Wait until workers answer, end, or pass their time; return those that answered or ended."""
        busy = [worker for worker in self._workers if worker.busy]
        soonest = min((worker.deadline for worker in busy), default=0.0)
        timeout = None if soonest == float("inf") else max(soonest - time.monotonic(), 0.0)
        ready = wait_for_connections([worker.connection for worker in busy], timeout)
        return [worker for worker in busy if worker.connection in ready]

    def _remove(self, worker: _Worker) -> str:
        """Remove a worker that ended; the reason as the end of a sentence."""
        worker.end(at_once=True)
        worker.join()
        self._workers.remove(worker)
        code = worker.process.exitcode
        how = f"was ended by the signal {signal.Signals(-code).name}" if code is not None and code < 0 else "ended"
        return f"its worker process {how} without a result in {_ATTEMPTS} attempts, most likely for lack of memory"

    def _on_executor(
        self,
        executor: Executor,
        task: Callable[[State, Job], Result],
        jobs: Sequence[Job],
        order: Sequence[int],
    ) -> Iterator[tuple[int, Result | Lost]]:
        state = pickle.dumps(self._make)
        attempts = dict.fromkeys(order, 0)
        running: dict[Future[tuple[bool, Any]], int] = {}
        lost: dict[int, str] = {}

        def submit(position: int) -> None:
            attempts[position] += 1
            try:
                running[executor.submit(_call_with_state, state, task, jobs[position])] = position
            except RuntimeError as error:
                # The executor is broken, or was shut down.
                lost[position] = str(error)

        try:
            for position in order:
                submit(position)
            while running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    position = running.pop(future)
                    # What the task raised is in its answer: this is the failure of the executor or of its worker.
                    failure = TimeoutError("cancelled") if future.cancelled() else future.exception()
                    if failure is None:
                        succeeded, answer = future.result()
                        if not succeeded:
                            raise WorkerFailed(str(answer))
                        yield position, answer
                    elif attempts[position] < _ATTEMPTS + 1:
                        submit(position)
                    else:
                        lost[position] = f"{type(failure).__name__}: {failure}"
        finally:
            for future in running:
                future.cancel()
        for position, reason in lost.items():
            yield position, Lost(f"the executor has no result of it after {attempts[position]} attempts ({reason})")


@dataclass(slots=True, eq=False)
class _Worker:
    """A worker process, the connection to it, the entry of the job that it has, and the time by which that must end."""

    process: BaseProcess
    connection: Connection
    entry: tuple[int, int, int] | None = None
    deadline: float = field(default=float("inf"))

    @property
    def busy(self) -> bool:
        return self.entry is not None

    def send(
        self, entry: tuple[int, int, int], task: Callable[[Any, Any], object], job: object, seconds: float
    ) -> None:
        """Give it a job.  Raises OSError if it has ended."""
        self.connection.send((task, job))
        self.entry, self.deadline = entry, time.monotonic() + seconds

    def receive(self) -> tuple[bool, Any]:
        """Return whether the job succeeded, and its result or the text of its exception.  Raises EOFError, OSError."""
        found: tuple[bool, Any] = self.connection.recv()
        self.entry = None
        return found

    def end(self, at_once: bool) -> None:
        """Tell the process to end: by the end of its connection, or by a signal while it is busy."""
        self.connection.close()
        if at_once:
            self.process.terminate()

    def join(self) -> None:
        """Wait for its end, and kill it if it does not end soon."""
        self.process.join(_SECONDS_TO_END)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _start_worker(make: Callable[[], object], others: Sequence[Connection]) -> _Worker:
    # Workers use neither the threads nor the device of this process, so a fork is safe; it is also fast.
    forks = "fork" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork") if forks else multiprocessing.get_context("spawn")
    own, its = context.Pipe()
    # A process that has these connections too would keep the others from seeing that this process ended.
    inherited = [own, *others] if forks else []
    process = context.Process(target=_serve, name="bitwise worker", args=(its, inherited, make), daemon=True)
    with warnings.catch_warnings(), _without_interrupts():
        warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
        process.start()
    its.close()
    return _Worker(process, own)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Delay interrupts from the keyboard to the end of the body; a process that it starts has them blocked."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection, inherited: Sequence[Connection], make: Callable[[], Any]) -> None:
    """Run jobs until the connection ends."""
    for each in inherited:
        each.close()
    # The parent decides what an interrupt from the keyboard means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):  # for what a worker runs
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, _end)
    os.environ.update(dict.fromkeys(_SINGLE_THREADED, "1"))
    states: list[Any] = []

    def state() -> Any:
        if not states:
            states.append(make())
        return states[0]

    while True:
        try:
            task, job = connection.recv()
        except (EOFError, OSError):
            return
        try:
            connection.send(_answer(state, task, job))
        except OSError:
            return


def _end(number: int, frame: FrameType | None) -> NoReturn:
    # As an exception, so that temporary folders are removed.
    raise SystemExit(128 + number)


def _answer(state: Callable[[], Any], task: Callable[[Any, Any], object], job: object) -> tuple[bool, object]:
    try:
        return True, task(state(), job)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return False, f"{type(error).__name__}: {error} (in {place.name}, {os.path.basename(place.filename)})"


class _States(threading.local):
    """The most recent states of this thread, by their pickled factories: a session serves one thread at a time."""

    def __init__(self) -> None:
        self.states: OrderedDict[bytes, Any] = OrderedDict()


_STATES = _States()
_MAXIMUM_STATES = 2


def _call_with_state(make: bytes, task: Callable[[Any, Any], object], job: object) -> tuple[bool, object]:
    """Run a job in a worker of an executor."""

    def state() -> Any:
        states = _STATES.states
        if make not in states:
            states[make] = pickle.loads(make)()
            while len(states) > _MAXIMUM_STATES:
                states.popitem(last=False)
        return states[make]

    return _answer(state, task, job)
