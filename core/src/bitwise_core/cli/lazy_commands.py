"""Commands whose modules are imported when they are called, so that `bitwise --help` imports none of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from bitwise_core.known_distributions import advice
from bitwise_core.plugins.references import Deferred


def help_option(option: Any) -> Any:
    """Return the option `--help` of a command with a default.

    Without one, Typer converts what is not given to a boolean, for which it imports a third of pydantic.
    """
    if option is not None:
        option.default = False
    return option


class Command(TyperCommand):
    """A command whose `--help` imports little."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option."""
        return help_option(super().get_help_option(ctx))


class Commands(TyperGroup):
    """The subcommands of `bitwise`, which name the distribution of a command that is not installed."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option `--help`."""
        return help_option(super().get_help_option(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a subcommand, None where there is none; fails where a known distribution has it."""
        found = super().get_command(ctx, cmd_name)
        if found is None and (missing := advice("commands", cmd_name)):
            ctx.fail(f"No installed plugin adds the command {cmd_name!r}: {missing}.")
        return found


@dataclass(frozen=True, slots=True)
class CommandReference:
    """A command that another module defines.

    `target` is "MODULE:NAME" of a Typer application or of a function with a command's parameters; `summary` is its
    line in the list of commands.
    """

    target: str
    summary: str

    def load(self) -> Any:
        """Import the module, and return what the name stands for."""
        return Deferred(self.target).load()


def add_lazy_command(app: typer.Typer, name: str, summary: str, load: Callable[[], Any]) -> None:
    """Add a command; `load` returns its Typer application, or its function, and is called when the command is."""

    class Lazy(TyperCommand):
        """Passes its arguments, unread, to the command that is loaded."""

        loader: ClassVar[Callable[[], Any]] = staticmethod(load)

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            ctx.args = list(args)
            return []

        def invoke(self, ctx: Any) -> Any:
            command = loaded(self, name)
            with command.make_context(ctx.info_name, ctx.args, parent=ctx.parent) as inner:
                return command.invoke(inner)

    @app.command(name=name, help=summary, cls=Lazy, add_help_option=False)
    def lazy() -> None:
        """Stand for the command that is loaded."""


def loaded(command: Any, name: str) -> Any:
    """Return the command that a command of this module stands for, and any other command itself."""
    loader = getattr(command, "loader", None)
    return command if loader is None else typer.main.get_command(_application(loader(), name))


def _application(found: Any, name: str) -> typer.Typer:
    """Return a Typer application with one command where a function was loaded."""
    if isinstance(found, typer.Typer):
        return found
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    required = any(each.default is Parameter.empty for each in signature(found).parameters.values())
    app.command(name=name, cls=Command, no_args_is_help=required)(found)
    return app
