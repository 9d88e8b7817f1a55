"""Pauses Python's cyclic garbage collector during analyses."""

from __future__ import annotations

import gc
import resource
from threading import Lock
from types import TracebackType

ANALYSES_BETWEEN_COLLECTIONS = 256
"""After how many calls of `keep` all generations are collected, which takes a tenth of a second."""

GROWTH_BETWEEN_COLLECTIONS = 64 << 20
"""After how many bytes of growth of the process they are: cycles of a large kernel hold its arrays."""


def resident_bytes() -> int:
    """Return how many bytes of memory the process has, 0 where the system does not say so."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0


class CollectorPause:
    """Pauses the collector from the start of the first analysis of a process to the end of the last one.

    An analysis makes many objects and almost none in cycles, so that collections only cost time (6 % of the median
    analysis).  The collector belongs to the process; the count of running analyses therefore does too, and is guarded
    by a lock.  The collector is enabled again only if it was enabled at the start of the first analysis.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._running = 0
        self._was_enabled = False
        self._kept = 0
        """How often `keep` was called since all generations were collected."""
        self._size_after_collection = 0
        """The bytes of memory that the process had then, 0 before the first call."""
        self._others_froze = False
        """Whether the application was found to have frozen objects since then."""

    def __enter__(self) -> None:
        with self._lock:
            if self._running == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._running += 1

    def keep(self) -> None:
        """Let the objects made during the pause join the oldest generation, before it ends.

        They are then those that the analysis returns, and no cycles of any size.  The collector would look at all of
        them when it is enabled, which takes 3 % of the median analysis.  Objects that the application froze stay
        frozen: nothing is kept there.
        """
        with self._lock:
            self._kept += 1
            size = resident_bytes()
            if not self._size_after_collection:
                self._size_after_collection = size
            grown = size - self._size_after_collection > GROWTH_BETWEEN_COLLECTIONS
            if grown or self._kept == ANALYSES_BETWEEN_COLLECTIONS:
                self._kept, self._others_froze = 0, False
                gc.collect()
                self._size_after_collection = resident_bytes()
            elif not self._others_froze:
                # Python counts frozen objects one by one, which may take longer than an analysis.
                self._others_froze = gc.get_freeze_count() > 0
                if not self._others_froze:
                    gc.freeze()
                    gc.unfreeze()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            self._running -= 1
            if self._running == 0 and self._was_enabled:
                gc.enable()


PROCESS_COLLECTOR = CollectorPause()
