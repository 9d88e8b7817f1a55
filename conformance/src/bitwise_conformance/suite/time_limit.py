"""A limit on the run time of a block of code."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TimeLimitExceeded(BaseException):
    """The time limit was exceeded.  Not an Exception, so that handlers of failures do not catch it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeLimitExceeded in the body after some seconds.  Works in the main thread of a process only.

    Python discards exceptions raised in callbacks of the garbage collector, so the alarm there is repeated.
    """

    def ring(number: int, frame: FrameType | None) -> None:
        if not _in_callback(frame):
            raise TimeLimitExceeded

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.05)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _in_callback(frame: FrameType | None) -> bool:
    codes = [getattr(callback, "__code__", None) for callback in gc.callbacks]
    while frame is not None:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False
