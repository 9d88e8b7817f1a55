"""Helpers of all commands: sources from arguments, errors as lines and exit statuses, JSON on standard output."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bitwise_core.cli.exit_status import INTERRUPTED, WRONG_INPUT, internal_error, printable
from bitwise_core.errors import BitwiseError, InputError

if TYPE_CHECKING:
    from bitwise_core.checker.readings import ReadingCache
    from bitwise_core.checker.sources import Options, Source
    from bitwise_core.execution.architecture import Arch
    from bitwise_core.plugins.references import ArchReference

SCHEMA = 1
"""The version of the forms of answers in JSON.  A field that is added does not change it."""

UNKNOWN = 3
"""The exit status of an Unknown result: a kernel cannot be analysed or run, or a descriptor is not determined."""


@contextmanager
def as_errors() -> Iterator[None]:
    """Print errors of the input and of the installed plugins as lines on standard error; exit with `WRONG_INPUT`."""
    try:
        yield
    except InputError as error:
        _fail(error.sentences or [internal_error(error)])
    except BitwiseError as error:
        _fail([str(error)])
    except BrokenPipeError:
        raise typer.Exit(WRONG_INPUT) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # Rich ends the process where its output is closed
            raise typer.Exit(WRONG_INPUT) from None
        _fail([f"a plugin ended the command ({end.code!r}); the plugin must raise an error instead"])
    except BaseException as error:
        # Left to Python, this would end with the status that says that two kernels differ.
        _fail([internal_error(error)])


def _fail(sentences: Iterable[str]) -> None:
    for sentence in dict.fromkeys(map(printable, sentences)):
        typer.echo(f"bitwise: {sentence}", err=True)
    raise typer.Exit(WRONG_INPUT)


@contextmanager
def kept_readings(wanted: bool) -> Iterator[ReadingCache | None]:
    """Provide the cache of readings, None where it is off, and print a line where it could not be written."""
    from bitwise_core.checker.readings import CacheWarning, open_cache

    cache = open_cache(wanted)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CacheWarning)
            yield cache
    finally:
        if cache is not None and cache.fault is not None:
            typer.echo(f"bitwise: {cache.fault}", err=True)


def assumptions(names: Iterable[str]) -> frozenset[str]:
    """Return the conditions of `--assume`, which may be separated by commas.  Raises typer.Exit for an unknown one, and
    for two that exclude each other."""
    from bitwise_core.execution.assumptions import ASSUMPTIONS, contradiction_in

    found = frozenset(part.strip() for name in names for part in name.split(",") if part.strip())
    unknown = sorted(found - set(ASSUMPTIONS))
    if unknown:
        _fail([f"--assume: the condition {unknown[0]!r} is unknown; known conditions: {', '.join(ASSUMPTIONS)}"])
    contradiction = contradiction_in(found)
    if contradiction is not None:
        _fail([f"--assume: {contradiction}"])
    return found


def versions() -> dict[str, str]:
    """Return the versions of bitwise-core, first, and of the installed distributions that extend it."""
    from importlib.metadata import distribution

    from bitwise_core.cli.plugin_commands import GROUP
    from bitwise_core.installed_distributions import entry_points, name_of, version_of
    from bitwise_core.known_distributions import ENTRY_POINT_GROUP

    found = (each.dist for group in (ENTRY_POINT_GROUP, GROUP) for each in entry_points(group=group))
    others = {name_of(each): version_of(each) for each in found if each is not None}
    return {"bitwise-core": version_of(distribution("bitwise-core"))} | dict(sorted(others.items()))


def print_answer(command: str, content: Mapping[str, object], arches: Iterable[Arch | ArchReference] = ()) -> None:
    """Print the answer of a command as JSON, with the version of its form and what it was made by.

    These are the versions of the distributions, and the tools on which the answers about `arches` may depend.
    """
    # Many kernels have one architecture, and architectures of one vendor the same tools.
    finders = dict.fromkeys(arch.audit_tools for arch in arches if arch.audit_tools is not None)
    tools = [tool for find in finders for tool in find()]
    made = {"schema": f"{command}/{SCHEMA}", "versions": versions(), "tools": list(dict.fromkeys(tools))}
    print_json({**made, **content})


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, whose columns are two spaces apart.  No cell is shortened."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


LINE = 100
"""The characters of a line of names."""


def print_list(names: Iterable[str]) -> None:
    """Print names, separated by commas, in indented lines; no name is divided."""
    lines: list[str] = []
    for name in map(printable, names):
        if lines and len(lines[-1]) + len(name) < LINE:
            lines[-1] += f", {name}"
        else:
            lines.append(name)
    for number, line in enumerate(lines, 1):
        typer.echo(f"  {line}{',' if number < len(lines) else ''}")


def print_assumptions(conditions: Iterable[str], notes: Iterable[str]) -> None:
    """Print the conditions and the notes of a verdict."""
    from bitwise_core.execution.assumptions import CONDITIONS

    for condition in conditions:
        typer.echo(f"condition: {CONDITIONS[condition]}")
    for note in notes:
        typer.secho(f"note: {printable(note)}", dim=True)


def print_json(content: object) -> None:
    """Print JSON in ASCII on standard output, whose encoding may have no other characters."""
    typer.echo(json.dumps(content, indent=1))


def kernels(
    names: Iterable[str], manifest: Path | None, entry: str | None, target: str | None, options: Options,
    cache: ReadingCache | None = None,
) -> tuple[list[Source], ArchReference, Options]:  # fmt: skip
    """Return the kernels that a command compares or shows, their architecture, and the options for them.

    A kernel of another architecture has it as its target.  Where no kernel has a launch, the analysis is for every
    launch.  `cache` recalls what the texts state.  Raises InputError.
    """
    from bitwise_core.checker.kernel_files import read_kernel, resolve_targets
    from bitwise_core.plugins import registry

    sources = [read_kernel(name, manifest, entry) for name in names]
    arch, targets = resolve_targets(sources, registry.default(), target, cache)
    sources = list(targets)
    without = [source for source in sources if source.launch is None]
    if without and not options.every_launch:
        if len(without) < len(sources):
            raise InputError(
                f"{without[0].name}: has no launch and the other kernel has one; give --manifest or --every-launch"
            )
        options = replace(options, every_launch=True)
    return sources, arch, options
