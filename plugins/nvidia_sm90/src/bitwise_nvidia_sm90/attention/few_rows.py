"""The division of few rows of attention among programs: a model of the time that each division takes.

Programs stream keys and values, and all share the bandwidth of memory.  The numbers of the model were fitted to times
on an H200, so that it chooses well among the divisions.  They decide no bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

CHUNK = 512
MEMBERS = 8
"""The most programs of a cluster."""
_START, _RAGGED_START = 1.9e-6, 2.5e-6
"""Seconds until the first copy; with lengths that are read first."""
_MERGE = 2.0e-6
"""Seconds of another launch, which merges states."""
_MERGED_CHUNK = 3e-10
"""Seconds for each chunk of a row that is merged."""
_HANDED = 2e-7
"""Seconds of the merge of a chunk that another program of the cluster has."""
_STATES = 6.96e11
"""Bytes of states that are written and read in a second."""
_CACHED, _CACHE = 4.62e12, 4e7
"""Bytes a second of what fits the cache, and its bytes."""
_FAR = 0.65
"""The share of its rate at which a program of several warps streams what is not cached; rates of lengths that may
differ have it.
"""
_UNEVEN = 0.25
"""How much of the time is lost where some multiprocessors have one program more than others."""
_LAST = 0.6
"""The share of the time that the last parts take more than others, where there is a program for each."""
_MEANS, _LONGER = (0.56, 1.0), 0.35
"""Where lengths may differ: means that are expected, as shares of the longest, and the share of the time of the longest
row that programs take after the others.
"""


@dataclass(frozen=True, slots=True)
class Division:
    """How programs divide the work: in chunks (`split`) or whole rows, of tiles of so many blocks.

    A multiprocessor has `resident` programs, each with `stages` slots in memory, and `columns` programs share a row.
    Programs of one warp are `alone`.  There is a program for each part (`once`), or programs take parts in turn, or
    they have equal `runs` of chunks, or a cluster has the chunks of a row: up to `span` of them each of its members.  A
    program streams up to `rate` GB/s and starts a part in `start` microseconds, and all of them stream `share` of the
    bandwidth of memory.
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
    runs: bool = False
    span: int = 0

    def parts(self, chunks: float) -> float:
        """Return the parts of a row of so many chunks."""
        if not self.split:
            return 1
        return min(MEMBERS, chunks) if self.span else chunks


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
_ALONE, _ALONE_ONCE, _ONCE, _RUNS = {"alone": True}, {"alone": True, "once": True}, {"once": True}, {"runs": True}
DEVICES = {
    64: Device(
        4.68e12,
        (
            Division(_WHOLE, 1, 9, 3, 1, 20.2, 1.01, 0, **_ALONE_ONCE),
            Division(_WHOLE, 2, 1, 8, 1, 37.6, 0.831, 1.18, **_ONCE),
            Division(_SPLIT, 1, 6, 4, 1, 22.8, 1, 0.3, **_ALONE),
            Division(_SPLIT, 1, 9, 3, 1, 29.4, 1, 1.25, **_ALONE_ONCE),
            Division(_SPLIT, 2, 2, 6, 1, 42, 1.04, 0.837, **_ONCE),
        ),
        (
            Division(_WHOLE, 1, 9, 3, 1, 22.8, 0.767, 0.75, **_ALONE_ONCE),
            Division(_WHOLE, 2, 1, 8, 1, 38.7, 0.835, 0.988, **_ONCE),
            Division(_SPLIT, 1, 6, 4, 1, 31.5, 1.02, 1.44, **_ALONE_ONCE),
            Division(_SPLIT, 1, 9, 3, 1, 25.6, 0.939, 0, **_ALONE_ONCE),
            Division(_SPLIT, 2, 2, 6, 1, 359, 0.933, 0.912, **_ONCE),
            Division(_SPLIT, 2, 2, 6, 2, 16.3, 1, 0.838, **_ONCE),
        ),
    ),
    96: Device(
        4.57e12,
        (
            Division(_WHOLE, 1, 2, 6, 1, 36, 0.79, 1.55, **_ONCE),
            Division(_WHOLE, 1, 4, 13, 1, 23.2, 0.787, 1.44, **_ALONE),
            Division(_SPLIT, 1, 2, 6, 1, 54, 0.984, 0.613, **_ONCE),
            Division(_SPLIT, 1, 6, 9, 1, 24.6, 0.986, 0, **_ALONE),
            Division(_SPLIT, 1, 6, 9, 1, 27.7, 0.955, 0.71, **_ALONE_ONCE),
            Division(_SPLIT, 1, 9, 6, 1, 28, 0.925, 0.65, **_ALONE_ONCE),
            Division(_SPLIT, 2, 2, 4, 1, 137, 0.882, 0),
            Division(_SPLIT, 2, 2, 4, 1, 43.9, 0.925, 0, **_ONCE),
        ),
        (
            Division(_WHOLE, 1, 2, 6, 1, 34.6, 0.874, 1.51, **_ONCE),
            Division(_WHOLE, 1, 4, 13, 1, 28, 1.01, 0.375, **_ALONE),
            Division(_SPLIT, 1, 2, 6, 1, 33.6, 0.983, 0.463, **_ONCE),
            Division(_SPLIT, 1, 6, 9, 1, 16.6, 1.05, 1.85, **_ALONE_ONCE),
            Division(_SPLIT, 1, 9, 6, 1, 16.6, 0.977, 1.1, **_ALONE_ONCE),
            Division(_SPLIT, 2, 2, 4, 1, 31.3, 0.986, 0),
            Division(_SPLIT, 2, 2, 4, 1, 37.4, 0.955, 0.425, **_ONCE),
        ),
    ),
    128: Device(
        4.49e12,
        (
            Division(_WHOLE, 1, 1, 6, 1, 66.4, 0.958, 0.487, **_ONCE),
            Division(_WHOLE, 1, 1, 6, 2, 56.5, 0.914, 2, **_ONCE),
            Division(_WHOLE, 2, 1, 3, 1, 52.8, 1.01, 1.01),
            Division(_SPLIT, 1, 1, 6, 1, 95.4, 1.1, 0.875, **_ONCE),
            Division(_SPLIT, 1, 1, 6, 2, 61, 0.71, 0.225, **_ONCE),
            Division(_SPLIT, 1, 2, 3, 1, 45.3, 1.15, 1.89, **_ONCE),
            Division(_SPLIT, 1, 3, 4, 1, 72.2, 1.23, 4.03, **_ALONE),
            Division(_SPLIT, 1, 6, 2, 1, 32.1, 1.02, 0.237, **_ALONE),
        ),
        (
            Division(_WHOLE, 1, 1, 6, 1, 63.4, 0.93, 0.375, **_ONCE),
            Division(_WHOLE, 1, 1, 6, 2, 55.4, 0.87, 0.988, **_ONCE),
            Division(_WHOLE, 1, 2, 3, 1, 32.7, 0.85, 0, **_ONCE),
            Division(_WHOLE, 2, 1, 3, 1, 52.8, 0.933, 1.1),
            Division(_SPLIT, 1, 1, 6, 2, 41.6, 1, 0.688, **_ONCE),
            Division(_SPLIT, 1, 2, 3, 1, 108, 1.12, 2.3),
            Division(_SPLIT, 1, 2, 3, 1, 74, 1, 0.912, **_ONCE),
            Division(_SPLIT, 1, 6, 2, 1, 38.1, 1.01, 4.17, **_ALONE_ONCE),
        ),
    ),
    192: Device(
        4.44e12,
        (
            Division(_WHOLE, 2, 1, 4, 1, 71.1, 0.897, 0),
            Division(_WHOLE, 2, 1, 4, 1, 71.7, 0.886, 0.613, **_ONCE),
            Division(_SPLIT, 1, 2, 4, 1, 26.1, 1, 0),
            Division(_SPLIT, 1, 6, 4, 1, 59.4, 0.959, 1.73, **_ALONE),
            Division(_SPLIT, 2, 1, 4, 1, 39.9, 0.946, 0.462, **_RUNS),
        ),
        (
            Division(_WHOLE, 2, 1, 4, 1, 69.1, 1.1, 2.54),
            Division(_WHOLE, 2, 1, 4, 1, 69.5, 1, 2.52, **_ONCE),
            Division(_SPLIT, 1, 1, 6, 1, 52.2, 0.937, 0.5, **_ONCE),
            Division(_SPLIT, 1, 5, 5, 1, 27.9, 1.06, 0.125, **_ALONE_ONCE),
        ),
    ),
    256: Device(
        4.46e12,
        (
            Division(_WHOLE, 1, 1, 6, 1, 69.1, 1.01, 0),
            Division(_WHOLE, 1, 1, 6, 1, 69.8, 0.995, 0.238, **_ONCE),
            Division(_SPLIT, 1, 1, 6, 1, 73.6, 1.04, 0.65),
            Division(_SPLIT, 1, 1, 6, 1, 66.4, 1, 0, **_ONCE),
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
        if (division.runs or division.span) and work.windowed:
            continue
        if division.span and work.chunks > MEMBERS * division.span:
            continue
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
    near = cached or division.alone or work.ragged
    rate, start = division.rate * 1e9 * (1.0 if near else _FAR), division.start * 1e-6

    def streamed(count: float) -> float:
        """Return the bytes a second of each of so many programs."""
        most = -(-count // processors)
        lost = 1 + _UNEVEN * (most * processors / count - 1) if count > processors else 1.0
        return min(rate, bandwidth / count / lost)

    def turn(count: float) -> float:
        """Return the seconds of a part, where so many are visited at a time."""
        return read / streamed(max(1.0, count)) + start

    if division.runs:  # a run has whole chunks
        seconds = math.ceil(units / programs) * read / streamed(programs) + start
    else:
        turns, rest = divmod(units, programs)
        seconds = (turns + rest / programs) * turn(programs)
        if rest:
            # Programs that take what is next do not begin their last parts together.
            seconds += (_LAST if division.once or division.span else 1.0) * (
                turn(rest) - rest / programs * turn(programs)
            )
    if division.split:
        states = work.rows * keys / CHUNK * work.heads * (work.width + 2) * 4
        states *= 1 - (_merged_share(chunks, units / programs) if division.runs else 0)
        if division.span:
            seconds += work.chunks * _HANDED
        else:
            seconds += states / _STATES + work.chunks * _MERGED_CHUNK + _MERGE
    elif work.mean < 1:
        longest = 2 * work.keys * (work.depth + work.width / division.columns) / rate
        seconds = max(seconds, longest + start) if units <= programs else seconds + _LONGER * longest
    return seconds + (_RAGGED_START if work.ragged else _START)


def _merged_share(chunks: float, run: float) -> float:
    """Return the share of the chunks of a row that its first program merges, where runs begin at any of its chunks."""
    return 1 - chunks / (2 * run) if chunks <= run else run / (2 * chunks)
