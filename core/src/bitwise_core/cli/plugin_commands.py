"""Commands that other distributions add, in the entry-point group `bitwise.commands`.

An entry point is a CommandReference, or a Typer application, which is imported whenever `bitwise` runs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from bitwise_core.cli.exit_status import printable
from bitwise_core.cli.lazy_commands import CommandReference, add_lazy_command
from bitwise_core.installed_distributions import entry_points, name_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "bitwise.commands"


def add_commands(app: typer.Typer, found: tuple[EntryPoint, ...] | None = None) -> None:
    """Add every application of the group to `app`, under its entry point's name, in order of the names.

    `found` are the entry points, by default the installed ones.  A command that cannot be loaded reports the reason
    when it is called and does not affect other commands.  An entry point is ignored where a command of `app` or of
    another distribution already has its name.
    """
    taken = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    taken |= {group.name for group in app.registered_groups if group.name}
    for entry in sorted(entry_points(group=GROUP) if found is None else found, key=lambda each: each.name):
        if entry.name in taken:
            continue
        taken.add(entry.name)
        loaded = _load(entry)
        if isinstance(loaded, str):
            _add_broken(app, entry, loaded)
        elif isinstance(loaded, CommandReference):
            add_lazy_command(app, entry.name, loaded.summary, partial(_loaded, entry, loaded))
        else:
            app.add_typer(loaded, name=entry.name)


def _loaded(entry: EntryPoint, reference: CommandReference) -> Any:
    """Return what a reference stands for.  Exits with a sentence where it cannot be loaded."""
    try:
        return reference.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a third-party module may raise anything
        _report(entry, f"{type(error).__name__}: {error}")


def _load(entry: EntryPoint) -> typer.Typer | CommandReference | str:
    """Return the application or the reference, or the reason why it cannot be loaded."""
    try:
        loaded = entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a third-party module may raise anything
        return f"{type(error).__name__}: {error}"
    known = isinstance(loaded, typer.Typer | CommandReference)
    return loaded if known else f"{entry.value} is not a Typer application"


def _add_broken(app: typer.Typer, entry: EntryPoint, reason: str) -> None:
    """Add a command that reports why the entry point's command cannot be loaded."""

    @app.command(
        name=entry.name,
        help=f"Could not be loaded from {_distribution(entry)}.",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    def broken() -> None:
        _report(entry, reason)


def _report(entry: EntryPoint, reason: str) -> NoReturn:
    sentence = f"the command {entry.name} of {_distribution(entry)} cannot be loaded: {reason}"
    typer.echo(f"bitwise: {printable(sentence)}", err=True)
    raise typer.Exit(2)


def _distribution(entry: EntryPoint) -> str:
    return name_of(entry.dist) if entry.dist else "an unknown distribution"
