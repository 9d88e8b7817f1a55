"""Kernels with one change, and how many of them the readings tell from the original.

    python -m bitwise_conformance.mutants --out records/mutants.json

A change that alters what a kernel returns must never come back Equal; a neutral one must always.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from bitwise_conformance.digest import normalised_digest
from bitwise_conformance.ptx_mutations import KINDS
from bitwise_conformance.ptx_text import Text, read_text
from bitwise_conformance.ptx_variants import VARIANTS
from bitwise_conformance.time_limit import OutOfTime, time_limit
from bitwise_core import registry
from bitwise_core.checker import AnalysisResult, Options, Outcome, Source, buffer_numbers, read, verdict
from bitwise_core.machine.launch import Launch, read_manifest

OPTIONS = Options(trust_text=True)
"""A changed text is read as it is written: what the assembler fuses is no matter of the change."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed text: the kind of change, its line (counted from 1, 0 for one all over the text), before and after."""

    kind: str
    line: int
    before: str
    after: str
    text: str
    neutral: bool = False


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel to be changed: its name, its text, its launch."""

    name: str
    text: str
    launch: Launch


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on a kernel and a mutant of it; `failed` says that the reader broke down, which no text may cause."""

    kernel: str
    mutant: Mutant
    outcome: Outcome
    reason: str
    failed: bool = False


def mutants(text: str, seed: str, count: int, kinds: Iterable[str] = tuple(KINDS)) -> list[Mutant]:
    """Up to `count` different changes of a PTX text, spread over the kinds that it offers; a seed draws the same."""
    parsed = read_text(text)
    found: list[Mutant] = []
    queues = [_of_kind(parsed, kind, random.Random(f"{seed}\0{kind}")) for kind in kinds]
    random.Random(seed).shuffle(queues)
    seen = {text}
    while queues and len(found) < count:
        for queue in list(queues):
            mutant = next(queue, None)
            if mutant is None:
                queues.remove(queue)
            elif mutant.text not in seen and len(found) < count:
                seen.add(mutant.text)
                found.append(mutant)
    return found


def _of_kind(parsed: Text, kind: str, dice: random.Random) -> Iterator[Mutant]:
    sites = list(KINDS[kind](parsed, dice))
    dice.shuffle(sites)
    for site in sites:
        yield Mutant(kind, site.line, *_shown(parsed.lines, site.changes), parsed.with_lines(site.changes))


def _shown(lines: Sequence[str], changes: Mapping[int, str | None]) -> tuple[str, str]:
    before = "; ".join(lines[number - 1].strip() for number in sorted(changes))
    after = "; ".join((changes[number] or "").strip() for number in sorted(changes))
    return before[:300], after[:300]


def variants(text: str, seed: str, kinds: Iterable[str] = tuple(VARIANTS)) -> list[Mutant]:
    """Texts of the same kernel, one for each kind of neutral change that it offers; the same for the same seed."""
    found = []
    for kind in kinds:
        changed = VARIANTS[kind](text, random.Random(f"{seed}\0{kind}"))
        if changed != text:
            found.append(Mutant(kind, 0, "", "", changed, neutral=True))
    return found


def judge(kernel: Kernel, changed: Sequence[Mutant], target: str = "sm_90") -> list[Judged]:
    """The verdict on a kernel and each of the changed texts.  Raises ValueError where the kernel itself is not read.

    A reading that takes over ten times as long as the original's is Unknown.
    """
    arch = registry.default().arch(target)
    buffers = buffer_numbers(set(kernel.launch.buffers()))

    def reading(text: str) -> AnalysisResult:
        return read(Source(kernel.name, text, kernel.launch), arch, buffers, OPTIONS)

    original = reading(kernel.text)
    if original.signature is None:
        raise ValueError(f"{kernel.name}: {original.unknown}")
    limit = 10 * original.seconds + 3
    found = []
    for mutant in changed:
        try:
            with time_limit(limit):
                read_again = reading(mutant.text)
            said = verdict(original, read_again, OPTIONS)
            found.append(Judged(kernel.name, mutant, said.outcome, said.reason, read_again.failed))
        except OutOfTime:
            found.append(
                Judged(kernel.name, mutant, Outcome.UNKNOWN, "the reading takes far longer than the original's")
            )
    return found


def kernels_in(folder: Path) -> Callable[[], dict[str, list[Kernel]]]:
    """Gives the kernels of a folder of captured groups (`<family>/<group>/manifest.json`), by family."""

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
    """A case of the corpus, compiled here; raises what the compiler raises."""
    from bitwise_conformance import corpus
    from bitwise_conformance.compiling import compile_case

    case = corpus.by_id()[name]
    captured = compile_case(case)
    launch = Launch.model_validate({"file": f"{case.name}.ptx", **captured.manifest_entry})
    return Kernel(name, captured.assembly, launch)


def sample(names: Mapping[str, Sequence[str]], each: int, seed: str) -> list[str]:
    """`each` names of every family, drawn by seed: a name that joins or leaves the corpus moves no other."""

    def rank(name: str) -> str:
        return hashlib.sha256(f"{seed}\0{name}".encode()).hexdigest()

    return [name for family in sorted(names) for name in sorted(names[family], key=rank)[:each]]


def survey(kernel: Kernel, seed: str, count: int) -> list[Judged]:
    """The verdicts on `count` mutants and on all neutral variants of a kernel."""
    changed = mutants(kernel.text, f"{seed}\0{kernel.name}", count)
    changed += variants(kernel.text, f"{seed}\0{kernel.name}")
    return judge(kernel, changed)


