"""The race detectors of a batch of blocks: one for each history of accesses and barriers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.alternatives import Ways
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.races.proxy_fences import VisibleCopies
from bitwise_core.execution.races.race_detector import RaceDetector
from bitwise_core.execution.values.symbolic_vector import Array

MAXIMUM_ALTERNATIVES = 12
"""The largest number of histories of a batch in which data decides between several of one block."""

MAXIMUM_BYTES = 512 << 20
"""The largest size of the detectors of a batch."""

_FEW_HISTORIES = 3
"""Up to this number, histories of different blocks stay apart at a barrier, where comparing them costs more."""

_TOO_MANY_HISTORIES = "data decides between more histories of shared memory than are tracked"
_TOO_MANY_BYTES = "the blocks of the launch diverge too often to detect the races of each"


@dataclass(slots=True)
class History:
    """Blocks (a boolean array) that have made the same accesses and passed the same barriers so far."""

    blocks: Array
    detector: RaceDetector


class RaceDetectors:
    """The race detectors of a batch: one for each history of its blocks.

    While all blocks do the same, one detector represents all of them.  When some diverge, at an instruction that the
    others do not execute or at an address that they do not use, each side gets a detector of its own, until a barrier
    makes their states equal.  `copies` as in `ProxyFences`.
    """

    def __init__(self, cells: int, threads: int, warp: int, blocks: int, copies: VisibleCopies | None = None) -> None:
        self.blocks, self.copies = blocks, copies
        self.follows_updates = True
        """Whether atomic operations on shared memory are followed."""
        self.warps = -(-threads // warp)
        self._histories = [History(np.ones(blocks, dtype=bool), RaceDetector(cells, threads, warp, copies))]
        self.has_alternatives = False
        """Whether a block may have several histories, of which data chooses one."""

    def acting(self, mask: Array | None) -> Sequence[RaceDetector]:
        """Return the detectors of the blocks that have an active lane."""
        if mask is None or mask.shape[0] == 1:
            return self.all()
        return self.of_blocks(np.any(mask, axis=1))

    def of_blocks(self, rows: Array) -> Sequence[RaceDetector]:
        """Return the detectors of the blocks in a boolean array of shape (blocks,)."""
        if rows.all():
            return self.all()
        return [each.detector for each in self._split_histories(rows)]

    def at(self, cells: Array, mask: Array) -> Sequence[tuple[RaceDetector, Array]]:
        """Return the detectors of the blocks with an active lane, each with the cells that its blocks access.

        `cells` and `mask` have the shape (blocks, threads).  A cell of -1 means that a thread accesses none.
        """
        return self._by_history(np.where(mask, cells, -1))

    def _by_history(self, where: Array) -> list[tuple[RaceDetector, Array]]:
        """Return the detectors of the rows that access a cell, each with the cells that all its rows access.

        The rows of a history are split where they access different cells.  -1 stands for no cell.
        """
        found: list[tuple[RaceDetector, Array]] = []
        waiting = self._split_histories(np.any(where >= 0, axis=1))
        while waiting:
            history = waiting.pop()
            rows = where[history.blocks]
            together = rows.max(axis=0)
            if not ((rows == together) | (rows < 0)).all():
                alike = history.blocks & (where == rows[0]).all(axis=1)
                part = self._split_off(history, alike)
                waiting.append(history)
                found.append((part.detector, rows[0]))
                continue
            found.append((history.detector, together))
        return found

    def all(self) -> Sequence[RaceDetector]:
        """Return every detector."""
        return [each.detector for each in self._histories]

    def follow_unfenced_reads(self) -> None:
        """See `RaceDetector.follow_unfenced_reads`."""
        for each in self._histories:
            each.detector.follow_unfenced_reads()

    def copy(self) -> RaceDetectors:
        """Return detectors of the same histories, for one side of a branch that blocks take by data."""
        found = copy(self)
        found._histories = [History(each.blocks.copy(), each.detector.copy()) for each in self._histories]
        return found

    def with_alternatives(self, other: RaceDetectors, ways: Ways | None = None) -> RaceDetectors:
        """Return detectors of the histories of both: data decides which of them a block has, but for a known `ways`.

        Every later access is checked in each.  Raises Unsupported for too many histories.
        """
        found = copy(self)
        every = np.ones(self.blocks, dtype=bool)
        possible = [(self, every), (other, every)]
        if ways is not None:
            possible = [(self, ~ways.second), (other, ~ways.first)]
        kept = [History(each.blocks & blocks, each.detector) for of, blocks in possible for each in of._histories]
        found._histories = _joined([each for each in kept if each.blocks.any()], of_all_blocks=False)
        more = len(found._histories) > len(self._histories)
        found.has_alternatives = self.has_alternatives or other.has_alternatives or more
        if len(found._histories) > MAXIMUM_ALTERNATIVES:
            raise Unsupported(_TOO_MANY_HISTORIES)
        return found

    def forget_what_is_ordered(self) -> None:
        """Join the histories that differ only in accesses which a barrier has ordered before all later ones."""
        if self.has_alternatives and len(self._histories) > 1:
            self._histories = _joined(self._histories, of_all_blocks=False)
        elif len(self._histories) > _FEW_HISTORIES:
            self._histories = _joined(self._histories, of_all_blocks=True)

    def _split_histories(self, rows: Array) -> list[History]:
        """Return the histories of these blocks, split so that none contains any other block."""
        found = []
        for history in list(self._histories):
            inside = history.blocks & rows
            if not inside.any():
                continue
            if np.array_equal(inside, history.blocks):
                found.append(history)
                continue
            found.append(self._split_off(history, inside))
        return found

    def _split_off(self, history: History, blocks: Array) -> History:
        """Split some blocks off a history and return their own.  Raises Unsupported for too many histories."""
        self._check_number()
        history.blocks = history.blocks & ~blocks
        part = History(blocks, history.detector.copy())
        self._histories.append(part)
        return part

    def _check_number(self) -> None:
        """Raise Unsupported if there may be no more histories."""
        count = len(self._histories)
        if self.has_alternatives and count >= MAXIMUM_ALTERNATIVES:
            raise Unsupported(_TOO_MANY_HISTORIES)
        if count * self._histories[0].detector.size_in_bytes > MAXIMUM_BYTES:
            raise Unsupported(_TOO_MANY_BYTES)


def _joined(histories: Iterable[History], *, of_all_blocks: bool) -> list[History]:
    """Return one history for those of the same state, of any blocks or of the same ones."""
    groups: dict[tuple[bytes, bytes], list[History]] = {}
    for each in histories:
        key = b"" if of_all_blocks else each.blocks.tobytes(), each.detector.state_key()
        groups.setdefault(key, []).append(each)
    found: list[History] = []
    for members in groups.values():
        states: dict[bytes | None, History] = {}
        for each in members:
            state = each.detector.state() if len(members) > 1 else None
            first = states.setdefault(state, each)
            if first is not each:
                first.blocks = first.blocks | each.blocks
                if of_all_blocks or state is not None:
                    first.detector.absorb(each.detector)
        found += states.values()
    return found


class NoRaceDetection(RaceDetectors):
    """The detectors of a run whose accesses are not followed: no race is found."""

    def __init__(self, threads: int, warp: int) -> None:
        super().__init__(1, threads, warp, 1)

    def acting(self, mask: Array | None) -> Sequence[RaceDetector]:
        """See `RaceDetectors.acting`."""
        return []

    def of_blocks(self, rows: Array) -> Sequence[RaceDetector]:
        """See `RaceDetectors.of_blocks`."""
        return []

    def at(self, cells: Array, mask: Array) -> Sequence[tuple[RaceDetector, Array]]:
        """See `RaceDetectors.at`."""
        return []
