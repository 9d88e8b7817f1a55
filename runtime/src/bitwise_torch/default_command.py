"""A group of commands of which one may be left out."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class WritesByDefault(TyperGroup):
    """A group with the default command `write`: an argument that names no command is an argument of `write`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `write` before arguments that begin with no command."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["write", *args]
        rest: list[str] = super().parse_args(ctx, args)
        return rest
