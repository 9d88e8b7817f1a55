"""Recorded output bytes of a corpus, and their JSON file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any


class RecordError(ValueError):
    """A file of recorded bytes cannot be used; the message names the file and the fault."""


@dataclass(frozen=True, slots=True)
class CaseRecord:
    """The output bytes of one configuration.

    `digest` is the normalised digest of the kernel that ran.  `hashes[draw][output]` are the hashes of its output
    buffers, in the order of `Records.draws` and `outputs`.  `repeated` is whether all repetitions returned the same
    bytes.  `label` is the number of the byte class in the group (same label, same hashes), None where the configuration
    failed.  `captured` is the digest of the kernel compiled without a GPU for the declared launch, None where that
    failed.
    """

    id: str
    family: str
    group: str
    digest: str | None
    captured: str | None
    outputs: tuple[str, ...]
    hashes: tuple[tuple[str, ...], ...]
    repeated: bool
    label: int | None
    error: str | None

    @property
    def usable(self) -> bool:
        """Whether the configuration ran and every repetition returned the same bytes."""
        return self.error is None and self.repeated


@dataclass(frozen=True, slots=True)
class Records:
    """All configurations of one recording, with its environment."""

    environment: Mapping[str, str]
    draws: tuple[str, ...]
    cases: tuple[CaseRecord, ...]

    def by_id(self) -> dict[str, CaseRecord]:
        """Return the configurations by their id."""
        return {case.id: case for case in self.cases}

    def groups(self) -> dict[tuple[str, str], tuple[CaseRecord, ...]]:
        """Return the configurations of each (family, group), in recorded order."""
        found: dict[tuple[str, str], list[CaseRecord]] = {}
        for case in self.cases:
            found.setdefault((case.family, case.group), []).append(case)
        return {key: tuple(members) for key, members in found.items()}


def label_cases(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the results with the key `label`: 0, 1, ... in each (family, group), by first occurrence of the hashes."""
    classes: dict[tuple[str, str], dict[str, int]] = {}
    labelled = []
    for entry in results:
        label = None
        if entry.get("error") is None:
            known = classes.setdefault((entry["family"], entry["group"]), {})
            label = known.setdefault(json.dumps(entry["hashes"]), len(known))
        labelled.append({**entry, "label": label})
    return labelled


def save_records(
    path: Path, environment: Mapping[str, str], draws: Iterable[str], results: Iterable[dict[str, Any]]
) -> None:
    """Write one JSON file, compressed with gzip if its name ends in `.gz`."""
    content = {"environment": dict(environment), "draws": list(draws), "cases": label_cases(results)}
    text = json.dumps(content, separators=(",", ":")).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def load_records(path: Path | str) -> Records:
    """Read a file that `save_records` wrote.

    Raises RecordError where the file is missing, is not JSON, or lacks a key.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
        content = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        return Records(
            MappingProxyType(dict(content["environment"])),
            tuple(content["draws"]),
            tuple(_record(entry) for entry in content["cases"]),
        )
    except OSError as error:
        raise RecordError(
            f"{path}: cannot be read ({error.strerror or error}); give the path of a file of recorded bytes"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path}: is not a file of recorded bytes ({error}); record it again") from error


def _record(entry: Mapping[str, Any]) -> CaseRecord:
    return CaseRecord(
        id=entry["id"],
        family=entry["family"],
        group=entry["group"],
        digest=entry.get("digest"),
        captured=entry.get("captured"),
        outputs=tuple(entry.get("outputs", ())),
        hashes=tuple(tuple(row) for row in entry.get("hashes", ())),
        repeated=bool(entry.get("repeated", False)),
        label=entry["label"],
        error=entry.get("error"),
    )
