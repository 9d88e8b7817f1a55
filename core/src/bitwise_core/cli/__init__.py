"""The command `bitwise`: its own subcommands, and those that other distributions add."""

from __future__ import annotations

from bitwise_core.cli.commands import app
from bitwise_core.cli.plugin_commands import add_commands


def main() -> None:
    """Run the command line."""
    add_commands(app)
    app()


__all__ = ["app", "main"]
