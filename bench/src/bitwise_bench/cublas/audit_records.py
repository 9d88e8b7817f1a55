"""Combine audits of several libraries and GPUs into one record.

bitwise cublas audit --shapes shapes.txt --run --json > audit.json
python -m bitwise_bench.cublas.audit_records audit.json other.json --out records/cublas-audit-models.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLUMNS = ("m", "n", "k", "a", "algorithm", "stages", "split_k", "dropped", "counted")
"""Columns of a row. `dropped` is the predicted number of values left out of the sum, `counted` the result on ones."""


def compact(audit: Mapping[str, Any]) -> dict[str, Any]:
    """An audit with one row for each shape, and counts over the rows."""
    rows = []
    for shape in audit["shapes"]:
        found = {**shape, **(shape["configuration"] or {})}
        rows.append([found.get(name) for name in COLUMNS])
    sliced = sum(1 for row in rows if (row[COLUMNS.index("split_k")] or 1) > 1)
    return {
        "library": f"cuBLASLt {audit['version']}", "device": audit["device"], "driver": audit["driver"],
        "summary": {**audit["summary"], "split K": sliced}, "rows": rows,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the record."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.audit_records", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("audits", type=Path, nargs="+", help="what `bitwise cublas audit --json` printed")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    found = [compact(json.loads(each.read_text(encoding="utf-8"))) for each in given.audits]
    parts = []
    for each in found:
        rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in each.pop("rows"))
        parts.append(f'{json.dumps(each)[:-1]}, "rows": [\n{rows}\n]}}')
    listed = ",\n".join(parts)
    given.out.write_text(f'{{"columns": {json.dumps(COLUMNS)}, "audits": [\n{listed}\n]}}\n', encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
