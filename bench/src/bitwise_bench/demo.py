"""Demonstration: compile real tuning spaces without a GPU, and partition them into bitwise equivalence classes.

python -m bitwise_bench.demo [--html FILE] [--workers N] [SAMPLE ...]
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bitwise_triton.compilation import CompiledKernel
from bitwise_triton.configurations import compile_configurations
from bitwise_triton.equivalence import source_of
from bitwise_triton.errors import CaptureError

if TYPE_CHECKING:
    from rich.console import Console

    from bitwise_core.checker.partition import Partition
    from bitwise_core.report.section import Section
    from bitwise_triton.samples import Sample

TARGET = "sm_90"
Progress = Callable[[int, int], None] | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration. The exit status is 0, or 2 if a requirement is missing."""
    parser = argparse.ArgumentParser(prog="python -m bitwise_bench.demo", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--html", type=Path, default=None, help="also write the report to this page")
    parser.add_argument("--workers", type=int, default=None, help="processes; by default one for each core")
    parser.add_argument("samples", nargs="*", help="which samples; by default all of them")
    options = parser.parse_args(arguments)
    try:
        return _run(options.samples, options.html, options.workers)
    except ImportError as error:
        print(
            f"The demonstration needs {error.name}: pip install 'bitwise-triton[triton]' bitwise-nvidia",
            file=sys.stderr,
        )
    except (CaptureError, OSError) as error:
        print(error, file=sys.stderr)
    return 2


def _run(names: Sequence[str], html: Path | None, workers: int | None) -> int:
    from rich.console import Console

    from bitwise_core.report.page import render
    from bitwise_triton.samples import all_samples

    samples = all_samples()
    unknown = sorted(set(names) - {sample.name for sample in samples})
    if unknown:
        raise CaptureError(f"There is no sample {unknown[0]!r}; there are {', '.join(s.name for s in samples)}.")
    console = Console(highlight=False)
    start = time.perf_counter()
    sections = [_show(sample, workers, console) for sample in samples if not names or sample.name in names]
    console.print(f"\n{time.perf_counter() - start:.0f} s in all, compiling included; no GPU was used.", markup=False)
    if html is not None:
        html.write_text(render("Which configurations return the same bits?", sections), encoding="utf-8")
        console.print(f"The whole report: {html.resolve()}", markup=False, soft_wrap=True)
    return 0


def _show(sample: Sample, workers: int | None, console: Console) -> Section:
    """Compile and partition one sample, print its classes, and return its section of the page."""
    from bitwise_core.checker.partition import partition
    from bitwise_core.checker.sources import Options
    from bitwise_core.cli.answered_questions import progress
    from bitwise_core.plugins import registry
    from bitwise_core.report.section import section

    console.print(f"\n[bold]{sample.title}[/bold]: {len(sample.configurations)} configurations for {TARGET}")
    start = time.perf_counter()
    with progress("compiling") as advance:
        outcomes = compile_configurations(
            sample.kernel, sample.configurations, sample.arguments, sample.grid,
            target=TARGET, workers=workers, progress=advance,
        )  # fmt: skip
    compiled = [one for one in outcomes if isinstance(one, CompiledKernel)]
    if not compiled:
        raise next(one for one in outcomes if isinstance(one, CaptureError))
    seconds = time.perf_counter() - start
    names = [f"{sample.name}_{index:02d}" for index in range(len(compiled))]
    sources = [source_of(one, name) for name, one in zip(names, compiled, strict=True)]
    settings = {name: one.name for name, one in zip(names, compiled, strict=True)}
    with progress("analysing") as advance:
        found = partition(sources, TARGET, Options(), workers=workers, progress=advance)
    _print_classes(found, settings, console)
    dropped = len(outcomes) - len(compiled)
    console.print(
        f"{len(compiled)} kernels compiled in {seconds:.1f} s, analysed and compared in {found.seconds:.1f} s"
        + (f"; {dropped} configurations do not fit {TARGET}" if dropped else ""),
        style="dim",
    )
    configurations = {source.launch.file: settings[source.name] for source in sources if source.launch is not None}
    arch = registry.default().arch(TARGET)
    file = Path(inspect.getfile(sample.kernel.fn))
    texts = {file.name: file.read_text(encoding="utf-8")}
    return section(found, sources, arch, Options(), sample.title, configurations, sample.element, texts)


def _print_classes(found: Partition, settings: dict[str, str], console: Console) -> None:
    from rich.table import Table

    table = Table(header_style="bold")
    table.add_column("class", justify="right")
    table.add_column("kernels", justify="right")
    table.add_column("what its configurations share, and what they differ in")
    proved = [names for names in found.classes if names[0] not in found.unknown]
    everywhere = {name for name, values in _values(list(settings.values())).items() if len(values) == 1}
    for number, names in enumerate(proved, 1):
        values = _values([settings[name] for name in names])
        shown = ", ".join(f"{name}={'|'.join(each)}" for name, each in values.items() if name not in everywhere)
        table.add_row(str(number), str(len(names)), shown)
    for name, reason in found.unknown.items():
        table.add_row("?", "1", f"{settings[name]}\nunknown: {reason}")
    console.print(table)


def _values(titles: Sequence[str]) -> dict[str, list[str]]:
    """The distinct values of each setting in some configuration names, numbers in ascending order."""
    values: dict[str, dict[str, None]] = {}
    for title in titles:
        for part in title.split(", "):
            name, _, value = part.partition("=")
            values.setdefault(name, {})[value] = None
    return {name: sorted(each, key=lambda value: (len(value), value)) for name, each in values.items()}


if __name__ == "__main__":
    sys.exit(main())
