"""`bitwise cache`: the results that are kept on disk."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from bitwise_core.caching.entry_files import (
    OFF_VARIABLE,
    SIZE_VARIABLE,
    EntryFolder,
    cache_directory,
    folders,
    size_limit,
)
from bitwise_core.cli.common import as_errors, print_answer
from bitwise_core.errors import InputError

command = typer.Typer(
    name="cache",
    help="Show or remove the results that are kept on disk between runs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


def _entries(number: int) -> str:
    return "1 entry" if number == 1 else f"{number} entries"


def _folders() -> dict[str, EntryFolder]:
    """Return the folders of the cache directory by name.  Raises InputError where it cannot be read."""
    try:
        return folders()
    except OSError as error:
        raise InputError(f"{cache_directory()}: cannot be read ({error.strerror})") from None


@command.command()
def info(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show where results are kept, how many there are, and how large they are.

    Readings are results of analyses, and targets what the texts of kernels state; ptxas holds digests
    of machine code and what audits found, and modules those compiled from C.
    """
    with as_errors():
        directory = cache_directory()
        found = {name: each.usage() for name, each in _folders().items()}
        off = os.environ.get(OFF_VARIABLE, "") not in ("", "0")
        if as_json:
            print_answer(
                "cache-info",
                {
                    "directory": None if directory is None else str(directory),
                    "limit": size_limit(),
                    "off": off,
                    "folders": {name: {"entries": each.entries, "size": each.size} for name, each in found.items()},
                },
            )
            return
        typer.echo(f"{directory}" if directory is not None else "no folder: there is no home folder")
        for name, each in found.items():
            typer.echo(f"{name}: {_entries(each.entries)}, {each.size / (1 << 20):.1f} MiB")
        typer.echo(f"limit of each folder: {size_limit() >> 20} MiB ({SIZE_VARIABLE})")
        if off:
            typer.echo(f"readings are not kept: {OFF_VARIABLE} is set")


@command.command()
def clear() -> None:
    """Remove all results that are kept."""
    with as_errors():
        for name, each in _folders().items():
            count = each.usage().entries
            try:
                each.clear()
            except OSError as error:
                raise InputError(f"{each.path}: cannot be removed ({error.strerror})") from None
            typer.echo(f"{name}: {_entries(count)} removed")
