"""Exit statuses that are no answers, and the sentences that go with them."""

from __future__ import annotations

import errno
import os

from bitwise_core.visible_text import visible

WRONG_INPUT = 2
"""The exit status of an error of any kind."""

INTERRUPTED = 130

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of writing to a full disk."""

MAXIMUM_SENTENCE = 4000
"""A longer sentence repeats what the user wrote, and its middle is left out."""

TRACEBACK_VARIABLE = "BITWISE_TRACEBACK"
"""The environment variable that makes errors of the package print their traceback."""


def internal_error(error: BaseException) -> str:
    """Return the sentence about an error of the package or of a plugin; print its traceback where that is wanted."""
    if os.environ.get(TRACEBACK_VARIABLE):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return f"standard output or a file cannot be written ({error.strerror}): make room on the disk"
    return (
        f"internal error ({type(error).__name__}: {error}); please report it, "
        f"with the traceback that {TRACEBACK_VARIABLE}=1 prints"
    )


def printable(text: str) -> str:
    """Return a text on one line of at most `MAXIMUM_SENTENCE` characters.

    Control characters, such as escapes of terminals, are numbers.
    """
    words = " ".join(text.split("\n"))
    if len(words) > MAXIMUM_SENTENCE:
        words = f"{words[: MAXIMUM_SENTENCE // 2]} ... {words[-MAXIMUM_SENTENCE // 2 :]}"
    return visible(words)
