"""Commands that other distributions add: Typer applications of the entry-point group `bitwise.commands`."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import typer

GROUP = "bitwise.commands"


def add_commands(app: typer.Typer, found: tuple[EntryPoint, ...] | None = None) -> None:
    """Adds every application of the group to `app`, under its entry point's name, in order of the names.

    One that cannot be loaded says so when it is called, and stops no other command.  A name that is already taken,
    by a command of `app` or by another distribution, keeps its first meaning.
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
        else:
            app.add_typer(loaded, name=entry.name)


def _load(entry: EntryPoint) -> typer.Typer | str:
    """The application, or why there is none."""
    try:
        loaded = entry.load()
    except Exception as error:  # whatever a stranger's module raises is that distribution's failure
        return f"{type(error).__name__}: {error}"
    return loaded if isinstance(loaded, typer.Typer) else f"{entry.value} is no Typer application"


def _add_broken(app: typer.Typer, entry: EntryPoint, reason: str) -> None:
    """Adds a command that says why the real one is not there."""
    distribution = entry.dist.name if entry.dist else "an unknown distribution"

    @app.command(
        name=entry.name,
        help=f"Could not be loaded from {distribution}.",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    def broken() -> None:
        typer.echo(f"bitwise: the command {entry.name} of {distribution} cannot be loaded: {reason}", err=True)
        raise typer.Exit(2)
