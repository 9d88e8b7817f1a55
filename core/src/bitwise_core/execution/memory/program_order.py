"""The order of the accesses of a warp to global memory, where each comes after all earlier ones in the text."""

from __future__ import annotations

from bitwise_core.execution.domains.domain import Unsupported


class ProgramOrder:
    """Numbers the accesses of a run.  The numbers take the place of epochs: the warp of a block passes from one to the
    next with each access, as by a barrier.
    """

    def __init__(self) -> None:
        self._made = 0

    def next(self, line: int, *, together: bool) -> int:
        """Return the number of an access.  Raises Unsupported if the lanes of a warp may not be `together`."""
        if not together:
            raise Unsupported("lanes that may have parted access global memory", line)
        self._made += 1
        return self._made
