"""Mutation detection rate: kernels with one change, and how many of them are not Equal to the original.

    python -m bitwise_bench.mutants.detection_rate --out records/mutants.json

A mutant that returns other bytes must never be Equal; a neutral variant must always be.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.compilation.text_digest import normalised_digest
from bitwise_bench.mutants.generation import Mutant, mutants, variants
from bitwise_bench.mutants.ptx_mutations import KINDS
from bitwise_bench.mutants.ptx_neutral_variants import VARIANTS
from bitwise_conformance.suite.time_limit import TimeLimitExceeded, time_limit
from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options, Source, buffer_numbers
from bitwise_core.checker.verdicts import Outcome, verdict
from bitwise_core.execution.launch import Launch, read_manifest
from bitwise_core.plugins import registry

OPTIONS = Options(audit_contraction=False)
"""Mutants are read without the contraction audit, since a change does not concern the assembler."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel with its launch."""

    name: str
    text: str
    launch: Launch


@dataclass(frozen=True, slots=True)
class MutantVerdict:
    """The verdict on a kernel and one of its mutants; `failed` reports an internal error, which no text may cause."""

    kernel: str
    mutant: Mutant
    outcome: Outcome
    reason: str
    failed: bool = False


def judge(kernel: Kernel, changed: Sequence[Mutant], target: str = "sm_90") -> list[MutantVerdict]:
    """Return the verdict on a kernel and each mutant.  Raises ValueError where the kernel itself is Unknown.

    An analysis that takes more than ten times as long as that of the original, and 3 s, is Unknown.
    """
    arch = registry.default().arch(target)
    buffers = buffer_numbers(set(kernel.launch.buffers()))

    def analysed(text: str) -> AnalysisResult:
        return analyse(Source(kernel.name, text, kernel.launch), arch, buffers, OPTIONS)

    original = analysed(kernel.text)
    if original.signature is None:
        raise ValueError(f"{kernel.name}: {original.unknown}")
    limit = 10 * original.seconds + 3
    found = []
    for mutant in changed:
        try:
            with time_limit(limit):
                result_of_mutant = analysed(mutant.text)
            result = verdict(original, result_of_mutant, OPTIONS)
            found.append(MutantVerdict(kernel.name, mutant, result.outcome, result.reason, result_of_mutant.failed))
        except TimeLimitExceeded:
            found.append(
                MutantVerdict(
                    kernel.name,
                    mutant,
                    Outcome.UNKNOWN,
                    "the analysis takes more than ten times as long as that of the original",
                )
            )
    return found


def kernels_in(folder: Path) -> Callable[[], dict[str, list[Kernel]]]:
    """Return a function that reads a folder of compiled groups (`<family>/<group>/manifest.json`) by family."""

    def load() -> dict[str, list[Kernel]]:
        found: dict[str, list[Kernel]] = {}
        for manifest in sorted(folder.glob("*/*/manifest.json")):
            family, group = manifest.parts[-3:-1]
            for launch in read_manifest(manifest).kernels:
                name = f"{family}/{group}/{launch.file.removesuffix('.ptx')}"
                found.setdefault(family, []).append(Kernel(name, (manifest.parent / launch.file).read_text(), launch))
        return found

    return load


@lru_cache(maxsize=512)
def compiled(name: str) -> Kernel:
    """Compile a configuration of the corpus; raises the errors of the compiler."""
    from bitwise_bench.compilation.capture import compile_case
    from bitwise_bench.corpus import catalogue

    case = catalogue.by_id()[name]
    captured = compile_case(case)
    launch = Launch.model_validate({"file": f"{case.name}.ptx", **captured.manifest_entry})
    return Kernel(name, captured.assembly, launch)


def sample(names: Mapping[str, Sequence[str]], each: int, seed: str) -> list[str]:
    """Return `each` names of every family, ranked by a hash: adding a name does not change the other choices."""

    def rank(name: str) -> str:
        return hashlib.sha256(f"{seed}\0{name}".encode()).hexdigest()

    return [name for family in sorted(names) for name in sorted(names[family], key=rank)[:each]]


