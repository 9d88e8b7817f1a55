"""`bitwise determinism`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer

from bitwise_core.checker.determinism import Determinism, DeterminismReport
from bitwise_core.checker.determinism import determinism as determinism_of
from bitwise_core.checker.kernel_files import (
    extensions,
    read_folder,
    read_kernel,
    resolve_targets,
    target_of,
    targets_of,
)
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.wording import COMMON_NOTES
from bitwise_core.cli.answered_questions import ReaderSettings, answered
from bitwise_core.cli.common import UNKNOWN, print_answer, print_assumptions
from bitwise_core.cli.exit_status import printable
from bitwise_core.errors import InputError
from bitwise_core.execution.assumptions import conditions_of
from bitwise_core.plugins import registry

NONDETERMINISTIC = 1
"""The exit status if a kernel is proved to be nondeterministic."""


def run(paths: Sequence[Path], target: str | None, options: Options, readers: ReaderSettings, as_json: bool) -> int:
    """Print whether the kernels of folders and files are deterministic.  Return the status.  Raises InputError."""
    sources: list[Source] = []
    for path in paths:
        if os.path.isdir(path):  # False where a folder above it cannot be read
            sources += read_folder(path, extensions(registry.default())).sources
        else:
            sources.append(read_kernel(str(path)))
    without = [source.name for source in sources if source.launch is None]
    if without and len(without) < len(sources) and not options.every_launch:
        raise InputError(f"{without[0]}: has no launch and other kernels have one; give --every-launch")
    if without:
        options = replace(options, every_launch=True)
    plugins = registry.default()
    arch, resolved = resolve_targets(sources, plugins, target, readers.cache)
    found = answered(determinism_of, resolved, arch.name, options, readers)
    if as_json:
        content = {**found.as_json(), "conditions": conditions_of(options.assume)}
        arches = [target_of(each, arch, plugins) for each in resolved]
        print_answer("determinism", {**content, "target": ", ".join(targets_of(resolved, arch))}, arches)
    else:
        show(found, options)
    if found.count(Determinism.NONDETERMINISTIC):
        return NONDETERMINISTIC
    return UNKNOWN if found.count(Determinism.UNKNOWN) else 0


def show(found: DeterminismReport, options: Options) -> None:
    """Print the verdict on each kernel with its places, and the assumptions of the proofs."""
    for each in found.kernels:
        typer.secho(f"{printable(each.name)}: {each.outcome.value}", bold=True)
        for line in each.lines():
            typer.echo(f"  {printable(line)}")
    typer.echo(f"{found.sentence()}, in {found.seconds:.1f} s")
    print_assumptions(conditions_of(options.assume), (*found.notes, *COMMON_NOTES))
