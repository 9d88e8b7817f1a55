"""A limit on the time that a piece of work may take."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class OutOfTime(BaseException):
    """A reading took longer than it was given.  No failure of the reading, so no Exception."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises OutOfTime in the body after so many seconds.  Works in a process's main thread.

    Python drops what is raised in a callback of the garbage collector, so there the alarm waits for the next tick.
    """

    def ring(number: int, frame: FrameType | None) -> None:
        if not _in_callback(frame):
            raise OutOfTime

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
