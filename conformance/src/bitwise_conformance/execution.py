"""The corpus run on bit patterns, without a GPU, and held against the bytes that a GPU returned.

    python -m bitwise_conformance.execution records/bytes-sm90-h100-triton-3.6.0.json

Every configuration is compiled here, run for each recorded draw, and its outputs hashed as the recorder hashed them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bitwise_conformance.agreement import compile_source
from bitwise_conformance.cases import DTYPE_BYTES, Case
from bitwise_conformance.drawn_values import Bits
from bitwise_conformance.draws import digest_of, inputs_of
from bitwise_conformance.records import CaseRecord, Records, load_records
from bitwise_core import registry
from bitwise_core.asm import AssemblyError
from bitwise_core.checker import Options, prepare
from bitwise_core.engine.concrete import Ready
from bitwise_core.engine.execution import execute_together
from bitwise_core.machine.domain import Unreadable


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one case: the draws whose bytes are other than the recorded ones, or why it was not run.

    `digest` is that of the text that ran; where it is not the recorded one, nothing was compared.
    """

    id: str
    digest: str
    different: tuple[str, ...] = ()
    refused: str | None = None

    def against(self, record: CaseRecord) -> str:
        """`equal`, `different`, `refused`, or `another text`."""
        if self.digest != record.digest:
            return "another text"
        if self.refused is not None:
            return "refused"
        return "different" if self.different else "equal"


def run_case(case: Case, record: CaseRecord, recorded: Records, draws: Iterable[str] | None = None) -> Run:
    """Compiles a case, runs it for the given draws (all recorded ones by default), and compares hashes."""
    source, digest, _ = compile_source(case)
    if digest != record.digest:
        return Run(case.id, digest)
    try:
        prepared = prepare(source, registry.default().arch(recorded.environment["architecture"]), Options())
        expected = {draw: record.hashes[recorded.draws.index(draw)] for draw in draws or recorded.draws}
        found = outputs(case, prepared, tuple(expected))
    except (Unreadable, AssemblyError) as error:
        return Run(case.id, digest, (), str(error))
    return Run(case.id, digest, tuple(draw for draw, hashes in expected.items() if found[draw] != hashes))


def outputs(case: Case, prepared: Ready, draws: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The hashes of a case's outputs after a run on each draw, by draw.  Raises Unreadable."""
    launch = prepared.launch
    inputs = [inputs_of(case, draw) for draw in draws]
    offsets = {array.name: array.offset * DTYPE_BYTES[array.dtype] for array in case.arrays}
    before = [{name: _allocation(bits[name], offsets[name]) for name in launch.buffers()} for bits in inputs]
    runs = execute_together(prepared, before) if before else []
    found = {}
    for draw, bits, run in zip(draws, inputs, runs, strict=True):
        hashes = []
        for array in case.outputs:
            name, width = array.name, f"u{DTYPE_BYTES[array.dtype]}"
            content = run.after[name][offsets[name] :] if name in run.after else bits[name].view(np.uint8)
            hashes.append(digest_of(content.view(width), array.dtype))
        found[draw] = tuple(hashes)
    return found


def _allocation(bits: Bits, offset: int) -> Bits:
    """The bytes of a buffer that starts `offset` bytes into its allocation."""
    return np.concatenate([np.zeros(offset, dtype=np.uint8), bits.view(np.uint8)])


def size(case: Case) -> int:
    """The warps of a case's launch: what its run costs, roughly."""
    return int(np.prod(case.grid)) * case.num_warps


def run_named(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Runs the case called `name`; a job for the pool."""
    from bitwise_conformance import corpus

    recorded = load_records(settings["records"])
    found = run_case(corpus.by_id()[name], recorded.by_id()[name], recorded, settings["draws"])
    return {"outcome": found.against(recorded.by_id()[name]), "different": found.different, "refused": found.refused}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the corpus; the exit status is 1 where bytes are other than the recorded ones, else 0."""
    parser = argparse.ArgumentParser(prog="bitwise_conformance.execution", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("records", type=Path, help="the recorded bytes")
    parser.add_argument("--families", nargs="*", default=[], help="run these families only")
    parser.add_argument("--draws", nargs="*", help="run these draws only")
    parser.add_argument("--processes", type=int, default=2, help="worker processes (default 2)")
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit of one case (default 300)")
    chosen = parser.parse_args(arguments)

    from bitwise_conformance import corpus
    from bitwise_conformance.pool import run_all

    recorded = load_records(chosen.records)
    unknown = sorted(set(chosen.draws or ()) - set(recorded.draws))
    if unknown:
        parser.error(f"there is no draw called {', '.join(unknown)}; the recorded draws: {', '.join(recorded.draws)}")
    usable = {record.id for record in recorded.cases if record.usable}
    names = [
        case.id
        for case in corpus.cases()
        if case.id in usable and (not chosen.families or case.family in chosen.families)
    ]
    settings = {"records": str(chosen.records), "draws": chosen.draws}
    start = time.monotonic()
    count: Counter[str] = Counter()
    wrong: list[str] = []

    def report(name: str, answer: dict[str, Any]) -> None:
        outcome = "failed" if answer.get("error") else answer["outcome"]
        count[outcome] += 1
        if outcome in ("different", "failed"):
            wrong.append(name)
        if outcome != "equal":
            why = answer.get("error") or answer["refused"] or ", ".join(answer["different"])
            print(f"{outcome}: {name}: {why}", flush=True)

    pieces = [names[i : i + 6] for i in range(0, len(names), 6)]
    run_all(run_named, pieces, settings, processes=chosen.processes, seconds=chosen.seconds, report=report)
    print(f"{len(names)} cases in {time.monotonic() - start:.0f} s: " + ", ".join(f"{n} {k}" for k, n in count.items()))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
