"""How many kernels of the corpus lack the proxy fence between copies by threads and the units that read them.

    python -m bitwise_bench.readings.missing_fences --target sm_100 --sample 3 --out records/missing-fences.json

A kernel lacks it if it is not determined where copies need the fence.  With `--folder`, compiled kernels are read, of
the version `--triton` of the compiler.  The record keeps one run for each architecture and version.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.compilation.sources import compile_source, stored_source
from bitwise_bench.corpus.cases import DEFAULT_TARGET, Case
from bitwise_bench.environment import analysis_environment
from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.sources import Options, Source, buffers_of
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.assumptions import PROXIES_APART, PROXIES_TOGETHER
from bitwise_core.execution.launch import ManifestError
from bitwise_core.execution.races.undetermined import Kind
from bitwise_core.plugins import registry

APART, TOGETHER = (Options(assume=frozenset({each})) for each in (PROXIES_APART, PROXIES_TOGETHER))


@dataclass(frozen=True, slots=True)
class Count:
    """The kernels of a family: all, those that lack a fence, and those of them that are determined with the copies
    visible."""

    kernels: int = 0
    unfenced: int = 0
    determined: int = 0


def lacks_fence(source: Source, arch: Arch) -> bool:
    """Return whether a kernel is not determined because of a missing proxy fence, where copies need it."""
    found = analyse(source, arch, buffers_of([source]), APART)
    return any(each.kind == Kind.PROXY.value for each in found.places)


def count(sources: Iterable[Source], arch: Arch) -> Count:
    """Count the kernels of a family."""
    read = list(sources)
    unfenced = [each for each in read if lacks_fence(each, arch)]
    determined = [each for each in unfenced if analyse(each, arch, buffers_of([each]), TOGETHER).unknown is None]
    return Count(len(read), len(unfenced), len(determined))


def read_families(cases: Iterable[Case], folder: Path | None, arch: Arch) -> dict[str, Any]:
    """Return the counts by family, and the number of configurations that do not compile, of a sample of the corpus."""
    from bitwise_triton import CaptureError

    families: dict[str, list[Source]] = {}
    uncompiled = 0
    for case in cases:
        try:
            source = compile_source(case)[0] if folder is None else stored_source(case, folder)[0]
        except (CaptureError, ManifestError):
            uncompiled += 1
            continue
        families.setdefault(case.family, []).append(source)
    found = {}
    for family, sources in families.items():
        found[family] = asdict(count(sources, arch))
        print(family, found[family], file=sys.stderr, flush=True)
    return {"families": found, "uncompiled": uncompiled}


def total(families: Iterable[dict[str, int]]) -> Count:
    """Return the sum of the counts of families."""
    sums: Counter[str] = Counter()
    for each in families:
        sums.update(each)
    return Count(**{name: sums[name] for name in ("kernels", "unfenced", "determined")})


def main(arguments: Sequence[str] | None = None) -> int:
    """Count; the exit status is 0."""
    parser = command_parser("readings.missing_fences", __doc__)
    parser.add_argument("--target", default=DEFAULT_TARGET, help="the architecture (default sm_90)")
    parser.add_argument("--sample", type=int, default=3, help="at most this many configurations of a family (0: all)")
    parser.add_argument("--folder", type=Path, help="read compiled kernels from this folder")
    parser.add_argument("--triton", help="with --folder: the version that compiled them (default: the installed one)")
    parser.add_argument("--out", type=Path, required=True, help="the record, which keeps its other runs")
    chosen = parser.parse_args(arguments)
    from bitwise_bench.corpus import catalogue
    from bitwise_bench.corpus.targets import sampled

    environment = analysis_environment()
    version = chosen.triton or environment["triton"]
    cases = sampled(catalogue.cases(chosen.target), chosen.sample, [])
    run = {"target": chosen.target, "triton": version, "sample": chosen.sample}
    run |= read_families(cases, chosen.folder, registry.default().arch(chosen.target))
    record = json.loads(chosen.out.read_text(encoding="utf-8")) if chosen.out.exists() else {"runs": []}
    kept = [each for each in record["runs"] if (each["target"], each["triton"]) != (chosen.target, version)]
    plain = {name: value for name, value in environment.items() if name != "triton"}
    runs = sorted([*kept, {**run, "environment": plain}], key=lambda each: (each["target"], each["triton"]))
    chosen.out.write_text(json.dumps({"runs": runs}, indent=1) + "\n", encoding="utf-8")
    print(f"{chosen.target}, Triton {version}: {total(run['families'].values())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
