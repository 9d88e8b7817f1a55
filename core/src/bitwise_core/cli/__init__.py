"""The command `bitwise`: its own subcommands, and those that other distributions add."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import sys
from typing import TYPE_CHECKING, Any

from bitwise_core.cli.exit_status import INTERRUPTED, WRONG_INPUT, internal_error, printable

if TYPE_CHECKING:
    from bitwise_core.cli.commands import app

_OBJECTS_BETWEEN_COLLECTIONS = 100_000
"""The imports of a command make this many objects, all of which stay: Python's default collects a hundred times."""


def main() -> None:
    """Run the command line, and exit.

    Whatever goes wrong ends with `WRONG_INPUT` and a sentence: another status would be an answer about kernels.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    # The interpreter collects several times when it ends, which takes as long as a sixth of a short command.
    atexit.register(gc.freeze)
    _prepare_streams()
    try:
        status = _status()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BaseException as error:
        status = WRONG_INPUT
        _complain(internal_error(error))
    try:
        sys.stdout.flush()
    except OSError as error:
        # What is left in the buffer would fail again when the interpreter ends.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if status != WRONG_INPUT and not isinstance(error, BrokenPipeError):  # else the command has said so
            _complain(f"standard output cannot be written ({error.strerror})")
        status = WRONG_INPUT
    sys.exit(status)


def _prepare_streams() -> None:
    """Let every character be printed, also where the encoding of standard output lacks it, and need no standard error.

    Exits with `WRONG_INPUT` if standard output is closed.
    """
    if sys.stderr is None:  # else its sentences would be printed on standard output
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - open until the process ends
    if sys.stdout is None:
        _complain("standard output is closed")
        sys.exit(WRONG_INPUT)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _status() -> int:
    """Run the command; its exit status."""
    from bitwise_core.cli.commands import app
    from bitwise_core.cli.interrupts import raised_interrupts
    from bitwise_core.cli.plugin_commands import add_commands

    add_commands(app)
    try:
        with raised_interrupts():
            app()
    except SystemExit as end:
        if _was_interrupted(end):
            return INTERRUPTED
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        _complain(str(end.code))
        return WRONG_INPUT
    return 0


def _was_interrupted(end: BaseException | None) -> bool:
    """Return whether the exception results from an interrupt of the keyboard."""
    while end is not None:
        if isinstance(end, KeyboardInterrupt):
            return True
        end = end.__cause__ or end.__context__
    return False


def _complain(sentence: str) -> None:
    with contextlib.suppress(OSError):
        print(f"bitwise: {printable(sentence)}", file=sys.stderr)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import the commands when they are used: an interrupt of the import is an interrupt of the command."""
        if name == "app":
            from bitwise_core.cli.commands import app

            return app
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["app", "main"]
