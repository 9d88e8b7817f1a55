"""The command `bitwise`: its own subcommands, and those that other distributions add."""

from __future__ import annotations

import sys
import traceback

from bitwise_core.cli.commands import app
from bitwise_core.cli.common import WRONG_INPUT
from bitwise_core.cli.plugin_commands import add_commands


def main() -> None:
    """Run the command line."""
    try:
        add_commands(app)
        app()
    except Exception as error:
        traceback.print_exc()
        print(f"bitwise: {error}", file=sys.stderr)
        sys.exit(WRONG_INPUT)


__all__ = ["app", "main"]
