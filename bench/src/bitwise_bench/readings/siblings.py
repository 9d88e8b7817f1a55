"""The readings of architectures without a GPU, in one record.

    python -m bitwise_bench.readings.siblings reading-sm_120.json --into records/reading-siblings.json

Adds the summaries of `bitwise_bench.readings.precision` to the record, by target; a target that it has is replaced.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser

KEPT = (
    "environment",
    "simulated",
    "draws",
    "modes",
    "unknown",
    "uncompiled",
    "seconds",
    "carried",
    "sample",
    "left out",
    "read again",
)
"""The parts of a reading that the record keeps where it has them, beside the number of its families."""


def merged(record: Mapping[str, Any], readings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the record with further readings, in the order of the targets."""
    added = {
        each["target"]: {**{key: each[key] for key in KEPT if key in each}, "families": len(each["families"])}
        for each in readings
    }
    return dict(sorted({**record, **added}.items()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Add readings to the record."""
    parser = command_parser("readings.siblings", __doc__)
    parser.add_argument("readings", nargs="+", type=Path, help="summaries that readings.precision wrote")
    parser.add_argument("--into", type=Path, required=True, help="the record, which is created or extended")
    chosen = parser.parse_args(arguments)
    before = json.loads(chosen.into.read_text(encoding="utf-8")) if chosen.into.exists() else {}
    found = merged(before, [json.loads(path.read_text(encoding="utf-8")) for path in chosen.readings])
    chosen.into.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
