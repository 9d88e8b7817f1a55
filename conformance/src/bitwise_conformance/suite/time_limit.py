"""A limit on the run time of a block of code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TimeLimitExceeded(BaseException):
    """The time limit was exceeded.  Not an Exception, so that handlers of failures do not catch it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeLimitExceeded in the body after some seconds.  Works in the main thread of a process only.

    Python discards exceptions raised in finalizers, in callbacks of weak references and in callbacks of the garbage
    collector.  The alarm is therefore repeated until the body ends, and a discarded TimeLimitExceeded is not reported.
    """

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeLimitExceeded

    def report(discarded: sys.UnraisableHookArgs) -> None:
        if discarded.exc_type is not TimeLimitExceeded:
            report_before(discarded)

    report_before = sys.unraisablehook
    before = signal.signal(signal.SIGALRM, ring)
    sys.unraisablehook = report
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.05)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = report_before
