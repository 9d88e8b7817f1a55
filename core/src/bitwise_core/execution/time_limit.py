"""A limit on the wall-clock time in which one kernel is read.

The limit is checked, not enforced by a signal: the steps of the executor and every other loop whose length depends on
the kernel call `check_time`.  It therefore works in every thread and leaves nothing behind.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class TimeLimitExceeded(BaseException):
    """The time limit passed.  Not an Exception, so that no handler of failures catches it.

    `line` is the line of the text at which the reading was, None where it is unknown.
    """

    def __init__(self, seconds: float, line: int | None = None) -> None:
        at = "" if line is None else f" at line {line}"
        super().__init__(
            f"the time limit of {seconds:g} s for one kernel passed{at}; the option --time-limit, or the argument "
            "time_limit, sets another one in seconds, and 0 sets none"
        )
        self.seconds, self.line = seconds, line


_LIMIT: ContextVar[tuple[float, float] | None] = ContextVar("time limit", default=None)
"""The time at which the reading of this context ends, on the monotonic clock, and the limit in seconds."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Limit the body to some seconds of wall-clock time, None: by an outer limit only.

    Threads that the body starts have the limit only in a copy of this context (`contextvars.copy_context`).
    """
    outer, now = _LIMIT.get(), time.monotonic()
    own = None if seconds is None else (now + seconds, seconds)
    limits = [each for each in (outer, own) if each is not None]
    token = _LIMIT.set(min(limits) if limits else None)
    try:
        yield
    finally:
        _LIMIT.reset(token)


def check_time(line: int | None = None) -> None:
    """Raise TimeLimitExceeded if the time of this context has passed; `line` is the present line of the text."""
    limit = _LIMIT.get()
    if limit is not None and time.monotonic() > limit[0]:
        raise TimeLimitExceeded(limit[1], line)


def remaining_seconds() -> float | None:
    """The seconds that are left in this context, at least 0; None without a limit."""
    limit = _LIMIT.get()
    return None if limit is None else max(limit[0] - time.monotonic(), 0.0)