def _survey_job(job: tuple[Kernel | str, str, int]) -> tuple[list[Judged], str | None]:
    kernel, seed, count = job
    try:
        if isinstance(kernel, str):
            kernel = compiled(kernel)
        judged = survey(kernel, seed, count)
    except Exception as error:  # a kernel that cannot be surveyed is named in the summary
        name = kernel if isinstance(kernel, str) else kernel.name
        return [], f"{name}: {' '.join(str(error).split())[:200]}"
    keep = [
        one
        if one.outcome is Outcome.EQUAL and not one.mutant.neutral
        else replace(one, mutant=replace(one.mutant, text=""))
        for one in judged
    ]
    return keep, None


def table(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """For each kind: how many mutants, and how many are equal, unproved and unknown."""
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
    """Survey the corpus; the exit status is 1 where a neutral variant is not Equal."""
    parser = argparse.ArgumentParser(prog="bitwise_conformance.mutants", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=Path, help="read captured kernels from here instead of compiling them")
    parser.add_argument("--families", nargs="*", default=[], help="these families only")
    parser.add_argument("--kernels", type=int, default=2, help="kernels a family (default 2)")
    parser.add_argument("--mutants", type=int, default=12, help="mutants a kernel (default 12)")
    parser.add_argument("--seed", default="1", help="another seed draws other mutants")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: all cores)")
    parser.add_argument("--out", type=Path, help="write the table and the survivors here, as JSON")
    parser.add_argument("--truth", type=Path, help="what `mutants_gpu` found of the survivors, for --out")
    parser.add_argument("--survivors", type=Path, help="write the texts of mutants that came back Equal to this folder")
    chosen = parser.parse_args(arguments)
    start = time.monotonic()
    jobs: list[tuple[Kernel | str, str, int]]
    if chosen.folder:
        loaded = kernels_in(chosen.folder)()
        by_name = {kernel.name: kernel for kernels in loaded.values() for kernel in kernels}
        names = {family: [kernel.name for kernel in kernels] for family, kernels in loaded.items()}
    else:
        from bitwise_conformance import corpus

        by_name = {}
        names = {}
        for case in corpus.cases():
            names.setdefault(case.family, []).append(case.id)
    if chosen.families:
        names = {family: names[family] for family in chosen.families}
    jobs = [
        (by_name.get(name, name), chosen.seed, chosen.mutants) for name in sample(names, chosen.kernels, chosen.seed)
    ]
    judged: list[Judged] = []
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
    print(f"{'kind':24} {'mutants':>8} {'unproved':>10} {'unknown':>8} {'equal':>6} {'caught':>8}")
    for row in rows:
        caught = f"{100 * (1 - row['equal'] / row['mutants']):.1f} %" if not row["neutral"] else "neutral"
        print(
            f"{row['kind']:24} {row['mutants']:8} {row['unproved']:10} {row['unknown']:8} {row['equal']:6} {caught:>8}"
        )
    for line in failed:
        print(f"not surveyed: {line}")
    survivors = [one for one in judged if one.outcome is Outcome.EQUAL and not one.mutant.neutral]
    broken = [one for one in judged if one.outcome is not Outcome.EQUAL and one.mutant.neutral]
    for one in judged:
        if one.failed:
            print(
                f"BROKE DOWN {one.kernel}: {one.mutant.kind}: {one.mutant.before} -> {one.mutant.after}: {one.reason}"
            )
    for one in broken:
        print(f"NOT EQUAL though neutral: {one.kernel}: {one.mutant.kind}: {one.reason}")
    print(
        f"{len(jobs)} kernels, {len(judged)} texts, {len(survivors)} mutants came back Equal, "
        f"{time.monotonic() - start:.0f} s"
    )
    if chosen.out:
        _write(chosen.out, chosen, rows, survivors, failed)
    if chosen.survivors:
        _write_survivors(chosen.survivors, survivors, by_name)
    return 1 if broken else 0


def _write(
    path: Path, chosen: argparse.Namespace, rows: list[dict[str, Any]], survivors: list[Judged], failed: list[str]
) -> None:
    from bitwise_conformance.environment import reading_environment

    content: dict[str, Any] = {
        "environment": reading_environment(),
        "settings": {"seed": chosen.seed, "kernels": chosen.kernels, "mutants": chosen.mutants},
        "table": rows,
        "not surveyed": failed,
    }
    if chosen.truth:
        truth = json.loads(chosen.truth.read_text())
        by_digest = {entry["digest"]: entry for entry in truth["mutants"] if "digest" in entry}
        equal = [(one, by_digest.get(normalised_digest(one.mutant.text)[:16])) for one in survivors]
        content["hardware"] = {
            "environment": truth["environment"],
            "equal by text": len(equal),
            "same bytes": Counter(one.mutant.kind for one, said in equal if said and not said["differs"]),
            "other bytes": [
                _entry(one) | {"draws": said["differs"]} for one, said in equal if said and said["differs"]
            ],
            "not run": [_entry(one) for one, said in equal if said is None],
            "digests of same bytes": sorted(
                entry["digest"] for entry in truth["mutants"] if entry.get("differs") == [] and not entry["unsteady"]
            ),
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def _entry(one: Judged) -> dict[str, Any]:
    mutant = one.mutant
    return {
        "kernel": one.kernel,
        "kind": mutant.kind,
        "line": mutant.line,
        "before": mutant.before,
        "after": mutant.after,
    }


def _write_survivors(folder: Path, survivors: list[Judged], known: Mapping[str, Kernel]) -> None:
    """The texts that came back Equal, with the kernels that they were made of, for `mutants_gpu`."""
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
