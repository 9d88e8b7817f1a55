"""Locks, recordings and modes in the processes that Python's multiprocessing starts.

A process that is forked has what the thread that forks it has.  One that is started anew, by "spawn" or "forkserver",
has nothing of it.  Where a thread starts one inside of a block of `passed_on`, the block is entered again in the new
process, before the process runs what it was started for, so that the first thread there has what the starting thread
has.  A process that is started by other means, such as a program of `subprocess`, has nothing.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any

from bitwise_torch.interception import MULTIPLYING, OtherThreads
from bitwise_torch.kernel_replacement import ThreadObject

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

Enter = Callable[[], AbstractContextManager[Any]]
"""A function that pickle can store, and whose result a new process enters."""

OWN = "bitwise"
"""The beginning of the names of the processes of these packages, which do not compute with PyTorch."""


class EarlierProcessWarning(UserWarning):
    """Processes were started before a lock or a recording, which does not hold in them."""


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """What a block passes on to processes, whether it refuses their products, and what it calls for each of them."""

    enter: Enter
    other_threads: OtherThreads
    refuses: bool
    note: Callable[[], object]


_of_thread: ThreadObject[tuple[_Block, ...]] = ThreadObject("bitwise_torch.started_processes")
_active: list[_Block] = []
_lock = threading.Lock()


@contextmanager
def passed_on(enter: Enter, other_threads: OtherThreads, note: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Let processes that this thread starts anew in this block enter the result of `enter`.

    `note` is called for each of them.  With `other_threads="ignore"` they enter nothing.  What a thread without a block
    starts, while another thread has one, is decided as its own products are: with "cover" it enters the only block,
    with "error" its products raise InterceptionError.
    """
    with _entered(_Block(enter, other_threads, False, note)):
        yield


@contextmanager
def refused_in_processes(reason: str, other_threads: OtherThreads) -> Iterator[None]:
    """Let products raise InterceptionError in processes that are started anew in this block, as `passed_on` says."""
    with _entered(_refusing(reason, other_threads)):
        yield


def _refusing(reason: str, other_threads: OtherThreads) -> _Block:
    return _Block(partial(_refused, reason), other_threads, True, lambda: None)


@contextmanager
def _entered(block: _Block) -> Iterator[None]:
    _watch()
    with _lock:
        _active.append(block)
    before = _of_thread.get()
    mine = (*(before or ()), block)
    _of_thread.set(mine)
    try:
        yield
    finally:
        if _of_thread.get() is mine:  # a block may end in another thread than it began in, which is an error elsewhere
            _of_thread.set(before)
        with _lock:
            _active.remove(block)


def warn_of_earlier_processes(what: str) -> None:
    """Warn of processes of multiprocessing that run while a lock or a recording begins."""
    import multiprocessing

    names = sorted(each.name for each in multiprocessing.active_children() if not each.name.startswith(OWN))
    if names:
        warnings.warn(
            f"{what} does not hold in processes that were started before it: {', '.join(names)}; start them inside of "
            "it, or enter one in them, if they multiply matrices",
            EarlierProcessWarning, stacklevel=4,
        )  # fmt: skip


def _refused(reason: str) -> AbstractContextManager[None]:
    """Return a block in which products raise InterceptionError in all threads without a lock, a recording or a mode."""
    return MULTIPLYING.refused(reason)


@dataclass(frozen=True, slots=True)
class _Run:
    """Runs a new process inside of blocks; `run` is a method that the process itself has, and not its class."""

    blocks: tuple[Enter, ...]
    run: Callable[[], Any] | None

    def __call__(self) -> Any:
        from multiprocessing import current_process

        process = current_process()
        with ExitStack() as stack:
            for enter in self.blocks:
                stack.enter_context(enter())
            return type(process).run(process) if self.run is None else self.run()


@cache
def _watch() -> None:
    """Let every start of a process pass on what its thread has; without a block it is as before."""
    from multiprocessing.process import BaseProcess

    start = BaseProcess.start

    @wraps(start)
    def started(process: BaseProcess) -> None:
        blocks = _passed_on_to(process)
        if not blocks:
            return start(process)
        own = vars(process).get("run")
        vars(process)["run"] = _Run(tuple(each.enter for each in blocks), own)
        try:
            start(process)
        finally:
            del vars(process)["run"]
            if own is not None:
                vars(process)["run"] = own
        for each in blocks:
            each.note()
        return None

    BaseProcess.start = started  # type: ignore[assignment, method-assign]


def _passed_on_to(process: BaseProcess) -> tuple[_Block, ...]:
    """Return what a process enters that this thread is about to start."""
    with _lock:
        active = tuple(_active)
    if not active:
        return ()
    from multiprocessing import get_start_method

    if (getattr(process, "_start_method", None) or get_start_method()) == "fork":
        return ()
    own = tuple(each for each in _of_thread.get() or () if each in active)
    blocks = tuple(each for each in own if each.other_threads != "ignore") if own else _of_other_threads(active)
    # What a lock would compute is not in a record either.
    return tuple(each for each in blocks if each.refuses) or blocks


def _of_other_threads(active: tuple[_Block, ...]) -> tuple[_Block, ...]:
    """Return what a process enters that a thread without a block starts while other threads have these."""
    covering = tuple(each for each in active if each.other_threads == "cover")
    if len(covering) > 1 or any(each.other_threads == "error" for each in active):
        name = threading.current_thread().name
        reason = (
            f"in a process that the thread {name!r} started, which has no lock, while another thread has one: enter "
            "the lock in that process, or start it in the thread that has the lock"
        )
        return (_refusing(reason, "error"),)
    return covering
