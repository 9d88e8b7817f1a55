"""Which kernels of the corpus keep their bits between two generations of one vendor: verdicts, a record, and its page.

    python -m bitwise_bench.readings.between_generations --targets sm_90 sm_100 --out records/bits-sm90-sm100.json
    python -m bitwise_bench.readings.between_generations --page records/bits-sm90-sm100.json > docs/blackwell.md

Each configuration is compiled for both architectures and compared for its launch.  Where the trees differ, both kernels
are executed on bit patterns with what is measured or published of each architecture, and nothing else: a kernel with an
approximation whose bits nobody has published is not executed.  Different bytes then follow from these sources.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.compilation.sources import compile_source
from bitwise_bench.corpus.cases import Case
from bitwise_bench.environment import analysis_environment
from bitwise_bench.simulation.execution import outputs
from bitwise_bench.simulation.recorder import FIRST
from bitwise_core.checker.analysis import Options, Source, prepare
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.plugins import registry

EQUAL, DIFFERENT, ALIKE, OPEN, UNKNOWN = "equal", "different", "alike", "open", "unknown"
"""The results: equal bits; other bits on an input; other trees with the same bytes on every drawn input; an operation
without published bits; a kernel that is Unknown."""


def compared(cases: tuple[Case, Case], draws: Sequence[str] = FIRST) -> dict[str, Any]:
    """Return the result of one configuration compiled for two architectures, with its reason."""
    sources = tuple(replace(compile_source(case)[0], name=f"{case.id}.{case.target}") for case in cases)
    arches = tuple(registry.default().arch(case.target) for case in cases)
    assert len(sources) == 2
    assert len(arches) == 2
    found = compare(*sources, arches, Options())
    unknown = next((each for each in found.results if each.unknown is not None), None)
    if unknown is not None:
        own = "not determined" if unknown.nondeterministic else "unknown"
        return {"result": UNKNOWN, "why": own, "reason": unknown.unknown}
    if found.verdict.outcome is Outcome.EQUAL:
        return {"result": EQUAL}
    seen = found.verdict.divergence
    nodes = [each.operation for each in (seen.left, seen.right) if each is not None] if seen is not None else []
    return {**_executed(cases, sources, arches, draws), "divergence": nodes}


def _executed(
    cases: Sequence[Case], sources: Sequence[Source], arches: Sequence[Arch], draws: Sequence[str]
) -> dict[str, Any]:
    try:
        ready = [prepare(source, arch, Options()) for source, arch in zip(sources, arches, strict=True)]
        left, right = (outputs(case, one, draws) for case, one in zip(cases, ready, strict=True))
    except Unsupported as error:
        return {"result": OPEN, "why": _kind_of(str(error)), "reason": str(error)}
    different = [draw for draw in draws if left[draw] != right[draw]]
    if different:
        return {"result": DIFFERENT, "draws": different}
    return {"result": ALIKE}


def _kind_of(reason: str) -> str:
    """Return a reason in the words of the table: which operation has no published bits."""
    found = re.search(r"([a-z]\w*\.approx[\w.]*|[\w.]+@sm_\d+)", reason)
    return f"no published bits of {found[1].split('@')[0]}" if found else "not executed"


def _job(job: tuple[str, tuple[str, str]]) -> dict[str, Any]:
    from bitwise_bench.corpus import catalogue

    name, targets = job
    first, second = (catalogue.by_id(target)[name] for target in targets)
    entry = {"id": name, "family": first.family}
    try:
        return {**entry, **compared((first, second))}
    except Exception as error:  # a configuration that does not compile is part of the result
        return {**entry, "result": UNKNOWN, "why": "does not compile", "reason": " ".join(str(error).split())[:200]}


def chosen_ids(targets: tuple[str, str], sample: int, families: Sequence[str]) -> list[str]:
    """Return the configurations that both compilers take, at most `sample` of a family (0: all)."""
    from bitwise_bench.corpus import catalogue
    from bitwise_bench.corpus.targets import sampled

    others = catalogue.by_id(targets[1])
    shared = [each for each in catalogue.cases(targets[0]) if each.id in others]
    return [each.id for each in sampled(shared, sample) if not families or each.family in families]


def summary(entries: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of configurations with each result."""
    counts = Counter(each["result"] for each in entries)
    return {name: counts[name] for name in (EQUAL, DIFFERENT, ALIKE, OPEN, UNKNOWN)}


