"""Provenance of a profile's rows, counted from the lines of sweeps and surveys.

    python -m bitwise_cublas_profiles.provenance records/cublas-s*-sm90-*-13.1*.jsonl.xz

Every shape of a sweep is described again; a row that equal shapes rest on is measured, with the number of shapes and
of draws, and a scalar family's row with the layouts seen; any other keeps what it says.  A shape whose bytes differed
is named and nothing is written.  A shape that ran with another descriptor than today's, by the line's `descriptor`,
counts for nothing.  A row is measured too where orders rest on it that a survey read, which `read` counts.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from bitwise_core.descriptors import GEMMDesc
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.profile import OPTIONAL, SECTIONS, Declined, Profile, Row, profiles
from bitwise_cublas_profiles.question import Configuration, Question
from bitwise_cublas_profiles.surveyed import Case, agrees, cases, read

BY_LAYOUT = ("chains", "lanes", "slices")
"""Tables whose rows may hold for one layout and not for another: an order of scalar kernels."""


def digest(desc: GEMMDesc) -> str:
    """Eight digits that tell a descriptor from that of another day; never used to tell bits apart."""
    return hashlib.sha256(desc.to_text().encode()).hexdigest()[:8]


class Counting(Profile):
    """A profile that remembers which rows a description rested on."""

    def used(self, section: str, row: Row) -> None:
        """Remembers it, in `about["rows"]`."""
        self.about["rows"].append((section, json.dumps(row, sort_keys=True)))


def counting(known: Profile) -> Counting:
    """The same rows, without the counts and layouts of earlier sweeps."""
    tables = {}
    for name, rows in known.tables.items():
        dropped = {"shapes", "draws", "read", *(("transposes",) if name in BY_LAYOUT else ())}
        tables[name] = tuple({key: value for key, value in row.items() if key not in dropped} for row in rows)
    return Counting(known.key, known.architecture, tables, {"rows": []})


def asked_of(line: dict[str, Any]) -> tuple[Question, Configuration]:
    """The question and the configuration of a sweep's line."""
    first, second = (letter == "T" for letter in line["transposes"])
    right = "e4m3" if line["a"] == "e5m2" else line["a"]
    asked = Question(
        line["m"], line["n"], line["k"], line["a"], right, line["c"], transpose_a=first, transpose_b=second
    )
    names = ("algorithm", "tile", "stages", "split_k", "reduction", "custom", "cluster_shape")
    return asked, Configuration(swizzle=0, inner_shape=0, **{name: line[name] for name in names})


def lines(path: Path) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """What describes a sweep, and its lines by name of column."""
    content = path.read_bytes()
    text = (lzma.decompress(content) if path.suffix == ".xz" else content).decode()
    first, *rest = text.splitlines()
    about = json.loads(first)
    names = about.get("columns", ())
    return about, (dict(zip(names, json.loads(line), strict=True)) for line in rest if names)


def counted(
    known: Profile, found: Iterable[dict[str, Any]], surveyed: Iterable[Case] = ()
) -> tuple[dict[str, list[Row]], list[str]]:
    """The rows of every table with their counts, and the described cases whose bytes or trees differed.

    A line of a sweep has `draws`, the number of them, beside its columns.
    """
    counter, wrong = counting(known), []
    shapes: Counter[tuple[str, str]] = Counter()
    draws: Counter[tuple[str, str]] = Counter()
    orders: Counter[tuple[str, str]] = Counter()
    layouts: dict[tuple[str, str], set[str]] = {}
    for case in surveyed:
        asked, configuration, _ = case
        counter.about["rows"].clear()
        try:
            if not agrees(case, counter):
                wrong.append(f"an order that was read: {asked.words} by {configuration.record()}")
                continue
        except Declined:
            continue
        for each in set(counter.about["rows"]):
            orders[each] += 1
            layouts.setdefault(each, set()).add(asked.letters)
    for line in found:
        if line["outcome"] not in ("equal", "different"):
            continue
        asked, configuration = asked_of(line)
        rows = counter.about["rows"]
        rows.clear()
        try:
            desc = descriptor_of(asked, configuration, counter)
        except Declined:
            continue
        if line.get("descriptor") not in (None, digest(desc)):
            continue
        used = set(rows)
        if line["outcome"] == "different":
            wrong.append(f"{line['number']}: {asked.words} (algorithm {configuration.algorithm})")
            continue
        for each in used:
            shapes[each] += 1
            draws[each] += line["draws"]
            layouts.setdefault(each, set()).add(asked.letters)
    result: dict[str, list[Row]] = {}
    for section in SECTIONS:
        result[section] = []
        for plain in counter.tables[section]:
            key = (section, json.dumps(plain, sort_keys=True))
            row = dict(plain)
            provenance = row.pop("provenance")
            row["provenance"] = "measured" if shapes[key] or orders[key] else provenance
            if shapes[key]:
                row |= {"shapes": shapes[key], "draws": draws[key]}
            if orders[key]:
                row["read"] = orders[key]
            if section in BY_LAYOUT:
                # Without any the layout of what was published.
                row["transposes"] = sorted(layouts.get(key, {"NN"}))
            result[section].append(row)
    return result, wrong


def written(text: str, tables: dict[str, list[Row]]) -> str:
    """The data file's text with other rows, one a line."""
    content = json.loads(text)
    parts = []
    for name, value in content.items():
        if name in tables or name in OPTIONAL:
            rows = ",\n".join(f"    {json.dumps(row)}" for row in tables.get(name, value))
            parts.append(f'  "{name}": [\n{rows}\n  ]')
        else:
            parts.append(f'  "{name}": {json.dumps(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite the data file of the library and architecture; the exit status is 1 where bytes or trees differed."""
    paths = [Path(each) for each in (sys.argv[1:] if arguments is None else arguments)]
    found: list[dict[str, Any]] = []
    surveyed: list[Case] = []
    keys = set()
    for path in paths:
        about, rows = lines(path)
        version = str(about.get("library version") or about["library"])
        keys.add((".".join(version.split(".")[:2]), str(about["capability"])))
        if "algorithms" in about:
            surveyed.extend(cases(read(path)[1]))
            continue
        found.extend({**row, "draws": about["draws"]} for row in rows)
    if len(keys) != 1:
        print(f"measurements of {keys or 'nothing'}: give those of one library and architecture", file=sys.stderr)
        return 2
    known = profiles()[keys.pop()]
    tables, wrong = counted(known, found, surveyed)
    for each in wrong:
        print(f"described, and it differed: {each}", file=sys.stderr)
    if wrong:
        return 1
    data = Path(str(files("bitwise_cublas_profiles"))) / "data" / f"{known.architecture}-{known.key[0]}.json"
    data.write_text(written(data.read_text(encoding="utf-8"), tables), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
