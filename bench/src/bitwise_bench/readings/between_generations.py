"""Which kernels of the corpus keep their bits between two generations of one vendor: verdicts, records, and their page.

    python -m bitwise_bench.readings.between_generations --targets sm_90 sm_100 --out records/bits-sm90-sm100.json
    python -m bitwise_bench.readings.between_generations --targets sm_90 sm_103 --like records/bits-sm90-sm100.json \
        --recorded records/bytes-sm100-simulated-triton-3.6.0.json.gz --folder sm_103 --out records/bits-sm90-sm103.json
    python -m bitwise_bench.readings.between_generations --page records/bits-sm90-*.json \
        > docs/results/between-generations.md

Each configuration is compiled for both architectures and compared for its launch.  Where the trees differ, both kernels
are executed on bit patterns with what is measured or published of each architecture, and nothing else: a kernel with an
approximation whose bits nobody has published is not executed.  Different bytes then follow from these sources.  Such a
kernel has the same bits where the approximations have, if its trees are equal once both architectures' approximations
are called the same.  With `--like`, the results of another architecture hold for kernels with the same text and the
same fused products (`bitwise_bench.simulation.carried_bytes`).
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
from bitwise_bench.compilation.sources import compile_source, stored_source
from bitwise_bench.corpus.cases import Case
from bitwise_bench.environment import analysis_environment
from bitwise_bench.readings.assumed import reading
from bitwise_bench.recorded_bytes import Records, load_records
from bitwise_bench.simulation.carried_bytes import carried, same_audit
from bitwise_bench.simulation.execution import outputs
from bitwise_bench.simulation.recorder import FIRST
from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.sources import Source
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.plugins import registry

EQUAL, CONDITIONAL, ALIKE = "equal", "equal but for approximations", "alike"
DIFFERENT, OPEN, UNKNOWN = "different", "open", "unknown"
RESULTS = (EQUAL, CONDITIONAL, ALIKE, DIFFERENT, OPEN, UNKNOWN)
"""The results: equal bits; equal bits if the approximations have equal bits; other trees with the same bytes on every
drawn input; other bits on an input; an operation without published bits; a kernel that is Unknown."""

KINDS = (
    "sums and extrema of rows and columns", "scans", "softmaxes and losses", "norms", "functions, casts and copies",
    "atomic operations", "products without matrix units", "integer products", "fp64 products", "tf32 products",
    "fp16 and bf16 products", "fp8 products", "attention",
)  # fmt: skip
"""The kinds of kernels of the summary."""
_MULTIPLIED = {
    "e4m3": "fp8 products", "e5m2": "fp8 products", "tf32": "tf32 products", "f64": "fp64 products",
    "s8": "integer products", "u8": "integer products", "f16": "fp16 and bf16 products",
    "bf16": "fp16 and bf16 products",
}  # fmt: skip
"""The kinds of products by the types that matrix instructions multiply; the first one found counts."""
_STARTS: Mapping[str, tuple[str, ...]] = {
    "sums and extrema of rows and columns": (
        "row_", "rows_", "column_", "tail_", "ragged_", "cube_", "square_", "block_partial", "gather_partials", "arg_",
        "split_k_reduce", "stream_k_fixup", "map_copy_sum", "inductor_sum", "inductor_outer_sum",
    ),
    "products without matrix units": ("gemm", "split_k", "stream_k", "serial_split_k", "inductor_split_k"),
    "attention": ("attention",),
    "scans": ("scan_",),
    "softmaxes and losses": ("softmax", "log_sum_exp", "cross_entropy", "inductor_softmax"),
    "norms": ("layer_norm", "rms_norm", "welford", "inductor_layer_norm"),
    "atomic operations": ("atomic_", "count_then_sum"),
    "functions, casts and copies": ("",),
}  # fmt: skip
"""What the names of the families of a kind begin with; the first kind that matches counts."""


def kind_of(name: str, text: str) -> str:
    """Return the kind of a configuration with an id of the corpus, and a text for NVIDIA's GPUs."""
    family, group, _ = name.split("/", 2)
    if family == "narrow_outputs":  # the group begins with the family that it would have with fp32 outputs
        family = group
    kind = next(each for each, starts in _STARTS.items() if family.startswith(starts))
    if kind != "products without matrix units":
        return kind
    types = {part for opcode in re.findall(r"\bw?g?mma\.\S*m\d+n\d+\S*", text) for part in opcode.split(".")}
    return next((kind for each, kind in _MULTIPLIED.items() if each in types), kind)