def page(record: Mapping[str, Any]) -> str:
    """Return the page: a row for each family of kernels, and what decides it."""
    left, right = record["targets"]
    families: dict[str, list[Mapping[str, Any]]] = {}
    for each in record["configurations"]:
        families.setdefault(each["family"], []).append(each)
    total = summary(record["configurations"])
    lines = [
        f"# Which kernels keep their bits between {left} and {right}",
        "",
        f"{len(record['configurations'])} configurations of {len(families)} families of Triton kernels, compiled for "
        f"both architectures with Triton {record['environment']['triton']} and compared for one launch each: "
        f"{total[EQUAL]} return the same bits on every input, {total[DIFFERENT]} return other bits on an input, "
        f"{total[ALIKE]} have other trees and return the same bytes on {len(record['draws'])} kinds of drawn inputs, "
        f"{total[OPEN]} have an approximate instruction without published bits, and {total[UNKNOWN]} are Unknown or "
        "not determined on one of both.",
        "",
        f"**Nothing was measured on {right}.** The same bits follow from the instruction set. Other bits and alike "
        f"bytes follow from executions with what is measured of {left}, and with the published arithmetic of the "
        f"matrix units of {right}.",
        "",
        "| family | configurations | same bits | other bits | alike | open | Unknown | what decides |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for family, entries in families.items():
        counts = summary(entries)
        lines.append(
            f"| {family} | {len(entries)} | {counts[EQUAL]} | {counts[DIFFERENT]} | {counts[ALIKE]} | {counts[OPEN]} "
            f"| {counts[UNKNOWN]} | {_decides(entries)} |"
        )
    return "\n".join(lines) + "\n"


def _decides(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return what the differing or open configurations of a family have in common, most frequent first."""
    found: Counter[str] = Counter()
    for each in entries:
        if each["result"] in (DIFFERENT, ALIKE):
            found[" / ".join(f"`{node}`" for node in each["divergence"]) or "another tree"] += 1
        elif each["result"] in (OPEN, UNKNOWN):
            found[str(each["why"])] += 1
    return ", ".join(name for name, _ in found.most_common(2))


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the configurations and write the record, or print the page of one."""
    parser = command_parser("readings.between_generations", __doc__)
    parser.add_argument("--targets", nargs=2, default=["sm_90", "sm_100"], help="the architectures")
    parser.add_argument("--sample", type=int, default=0, help="at most this many configurations of a family (0: all)")
    parser.add_argument("--families", nargs="*", default=[], help="these families only")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="worker processes")
    parser.add_argument("--out", type=Path, help="write the record here, as JSON")
    parser.add_argument("--page", type=Path, help="print the page of this record")
    chosen = parser.parse_args(arguments)
    if chosen.page:
        print(page(json.loads(chosen.page.read_text(encoding="utf-8"))), end="")
        return 0
    targets = (chosen.targets[0], chosen.targets[1])
    names = chosen_ids(targets, chosen.sample, chosen.families)
    with ProcessPoolExecutor(chosen.processes) as pool:
        entries = list(pool.map(_job, [(name, targets) for name in names], chunksize=4))
    print(summary(entries))
    if chosen.out:
        environment = {**analysis_environment(), "simulated": "measured and published bits only, no surrogates"}
        record = {"environment": environment, "targets": targets, "draws": FIRST, "configurations": entries}
        chosen.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
