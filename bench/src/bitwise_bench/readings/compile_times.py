"""Time of reading a kernel beside the time in which Triton compiles it, and beside the time for another target.

    taskset -c 0 python -m bitwise_bench.readings.compile_times --targets sm_90 gfx942 --stride 37 --out times.json

Configurations of the corpus that all targets have are compiled and read on one core, without the cache of readings.  A
first reading fills the assembler's cache; the least of the next two counts.  The order is random, so that a run that
ends early is a sample as well.  `--product 256 256 1024` adds the configurations of a matrix product of that size, with
a summary of their own.  `--other-sizes SEED` draws other sizes than those of the corpus.  `--join` adds up the records
of runs side by side.

The record has the largest memory of the process, which compiles and reads all configurations one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.corpus.cases import DEFAULT_TARGET, Case
from bitwise_bench.environment import analysis_environment
from bitwise_bench.readings.assumed import reading

_READINGS = 2


def chosen_ids(cases: Mapping[str, Mapping[str, Case]], first: int, stride: int, words: Sequence[str]) -> list[str]:
    """Return every `stride`-th id, from number `first` on, of those that all targets have and that contain a word."""
    one, *others = cases.values()
    common = [each for each in one if all(each in other for other in others)]
    named = [each for each in common if not words or any(word in each for word in words)]
    found = named[first::stride]
    random.Random(7).shuffle(found)
    return found


def times_of(case: Case) -> dict[str, Any]:
    """Compile and read a configuration; return seconds, or the error."""
    from bitwise_bench.compilation.sources import compile_source
    from bitwise_core.checker.analysis import analyse
    from bitwise_core.checker.sources import buffers_of
    from bitwise_core.plugins import registry

    before = cpu_seconds()
    try:
        source, _, seconds = compile_source(case)
    except Exception as error:
        # A configuration that the compiler refuses has no time.
        return {"error": f"{type(error).__name__}: {error}"[:200]}
    compiled = cpu_seconds() - before
    arch, buffers = registry.default().arch(case.target), buffers_of([source])
    found = analyse(source, arch, buffers, reading(arch.name))
    if found.failed:
        return {"error": str(found.unknown)[:200]}
    walls, cores = [], []
    for _ in range(_READINGS):
        start, used = time.perf_counter(), time.process_time()
        analyse(source, arch, buffers, reading(arch.name))
        walls.append(time.perf_counter() - start)
        cores.append(time.process_time() - used)
    return {
        "compile": round(seconds, 4), "compile, CPU": round(compiled, 4),
        "read": round(min(walls), 4), "read, CPU": round(min(cores), 4),
        "unknown": found.unknown,
    }  # fmt: skip


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of the processes that it has waited for, such as assemblers."""
    times = [resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in times)


def quantile(values: Sequence[float], part: float) -> float:
    """Return a quantile of some values, NaN of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else float("nan")


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, ninth decile and maximum."""
    return {
        name: round(quantile(values, part), 3) for name, part in (("median", 0.5), ("ninth decile", 0.9), ("most", 1.0))
    }


def summary(rows: Sequence[dict[str, Any]], targets: Sequence[str]) -> dict[str, Any]:
    """Return the spreads of CPU seconds and of their ratios: other seconds mean nothing on a busy machine."""
    found: dict[str, Any] = {}
    for target in targets:
        good = [row[target] for row in rows if "read" in row[target]]
        found[target] = {
            "kernels": len(good),
            "CPU seconds to read": spread([each["read, CPU"] for each in good]),
            "reading over compiling": spread([each["read, CPU"] / each["compile, CPU"] for each in good]),
            "Unknown": sum(each.get("unknown") is not None for each in good),
        }
    first = targets[0]
    for target in targets[1:]:
        both = [row for row in rows if "read" in row[first] and "read" in row[target]]
        ratios = [row[target]["read, CPU"] / row[first]["read, CPU"] for row in both]
        found[f"{target} over {first}"] = {**spread(ratios), "above 1.5": sum(each > 1.5 for each in ratios)}
    return found


