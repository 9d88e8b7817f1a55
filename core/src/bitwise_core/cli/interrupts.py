"""Interrupts from the keyboard while a command works: workers end, and temporary files are removed."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def raised_interrupts() -> Iterator[None]:
    """Let an interrupt raise KeyboardInterrupt in the body, once; a further one is handled as it was before.

    So is an interrupt that Python cannot raise, as in the destructor of an object.
    """
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        raise KeyboardInterrupt

    def lost(error: sys.UnraisableHookArgs) -> None:
        if issubclass(error.exc_type, KeyboardInterrupt):
            before(signal.SIGINT, None)
        report(error)

    report, sys.unraisablehook = sys.unraisablehook, lost
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = report
