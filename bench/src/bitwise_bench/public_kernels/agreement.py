"""Figures about launches that were read: what is Unknown, classes against byte classes, and what is not determined."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Entry = Mapping[str, Any]
"""A launch as `read.read_launch` returns it."""

PARTS = ("open", "held out")
"""The parts of the launches: one may be looked at to mend the reading, the other is read to measure it."""

_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_NAME = re.compile(r"%[\w.$]+|\$L__BB\w+|`[^`]*`|'[^']*'|\"[^\"]*\"")


def part_of(launch: str) -> str:
    """Return the part of a launch, given as source/case/launch: half of all launches by a hash of the name."""
    return PARTS[hashlib.sha256(launch.encode()).digest()[0] & 1]


def agreement(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the figures of some launches.

    A kernel is determined if it ran, all repetitions returned the same bytes, and no two executions that its text
    allows are known to leave different ones; without recorded bytes, if the reading does not say otherwise.
    `witnessed` counts the kernels whose bytes did not move and that have such a witness (`witnesses.with_witnesses`);
    those of them for which the reading gives a place are `named, witnessed`.  `unknown` counts determined kernels
    without a class, `undetermined` those of them whose result the reading calls not determined.  `classes` and
    `byte classes` are of the other determined kernels, and `ratio` is None where nothing ran.  `functions` are the
    byte classes, divided where a search found an input on which two kernels differ (`read.with_searched`); None where
    nothing was searched.  `compile seconds` are None where none were recorded; `CPU seconds` are those of reading, and
    `reading over compiling` are ratios of CPU seconds, of the kernels that have them (`read.with_times`).
    `unknown, assuming` counts the kernels that are Unknown also under an assumption under which they were read
    again. `mixed` has a pair of kernels of each class with different bytes, recorded or searched. Of the kernels
    whose bytes `moved`, the reading has `named` those for which it gives a place, and `missed` those with a class.
    """
    assumptions = sorted(
        {each for entry in entries for kernel in entry["kernels"] for each in kernel.get("assuming", {})}
    )
    assuming = dict.fromkeys(assumptions, 0)
    counts = {"launches": len(entries), "kernels": 0, "determined": 0, "unknown": 0, "undetermined": 0}
    counts |= {"classes": 0, "byte classes": 0, "moved": 0, "named": 0, "missed": 0, "not run": 0}
    counts |= {"witnessed": 0, "named, witnessed": 0}
    functions = 0
    mixed: list[list[str]] = []
    missed: list[str] = []
    seconds, compiling, cores, ratios = list[float](), list[float](), list[float](), list[float]()
    for entry in entries:
        classes: dict[int, list[tuple[str, tuple[str, int]]]] = {}
        for kernel in entry["kernels"]:
            counts["kernels"] += 1
            seconds.append(kernel["seconds"])
            if kernel.get("compile seconds"):
                compiling.append(kernel["compile seconds"])
            reading, compiled = kernel.get("CPU seconds", (None, None))
            if reading is not None:
                cores.append(reading)
                if compiled:
                    ratios.append(round(reading / compiled, 3))
            path = f"{entry['launch']}/{kernel['file']}"
            if kernel["error"]:
                counts["not run"] += 1
                continue
            if kernel["moved"]:
                counts["moved"] += 1
                counts["named"] += bool(kernel["undetermined"] or kernel["places"])
                if kernel["unknown"] is None:
                    counts["missed"] += 1
                    missed.append(path)
                continue
            if kernel["hashes"] is None and kernel["undetermined"]:
                continue
            if kernel.get("witness"):
                counts["witnessed"] += 1
                counts["named, witnessed"] += bool(kernel["undetermined"] or kernel["places"])
                continue
            counts["determined"] += 1
            if kernel["unknown"] is not None:
                counts["unknown"] += 1
                counts["undetermined"] += kernel["undetermined"]
                for name in assumptions:
                    assuming[name] += kernel.get("assuming", {}).get(name, "not read again") is not None
                continue
            found = json.dumps(kernel["hashes"]), kernel.get("searched", 0)
            classes.setdefault(kernel["class"], []).append((path, found))
        counts["classes"] += len(classes)
        patterns = {found for members in classes.values() for _, found in members}
        functions += len(patterns)
        counts["byte classes"] += len({recorded for recorded, _ in patterns})
        for members in classes.values():
            other = next((path for path, found in members if found != members[0][1]), None)
            if other is not None:
                mixed.append([members[0][0], other])
    ran = any(kernel["hashes"] for entry in entries for kernel in entry["kernels"])
    searched = any("searched" in kernel for entry in entries for kernel in entry["kernels"])
    ratio = round(counts["classes"] / counts["byte classes"], 4) if ran and counts["byte classes"] else None
    share = counts["unknown"] / counts["determined"] if counts["determined"] else 0.0
    return {
        **counts,
        "ratio": ratio,
        "functions": functions if searched else None,
        "unknown share": round(share, 4),
        "unknown, assuming": assuming,
        "mixed": mixed,
        "missed kernels": missed,
        "seconds": _spread(seconds),
        "compile seconds": _spread(compiling) if compiling else None,
        "CPU seconds": {**_spread(cores), "above 60 s": sum(each > 60 for each in cores)} if cores else None,
        "reading over compiling": _points(ratios) if ratios else None,
    }


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    return {**_points(seconds), "sum": round(sum(seconds), 1)}


def _points(numbers: Sequence[float]) -> dict[str, float]:
    ordered = sorted(numbers) or [0.0]
    return {"median": ordered[len(ordered) // 2], "p90": ordered[9 * len(ordered) // 10], "most": ordered[-1]}


def reasons_of(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return the reasons for Unknown without their names and numbers, most frequent first, with examples.

    A kernel whose bytes moved, or that has a witness, and was called not determined, is not counted.
    """
    found: dict[str, dict[str, Any]] = {}
    for path, entry, kernel in _unknown(entries):
        words = shortened(kernel["unknown"])
        if kernel["undetermined"]:
            words = f"not determined: {words}"
        each = found.setdefault(words, {"reason": words, "kernels": 0, "launches": [], "examples": []})
        each["kernels"] += 1
        if entry["launch"] not in each["launches"]:
            each["launches"].append(entry["launch"])
            if len(each["examples"]) < 3:
                each["examples"].append([path, kernel["unknown"]])
    return sorted(found.values(), key=lambda each: -int(each["kernels"]))


def _unknown(entries: Sequence[Entry]) -> Iterator[tuple[str, Entry, Entry]]:
    for entry in entries:
        for kernel in entry["kernels"]:
            apart = (kernel["moved"] or kernel.get("witness")) and kernel["undetermined"]
            if kernel["unknown"] is not None and not apart:
                yield f"{entry['launch']}/{kernel['file']}", entry, kernel


def shortened(reason: str) -> str:
    """Return a reason without the names and numbers of its kernel."""
    return " ".join(_NUMBER.sub("N", _NAME.sub("X", reason)).split())[:200]