def compared(cases: tuple[Case, Case], draws: Sequence[str] = FIRST) -> dict[str, Any]:
    """Return the result of one configuration compiled for two architectures, with its reason."""
    sources = tuple(replace(compile_source(case)[0], name=f"{case.id}.{case.target}") for case in cases)
    kind = kind_of(cases[0].id, sources[0].text)
    arches = tuple(registry.default().arch(case.target) for case in cases)
    assert len(sources) == 2
    assert len(arches) == 2
    found = compare(*sources, arches, reading(*(arch.name for arch in arches)))
    unknown = next((each for each in found.results if each.unknown is not None), None)
    if unknown is not None:
        own = "not determined" if unknown.nondeterministic else "unknown"
        return {"kind": kind, "result": UNKNOWN, "why": own, "reason": unknown.unknown}
    if found.verdict.outcome is Outcome.EQUAL:
        return {"kind": kind, "result": EQUAL}
    seen = found.verdict.divergence
    nodes = [each.operation for each in (seen.left, seen.right) if each is not None] if seen is not None else []
    executed = _executed(cases, sources, arches, draws)
    if executed["result"] == OPEN and _equal_but_for_approximations(sources, arches):
        executed["result"] = CONDITIONAL
    return {"kind": kind, **executed, "divergence": nodes}


def _equal_but_for_approximations(sources: tuple[Source, Source], arches: tuple[Arch, Arch]) -> bool:
    """Return whether the first text, read as one for the second architecture, is equal to the second text.

    Its approximations then have the names of the second architecture's.  So would its matrix instructions: a text with
    one is not compared.
    """
    left, right = sources
    header = _HEADER.search(right.text)
    if header is None or any("mma" in each.text for each in sources):
        return False
    moved = replace(left, text=_HEADER.sub(header[0], left.text, count=1))
    return compare(moved, right, arches[1], reading(arches[1].name)).verdict.outcome is Outcome.EQUAL


_HEADER = re.compile(r"^\.version\s+\S+\s+\.target\s+\S+", re.MULTILINE)
"""The version and the target of a text; a target needs a version that has it."""


def _executed(
    cases: Sequence[Case], sources: Sequence[Source], arches: Sequence[Arch], draws: Sequence[str]
) -> dict[str, Any]:
    try:
        ready = [prepare(source, arch, reading(arch.name)) for source, arch in zip(sources, arches, strict=True)]
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
        return {
            **entry,
            "kind": None,
            "result": UNKNOWN,
            "why": "does not compile",
            "reason": " ".join(str(error).split())[:200],
        }


def carried_entries(
    record: Mapping[str, Any], targets: tuple[str, str], folder: Path, recorded: Records
) -> dict[str, dict[str, Any]]:
    """Return the results of a record that hold for another second architecture, by id.

    `folder` holds the kernels compiled for it, and `recorded` the bytes of the record's second architecture.
    """
    from bitwise_bench.corpus import catalogue

    before, after = record["targets"][1], targets[1]
    arches, cases = tuple(map(registry.default().arch, (before, after))), catalogue.by_id(after)
    listed = [cases[each["id"]] for each in record["configurations"] if each["id"] in cases]
    held, found = carried(listed, folder, recorded), {}
    for entry in record["configurations"]:
        if entry["id"] not in held:
            continue
        source, _ = stored_source(cases[entry["id"]], folder)
        if source.launch is not None and same_audit(source.text, source.launch.entry, arches[0], arches[1]):
            found[entry["id"]] = json.loads(json.dumps(entry).replace(before, after))
    return found


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
    return {name: counts[name] for name in RESULTS}


