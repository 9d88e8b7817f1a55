"""Measure the cost of pinned orders on this machine's GPU.

    python -m bitwise_bench.pinned_reductions --out records/pinned-reductions-sm90-h100.json

Every kernel of the suite is compiled and tuned in the free and in the pinned order, over the same configurations. The
bytes of all configurations are compared. `--chart FILE` draws a bar chart of a record.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitwise_bench.pinned_reductions import record
from bitwise_bench.pinned_reductions.cases import DTYPES, Case, suite
from bitwise_bench.pinned_reductions.chart import chart
from bitwise_bench.pinned_reductions.compilation import FREE, Build, Compiled, Variant, compile_all, ratio
from bitwise_bench.pinned_reductions.tuning import tune
from bitwise_triton.errors import CaptureError
from bitwise_triton.reductions.order import Order, OrderError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark. The exit status is 1 if a pinned kernel has several classes of bytes."""
    parser = argparse.ArgumentParser(prog="bitwise_bench.pinned_reductions", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the record (JSON); with --chart, the one to read")
    parser.add_argument("--seconds", type=float, default=1800, help="begin no case after this time (default 1800)")
    parser.add_argument("--kernels", nargs="*", default=[], help="these kernels only")
    parser.add_argument("--dtypes", nargs="*", default=list(DTYPES), choices=DTYPES, help="these types only")
    parser.add_argument(
        "--sizes", nargs="*", type=int, default=[0, 1, 2], help="these of each kernel's sizes (0, 1, 2)"
    )
    parser.add_argument("--order", action="append", default=[], help="instead of the suite's own; several are compared")
    parser.add_argument("--layout", default="on", choices=("on", "off", "both"), help="the layout pass (default on)")
    parser.add_argument("--workers", type=int, help="processes that compile (default: all cores)")
    parser.add_argument("--compile-only", metavar="TARGET", help="compile for this target, launch nothing")
    parser.add_argument("--chart", type=Path, help="write this SVG from the record and measure nothing")
    chosen = parser.parse_args(arguments)
    if chosen.chart:
        chosen.chart.write_text(chart(json.loads(chosen.out.read_text())))
        return 0
    try:
        for text in chosen.order:
            Order(text)
    except OrderError as error:
        parser.error(str(error))
    cases = _selected(chosen)
    known = sorted({case.kernel for case in suite()})
    if not cases:
        parser.error(f"no case is left; the kernels are {', '.join(known)}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("TRITON_CACHE_DIR", folder)
        return _run(cases, chosen)


def _selected(chosen: argparse.Namespace) -> list[Case]:
    places: dict[tuple[str, str], int] = {}
    found = []
    for case in suite():
        place = places[case.kernel, case.dtype] = places.get((case.kernel, case.dtype), -1) + 1
        if case.dtype in chosen.dtypes and place in chosen.sizes and case.kernel in (chosen.kernels or [case.kernel]):
            found.append(case)
    return found


def _run(cases: list[Case], chosen: argparse.Namespace) -> int:
    start = time.monotonic()
    builds = [
        Build(case, variant, number)
        for case in cases
        for variant in (FREE, *_variants(case, chosen))
        for number in range(len(case.configurations))
    ]
    target = chosen.compile_only or _target()
    seconds = compile_all(builds, target, chosen.workers)
    compiled: dict[str, dict[tuple[Variant, int], Compiled | CaptureError]] = {case.name: {} for case in cases}
    reported: set[tuple[str, Variant]] = set()
    for build, one in zip(builds, seconds, strict=True):
        compiled[build.case.name][build.variant, build.number] = one
        if isinstance(one, CaptureError) and (build.case.name, build.variant) not in reported:
            reported.add((build.case.name, build.variant))
            print(f"{build.case.name} in the order {build.variant.order!r}: {one}", file=sys.stderr)
    failed = sum(isinstance(one, CaptureError) for one in seconds)
    print(f"{len(builds)} compiled ({failed} failed) after {time.monotonic() - start:.0f} s", flush=True)
    if chosen.compile_only:
        _print_compiles(compiled)
        return 1 if failed else 0
    found: dict[str, Any] = {}
    entries: list[dict[str, Any]] = []
    for case in cases:
        if time.monotonic() - start > chosen.seconds:
            print(f"{len(cases) - len(entries)} cases left out after {chosen.seconds:.0f} s")
            break
        entry = record.entry(case, tune(case, _variants(case, chosen), compiled[case.name]))
        entries.append(entry)
        free, pinned = entry["free"], entry["pinned"]
        print(
            f"{time.monotonic() - start:4.0f} s {entry['ratio']:.3f}  {case.name}: {free['microseconds']:.1f} us, "
            f"pinned {pinned['microseconds']:.1f} us; classes {free['classes']} and {pinned['classes']}",
            flush=True,
        )
        found = {"environment": record.environment(), "summary": record.summary(entries), "cases": entries}
        chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    if not found:
        return 1
    print(json.dumps(found["summary"], indent=1))
    return 1 if found["summary"]["most_classes"]["pinned"] > 1 or found["summary"]["disagree_with_order"] else 0


def _variants(case: Case, chosen: argparse.Namespace) -> list[Variant]:
    passes = {"on": (True,), "off": (False,), "both": (True, False)}[chosen.layout]
    return [Variant(order, layout) for order in chosen.order or [case.order] for layout in passes]


def _target() -> str:
    """The architecture of this machine's GPU, queried in another process: compile workers are forked from this one."""
    import subprocess

    text = "import torch; print(*torch.cuda.get_device_capability(), sep='')"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit("PyTorch finds no GPU here; use --compile-only sm_90 to compile without one.")
    return f"sm_{done.stdout.strip()}"


def _print_compiles(compiled: dict[str, dict[tuple[Variant, int], Compiled | CaptureError]]) -> None:
    ratios: dict[str, float] = {}
    for name, found in compiled.items():
        for variant in dict.fromkeys(variant for variant, _ in found if variant != FREE):
            one = ratio(found, variant)
            text = f"{name}, {variant.order!r}{'' if variant.layout else ', without the layout pass'}"
            print(f"{text}: {'-' if one is None else f'{one:.2f}'}")
            ratios |= {text: one} if one is not None else {}
    if ratios:
        worst = max(ratios, key=lambda text: ratios[text])
        print(f"{len(ratios)}: geometric mean {record.mean(list(ratios.values())):.3f}; {worst}: {ratios[worst]:.2f}")


if __name__ == "__main__":
    sys.exit(main())
