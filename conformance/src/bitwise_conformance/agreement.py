"""Readings of the corpus held against recorded bytes: classes that mix bytes, and classes over byte classes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bitwise_conformance.cases import Case
from bitwise_conformance.digest import normalised_digest
from bitwise_conformance.records import CaseRecord
from bitwise_core.checker import Source, buffer_numbers
from bitwise_core.machine.launch import Launch, ManifestError, read_manifest


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


@cache
def _buffers(target: str, family: str, group: str) -> tuple[tuple[str, int], ...]:
    from bitwise_conformance import corpus

    members = [case for case in corpus.cases(target) if (case.family, case.group) == (family, group)]
    names = {array.name for case in members for array in case.arrays}
    return tuple(buffer_numbers(names).items())


def group_buffers(case: Case) -> dict[str, int]:
    """The numbers of the buffers, the same for all cases of the case's group."""
    return dict(_buffers(case.target, case.family, case.group))


def compile_source(case: Case) -> tuple[Source, str, float]:
    """The case compiled here: what is read of it, the digest of its text, and the compiler's time in seconds."""
    from bitwise_conformance.compiling import compile_case

    captured = compile_case(case)
    launch = Launch.model_validate({"file": f"{case.name}.{captured.extension}", **captured.manifest_entry})
    return Source(case.id, captured.assembly, launch), normalised_digest(captured.assembly), captured.compile_seconds


@cache
def _stored(folder: Path) -> Mapping[str, Launch]:
    return {launch.file: launch for launch in read_manifest(folder / "manifest.json").kernels}


def stored_source(case: Case, folder: Path) -> tuple[Source, str]:
    """The case as `compiling.write_folders` wrote it under a folder: what is read of it, and the digest of its text.

    Raises ManifestError where it is not there.
    """
    place = folder / case.family / case.group
    launch = next((each for file, each in _stored(place).items() if Path(file).stem == case.name), None)
    if launch is None:
        raise ManifestError(f"{place / 'manifest.json'}: there is no kernel {case.name}; compile the corpus again")
    text = (place / launch.file).read_text(encoding="utf-8")
    return Source(case.id, text, launch), normalised_digest(text)


def draw_pair(records: Sequence[CaseRecord], seed: str) -> list[CaseRecord]:
    """Two usable cases of a group drawn by seed, of different bytes where the group has them."""

    def rank(record: CaseRecord) -> str:
        return hashlib.sha256(f"{seed}\0{record.id}".encode()).hexdigest()

    ordered = sorted((record for record in records if record.usable), key=rank)
    if len(ordered) < 2:
        return ordered
    other = next((record for record in ordered[1:] if record.label != ordered[0].label), ordered[1])
    return [ordered[0], other]
