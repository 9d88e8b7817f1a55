"""Exit statuses that are no answers, and the sentences that go with them."""

from __future__ import annotations

import os
import traceback

WRONG_INPUT = 2
"""The exit status of an error of any kind."""

INTERRUPTED = 130

TRACEBACK_VARIABLE = "BITWISE_TRACEBACK"
"""The environment variable that makes errors of the package print their traceback."""


def internal_error(error: BaseException) -> str:
    """Return the sentence about an error of the package or of a plugin; print its traceback where that is wanted."""
    if os.environ.get(TRACEBACK_VARIABLE):
        traceback.print_exception(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    return (
        f"internal error ({type(error).__name__}: {error}); please report it, "
        f"with the traceback that {TRACEBACK_VARIABLE}=1 prints"
    )


def printable(text: str) -> str:
    """Return a text on one line in which control characters, such as escapes of terminals, are numbers."""
    words = " ".join(text.split("\n"))
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in words)
