"""The division of few rows of attention among programs: a model of the time that each division takes.

Programs stream keys and values, and all share the bandwidth of memory.  The numbers of the model were fitted to times
on an H200, so that it chooses well among the divisions.  They decide no bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

CHUNK = 512
_START, _RAGGED_START = 1.9e-6, 2.5e-6
"""Seconds until the first copy; with lengths that are read first."""
_MERGE = 2.0e-6
"""Seconds of another launch, which merges states."""
_MERGED_CHUNK = 3e-10
"""Seconds for each chunk of a row that is merged."""
_STATES = 6.96e11
"""Bytes of states that are written and read in a second."""
_CACHED, _CACHE = 4.62e12, 4e7
"""Bytes a second of what fits the cache, and its bytes."""
_UNEVEN = 0.25
"""How much of the time is lost where some multiprocessors have one program more than others."""
_LAST = 0.6
"""The share of the time that the last parts take more than others, where there is a program for each."""
_MEANS, _LONGER = (0.56, 1.0), 1.0
"""Where lengths may differ: means that are expected, as shares of the longest, and the share of the time of the longest
row that programs take after the others.
"""


@dataclass(frozen=True, slots=True)
class Division:
    """How programs divide the work: in chunks (`split`) or whole rows, of tiles of so many blocks.

    A multiprocessor has `resident` programs, each with `stages` slots in memory, and `columns` programs share a row.
    Programs of one warp are `alone`; where tiles have four blocks, each of four warps has one.  There is a program for
    each part (`once`), or programs take parts in turn.  A program streams up to `rate` GB/s and starts a part in
    `start` microseconds, and all of them stream `share` of the bandwidth of memory.
    """

    split: bool
    blocks: int
    resident: int
    stages: int
    columns: int
    rate: float
    share: float
    start: float
    alone: bool = False
    once: bool = False

    def parts(self, chunks: float) -> float:
        """Return the parts of a row of so many chunks."""
        return chunks if self.split else 1


@dataclass(frozen=True, slots=True)
class Device:
    """Bytes a second of memory for heads of a width, and divisions of equal lengths and of those that may differ."""

    memory: float
    equal: tuple[Division, ...]
    ragged: tuple[Division, ...]

    @property
    def divisions(self) -> tuple[Division, ...]:
        """All divisions."""
        return self.equal + self.ragged


_WHOLE, _SPLIT = False, True
_ALONE, _ONCE, _ALONE_ONCE = {"alone": True}, {"once": True}, {"alone": True, "once": True}
DEVICES = {
    64: Device(
        4.68e12,
        (
            Division(_WHOLE, 1, 9, 3, 1, 21, 1, 0, **_ALONE_ONCE),
            Division(_WHOLE, 4, 1, 4, 1, 46.5, 0.94, 0.95, **_ONCE),
            Division(_SPLIT, 1, 6, 4, 1, 23.2, 1.06, 0, **_ALONE_ONCE),
            Division(_SPLIT, 2, 2, 6, 2, 37.3, 0.609, 0.5, **_ONCE),
            Division(_SPLIT, 4, 2, 1, 1, 31.3, 0.98, 0),
            Division(_SPLIT, 4, 3, 1, 1, 39, 0.967, 0, **_ONCE),
        ),
        (
            Division(_WHOLE, 2, 1, 8, 1, 39.2, 0.778, 0.162, **_ONCE),
            Division(_WHOLE, 4, 2, 1, 1, 45.4, 0.974, 0, **_ONCE),
            Division(_SPLIT, 1, 6, 4, 1, 34.8, 1.01, 0.5, **_ALONE_ONCE),
            Division(_SPLIT, 2, 2, 6, 1, 105, 0.894, 0.725, **_ONCE),
            Division(_SPLIT, 4, 3, 1, 1, 105, 1.03, 0.537, **_ONCE),
        ),
    ),
    96: Device(
        4.57e12,
        (
            Division(_WHOLE, 1, 2, 6, 1, 39.6, 1.14, 3.69, **_ONCE),
            Division(_WHOLE, 4, 1, 2, 1, 56, 1.05, 0, **_ONCE),
            Division(_SPLIT, 1, 6, 9, 1, 17.2, 1.27, 2.4, **_ALONE_ONCE),
            Division(_SPLIT, 2, 2, 4, 1, 58.1, 0.814, 0),
            Division(_SPLIT, 2, 2, 4, 1, 42.4, 0.921, 0, **_ONCE),
        ),
        (
            Division(_WHOLE, 1, 2, 6, 1, 30.7, 1.11, 0, **_ONCE),
            Division(_WHOLE, 4, 2, 1, 1, 45, 1.1, 0, **_ONCE),
            Division(_SPLIT, 1, 6, 9, 1, 19.9, 0.935, 0.4, **_ALONE_ONCE),
            Division(_SPLIT, 1, 9, 6, 1, 26.4, 0.982, 1.25, **_ALONE_ONCE),
            Division(_SPLIT, 2, 2, 4, 1, 61.2, 0.774, 0, **_ONCE),
            Division(_SPLIT, 4, 2, 1, 1, 114, 0.77, 0.5, **_ONCE),
        ),
    ),
    128: Device(
        4.49e12,
        (
            Division(_WHOLE, 1, 1, 6, 1, 65.8, 0.812, 0.338, **_ONCE),
            Division(_WHOLE, 1, 1, 6, 2, 70.5, 0.777, 1.63, **_ONCE),
            Division(_WHOLE, 1, 2, 3, 1, 60.5, 0.835, 0.537, **_ONCE),
            Division(_SPLIT, 1, 2, 3, 1, 37.9, 1.01, 0.0375, **_ONCE),
            Division(_SPLIT, 1, 2, 3, 1, 46.5, 0.99, 0.0375),
            Division(_SPLIT, 1, 3, 4, 1, 44.6, 1.15, 2.6, **_ALONE),
        ),
        (
            Division(_WHOLE, 1, 1, 6, 1, 38.8, 1.13, 0.391, **_ONCE),
            Division(_SPLIT, 1, 1, 6, 1, 121, 0.94, 1.67, **_ONCE),
            Division(_SPLIT, 1, 1, 6, 2, 78.3, 0.723, 1.69, **_ONCE),
            Division(_SPLIT, 1, 2, 3, 1, 38.6, 0.988, 0, **_ONCE),
            Division(_SPLIT, 1, 6, 2, 1, 14.5, 1.06, 2.34, **_ALONE_ONCE),
        ),
    ),
    192: Device(
        4.44e12,
        (
            Division(_WHOLE, 2, 1, 4, 1, 64.7, 0.925, 2),
            Division(_SPLIT, 1, 2, 4, 1, 37.5, 1.08, 0),
            Division(_SPLIT, 1, 1, 6, 1, 78.6, 1.12, 1.42, **_ONCE),
            Division(_SPLIT, 1, 5, 5, 1, 22.5, 1.17, 0, **_ALONE_ONCE),
        ),
        (
            Division(_WHOLE, 2, 1, 4, 1, 75, 0.92, 0, **_ONCE),
            Division(_SPLIT, 1, 1, 6, 1, 136, 0.849, 2.45, **_ONCE),
            Division(_SPLIT, 1, 5, 5, 1, 28.5, 1.02, 0.968, **_ALONE_ONCE),
        ),
    ),
    256: Device(
        4.46e12,
        (
            Division(_WHOLE, 1, 1, 6, 1, 57.4, 0.984, 0),
            Division(_WHOLE, 1, 1, 6, 1, 75.6, 1.12, 4.29, **_ONCE),
            Division(_WHOLE, 1, 1, 6, 2, 58.4, 1.07, 5.17),
            Division(_WHOLE, 1, 1, 6, 2, 51.6, 0.888, 0, **_ONCE),
            Division(_SPLIT, 1, 1, 6, 1, 108, 1.16, 2.09),
        ),
        (
            Division(_WHOLE, 1, 1, 6, 1, 68.5, 0.877, 0),
            Division(_WHOLE, 1, 1, 6, 1, 68.8, 0.85, 0, **_ONCE),
            Division(_WHOLE, 1, 2, 3, 1, 38, 0.897, 1.62, **_ONCE),
            Division(_WHOLE, 4, 1, 1, 1, 85.8, 0.884, 0, **_ONCE),
            Division(_SPLIT, 1, 1, 6, 1, 118, 0.995, 0.613, **_ONCE),
            Division(_SPLIT, 1, 2, 3, 1, 101, 0.977, 0.688, **_ONCE),
            Division(_SPLIT, 4, 1, 1, 1, 146, 0.851, 0),
            Division(_SPLIT, 4, 1, 1, 1, 156, 0.995, 1.06, **_ONCE),
        ),
    ),
}  # fmt: skip
"""What was fitted, by the width of query and key."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a launch: `rows` times at most 16 packed rows that share keys, of which `heads` are real.

    Each has up to `keys` keys of `depth` and values of `width` components, in 16 bits; `ragged` says that the lengths
    may differ, and `windowed` that a window hides some.  The mean of the lengths is the share `mean` of the longest.
    """

    rows: int
    keys: int
    heads: int
    depth: int
    width: int
    ragged: bool
    windowed: bool = False
    mean: float = 1.0

    @property
    def chunks(self) -> int:
        """The chunks of a row."""
        return -(-self.keys // CHUNK)

    def units(self, division: Division) -> int:
        """Return the parts of rows that programs take, where all lengths are the longest."""
        return round(self.rows * division.columns * division.parts(self.chunks))


def division_of(work: Work, processors: int, device: Device | None = None) -> tuple[Division, int]:
    """Return the division that should take the least time on a GPU with so many multiprocessors.

    The second result is how many programs it has at a time.
    """
    found: list[tuple[float, int, Division, int]] = []
    device = device or DEVICES[work.depth]
    for place, division in enumerate(device.ragged if work.ragged else device.equal):
        units = work.units(division)
        if (division.split and work.chunks == 1) or (division.columns > 1 and units > 4 * processors):
            continue
        programs = min(division.resident * processors, units)
        times = [
            seconds_of(replace(work, mean=mean), division, programs, processors)
            for mean in (_MEANS if work.ragged else (1.0,))
        ]
        found.append((math.prod(times), place, division, programs))
    _, _, division, programs = min(found, key=lambda each: each[:2])
    return division, programs


def seconds_of(work: Work, division: Division, programs: int, processors: int) -> float:
    """Return about how long a division takes with so many programs at a time."""
    keys = work.keys * work.mean
    chunks = keys / CHUNK + 0.5 if work.mean < 1 and work.chunks > 1 else float(work.chunks)
    parts = work.rows * division.parts(chunks)
    units = parts * division.columns
    programs = min(programs, max(1, round(units)))
    components = work.depth + work.width
    read = 2 * keys * work.rows / parts * (work.depth + work.width / division.columns)
    cached = 2 * work.rows * keys * components <= _CACHE
    # Programs that share a row read the same keys.
    repeated = division.columns * (work.depth + work.width / division.columns) / components
    bandwidth = (_CACHED if cached else DEVICES[work.depth].memory) * division.share * repeated
    rate, start = division.rate * 1e9, division.start * 1e-6

    def streamed(count: float) -> float:
        """Return the bytes a second of each of so many programs."""
        most = -(-count // processors)
        lost = 1 + _UNEVEN * (most * processors / count - 1) if count > processors else 1.0
        return min(rate, bandwidth / count / lost)

    def turn(count: float) -> float:
        """Return the seconds of a part, where so many are visited at a time."""
        return read / streamed(max(1.0, count)) + start

    turns, rest = divmod(units, programs)
    seconds = (turns + rest / programs) * turn(programs)
    if rest:
        # Programs that take what is next do not begin their last parts together.
        seconds += (_LAST if division.once else 1.0) * (turn(rest) - rest / programs * turn(programs))
    if division.split:
        states = work.rows * keys / CHUNK * work.heads * (work.width + 2) * 4
        seconds += states / _STATES + work.chunks * _MERGED_CHUNK + _MERGE
    elif work.mean < 1:
        longest = 2 * work.keys * (work.depth + work.width / division.columns) / rate
        seconds = max(seconds, longest + start) if units <= programs else seconds + _LONGER * longest
    return seconds + (_RAGGED_START if work.ragged else _START)
