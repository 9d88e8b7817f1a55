"""A record of several runs of `product_forms`, from the files of calls that they wrote.

    python -m bitwise_bench.cublas.product_form_records forms-1.json forms-2.json --record NAME

A run is its record, beside which the file of its calls has the same name with `.jsonl`. Runs of one GPU and one library
are counted together by setting, and every call is kept in NAME.jsonl.xz, without those that were refused by PyTorch.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.product_forms import record_of

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


def together(paths: Sequence[Path]) -> tuple[dict[str, Any], list[list[Any]]]:
    """The record of runs, and their rows with the seed and the setting first. Raises ValueError for two machines."""
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    machines = [{name: run["environment"][name] for name in MACHINE} for run in runs]
    if any(each != machines[0] for each in machines):
        raise ValueError(f"the runs are of several machines or versions: {machines}")
    by_setting: dict[str, list[list[Any]]] = {}
    rows, died = [], []
    for path, run in zip(paths, runs, strict=True):
        seed, setting = run["environment"]["seed"], run["environment"]["setting"]
        found = calls_of(path.with_suffix(".jsonl"))
        by_setting.setdefault(setting, []).extend(found)
        rows += [[seed, setting, *each] for each in found if each[3] != "refused by PyTorch"]
        died += run["died"]
    settings = {}
    for name in sorted(by_setting):
        of_setting = record_of(by_setting[name], [], {}, runs[0]["compared"])
        totals: dict[str, int] = {}
        for each in of_setting["outcomes"].values():
            for outcome, count in each.items():
                totals[outcome] = totals.get(outcome, 0) + count
        settings[name] = {"totals": totals} | {
            part: of_setting[part] for part in ("outcomes", "different", "reasons")
        }  # fmt: skip
    return {"environment": machines[0], "compared": runs[0]["compared"], "settings": settings, "died": died}, rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the record. The exit status is 1 if bytes differ, 2 if the runs do not belong together."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.product_form_records", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--record", type=Path, required=True, help="write NAME.json and NAME.jsonl.xz")
    given = parser.parse_args(arguments)
    try:
        record, rows = together(given.runs)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    given.record.with_name(given.record.name + ".json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    lines = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in rows)
    packed = lzma.compress(lines.encode(), preset=9 | lzma.PRESET_EXTREME)
    given.record.with_name(given.record.name + ".jsonl.xz").write_bytes(packed)
    different = 0
    for name, each in record["settings"].items():
        print(f"{name}: {json.dumps(each['totals'])}")
        different += each["totals"].get("different", 0) + each["totals"].get("failed", 0)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
