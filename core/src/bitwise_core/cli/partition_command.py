"""`bitwise partition`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType

import typer

from bitwise_core.checker.kernel_files import (
    check_folder,
    extensions,
    read_folder,
    read_text,
    resolve_targets,
    target_of,
    targets_of,
)
from bitwise_core.checker.partition import Partition
from bitwise_core.checker.partition import partition as partition_of
from bitwise_core.checker.sources import Options
from bitwise_core.checker.wording import COMMON_NOTES, counted
from bitwise_core.cli.answered_questions import ReaderSettings, answered
from bitwise_core.cli.common import print_answer, print_assumptions, print_list
from bitwise_core.cli.exit_status import printable
from bitwise_core.errors import InputError
from bitwise_core.execution.assumptions import conditions_of
from bitwise_core.output_files import write_text
from bitwise_core.plugins import registry
from bitwise_core.report.expected_classes import ExpectedClasses
from bitwise_core.report.findings import Finding, findings, junit, sarif
from bitwise_core.report.shared_settings import class_names


@dataclass(frozen=True, slots=True)
class Outputs:
    """What is written besides the text: JSON in its place, an HTML page, a SARIF log, a JUnit report.

    `sources` are files of the kernels' source, which the page shows.  `expected` is the file of the expected classes,
    which is compared, or written with `update`.
    """

    as_json: bool = False
    html: Path | None = None
    sarif: Path | None = None
    junit: Path | None = None
    expected: Path | None = None
    update: bool = False
    sources: tuple[Path, ...] = ()


UNEXPECTED = 1
"""The exit status if the classes are not the expected ones."""


def run(path: Path, target: str | None, options: Options, readers: ReaderSettings, outputs: Outputs) -> int:
    """Partition a folder and print the classes; return the exit status.  Raises InputError."""
    if outputs.update and outputs.expected is None:
        raise InputError("--update-expected: name the file of the expected classes with --expected")
    if outputs.sources and outputs.html is None:
        raise InputError("--source: the page of --html shows sources: give that option too")
    expected = None if outputs.expected is None or outputs.update else ExpectedClasses.read(outputs.expected)
    check_folder(path)
    texts = source_texts(path, outputs.sources) if outputs.html is not None else {}
    plugins = registry.default()
    folder = read_folder(path, extensions(plugins))
    if not folder.has_manifest:
        options = replace(options, every_launch=True)
    arch, sources = resolve_targets(folder.sources, plugins, target, readers.cache)
    found = answered(partition_of, sources, arch.name, options, readers)
    listed = findings(found)
    differences: tuple[Finding, ...] = ()
    if expected is not None:
        differences = tuple(expected.differences(found))
        listed = (*differences, *(each for each in listed if each.rule == "unknown"))
    if outputs.update and outputs.expected is not None:
        ExpectedClasses.of(found).write(outputs.expected)
    if outputs.sarif is not None:
        write_report("--sarif", outputs.sarif, sarif(listed, path.as_posix()))
    if outputs.junit is not None:
        write_report("--junit", outputs.junit, junit(listed, [each.name for each in sources], path.as_posix()))
    if outputs.html is not None:
        title = path.resolve().name
        from bitwise_core.report.page import render
        from bitwise_core.report.section import section

        shown = section(found, sources, plugins.arch(arch.name), options, title, folder.configurations, texts=texts)
        write_report("--html", outputs.html, render(f"bitwise: {title}", [shown]))
    if outputs.as_json:
        content = {**found.as_json(), "conditions": conditions_of(options.assume)}
        content["shared"] = class_names(found.classes, folder.configurations)
        content["target"] = ", ".join(targets_of(sources, arch))
        if expected is not None:
            content["unexpected"] = [asdict(each) for each in differences]
        print_answer("partition", content, [target_of(each, arch, plugins) for each in sources])
    else:
        show(found, options, folder.configurations)
        for each in differences:
            typer.echo(f"{each.level}: {each.message}")
        if expected is not None and not differences:
            typer.echo("the classes are the expected ones")
    return UNEXPECTED if any(each.level == "error" for each in differences) else 0


SOURCE_SUFFIXES = (".py", ".cu", ".cuh", ".cpp", ".cc", ".c", ".h", ".hpp")
"""Files of a folder of kernels that may be their source."""
MAXIMUM_SOURCES = 100


def source_texts(folder: Path, named: Sequence[Path]) -> dict[str, str]:
    """Return the texts of the named files, and of the sources in a folder, by their names.  Raises InputError.

    A file of the folder that is no text is left out.
    """
    found = {}
    for path in [each for each in sorted(folder.iterdir()) if each.suffix in SOURCE_SUFFIXES][:MAXIMUM_SOURCES]:
        with suppress(InputError):
            found[path.name] = read_text(path, "a source")
    return {**found, **{path.name: read_text(path, "a source") for path in named}}


def write_report(option: str, path: Path, page: str) -> None:
    """Write a page to the file of an option.  Raises InputError."""
    try:
        write_text(path, page)
    except OSError as error:
        raise InputError(f"{option} {path}: cannot be written ({error.strerror})") from None


_NONE: Mapping[str, str] = MappingProxyType({})


def show(found: Partition, options: Options, configurations: Mapping[str, str] = _NONE) -> None:
    """Print the classes, the Unknown kernels with their reasons, and the assumptions of the proofs.

    A class is named by what its configurations share.
    """
    named = zip(found.classes, class_names(found.classes, configurations), strict=True)
    proved = [(names, shared) for names, shared in named if names[0] not in found.unknown]
    for number, (names, shared) in enumerate(proved, 1):
        what = f": {printable(shared)}" if shared else ""
        typer.secho(f"class {number}, {counted(len(names), 'kernel')}{what}", bold=True)
        print_list(names)
    if found.unknown:
        typer.secho(f"unknown, {counted(len(found.unknown), 'kernel')}", bold=True)
        for name, reason in found.unknown.items():
            typer.echo(f"  {printable(f'{name}: {reason}')}")
    kernels = sum(map(len, found.classes))
    scope = "every launch" if options.every_launch else "the given launch"
    typer.echo(
        f"{counted(kernels, 'kernel')}, {counted(len(proved), 'class')}, {len(found.unknown)} unknown, for {scope}, in "
        f"{found.seconds:.1f} s. Kernels of one class are proved to return the same bits."
    )
    print_assumptions(conditions_of(options.assume), (*found.notes, *COMMON_NOTES))