def record_of(
    rows: Sequence[dict[str, Any]],
    products: Sequence[dict[str, Any]],
    targets: Sequence[str],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the record of measured configurations: environment, settings, summary and times."""
    found = summary(rows, targets)
    if products:
        found["product"] = summary(products, targets)
    return {
        "environment": analysis_environment(), "settings": settings, "targets": targets, "summary": found,
        "largest process, MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "kernels": rows, "products": products,
    }  # fmt: skip


def joined(paths: Sequence[Path]) -> dict[str, Any]:
    """Return the record of several runs with the same targets, by the environment of the first one."""
    records = [json.loads(path.read_text()) for path in paths]
    rows, products = ([row for each in records for row in each[name]] for name in ("kernels", "products"))
    found = record_of(rows, products, records[0]["targets"], records[0]["settings"])
    largest = max(each.get("largest process, MiB", 0) for each in records)
    return {**found, "environment": records[0]["environment"], "largest process, MiB": largest}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; the exit status is 1 where no kernel was read."""
    parser = command_parser("readings.compile_times", __doc__)
    parser.add_argument("--targets", nargs="+", default=[DEFAULT_TARGET], help="the first one is the reference")
    parser.add_argument("--first", type=int, default=0, help="the number of the first configuration (default 0)")
    parser.add_argument("--stride", type=int, default=20, help="one of so many configurations (default 20)")
    parser.add_argument("--named", nargs="*", default=[], metavar="WORD", help="only ids that contain one of these")
    parser.add_argument("--other-sizes", type=int, metavar="SEED", help="draw sizes that the corpus does not have")
    parser.add_argument("--seconds", type=float, default=600.0, help="end after this time (default 600)")
    parser.add_argument("--product", nargs=3, type=int, metavar=("M", "N", "K"), help="a matrix product to add")
    parser.add_argument("--join", type=Path, nargs="*", default=[], help="measure nothing, and join these records")
    parser.add_argument("--out", type=Path, help="write times and summary here, as JSON, after each configuration")
    chosen = parser.parse_args(arguments)
    if chosen.stride < 1 or chosen.first < 0:
        parser.error("--stride must be at least 1 and --first at least 0")
    record = joined(chosen.join) if chosen.join else _measured(chosen)
    print(json.dumps(record["summary"], indent=1))
    if chosen.out:
        chosen.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if any(record["summary"][target]["kernels"] for target in record["targets"]) else 1


def _measured(chosen: argparse.Namespace) -> dict[str, Any]:
    from bitwise_bench.corpus import catalogue, other_sizes
    from bitwise_bench.readings.precision import gemm_cases

    os.environ["TRITON_ALWAYS_COMPILE"] = "1"  # what Triton's cache holds was compiled before
    end = time.monotonic() + chosen.seconds
    seed = chosen.other_sizes
    listed = {
        target: catalogue.cases(target) if seed is None else other_sizes.cases(target, seed)
        for target in chosen.targets
    }
    cases = {target: {case.id: case for case in each} for target, each in listed.items()}
    settings = {"first": chosen.first, "stride": chosen.stride, "named": chosen.named, "sizes drawn by": seed}
    rows: list[dict[str, Any]] = []
    products: list[dict[str, Any]] = []

    def measure(cases: Mapping[str, Mapping[str, Case]], names: Sequence[str], into: list[dict[str, Any]]) -> None:
        for name in names:
            if time.monotonic() > end:
                break
            into.append({"id": name, **{target: times_of(cases[target][name]) for target in chosen.targets}})
            if chosen.out:
                record = record_of(rows, products, chosen.targets, settings)
                chosen.out.write_text(json.dumps(record, indent=1) + "\n")

    if chosen.product:
        settings["product"] = "x".join(map(str, chosen.product))
        sized = {target: {case.id: case for case in gemm_cases(target, *chosen.product)} for target in chosen.targets}
        measure(sized, chosen_ids(sized, 0, 1, ()), products)
    measure(cases, chosen_ids(cases, chosen.first, chosen.stride, chosen.named), rows)
    return record_of(rows, products, chosen.targets, settings)


if __name__ == "__main__":
    sys.exit(main())
