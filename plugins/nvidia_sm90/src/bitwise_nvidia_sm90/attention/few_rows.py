"""The division of few rows of attention among programs: a model of the time that each division takes.

Programs stream keys and values.  What one of them can stream depends on its tiles and on how many of these it copies
ahead; two multiprocessors share a path to memory, and all share its bandwidth.  The numbers of the model were fitted to
times on an H200.  They decide no bits.
"""

from __future__ import annotations

from dataclasses import dataclass

CHUNK = 512
_START, _RAGGED_START = 1.6e-6, 2.5e-6
"""Seconds until the first copy; with lengths that are read first."""
_MERGE, _RAGGED_MERGE = 2.3e-6, 3.1e-6
"""Seconds of another launch, which merges states."""
_MERGED_CHUNK = 3e-10
"""Seconds for each chunk of a row that is merged."""
_STATES = 1.0e12
"""Bytes of states that are written and read in a second."""
_PART = 4.5e-7
"""Seconds between the parts of a program."""
_PAIR = 8.2e10
"""Bytes a second of two neighbouring multiprocessors."""
_CACHED, _CACHE = 5.0e12, 4e7
"""Bytes a second of what fits the cache, and its bytes."""
_UNEVEN = 0.25
"""How much of the time is lost where some multiprocessors have one program more than others."""
_RAGGED_RATE = 0.79
"""What programs that look up lengths and pages stream, of what others do."""
_LONGER = 0.3
"""How much longer the longest sequence may take than the mean, where lengths may differ and programs have one row."""


@dataclass(frozen=True, slots=True)
class Division:
    """How programs divide the work: in chunks (`split`) or whole rows, of tiles of so many blocks.

    A multiprocessor has `resident` programs, each with `stages` tiles in memory, and `columns` programs share a row.
    A program streams up to `rate` GB/s, and all of them `share` of the bandwidth of memory.
    """

    split: bool
    blocks: int
    resident: int
    stages: int
    columns: int
    rate: float
    share: float


@dataclass(frozen=True, slots=True)
class Device:
    """Bytes a second of memory, of memory in pages as a share of these, and of a multiprocessor, for heads of a width.

    `many` are the divisions for more parts than multiprocessors, `few` those for up to three times as many.
    """

    memory: float
    pages: float
    processor: float
    many: tuple[Division, ...]
    few: tuple[Division, ...]


