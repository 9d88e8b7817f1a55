"""`bitwise partition`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bitwise_core import report
from bitwise_core.checker.analysis import AnalysisResult, Options, Source
from bitwise_core.checker.executors import dask_executor
from bitwise_core.checker.kernel_files import extensions, read_folder, resolve_targets, targets_of
from bitwise_core.checker.partition import Partition
from bitwise_core.checker.partition import partition as partition_of
from bitwise_core.checker.readings import ReadingCache
from bitwise_core.checker.verdicts import COMMON_NOTES
from bitwise_core.checker.worker_pool import Progress as ProgressCallback
from bitwise_core.cli.common import print_json
from bitwise_core.errors import InputError
from bitwise_core.output_files import write_text
from bitwise_core.plugins import registry


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
    remote = nullcontext() if readers.scheduler is None else dask_executor(readers.scheduler)
    with remote as executor, progress("analysing kernels") as advance:
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
        raise InputError(*malformed)
    return found


def run(
    path: Path, target: str | None, options: Options, readers: ReaderSettings, as_json: bool, html: Path | None
) -> None:
    """Partition a folder and print the classes.  Raises InputError."""
    plugins = registry.default()
    folder = read_folder(path, extensions(plugins.arches.values()))
    if not folder.has_manifest:
        options = replace(options, every_launch=True)
    arch, sources = resolve_targets(folder.sources, plugins, target)
    found = answered(partition_of, sources, arch.name, options, readers)
    if html is not None:
        title = path.resolve().name
        section = report.section(found, sources, arch, options, title, folder.configurations)
        write_report(html, report.render(f"bitwise: {title}", [section]))
    if as_json:
        print_json({**found.as_json(), "target": ", ".join(targets_of(sources, arch))})
    else:
        show(found, options, Console(highlight=False))


@contextmanager
def progress(description: str) -> Iterator[ProgressCallback | None]:
    """Show a progress bar where standard error is a terminal, and provide its callback; elsewhere provide None."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # No refresh thread: worker processes are forked while the bar is shown.
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task(description, total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, refresh=True)

        yield advance


def write_report(path: Path, page: str) -> None:
    """Write a page to a file.  Raises InputError."""
    try:
        write_text(path, page)
    except OSError as error:
        raise InputError(f"--html {path}: cannot be written ({error.strerror})") from None


def show(found: Partition, options: Options, console: Console) -> None:
    """Print the classes, the Unknown kernels with their reasons, and the assumptions of the proofs."""
    proved = [each for each in found.classes if each[0] not in found.unknown]
    table = Table(title=None, header_style="bold", show_lines=len(proved) > 1)
    table.add_column("class", justify="right")
    table.add_column("kernels", justify="right")
    table.add_column("proved to return the same bits", overflow="fold")
    for number, names in enumerate(proved, 1):
        table.add_row(str(number), str(len(names)), escape(", ".join(names)))
    if proved:
        console.print(table)
    if found.unknown:
        table = Table(header_style="bold")
        table.add_column("unknown", overflow="fold")
        table.add_column("reason; it is merged with no other kernel", overflow="fold")
        for name, reason in found.unknown.items():
            table.add_row(escape(name), escape(reason))
        console.print(table)
    kernels = sum(map(len, found.classes))
    console.print(
        f"{kernels} kernels, {len(proved)} classes, {len(found.unknown)} unknown, for "
        f"{'every launch' if options.every_launch else 'the given launch'}, in {found.seconds:.1f} s"
    )
    for condition in sorted(options.assume):
        console.print(f"condition: all values are {condition}", markup=False)
    for note in (*found.notes, *COMMON_NOTES):
        console.print(f"note: {note}", style="dim", markup=False)
