"""A record of several runs of `product_forms`, from the files of calls that they wrote.

    python -m bitwise_bench.cublas.product_form_records forms-1.json forms-2.json --record NAME [--add | --again]

A run is its record, beside which the file of its calls has the same name with `.jsonl`. Runs on one GPU with one
library are counted together by setting. NAME.jsonl.xz has a line for each run: what its calls were drawn from, and the
numbers of its calls by outcome, as distances. With --add the runs are counted with those of the record NAME. With
--again they are those of `product_forms --again`, whose outcomes replace those of the same calls in the record.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.product_forms import record_of, to_compare_again

MACHINE = ("gpu", "torch", "library", "driver")


def calls_of(path: Path) -> list[list[Any]]:
    """The rows of a file of calls; a truncated last line is ignored."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def distances(numbers: Sequence[int]) -> list[int]:
    """The first of ascending numbers, and the distance of each to the one before."""
    return [each - before for before, each in zip((0, *numbers), numbers, strict=False)]


def both(record: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The record of the runs of two records. Raises ValueError for records of two machines."""
    if record["environment"] != other["environment"]:
        raise ValueError(
            f"the runs are of several machines or versions: {record['environment']} and {other['environment']}"
        )
    settings: dict[str, Any] = dict(record["settings"])
    for name, added in other["settings"].items():
        before = settings.get(name)
        settings[name] = added if before is None else {
            "totals": _added(before["totals"], added["totals"]),
            "outcomes": {
                each: _added(before["outcomes"].get(each, {}), added["outcomes"].get(each, {}))
                for each in sorted({*before["outcomes"], *added["outcomes"]})
            },
            "different": [*before["different"], *added["different"]],
            "reasons": _added(before["reasons"], added["reasons"]),
        }  # fmt: skip
    return {
        "environment": record["environment"], "settings": {name: settings[name] for name in sorted(settings)},
        "died": [*record["died"], *other["died"]],
    }  # fmt: skip


def _added(counts: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(counts) + Counter(others))


def replaced(
    record: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], paths: Sequence[Path]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The record and its lines with the outcomes of calls that were compared again.

    Raises ValueError unless all runs of a setting were, on the same machine, and all their calls that were not equal.
    """
    again = together(paths)[0]
    if again["environment"] != record["environment"]:
        raise ValueError(f"the runs are of another machine: {record['environment']} and {again['environment']}")
    rows = {
        json.loads(path.read_text("utf-8"))["environment"]["seed"]: calls_of(path.with_suffix(".jsonl"))
        for path in paths
    }
    settings, made = {name: json.loads(json.dumps(each)) for name, each in record["settings"].items()}, []
    for line in lines:
        outcome_of = {number: name for name, each in line["calls"].items() for number in itertools.accumulate(each)}
        if line["setting"] not in again["settings"]:
            made.append(dict(line))
            continue
        if line["seed"] not in rows or not {row[0] for row in rows[line["seed"]]} >= set(to_compare_again(line)):
            raise ValueError(f"not all calls of seed {line['seed']} that were not equal were compared again")
        if any(row[3] == "failed" for row in rows[line["seed"]]):
            raise ValueError(f"calls of seed {line['seed']} failed when they were compared again")
        counted = settings[line["setting"]]
        for number, kind, dtype, outcome, *_ in rows[line["seed"]]:
            before, outcome_of[number] = outcome_of[number], outcome
            for counts in (counted["totals"], counted["outcomes"].setdefault(f"{kind} {dtype}".strip(), {})):
                counts[before] = counts.get(before, 0) - 1
                counts[outcome] = counts.get(outcome, 0) + 1
        numbers: dict[str, list[int]] = {}
        for number in sorted(outcome_of):
            numbers.setdefault(outcome_of[number], []).append(number)
        made.append({**line, "calls": {name: distances(each) for name, each in sorted(numbers.items())}})
    for name, each in again["settings"].items():
        counted = settings[name]
        counted["totals"] = {outcome: count for outcome, count in counted["totals"].items() if count}
        counted["outcomes"] = {
            kind: {outcome: count for outcome, count in counts.items() if count}
            for kind, counts in sorted(counted["outcomes"].items())
        }
        counted |= {part: each[part] for part in ("different", "reasons")}
    return {**record, "settings": settings, "died": [*record["died"], *again["died"]]}, made


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of runs of a compressed file."""
    return [json.loads(line) for line in lzma.decompress(path.read_bytes()).decode().splitlines()]


def together(paths: Sequence[Path]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The record of runs, and a line for each of them. Raises ValueError for runs on two machines."""
    by_setting: dict[str, list[list[Any]]] = {}
    machine: dict[str, Any] | None = None
    lines, died = [], []
    for path in paths:
        run = json.loads(path.read_text(encoding="utf-8"))
        about = run["environment"]
        here = {name: about[name] for name in MACHINE} | {"compared": run["compared"]}
        machine = machine or here
        if here != machine:
            raise ValueError(f"the runs are of several machines or versions: {machine} and {here}")
        found = sorted(calls_of(path.with_suffix(".jsonl")), key=lambda row: int(row[0]))
        by_setting.setdefault(about["setting"], []).extend(found)
        died += run["died"]
        numbers: dict[str, list[int]] = {}
        for number, _, _, outcome, *_ in found:
            numbers.setdefault(outcome, []).append(number)
        drawn = {
            name: about[name] for name in ("seed", "setting", "kinds", "types", "exponents", "regimes") if name in about
        }
        lines.append(drawn | {"calls": {name: distances(each) for name, each in sorted(numbers.items())}})
    settings = {}
    for name in sorted(by_setting):
        counted = record_of(by_setting[name], [], {}, "")
        totals: Counter[str] = Counter()
        for each in counted["outcomes"].values():
            totals.update(each)
        settings[name] = {"totals": dict(totals)} | {
            part: counted[part] for part in ("outcomes", "different", "reasons")
        }  # fmt: skip
    return {"environment": machine, "settings": settings, "died": died}, lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the record. The exit status is 1 if bytes differ, 2 if the runs do not belong together."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.product_form_records", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--record", type=Path, required=True, help="write NAME.json and NAME.jsonl.xz")
    parser.add_argument("--add", action="store_true", help="count the runs with those that the record has")
    parser.add_argument("--again", action="store_true", help="replace outcomes of the record by those of the runs")
    given = parser.parse_args(arguments)
    summary, runs = (given.record.with_name(given.record.name + end) for end in (".json", ".jsonl.xz"))
    try:
        if given.again:
            record, lines = replaced(json.loads(summary.read_text(encoding="utf-8")), lines_of(runs), given.runs)
        else:
            record, lines = together(given.runs)
        if given.add:
            known = lines_of(runs)
            if again := [each["seed"] for each in known if each["seed"] in {new["seed"] for new in lines}]:
                raise ValueError(f"{runs.name} has runs of the seeds {again} already; draw calls from other seeds")
            record = both(json.loads(summary.read_text(encoding="utf-8")), record)
            lines = [*known, *lines]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    summary.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    text = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in lines)
    packed = lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
    runs.write_bytes(packed)
    different = 0
    for name, each in record["settings"].items():
        print(f"{name}: {json.dumps(each['totals'])}")
        different += each["totals"].get("different", 0) + each["totals"].get("failed", 0)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
