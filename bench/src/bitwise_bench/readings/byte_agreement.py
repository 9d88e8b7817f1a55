"""Readings of the corpus held against recorded bytes: classes that mix bytes, and classes over byte classes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bitwise_bench.recorded_bytes import CaseRecord


@dataclass(frozen=True, slots=True)
class Read:
    """What was read of one case: its name, the digest of its text, its signature, or why there is none.

    `undetermined` says that there is none because the kernel was proved to have no determined result.
    """

    id: str
    digest: str
    signature: str | None
    unknown: str | None = None
    undetermined: bool = False


@dataclass(frozen=True, slots=True)
class Agreement:
    """The classes of a set of readings over the byte classes of the same kernels.

    `compared` counts the kernels that were read and whose recorded bytes may be used; `unknown` those not read;
    `undetermined` those proved to have no determined result, which are not among the unknown; `left_out` those whose
    text is not the recorded one or whose bytes do not repeat.  `mixed` names a pair of kernels of one class and
    different bytes for each class that has one: every such pair is a wrong Equal.
    """

    kernels: int
    compared: int
    unknown: int
    left_out: int
    classes: int
    byte_classes: int
    mixed: tuple[tuple[str, str], ...]
    undetermined: int = 0

    @property
    def ratio(self) -> float:
        """Classes over byte classes: 1 where nothing was split that has the same bytes."""
        return self.classes / self.byte_classes if self.byte_classes else 1.0


def compare(
    readings: Iterable[Read], recorded: Mapping[str, CaseRecord], draws: Sequence[int] | None = None
) -> Agreement:
    """Holds readings against the bytes of the kernels with the same text, of the given draws (default: all)."""

    def bytes_of(record: CaseRecord) -> object:
        return record.label if draws is None else tuple(record.hashes[index] for index in draws)

    classes: dict[tuple[str, str], list[CaseRecord]] = {}
    byte_classes: set[tuple[str, object]] = set()
    kernels = unknown = undetermined = left_out = compared = 0
    for reading in readings:
        kernels += 1
        group = reading.id.rsplit("/", 1)[0]
        if reading.signature is None:
            undetermined += reading.undetermined
            unknown += not reading.undetermined
            continue
        record = recorded.get(reading.id)
        if record is None or not record.usable or record.digest != reading.digest:
            left_out += 1
            continue
        compared += 1
        classes.setdefault((group, reading.signature), []).append(record)
        byte_classes.add((group, bytes_of(record)))
    mixed = []
    for members in classes.values():
        other = next((each for each in members if bytes_of(each) != bytes_of(members[0])), None)
        if other is not None:
            mixed.append((members[0].id, other.id))
    return Agreement(kernels, compared, unknown, left_out, len(classes), len(byte_classes), tuple(mixed), undetermined)


def draw_pair(records: Sequence[CaseRecord], seed: str) -> list[CaseRecord]:
    """Two usable cases of a group drawn by seed, of different bytes where the group has them."""

    def rank(record: CaseRecord) -> str:
        return hashlib.sha256(f"{seed}\0{record.id}".encode()).hexdigest()

    ordered = sorted((record for record in records if record.usable), key=rank)
    if len(ordered) < 2:
        return ordered
    other = next((record for record in ordered[1:] if record.label != ordered[0].label), ordered[1])
    return [ordered[0], other]
