"""Proof without a GPU that all configurations of each benchmark kernel are one equivalence class in its pinned order.

    python -m bitwise_bench.pinned_reductions.proof --free --out records/pinned-reductions-proof-sm90.json

Every kernel of the benchmark is compiled in all its configurations, with the benchmark's tiles and few rows and
columns, and each launch is checked. A launch with two classes, or with a configuration that the checker cannot analyse,
is a failure. With `--free` the record also has the number of classes of the same configurations in the free order.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from bitwise_bench.pinned_reductions import cases
from bitwise_bench.pinned_reductions.cases import DTYPES, Case
from bitwise_bench.pinned_reductions.compilation import Build, Variant, captured
from bitwise_triton.errors import CaptureError, SharedMemoryLimitError


def small_suite() -> list[Case]:
    """The suite's kernels and types with all configurations, at sizes that are analysed in seconds."""
    found: list[Case] = []
    for dtype in DTYPES:
        columns = 16384 // cases.BYTES[dtype]
        found += [
            cases.whole_sum(dtype, 1 << 16),
            cases.long_rows("row_sum", dtype, 2, columns),
            cases.column_sums("column_sum", dtype, 1, 128, 128),
            cases.column_sums("middle_sum", dtype, 2, 128, 128),
            cases.long_rows("row_product", dtype, 2, columns),
            cases.long_rows("row_maximum", dtype, 2, columns),
            *(cases.whole_rows(name, dtype, 4, 1024) for name in ("softmax", "layer_norm", "rms_norm", "welford_rows")),
            cases.backward(dtype, 512, 128),
            cases.gemm(dtype, 128, 128, 128),
            cases.inductor(dtype, 4, 1024),
        ]
    return found


def prove(
    case: Case, order: str | None = None, target: str = "sm_90", *, passes: Sequence[bool] = (True, False)
) -> dict[str, Any]:
    """The classes of the configurations of a case in `order` (default: its own), launch by launch.

    `passes` says whether the configurations are taken with the layout pass and without. `proved` if every launch is one
    class without unknowns. Raises CaptureError if a configuration does not compile; those that exceed the limits of a
    block are left out and named.
    """
    from bitwise_core.checker.partition import partition
    from bitwise_core.checker.sources import Options
    from bitwise_triton.equivalence import source_of

    start = time.monotonic()
    order = case.order if order is None else order
    builds = [
        Build(case, Variant(order, layout), number)
        for layout in (passes if order else (True,))
        for number in range(len(case.configurations))
    ]
    compiled, too_large = [], {}
    for build in tuple(builds):
        try:
            compiled.append(captured(build, target))
        except SharedMemoryLimitError as error:
            too_large[_title(build)] = str(error)
            builds.remove(build)
    launches = []
    for alternatives in zip(*compiled, strict=True):
        sources = [source_of(one, str(number)) for number, one in enumerate(alternatives)]
        found = partition(sources, target, Options(), workers=1)
        unread = {_title(builds[int(name)]): reason for name, reason in found.unknown.items()}
        texts = len({one.assembly for one in alternatives})
        launches.append({"entry": alternatives[0].entry, "texts": texts, "classes": len(found.classes)})
        if unread:
            launches[-1]["unread"] = unread
    entry: dict[str, Any] = {
        "name": case.name,
        "order": order,
        "configurations": len(compiled),
        "launches": launches,
        "proved": bool(launches) and all(one["classes"] == 1 and "unread" not in one for one in launches),
        "seconds": round(time.monotonic() - start, 1),
    }
    return entry | ({"too_large": too_large} if too_large else {})


def _title(build: Build) -> str:
    return f"{dict(build.case.configurations[build.number])}{'' if build.variant.layout else ', no layout pass'}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Prove the suite. The exit status is 1 if a case is not one class."""
    from bitwise_core.plugins import registry

    parser = argparse.ArgumentParser(
        prog="bitwise_bench.pinned_reductions.proof", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="the record (JSON)")
    parser.add_argument("--kernels", nargs="*", default=[], help="these kernels only")
    parser.add_argument("--dtypes", nargs="*", default=list(DTYPES), choices=DTYPES, help="these types only")
    parser.add_argument("--target", default="sm_90", help="compile for and read as this architecture (default sm_90)")
    parser.add_argument("--free", action="store_true", help="count the classes of the free order too")
    chosen = parser.parse_args(arguments)
    suite = small_suite()
    found = [one for one in suite if one.dtype in chosen.dtypes and one.kernel in (chosen.kernels or [one.kernel])]
    if not found:
        parser.error(f"no case is left; the kernels are {', '.join(sorted({one.kernel for one in suite}))}")
    try:
        registry.default().arch(chosen.target)
    except registry.UnknownArchError as error:
        parser.error(str(error))
    entries: list[dict[str, Any]] = []
    for case in found:
        try:
            entries.append(prove(case, target=chosen.target))
            if chosen.free:
                entries[-1]["free"] = prove(case, "", chosen.target)["launches"]
        except CaptureError as error:
            entries.append({"name": case.name, "order": case.order, "proved": False, "error": str(error)})
        last = entries[-1]
        counts = ", ".join(f"{one['entry']} {one['classes']}" for one in last.get("launches", []))
        print(f"{last['name']}: {'proved' if last['proved'] else 'NOT proved'}; classes: {counts}", flush=True)
        environment = {"target": chosen.target, "triton": metadata.version("triton")}
        record = {"environment": environment, "summary": _summary(entries, len(found)), "cases": entries}
        chosen.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if all(entry["proved"] for entry in entries) else 1


def _summary(entries: Sequence[dict[str, Any]], total: int) -> dict[str, Any]:
    return {
        "cases": len(entries),
        "proved": sum(entry["proved"] for entry in entries),
        "configurations": sum(entry.get("configurations", 0) for entry in entries),
        "left_out": total - len(entries),
        "layout_pass": "with and without",
    }


if __name__ == "__main__":
    sys.exit(main())