def survey(kernel: Kernel, seed: str, count: int) -> list[MutantVerdict]:
    """Return the verdicts on `count` mutants and on all neutral variants of a kernel."""
    changed = mutants(kernel.text, f"{seed}\0{kernel.name}", count)
    changed += variants(kernel.text, f"{seed}\0{kernel.name}")
    return judge(kernel, changed)


def _survey_job(job: tuple[Kernel | str, str, int]) -> tuple[list[MutantVerdict], str | None]:
    kernel, seed, count = job
    try:
        if isinstance(kernel, str):
            kernel = compiled(kernel)
        judged = survey(kernel, seed, count)
    except Exception as error:  # the summary names a kernel that fails
        name = kernel if isinstance(kernel, str) else kernel.name
        return [], f"{name}: {' '.join(str(error).split())[:200]}"
    keep = [
        one
        if one.outcome is Outcome.EQUAL and not one.mutant.neutral
        else replace(one, mutant=replace(one.mutant, text=""))
        for one in judged
    ]
    return keep, None


def table(judged: Sequence[MutantVerdict]) -> list[dict[str, Any]]:
    """Return the numbers of mutants and of unproved, unknown and equal verdicts, by kind."""
    rows = []
    for neutral in (False, True):
        for kind in VARIANTS if neutral else KINDS:
            of_kind = Counter(
                one.outcome.value for one in judged if one.mutant.kind == kind and one.mutant.neutral == neutral
            )
            if of_kind:
                rows.append(
                    {
                        "kind": kind,
                        "neutral": neutral,
                        "mutants": of_kind.total(),
                        **{o.value: of_kind[o.value] for o in (Outcome.EQUAL, Outcome.UNPROVED, Outcome.UNKNOWN)},
                    }
                )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the detection rate on the corpus; the exit status is 1 where a neutral variant is not Equal."""
    parser = command_parser("mutants.detection_rate", __doc__)
    parser.add_argument("--folder", type=Path, help="read compiled kernels from this folder")
    parser.add_argument("--families", nargs="*", default=[], help="these families only")
    parser.add_argument("--kernels", type=int, default=2, help="kernels of each family (default 2)")
    parser.add_argument("--mutants", type=int, default=12, help="mutants of each kernel (default 12)")
    parser.add_argument("--seed", default="1", help="seed of the choice of kernels and mutants")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: all cores)")
    parser.add_argument("--out", type=Path, help="write the table and the survivors here, as JSON")
    parser.add_argument("--gpu-bytes", type=Path, help="the output of `mutants.gpu_bytes` for the survivors, for --out")
    parser.add_argument("--survivors", type=Path, help="write the texts of Equal mutants to this folder")
    chosen = parser.parse_args(arguments)
    start = time.monotonic()
    jobs: list[tuple[Kernel | str, str, int]]
    if chosen.folder:
        loaded = kernels_in(chosen.folder)()
        by_name = {kernel.name: kernel for kernels in loaded.values() for kernel in kernels}
        names = {family: [kernel.name for kernel in kernels] for family, kernels in loaded.items()}
    else:
        from bitwise_bench.corpus import catalogue

        by_name = {}
        names = {}
        for case in catalogue.cases():
            names.setdefault(case.family, []).append(case.id)
    if chosen.families:
        names = {family: names[family] for family in chosen.families}
    jobs = [
        (by_name.get(name, name), chosen.seed, chosen.mutants) for name in sample(names, chosen.kernels, chosen.seed)
    ]
    judged: list[MutantVerdict] = []
    failed: list[str] = []
    with ProcessPoolExecutor(max(1, chosen.workers)) as pool:
        for index, (found, error) in enumerate(pool.map(_survey_job, jobs), start=1):
            judged += found
            failed += [error] if error else []
            if index % 20 == 0:
                print(
                    f"{index} of {len(jobs)} kernels after {time.monotonic() - start:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
    rows = table(judged)
    print(f"{'kind':24} {'mutants':>8} {'unproved':>10} {'unknown':>8} {'equal':>6} {'detected':>8}")
    for row in rows:
        detected = f"{100 * (1 - row['equal'] / row['mutants']):.1f} %" if not row["neutral"] else "neutral"
        counts = f"{row['mutants']:8} {row['unproved']:10} {row['unknown']:8} {row['equal']:6}"
        print(f"{row['kind']:24} {counts} {detected:>8}")
    for line in failed:
        print(f"failed: {line}")
    survivors = [one for one in judged if one.outcome is Outcome.EQUAL and not one.mutant.neutral]
    broken = [one for one in judged if one.outcome is not Outcome.EQUAL and one.mutant.neutral]
    for one in judged:
        if one.failed:
            mutant = one.mutant
            print(f"INTERNAL ERROR {one.kernel}: {mutant.kind}: {mutant.before} -> {mutant.after}: {one.reason}")
    for one in broken:
        print(f"NEUTRAL, NOT EQUAL {one.kernel}: {one.mutant.kind}: {one.reason}")
    print(
        f"{len(jobs)} kernels, {len(judged)} texts, {len(survivors)} mutants are Equal, "
        f"{time.monotonic() - start:.0f} s"
    )
    if chosen.out:
        _write(chosen.out, chosen, rows, survivors, failed)
    if chosen.survivors:
        _write_survivors(chosen.survivors, survivors, by_name)
    return 1 if broken else 0


def _write(
    path: Path,
    chosen: argparse.Namespace,
    rows: list[dict[str, Any]],
    survivors: list[MutantVerdict],
    failed: list[str],
) -> None:
    from bitwise_bench.environment import analysis_environment

    content: dict[str, Any] = {
        "environment": analysis_environment(),
        "settings": {"seed": chosen.seed, "kernels": chosen.kernels, "mutants": chosen.mutants},
        "table": rows,
        "not surveyed": failed,
    }
    if chosen.gpu_bytes:
        recorded = json.loads(chosen.gpu_bytes.read_text())
        by_digest = {entry["digest"]: entry for entry in recorded["mutants"] if "digest" in entry}
        equal = [(one, by_digest.get(normalised_digest(one.mutant.text)[:16])) for one in survivors]
        content["hardware"] = {
            "environment": recorded["environment"],
            "equal by text": len(equal),
            "same bytes": Counter(one.mutant.kind for one, result in equal if result and not result["differs"]),
            "other bytes": [
                _entry(one) | {"draws": result["differs"]} for one, result in equal if result and result["differs"]
            ],
            "not run": [_entry(one) for one, result in equal if result is None],
            "digests of same bytes": sorted(
                entry["digest"]
                for entry in recorded["mutants"]
                if entry.get("differs") == [] and not entry["nondeterministic"]
            ),
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def _entry(one: MutantVerdict) -> dict[str, Any]:
    mutant = one.mutant
    return {
        "kernel": one.kernel,
        "kind": mutant.kind,
        "line": mutant.line,
        "before": mutant.before,
        "after": mutant.after,
    }


def _write_survivors(folder: Path, survivors: list[MutantVerdict], known: Mapping[str, Kernel]) -> None:
    """Write the Equal mutants and their originals, as `mutants.gpu_bytes` reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    originals: dict[str, str] = {}
    entries = []
    for index, one in enumerate(survivors):
        kernel = known.get(one.kernel) or compiled(one.kernel)
        if one.kernel not in originals:
            originals[one.kernel] = f"original-{len(originals):04d}.ptx"
            (folder / originals[one.kernel]).write_text(kernel.text)
        (folder / f"{index:04d}.ptx").write_text(one.mutant.text)
        launch = kernel.launch.model_dump(exclude={"args"}) | {"args": [each.short() for each in kernel.launch.args]}
        entries.append({"file": f"{index:04d}.ptx", "original": originals[one.kernel], "launch": launch, **_entry(one)})
    (folder / "survivors.json").write_text(json.dumps(entries, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
