"""Provenance of a profile's rows, counted from sweeps and surveys.

    python -m bitwise_bench.cublas.row_evidence records/cublas-s*-sm90-*-13.1*.jsonl.xz

Every shape of a sweep is described again. A row used by equal shapes is measured; it gets the number of shapes and
draws, and a scalar family's row also the layouts. A row used by surveyed orders is measured too; `orders` counts them.
Other rows are unchanged. If the bytes of a shape differed, it is printed and nothing is written. A shape whose recorded
`descriptor` digest is not that of the present description is ignored.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from bitwise_bench.compressed_text import read_text
from bitwise_bench.cublas.orders.order_survey_check import Case, agrees, cases, read
from bitwise_core.descriptors import GEMMDesc
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.profile import OPTIONAL, SECTIONS, Profile, Row, RowNotCovered, profiles
from bitwise_cublas_profiles.query import Configuration, GemmQuery, gemm_query

BY_LAYOUT = ("chains", "lanes", "slices")
"""Tables of scalar kernels, whose rows may apply to some layouts only."""


def digest(desc: GEMMDesc) -> str:
    """Eight digits that identify a descriptor's text; never used to compare bits."""
    return hashlib.sha256(desc.to_text().encode()).hexdigest()[:8]


class RecordingProfile(Profile):
    """A profile that records the rows that a description uses."""

    def record_use(self, section: str, row: Row) -> None:
        """Append the row to `about["rows"]`."""
        self.about["rows"].append((section, json.dumps(row, sort_keys=True)))


def without_counts(known: Profile) -> RecordingProfile:
    """The same rows without counts and layouts of earlier runs."""
    tables = {}
    for name, rows in known.tables.items():
        dropped = {"shapes", "draws", "orders", *(("transposes",) if name in BY_LAYOUT else ())}
        tables[name] = tuple({key: value for key, value in row.items() if key not in dropped} for row in rows)
    return RecordingProfile(known.key, known.architecture, tables, {"rows": []})


def query_and_configuration(line: dict[str, Any]) -> tuple[GemmQuery, Configuration]:
    """The query and the configuration of a sweep's line."""
    first, second = (letter == "T" for letter in line["transposes"])
    query = gemm_query(line["m"], line["n"], line["k"], line["a"], line["c"], transpose_a=first, transpose_b=second)
    names = ("algorithm", "tile", "stages", "split_k", "reduction", "custom", "cluster_shape")
    return query, Configuration(swizzle=0, inner_shape=0, **{name: line[name] for name in names})


def lines(path: Path) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The header of a sweep, and its lines as dictionaries by column."""
    text = read_text(path)
    first, *rest = text.splitlines()
    about = json.loads(first)
    names = about.get("columns", ())
    return about, (dict(zip(names, json.loads(line), strict=True)) for line in rest if names)


def count_evidence(
    known: Profile, found: Iterable[dict[str, Any]], surveyed: Iterable[Case] = ()
) -> tuple[dict[str, list[Row]], list[str]]:
    """The rows of every table with their counts, and the described cases whose bytes or trees differed.

    A line of a sweep has its columns and `draws`, their number.
    """
    counter, wrong = without_counts(known), []
    shapes: Counter[tuple[str, str]] = Counter()
    draws: Counter[tuple[str, str]] = Counter()
    orders: Counter[tuple[str, str]] = Counter()
    layouts: dict[tuple[str, str], set[str]] = {}
    for case in surveyed:
        query, configuration, _ = case
        counter.about["rows"].clear()
        try:
            if not agrees(case, counter):
                wrong.append(f"a surveyed order: {query.description} by {configuration.record()}")
                continue
        except RowNotCovered:
            continue
        for each in set(counter.about["rows"]):
            orders[each] += 1
            layouts.setdefault(each, set()).add(query.transposes)
    for line in found:
        if line["outcome"] not in ("equal", "different"):
            continue
        query, configuration = query_and_configuration(line)
        rows = counter.about["rows"]
        rows.clear()
        try:
            desc = descriptor_of(query, configuration, counter)
        except RowNotCovered:
            continue
        if line.get("descriptor") not in (None, digest(desc)):
            continue
        used = set(rows)
        if line["outcome"] == "different":
            wrong.append(f"{line['number']}: {query.description} (algorithm {configuration.algorithm})")
            continue
        for each in used:
            shapes[each] += 1
            draws[each] += line["draws"]
            layouts.setdefault(each, set()).add(query.transposes)
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
                row["orders"] = orders[key]
            if section in BY_LAYOUT:
                # Published rows without evidence apply to row-major operands.
                row["transposes"] = sorted(layouts.get(key, {"NN"}))
            result[section].append(row)
    return result, wrong


def with_tables(text: str, tables: dict[str, list[Row]]) -> str:
    """The data file's text with other rows, one to a line."""
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
    """Rewrite the data file of the library and architecture. The exit status is 1 if bytes or trees differed."""
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
        print(
            f"the files are of {keys or 'no library'}; pass measurements of one library and architecture",
            file=sys.stderr,
        )
        return 2
    known = profiles()[keys.pop()]
    tables, wrong = count_evidence(known, found, surveyed)
    for each in wrong:
        print(f"the descriptor is wrong: {each}", file=sys.stderr)
    if wrong:
        return 1
    data = Path(str(files("bitwise_cublas_profiles"))) / "data" / f"{known.architecture}-{known.key[0]}.json"
    data.write_text(with_tables(data.read_text(encoding="utf-8"), tables), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
