"""Questions about kernels that a command asks: where the kernels are read, and the progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import typer

from bitwise_core.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from bitwise_core.checker.readings import ReadingCache
    from bitwise_core.checker.results import AnalysisResult
    from bitwise_core.checker.sources import Options, Source
    from bitwise_core.checker.workers.worker_pool import Progress as ProgressCallback


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """Where the kernels are read: the number of processes, or the address of a dask scheduler; and the cache."""

    workers: int | None = None
    scheduler: str | None = None
    cache: ReadingCache | None = None


class Answers(Protocol):
    """What a question about kernels returns: its figures, with the results of the analyses."""

    @property
    def results(self) -> Sequence[AnalysisResult]:
        """The result of each kernel."""


Found = TypeVar("Found", bound=Answers)


def answered(
    question: Callable[..., Found], sources: Sequence[Source], target: str, options: Options, readers: ReaderSettings
) -> Found:
    """Ask `partition` or `determinism` about kernels, with a progress bar.  Raises InputError for a malformed one."""
    with _executor(readers.scheduler) as executor, progress("analysing kernels") as advance:
        found = question(
            sources,
            target,
            options,
            workers=readers.workers,
            executor=executor,
            cache=readers.cache,
            progress=advance,
        )
    malformed = [result.unknown or result.name for result in found.results if result.malformed]
    if malformed:
        raise InputError(*dict.fromkeys(malformed))
    return found


def _executor(scheduler: str | None) -> AbstractContextManager[Executor | None]:
    """Provide the workers of a dask scheduler; None without one."""
    if scheduler is None:
        return nullcontext()
    from bitwise_core.checker.workers.executors import dask_executor

    return dask_executor(scheduler)


SECONDS_BETWEEN_LINES = 30.0
"""The time between two lines on the progress of a command whose standard error is no terminal."""


@contextmanager
def progress(description: str) -> Iterator[ProgressCallback | None]:
    """Show a progress bar where standard error is a terminal, else a line from time to time; provide its callback."""
    if not sys.stderr.isatty():
        yield _lines(description)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # No refresh thread: worker processes are forked while the bar is shown.
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task(description, total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, refresh=True)

        yield advance


def _lines(description: str) -> ProgressCallback:
    """Return a callback that prints a line for a log, the first one after `SECONDS_BETWEEN_LINES`."""
    printed = time.monotonic()

    def advance(done: int, total: int) -> None:
        nonlocal printed
        if done < total and time.monotonic() >= printed + SECONDS_BETWEEN_LINES:
            printed = time.monotonic()
            typer.echo(f"{description}: {done} of {total}", err=True)

    return advance
