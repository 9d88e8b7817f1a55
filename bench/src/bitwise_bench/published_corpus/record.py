"""The record of the corpus: figures of each row and kernel, from the results on disk, beside the published ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bitwise_bench.public_kernels.agreement import shortened
from bitwise_bench.published_corpus.catalogue import Group, cases_of, definition_of, groups, size_of
from bitwise_bench.published_corpus.published import ROWS, SOURCE, TOTAL
from bitwise_bench.published_corpus.shards import read_shard, shard_path
from bitwise_bench.readings.byte_agreement import KernelResult, compare
from bitwise_bench.recorded_bytes import CaseRecord, label_cases

_STEPS = ("compile", "read", "run")
_REASONS = 12
_PAIRS = 20


def record_of(folder: Path, target: str) -> dict[str, Any]:
    """Return the record of the results of a target in a folder.

    `rows` are the published rows in their format, `groups` all groups of a kernel and a format, `total` the whole
    corpus.  A group that is not complete has figures of what is done.
    """
    environment = folder / target / "environment.json"
    entries = {group: _entries(folder / target, group, target) for group in groups(target)}
    rows = {}
    for row in ROWS:
        if target not in row.of_target:
            continue
        mine = [group for group in entries if group.main and group.row == row.name]
        figures = _figures([each for group in mine for each in entries[group]])
        planned = sum(size_of(group, target) for group in mine)
        of_row = {"dtype": row.dtype, "kernels": len(mine), "planned": planned, **figures}
        rows[row.name] = {**of_row, "published": asdict(row.of_target[target])}
    by_group = []
    for group, results in entries.items():
        about = {"kernel": group.kernel, "dtype": group.dtype, "row": group.row}
        by_group.append({**about, "planned": size_of(group, target), **_figures(results)})
    everything = [each for mine in entries.values() for each in mine]
    return {
        "environment": json.loads(environment.read_text()) if environment.exists() else {},
        "target": target,
        "source": SOURCE,
        "rows": rows,
        "total": {
            "kernels": len({group.kernel for group in entries}),
            "formats": len({group.dtype for group in entries}),
            "planned": sum(each["planned"] for each in by_group),
            **_figures(everything),
            "published": TOTAL[target],
        },
        "reasons": _reasons(everything),
        "groups": by_group,
    }


def _entries(folder: Path, group: Group, target: str) -> list[Mapping[str, Any]]:
    """Return the entries of a group in the order of its grid; those of other configurations or kernels are ignored."""
    stored = read_shard(shard_path(folder, group))
    if not stored:
        return []
    definition = definition_of(group, target)
    found = [stored[case.id] for case in cases_of(group, target) if case.id in stored]
    return [each for each in found if each.get("definition") == definition]


def _figures(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of some configurations.

    `classes` are those of configurations with a signature, within each group.  `byte classes`, `ratio` and
    `wrong merges` are of those that also ran with the same bytes in every repetition, and None where nothing ran.
    `wrong merges` holds pairs of configurations of one class with different bytes.
    """
    measured = [each for each in entries if not each.get("failure")]
    read = [each for each in measured if "signature" in each]
    ran = any("bytes" in each for each in measured)
    agreement = compare(map(_result, measured), _recorded(measured))
    unknown = [each for each in measured if "unknown" in each and not each["nondeterministic"]]
    return {
        "done": len(entries),
        "texts": len({(_group(each), each["text"]) for each in measured}),
        "classes": len({(_group(each), each["signature"]) for each in read}),
        "compared": agreement.compared if ran else None,
        "compared classes": agreement.classes if ran else None,
        "byte classes": agreement.byte_classes if ran else None,
        "ratio": round(agreement.ratio, 4) if ran else None,
        "wrong merges": [list(pair) for pair in agreement.mixed[:_PAIRS]] if ran else None,
        "unknown": len(unknown),
        "nondeterministic": agreement.nondeterministic,
        "failed": len(entries) - len(measured),
        "not run": sum("error" in each for each in measured),
        "not repeated": sum(each.get("repeated") is False for each in measured),
        "seconds": {step: _spread(each["seconds"].get(step, 0.0) for each in measured) for step in _STEPS},
    }


def _group(entry: Mapping[str, Any]) -> str:
    return str(entry["id"]).rsplit("/", 1)[0]


def _result(entry: Mapping[str, Any]) -> KernelResult:
    return KernelResult(
        entry["id"], entry["text"], entry.get("signature"), entry.get("unknown"), entry.get("nondeterministic", False)
    )


def _recorded(entries: Iterable[Mapping[str, Any]]) -> dict[str, CaseRecord]:
    """Return the bytes of the configurations that ran, in the form of a recording."""
    found = []
    for entry in entries:
        if "bytes" in entry:
            family, group, _ = entry["id"].split("/", 2)
            found.append({**entry, "family": family, "group": group, "hashes": [[entry["bytes"]]]})
    return {
        each["id"]: CaseRecord(
            each["id"], each["family"], each["group"], each["text"], each["text"], (), ((each["bytes"],),),
            each["repeated"], each["label"], None,
        )
        for each in label_cases(found)
    }  # fmt: skip


def _spread(seconds: Iterable[float]) -> dict[str, float]:
    """Return the sum, and the median and the ninth decile of what was not recalled."""
    ordered = sorted(each for each in seconds if each > 0) or [0.0]
    return {
        "sum": round(sum(ordered), 1),
        "median": round(ordered[len(ordered) // 2], 4),
        "p90": round(ordered[9 * len(ordered) // 10], 4),
    }


def _reasons(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the reasons for Unknown, failed compilations and failed launches without names and numbers."""
    counts: Counter[str] = Counter()
    example: dict[str, str] = {}
    for entry in entries:
        for kind in ("unknown", "failure", "error"):
            if kind in entry:
                words = f"{kind}: {shortened(entry[kind])}"
                counts[words] += 1
                example.setdefault(words, entry["id"])
    return [
        {"reason": words, "configurations": count, "example": example[words]}
        for words, count in counts.most_common(_REASONS)
    ]