_WHOLE, _SPLIT = False, True
DEVICES = {
    64: Device(
        5.23e12, 1.09, 4.67e10,
        (
            Division(_WHOLE, 1, 3, 4, 1, 16.9, 1.01), Division(_WHOLE, 2, 2, 6, 1, 37.2, 1.05),
            Division(_WHOLE, 2, 1, 12, 1, 34.8, 1.0), Division(_WHOLE, 1, 4, 4, 1, 16.9, 0.77),
            Division(_SPLIT, 1, 3, 4, 1, 16.9, 0.92), Division(_SPLIT, 1, 2, 8, 1, 30.7, 0.73),
            Division(_SPLIT, 2, 2, 6, 1, 37.2, 0.77), Division(_SPLIT, 1, 4, 4, 1, 16.9, 0.83),
        ),
        (
            Division(_WHOLE, 2, 1, 6, 1, 37.2, 0.97), Division(_WHOLE, 2, 1, 12, 1, 34.8, 1.0),
            Division(_WHOLE, 2, 2, 6, 1, 37.2, 1.05), Division(_WHOLE, 2, 2, 6, 2, 38.1, 1.05),
            Division(_WHOLE, 2, 1, 12, 4, 35.9, 1.0), Division(_WHOLE, 2, 2, 6, 4, 21.0, 1.05),
            Division(_SPLIT, 2, 2, 6, 2, 38.1, 0.77), Division(_SPLIT, 2, 1, 12, 2, 27.5, 0.97),
            Division(_SPLIT, 1, 2, 8, 1, 30.7, 0.73), Division(_SPLIT, 1, 3, 8, 1, 30.7, 0.79),
            Division(_SPLIT, 2, 2, 6, 1, 37.2, 0.77),
        ),
    ),
    96: Device(
        4.47e12, 0.825, 3.67e10,
        (
            Division(_WHOLE, 1, 3, 4, 1, 29.4, 1.06), Division(_WHOLE, 1, 1, 12, 1, 31.9, 0.74),
            Division(_WHOLE, 2, 1, 6, 1, 43.0, 0.9), Division(_SPLIT, 1, 3, 4, 1, 29.4, 0.84),
            Division(_SPLIT, 1, 1, 12, 1, 31.9, 0.89), Division(_SPLIT, 2, 1, 6, 1, 43.0, 1.07),
            Division(_SPLIT, 1, 2, 6, 1, 43.4, 0.91),
        ),
        (
            Division(_WHOLE, 2, 1, 6, 1, 43.0, 0.9), Division(_WHOLE, 2, 1, 6, 2, 44.9, 0.9),
            Division(_WHOLE, 1, 2, 6, 1, 43.4, 0.97), Division(_WHOLE, 1, 2, 6, 4, 25.0, 0.97),
            Division(_SPLIT, 2, 1, 6, 1, 43.0, 1.07), Division(_SPLIT, 2, 1, 6, 2, 44.9, 1.07),
            Division(_SPLIT, 1, 2, 6, 2, 29.7, 0.91),
        ),
    ),
    128: Device(
        4.54e12, 0.922, 7.75e10,
        (
            Division(_WHOLE, 1, 1, 6, 1, 67.5, 0.95), Division(_WHOLE, 2, 1, 3, 1, 48.3, 1.1),
            Division(_WHOLE, 1, 2, 3, 1, 51.9, 0.98), Division(_SPLIT, 1, 1, 6, 1, 67.5, 1.0),
            Division(_SPLIT, 1, 2, 3, 1, 51.9, 1.07),
        ),
        (
            Division(_WHOLE, 1, 1, 6, 1, 67.5, 0.95), Division(_WHOLE, 1, 1, 6, 2, 52.3, 0.95),
            Division(_WHOLE, 1, 1, 6, 4, 55.3, 0.95), Division(_WHOLE, 2, 1, 3, 4, 37.4, 1.1),
            Division(_SPLIT, 1, 1, 6, 1, 67.5, 1.0), Division(_SPLIT, 1, 1, 6, 2, 52.3, 1.0),
            Division(_SPLIT, 2, 1, 3, 2, 69.5, 0.62), Division(_SPLIT, 2, 1, 3, 4, 37.4, 0.62),
            Division(_SPLIT, 1, 2, 3, 1, 51.9, 1.07),
        ),
    ),
    192: Device(
        4.92e12, 0.95, 6.0e10,
        (
            Division(_WHOLE, 1, 1, 6, 1, 44.9, 0.87), Division(_WHOLE, 1, 2, 3, 1, 18.3, 1.09),
            Division(_SPLIT, 1, 1, 6, 1, 44.9, 0.86), Division(_SPLIT, 1, 2, 3, 1, 18.3, 0.94),
        ),
        (
            Division(_WHOLE, 1, 1, 6, 1, 44.9, 0.87), Division(_WHOLE, 1, 1, 6, 2, 33.6, 0.87),
            Division(_SPLIT, 1, 1, 6, 1, 44.9, 0.86), Division(_SPLIT, 1, 1, 6, 2, 33.6, 0.86),
            Division(_SPLIT, 1, 2, 3, 1, 18.3, 0.94),
        ),
    ),
    256: Device(
        4.71e12, 0.963, 5.74e10,
        (
            Division(_WHOLE, 1, 1, 6, 1, 47.7, 1.1), Division(_WHOLE, 1, 2, 3, 1, 21.6, 0.91),
            Division(_SPLIT, 1, 1, 6, 1, 47.7, 1.0), Division(_SPLIT, 1, 2, 3, 1, 21.6, 0.86),
        ),
        (
            Division(_WHOLE, 1, 1, 6, 1, 47.7, 1.1), Division(_WHOLE, 1, 1, 6, 2, 57.4, 1.1),
            Division(_WHOLE, 1, 1, 6, 4, 50.4, 1.1), Division(_SPLIT, 1, 1, 6, 1, 47.7, 1.0),
            Division(_SPLIT, 1, 1, 6, 2, 57.4, 1.0), Division(_SPLIT, 1, 2, 3, 1, 21.6, 0.86),
        ),
    ),
}  # fmt: skip
"""What was fitted, by the width of query and key."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a launch: `rows` times at most 16 packed rows that share keys, of which `heads` are real.

    Each has up to `keys` keys of `depth` and values of `width` components, in 16 bits; `ragged` says that the lengths
    may differ.
    """

    rows: int
    keys: int
    heads: int
    depth: int
    width: int
    ragged: bool

    @property
    def chunks(self) -> int:
        """The chunks of a row."""
        return -(-self.keys // CHUNK)

    def units(self, division: Division) -> int:
        """Return the parts of rows that programs take in turn."""
        return self.rows * division.columns * (self.chunks if division.split else 1)


def division_of(work: Work, processors: int) -> tuple[Division, int]:
    """Return the division that should take the least time on a GPU with so many multiprocessors, and its programs."""
    device, parts = DEVICES[work.depth], work.rows * work.chunks
    possible = [*(device.many if parts > processors else ()), *(device.few if parts <= 3 * processors else ())]
    found: list[tuple[float, int, Division, int]] = []
    for place, division in enumerate(possible):
        units = work.units(division)
        # The numbers are not of divisions whose last programs of each multiprocessor would have nothing to do.
        idle = parts > processors and units <= (division.resident - 1) * processors
        if (division.split and work.chunks == 1) or (division.columns > 1 and units > 4 * processors) or idle:
            continue
        full = min(division.resident * processors, units)
        turns = -(-units // full)
        # As many programs as are needed for so many turns, which all have as many.
        counts = {full, -(-units // turns)} if turns <= 6 else {full}
        found += [(seconds_of(work, division, each, processors), place, division, each) for each in counts]
    _, _, division, programs = min(found, key=lambda each: (*each[:2], -each[3]))
    return division, programs


def seconds_of(work: Work, division: Division, programs: int, processors: int) -> float:
    """Return about how long a division takes with so many programs."""
    device, units = DEVICES[work.depth], work.units(division)
    keys = work.keys / work.chunks if division.split else work.keys
    read = 2 * keys * (work.depth + work.width / division.columns)
    cached = 2 * work.rows * work.keys * (work.depth + work.width) <= _CACHE
    # Programs that share a row read the same keys.
    repeated = division.columns * (work.depth + work.width / division.columns) / (work.depth + work.width)
    bandwidth = (_CACHED if cached else device.memory) * division.share * repeated
    rate = division.rate * 1e9
    if work.ragged:
        bandwidth, rate = bandwidth * device.pages, rate * _RAGGED_RATE

    def streamed(count: int) -> float:
        """Return the bytes a second of each of so many programs."""
        most = -(-count // processors)
        lost = 1 + _UNEVEN * (most * processors / count - 1) if count > processors else 1
        return min(
            rate, device.processor / most, _PAIR / -(-count // (processors // 2)), bandwidth / count / lost
        )  # fmt: skip

    turns, rest = divmod(units, programs)
    seconds = turns * (read / streamed(programs) + _PART)
    if rest:
        seconds += read / streamed(rest) + _PART
    if work.ragged and not division.split and work.chunks > 2:
        seconds *= 1 + _LONGER / max(1.0, units / programs)
    if division.split:
        states = work.rows * work.chunks * work.heads * (work.width + 2) * 4
        seconds += states / _STATES + work.chunks * _MERGED_CHUNK + (_RAGGED_MERGE if work.ragged else _MERGE)
    return seconds + (_RAGGED_START if work.ragged else _START)
