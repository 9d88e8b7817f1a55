"""`bitwise determinism`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bitwise_core.checker.analysis import Options, Source
from bitwise_core.checker.determinism import Determinism, DeterminismReport
from bitwise_core.checker.determinism import determinism as determinism_of
from bitwise_core.checker.kernel_files import (
    arch_of,
    extensions,
    read_folder,
    read_kernel,
    resolve_targets,
    targets_of,
)
from bitwise_core.checker.verdicts import COMMON_NOTES
from bitwise_core.cli.common import UNKNOWN, print_answer
from bitwise_core.cli.partition_command import ReaderSettings, answered
from bitwise_core.errors import InputError
from bitwise_core.plugins import registry

NONDETERMINISTIC = 1
"""The exit status if a kernel is proved to be nondeterministic."""


def run(paths: Sequence[Path], target: str | None, options: Options, readers: ReaderSettings, as_json: bool) -> int:
    """Print whether the kernels of folders and files are deterministic.  Return the status.  Raises InputError."""
    plugins = registry.default()
    sources: list[Source] = []
    for path in paths:
        if path.is_dir():
            sources += read_folder(path, extensions(plugins)).sources
        else:
            sources.append(read_kernel(str(path)))
    without = [source.name for source in sources if source.launch is None]
    if without and len(without) < len(sources) and not options.every_launch:
        raise InputError(f"{without[0]}: has no launch and other kernels have one; give --every-launch")
    if without:
        options = replace(options, every_launch=True)
    arch, resolved = resolve_targets(sources, plugins, target)
    found = answered(determinism_of, resolved, arch.name, options, readers)
    if as_json:
        content = {**found.as_json(), "conditions": sorted(options.assume)}
        arches = [arch_of(each, arch, plugins) for each in resolved]
        print_answer("determinism", {**content, "target": ", ".join(targets_of(resolved, arch))}, arches)
    else:
        show(found, options, Console(highlight=False))
    if found.count(Determinism.NONDETERMINISTIC):
        return NONDETERMINISTIC
    return UNKNOWN if found.count(Determinism.UNKNOWN) else 0


def show(found: DeterminismReport, options: Options, console: Console) -> None:
    """Print the verdict on each kernel with its places, and the assumptions of the proofs."""
    table = Table(header_style="bold", show_lines=True)
    table.add_column("kernel", overflow="fold")
    table.add_column("result")
    table.add_column("why", overflow="fold")
    for each in found.kernels:
        why = [each.reason, *(str(place) for place in each.places)]
        table.add_row(escape(each.name), each.outcome.value, escape("\n".join(why)))
    console.print(table)
    console.print(f"{found.sentence()}, in {found.seconds:.1f} s")
    for condition in sorted(options.assume):
        console.print(f"condition: all values are {condition}", markup=False)
    for note in (*found.notes, *COMMON_NOTES):
        console.print(f"note: {note}", style="dim", markup=False)
