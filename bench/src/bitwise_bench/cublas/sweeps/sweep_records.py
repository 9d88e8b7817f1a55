"""Count and archive the lines of a sweep.

    python -m bitwise_bench.cublas.sweeps.sweep_records sweep.jsonl --record records/cublas-sweep-sm90-h100-13.1-seed1

writes the counts as JSON, and the sorted lines as a compressed file of the same name.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

COLUMNS = (
    "number", "regime", "m", "n", "k", "a", "transposes", "c", "candidate", "algorithm", "tile", "stages", "split_k",
    "reduction", "custom", "cluster_shape", "outcome", "about", "control", "descriptor",
)  # fmt: skip
"""Columns of a line. `candidate` is 1 if no profile row covers the query and the descriptor was extrapolated. `outcome`
is equal, different, declined, no answer or failed. `about` is the reason, or [bit mask of the draws that differ, number
of elements that differ in the first, index of the first, cuBLAS's bits there, ours]. `control` is [the mutation, number
of draws that rejected it, number of cancelling ones], or "alternatives" and the names of the descriptors that returned
cuBLAS's bytes on every draw. `descriptor` has the first digits of a hash of the descriptor that ran.
"""


def summary(rows: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """Counts of outcomes by operand type and algorithm, of reasons and of controls, and the first differences."""
    at = {name: place for place, name in enumerate(COLUMNS)}
    outcomes: Counter[str] = Counter()
    families: Counter[str] = Counter()
    declined: Counter[str] = Counter()
    controls: dict[str, list[int]] = {}
    alternative: dict[str, Counter[str]] = {}
    different: list[list[Any]] = []
    for row in rows:
        kind = ("candidate " if row[at["candidate"]] else "") + str(row[at["a"]])
        outcome = str(row[at["outcome"]])
        outcomes[f"{kind}: {outcome}"] += 1
        split = "split" if (row[at["split_k"]] or 1) > 1 else "single"
        families[f"algorithm {row[at['algorithm']]} {split} {row[at['a']]}: {outcome}"] += 1
        if outcome in ("declined", "no answer", "failed"):
            declined[str(row[at["about"]])[:120]] += 1
        if outcome == "different" and len(different) < 40:
            different.append(list(row))
        if row[at["control"]] and row[at["control"]][0] == "alternatives":
            key = f"algorithm {row[at['algorithm']]} stages {row[at['stages']]} custom {row[at['custom']]}"
            alternative.setdefault(key, Counter()).update(row[at["control"]][1] or ["none"])
        elif row[at["control"]]:
            name, shown, *rest = row[at["control"]]
            ran = controls.setdefault(f"{name} algorithm {row[at['algorithm']]}", [0, 0, 0])
            ran[0] += 1
            ran[1] += shown > 0
            ran[2] += shown > 0 or any(rest)
    return {
        "outcomes": dict(sorted(outcomes.items())), "families": dict(sorted(families.items())),
        "not compared": dict(declined.most_common(30)),
        "controls run, caught, and caught with cancelling draws": dict(sorted(controls.items())),
        "alternatives": {name: dict(count.most_common(8)) for name, count in alternative.items()},
        "different": different,
    }  # fmt: skip


def read_lines(path: Path) -> tuple[dict[str, Any] | None, list[list[Any]]]:
    """The header of a sweep (None for no file) and its lines. A truncated line is ignored."""
    about: dict[str, Any] | None = None
    rows = []
    content = path.read_bytes() if path.exists() else b""
    text = (lzma.decompress(content) if path.suffix == ".xz" else content).decode()
    for line in text.splitlines():
        try:
            content = json.loads(line)
        except ValueError:
            continue
        if isinstance(content, list):
            rows.append(content)
        else:
            about = content
    return about, rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Count a sweep. The exit status is 1 if bytes differ, 2 if the file is not a sweep."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.sweeps.sweep_records", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--record", type=Path, help="write NAME.json and NAME.jsonl.xz")
    given = parser.parse_args(arguments)
    about, rows = read_lines(given.file)
    if about is None:
        print(f"{given.file}: is no sweep; one begins with a line that describes it", file=sys.stderr)
        return 2
    rows.sort(key=lambda row: int(row[0]))
    found = summary(rows)
    environment = {name: value for name, value in about.items() if name != "columns"}
    text = json.dumps({"environment": environment, "shapes": len(rows), **found}, indent=1) + "\n"
    if given.record is None:
        print(text, end="")
    else:
        given.record.with_name(given.record.name + ".json").write_text(text, encoding="utf-8")
        lines = (json.dumps(each, separators=(",", ":")) + "\n" for each in (about, *rows))
        content = lzma.compress("".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME)
        given.record.with_name(given.record.name + ".jsonl.xz").write_bytes(content)
    return 1 if found["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
