"""The program `bitwise`.  An interrupt from the keyboard ends it at any moment, with status 130 and no traceback."""

from __future__ import annotations

# What `signal` is made of, whose own import takes a fifth of the time in which Python starts.
import _signal  # type: ignore[import-not-found]
import os


def _end(*_: object) -> None:
    os._exit(128 + _signal.SIGINT)


# While modules are imported there is nothing to clean up, and an exception may be lost in what an import calls.
if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _end)


def main() -> None:
    """Run the command line, and exit."""
    from bitwise_core.cli import main

    main()
