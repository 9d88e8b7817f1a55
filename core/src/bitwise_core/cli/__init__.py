"""The command line: `bitwise partition | diff | tree | plugins`."""

from __future__ import annotations

from bitwise_core.cli.application import app


def main() -> None:
    """Run the command line."""
    app()


__all__ = ["app", "main"]
