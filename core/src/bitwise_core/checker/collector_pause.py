"""Pauses Python's cyclic garbage collector during analyses."""

from __future__ import annotations

import gc
from threading import Lock
from types import TracebackType

PAUSES_BETWEEN_COLLECTIONS = 4096
"""After how many pauses all generations are collected, which takes a tenth of a second."""


class CollectorPause:
    """Pauses the collector from the start of the first analysis of a process to the end of the last one.

    An analysis makes many objects and almost none in cycles, so that collections only cost time (6 % of the median
    analysis).  The collector belongs to the process; the count of running analyses therefore does too, and is guarded
    by a lock.  The collector is enabled again only if it was enabled at the start of the first analysis.

    The objects that an analysis leaves are then the program that it returns.  They join the oldest generation at once:
    the collector would look at all of them when it is enabled, which takes 3 % of the median analysis.  After an error,
    whose traceback may be in a cycle with the state of the run, it does.  All generations are collected at times.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._running = 0
        self._was_enabled = False
        self._since_collection = 0
        """The number of pauses since all generations were collected."""

    def __enter__(self) -> None:
        with self._lock:
            if self._running == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._running += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            self._running -= 1
            if self._running == 0 and self._was_enabled:
                self._since_collection += 1
                if self._since_collection == PAUSES_BETWEEN_COLLECTIONS:
                    self._since_collection = 0
                    gc.collect()
                elif kind is None and gc.get_freeze_count() == 0:
                    gc.freeze()
                    gc.unfreeze()
                gc.enable()


PROCESS_COLLECTOR = CollectorPause()