def compiled(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the configurations of a record that both compilers took; only these have a kind."""
    return [each for each in record["configurations"] if each.get("kind") is not None]


_TITLES = ("same bits", "same if approximations agree", "alike", "other bits", "open", "Unknown")


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the page: a summary by kinds of kernels, and a row for each family, for each pair of architectures."""
    left = records[0]["targets"][0]
    others = [record["targets"][1] for record in records]
    lines = [f"# Which kernels keep their bits between {left} and {' or '.join(others)}", ""]
    lines += [
        f"**Nothing was measured on {' or '.join(others)}.** The same bits follow from the instruction set: both "
        "kernels have one canonical form. Other bits and alike bytes follow from executions on bit patterns, with what "
        f"is measured of {left} and with the published arithmetic of the matrix units of {' and '.join(others)}.",
        "",
        f"Matrix steps with the name `fused` are those of several units: of `mma.sync` and `wgmma` on {left}, as "
        f"measured, and of `mma.sync` and `tcgen05.mma` of fp16 on {' and '.join(others)}, as published (MMA-Sim on a "
        "B200).",
        "",
        "| result | what it says |",
        "| --- | --- |",
        "| same bits | equal on every input, by proof |",
        "| same if approximations agree | equal on every input if the approximate instructions (`ex2.approx`, "
        "`div.full`, ...) return the same bits on both architectures, which nobody has published |",
        "| alike | other instructions of matrix units or another tree; the same bytes on every drawn input |",
        "| other bits | an input on which a byte differs, by the published arithmetic |",
        "| open | an approximate instruction without published bits, beside other differences |",
        "| Unknown | not read, or not determined, on one of both |",
        "",
        f"What was measured of the lanes of a warp on {left} was not measured elsewhere. Kernels whose result rests on "
        "it are not determined there without `--assume lowest-lane` or `--assume warp-order` "
        "([soundness](../../SOUNDNESS.md#the-lowest-lane-of-a-colliding-store)).",
        "",
        "Triton 3.6 leaves out the proxy fence between copies by threads and the matrix instructions that read them. "
        f"On {' and '.join(others)} such kernels are not determined by default; the page is read with "
        "`--assume proxies-together`, and later versions of Triton emit the fence "
        "([soundness](../../SOUNDNESS.md#copies-without-a-proxy-fence)).",
        "",
    ]
    for record, other in zip(records, others, strict=True):
        entries = compiled(record)
        refused = len(record["configurations"]) - len(entries)
        kinds: dict[str, list[Mapping[str, Any]]] = {}
        families: dict[str, list[Mapping[str, Any]]] = {}
        for each in entries:
            kinds.setdefault(each["kind"], []).append(each)
            families.setdefault(each["family"], []).append(each)
        lines += [
            f"## {left} and {other}",
            "",
            f"{len(entries)} configurations of {len(families)} families of Triton kernels, compiled for both "
            f"architectures with Triton {record['environment']['triton']} and compared for one launch each; "
            f"{len(record['draws'])} kinds of drawn inputs."
            + f" Of {refused} more, one of both is not compiled."
            * bool(refused),
            "",
            *table_of("kind of kernels", {name: kinds[name] for name in KINDS if name in kinds}, total=True),
            "",
            "By family:",
            "",
            *table_of("family", families, decides=True),
            "",
        ]
    return "\n".join(lines[:-1]) + "\n"


def table_of(
    title: str, groups: Mapping[str, Sequence[Mapping[str, Any]]], *, total: bool = False, decides: bool = False
) -> list[str]:
    """Return the lines of a table: the number of configurations of each group with each result."""
    more = ["what decides"] * decides
    lines = [
        f"| {' | '.join([title, 'configurations', *_TITLES, *more])} |",
        f"| --- | {' | '.join(['---:'] * (1 + len(_TITLES)) + ['---'] * decides)} |",
    ]
    rows = [(name, entries, [_decides(entries)] if decides else []) for name, entries in groups.items()]
    if total:
        rows.append(("all", [each for entries in groups.values() for each in entries], []))
    for name, entries, last in rows:
        numbers = [str(count) for count in summary(entries).values()]
        lines.append(f"| {' | '.join([name, str(len(entries)), *numbers, *last])} |")
    return lines


def _decides(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return what the differing or open configurations of a family have in common, most frequent first."""
    found: Counter[str] = Counter()
    for each in entries:
        if each["result"] in (DIFFERENT, ALIKE):
            found[" / ".join(f"`{node}`" for node in each["divergence"]) or "another tree"] += 1
        elif each["result"] in (CONDITIONAL, OPEN, UNKNOWN):
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
    parser.add_argument("--page", nargs="+", type=Path, help="print the page of these records")
    parser.add_argument("--like", type=Path, help="a record of another second architecture, whose results may hold")
    parser.add_argument("--recorded", type=Path, help="with --like: the simulated bytes of that architecture")
    parser.add_argument("--folder", type=Path, help="with --like: the kernels compiled for the second architecture")
    chosen = parser.parse_args(arguments)
    if chosen.page:
        print(page([json.loads(each.read_text(encoding="utf-8")) for each in chosen.page]), end="")
        return 0
    targets = (chosen.targets[0], chosen.targets[1])
    names, known = chosen_ids(targets, chosen.sample, chosen.families), dict[str, dict[str, Any]]()
    if chosen.like:
        if not (chosen.recorded and chosen.folder):
            parser.error("--like needs --recorded and --folder")
        like = json.loads(chosen.like.read_text(encoding="utf-8"))
        names = [each["id"] for each in like["configurations"]]
        known = carried_entries(like, targets, chosen.folder, load_records(chosen.recorded))
        print(f"{len(known)} of {len(names)} hold", flush=True)
    jobs = [(name, targets) for name in names if name not in known]
    with ProcessPoolExecutor(chosen.processes) as pool:
        known |= {entry["id"]: entry for entry in pool.map(_job, jobs, chunksize=4)}
    entries = [known[name] for name in names]
    print(summary(entries))
    if chosen.out:
        environment = {**analysis_environment(), "simulated": "measured and published bits only, no surrogates"}
        record = {"environment": environment, "targets": targets, "draws": FIRST, "configurations": entries}
        chosen.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
