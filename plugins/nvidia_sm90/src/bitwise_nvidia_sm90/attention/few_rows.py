"""The division of few rows of attention among programs: a model of the time that each division takes.

Programs stream keys and values.  What one of them can stream depends on its tiles and on how many of these it copies
ahead; two multiprocessors share a path to memory, and all share its bandwidth.  The numbers of the model were fitted to
times on an H200.  They decide no bits.
"""

from __future__ import annotations

from dataclasses import dataclass

CHUNK = 512
_START, _RAGGED_START = 1.9e-6, 2.69e-6
"""Seconds until the first copy; with lengths that are read first."""
_MERGE, _RAGGED_MERGE = 2.02e-6, 1.95e-6
"""Seconds of another launch, which merges states."""
_MERGED_CHUNK = 3e-10
"""Seconds for each chunk of a row that is merged."""
_STATES = 6.96e11
"""Bytes of states that are written and read in a second."""
_PART = 4.55e-7
"""Seconds between the parts of a program."""
_PAIR = 8.58e10
"""Bytes a second of two neighbouring multiprocessors."""
_CACHED, _CACHE = 4.62e12, 4e7
"""Bytes a second of what fits the cache, and its bytes."""
_UNEVEN = 0.25
"""How much of the time is lost where some multiprocessors have one program more than others."""
_RAGGED_RATE = 0.87
"""What programs that look up lengths and pages stream, of what others do."""
_LONGER = 0.25
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
    """Bytes a second of memory, the share of these from pages, and those of a multiprocessor, for heads of a width."""

    memory: float
    pages: float
    processor: float
    divisions: tuple[Division, ...]


_WHOLE, _SPLIT = False, True
DEVICES = {
    64: Device(
        4.68e12, 0.839, 3.63e10,
        (
            Division(_WHOLE, 1, 2, 8, 1, 27.7, 1.02), Division(_WHOLE, 1, 3, 8, 1, 19.9, 1.08),
            Division(_WHOLE, 2, 1, 8, 1, 200, 0.962), Division(_WHOLE, 2, 1, 8, 4, 26.4, 4),
            Division(_WHOLE, 2, 2, 6, 1, 200, 1.13), Division(_WHOLE, 2, 2, 6, 2, 200, 0.7),
            Division(_SPLIT, 1, 2, 8, 1, 17.9, 1.64), Division(_SPLIT, 1, 3, 8, 1, 28.7, 0.938),
            Division(_SPLIT, 1, 4, 6, 1, 22.7, 0.936), Division(_SPLIT, 2, 2, 6, 1, 153, 2.83),
            Division(_SPLIT, 2, 2, 6, 2, 31.1, 4),
        ),
    ),
    96: Device(
        4.57e12, 1.02, 2e11,
        (
            Division(_WHOLE, 1, 1, 10, 1, 37.6, 0.986), Division(_WHOLE, 1, 2, 6, 1, 37.6, 0.988),
            Division(_WHOLE, 2, 1, 6, 1, 53.5, 0.849), Division(_SPLIT, 1, 1, 10, 1, 35.8, 0.885),
            Division(_SPLIT, 1, 2, 6, 1, 37.2, 0.9), Division(_SPLIT, 1, 3, 5, 1, 29.6, 0.887),
            Division(_SPLIT, 2, 1, 6, 1, 47.1, 1.09), Division(_SPLIT, 2, 1, 9, 1, 39.4, 0.929),
            Division(_SPLIT, 2, 1, 9, 3, 38.9, 0.402), Division(_SPLIT, 2, 2, 4, 1, 45.3, 0.99),
        ),
    ),
    128: Device(
        4.49e12, 1.04, 5.69e10,
        (
            Division(_WHOLE, 1, 1, 6, 1, 200, 1.12), Division(_WHOLE, 1, 1, 6, 2, 200, 3.3),
            Division(_WHOLE, 1, 1, 6, 4, 49.1, 0.562), Division(_WHOLE, 1, 2, 3, 1, 43.4, 0.87),
            Division(_WHOLE, 2, 1, 3, 1, 47.1, 0.854), Division(_SPLIT, 1, 1, 6, 1, 49.3, 1.08),
            Division(_SPLIT, 1, 1, 6, 2, 49.5, 0.645), Division(_SPLIT, 1, 2, 3, 1, 38.7, 0.924),
        ),
    ),
    192: Device(
        4.44e12, 1.05, 2e11,
        (
            Division(_WHOLE, 1, 1, 6, 1, 55.8, 0.999), Division(_WHOLE, 2, 1, 4, 1, 74.7, 0.949),
            Division(_SPLIT, 1, 1, 6, 1, 52.2, 0.926), Division(_SPLIT, 1, 2, 4, 1, 40, 1),
            Division(_SPLIT, 2, 1, 4, 1, 64.3, 1.02),
        ),
    ),
    256: Device(
        4.46e12, 1.53, 5.89e10,
        (
            Division(_WHOLE, 1, 1, 6, 1, 200, 1.06), Division(_WHOLE, 1, 1, 6, 2, 82.5, 4),
            Division(_WHOLE, 1, 1, 6, 4, 200, 4), Division(_WHOLE, 2, 1, 3, 1, 200, 0.646),
            Division(_SPLIT, 1, 1, 6, 1, 200, 1.07), Division(_SPLIT, 1, 2, 3, 1, 19.9, 0.985),
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
    parts = work.rows * work.chunks
    found: list[tuple[float, int, Division, int]] = []
    for place, division in enumerate(DEVICES[work.depth].divisions):
        units = work.units(division)
        # The numbers are not of divisions whose last programs of each multiprocessor would have nothing to do.
        idle = parts > processors and units <= (division.resident - 1) * processors
        if (division.split and work.chunks == 1) or (division.columns > 1 and units > 4 * processors) or idle:
            continue
        full = min(division.resident * processors, units)
        turns = -(-units // full)
        # As many programs as so many turns need, which all have as many; lengths that differ have fewer parts.
        counts = {full, -(-units // turns)} if turns <= 4 and not work.ragged else {full}
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
