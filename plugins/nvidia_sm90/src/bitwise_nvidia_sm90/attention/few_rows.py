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
    Programs of one warp are `alone`.  There is a program for each part (`once`), or programs take parts in turn.  A
    program streams up to `rate` GB/s and
    starts a part in `start` microseconds, and all of them stream `share` of the bandwidth of memory.
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
            Division(_WHOLE, 2, 1, 8, 1, 34.2, 1, 0.975, **_ONCE),
            Division(_WHOLE, 1, 2, 8, 1, 28.1, 0.878, 0),
            Division(_WHOLE, 1, 9, 3, 1, 22.8, 0.982, 0.125, **_ALONE_ONCE),
            Division(_SPLIT, 2, 2, 6, 1, 40.1, 0.95, 0.0875, **_ONCE),
            Division(_SPLIT, 2, 2, 6, 2, 45.9, 0.678, 0.5, **_ONCE),
            Division(_SPLIT, 1, 9, 3, 1, 26, 0.96, 0.1, **_ALONE_ONCE),
            Division(_SPLIT, 1, 6, 4, 1, 38.2, 0.97, 1.06, **_ALONE_ONCE),
        ),
        (
            Division(_WHOLE, 2, 1, 8, 1, 33.7, 0.908, 0, **_ONCE),
            Division(_WHOLE, 1, 9, 3, 1, 20.8, 1.13, 0, **_ALONE_ONCE),
            Division(_SPLIT, 2, 2, 6, 1, 76.6, 0.792, 0, **_ONCE),
            Division(_SPLIT, 2, 2, 6, 2, 146, 0.527, 0.934, **_ONCE),
            Division(_SPLIT, 1, 9, 3, 1, 31.2, 1.22, 1.23, **_ALONE_ONCE),
            Division(_SPLIT, 1, 6, 4, 1, 31.9, 1.35, 2.01, **_ALONE_ONCE),
        ),
    ),
    96: Device(
        4.57e12,
        (
            Division(_WHOLE, 1, 2, 6, 1, 31.7, 1.16, 3.69, **_ONCE),
            Division(_WHOLE, 1, 4, 13, 1, 31.6, 0.957, 0, **_ALONE),
            Division(_SPLIT, 2, 2, 4, 1, 72.6, 0.798, 0),
            Division(_SPLIT, 2, 2, 4, 1, 33.9, 0.97, 0, **_ONCE),
            Division(_SPLIT, 1, 2, 6, 1, 139, 1.3, 2.52, **_ONCE),
            Division(_SPLIT, 1, 9, 6, 1, 12.5, 1.05, 0.226, **_ALONE_ONCE),
            Division(_SPLIT, 1, 6, 9, 1, 15.9, 1.3, 2.9, **_ALONE_ONCE),
        ),
        (
            Division(_WHOLE, 1, 2, 6, 1, 30.7, 1.17, 0, **_ONCE),
            Division(_SPLIT, 2, 2, 4, 1, 49, 0.723, 0, **_ONCE),
            Division(_SPLIT, 1, 9, 6, 1, 19.5, 0.982, 1.25, **_ALONE_ONCE),
            Division(_SPLIT, 1, 6, 9, 1, 18.4, 0.935, 0.9, **_ALONE_ONCE),
        ),
    ),
    128: Device(
        4.49e12,
        (
            Division(_WHOLE, 1, 1, 6, 1, 40, 0.985, 1.6, **_ONCE),
            Division(_WHOLE, 1, 2, 3, 1, 26.2, 0.99, 3.6, **_ONCE),
            Division(_WHOLE, 1, 1, 6, 2, 58.4, 0.95, 2, **_ONCE),
            Division(_SPLIT, 1, 1, 6, 1, 44.1, 1.2, 1.93, **_ONCE),
            Division(_SPLIT, 1, 1, 6, 2, 120, 1.1, 2, **_ONCE),
            Division(_SPLIT, 1, 3, 4, 1, 26.7, 1.03, 0.2, **_ALONE),
        ),
        (
            Division(_WHOLE, 1, 1, 6, 1, 48.5, 1.13, 0.891, **_ONCE),
            Division(_WHOLE, 1, 1, 6, 2, 46.7, 0.982, 0.896, **_ONCE),
            Division(_SPLIT, 1, 2, 3, 1, 38.6, 1.21, 0, **_ONCE),
            Division(_SPLIT, 1, 1, 6, 1, 97.1, 0.922, 1.67, **_ONCE),
            Division(_SPLIT, 1, 1, 6, 2, 78.3, 0.689, 2.19, **_ONCE),
            Division(_SPLIT, 1, 6, 2, 1, 13.4, 1.06, 2.34, **_ALONE_ONCE),
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
            Division(_WHOLE, 1, 1, 6, 1, 50.8, 1.3, 0, **_ONCE),
            Division(_WHOLE, 1, 1, 6, 4, 57.4, 0.583, 0, **_ONCE),
            Division(_SPLIT, 1, 1, 6, 1, 46.2, 1.29, 2.33, **_ONCE),
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
