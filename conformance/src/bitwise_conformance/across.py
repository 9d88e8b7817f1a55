"""Kernels compiled for two architectures: the verdict on each pair, held against runs of both on bit patterns.

    python -m bitwise_conformance.across --out records/across-sm90-gfx942.json

An equal pair must leave the same bytes on every draw.  One whose canonical forms differ is different where a draw, or
an input that the search finds, shows it; approximations are stood in for, as `bitwise_conformance.simulated` says.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitwise_conformance.agreement import compile_source
from bitwise_conformance.draws import DRAWS
from bitwise_conformance.environment import reading_environment
from bitwise_conformance.execution import outputs
from bitwise_conformance.simulated import with_stand_ins
from bitwise_core import registry
from bitwise_core.checker import Counterexample, Options, Outcome, Source, Verdict, prepare
from bitwise_core.difference import compare
from bitwise_core.machine.arch import Arch
from bitwise_core.machine.domain import Unreadable
from bitwise_core.search import find_counterexample

if TYPE_CHECKING:
    from bitwise_conformance.corpus.across import Pair


@dataclass(frozen=True, slots=True)
class Compared:
    """What came of a pair: the verdict, the draws on which the bytes differ, or why it could not be run."""

    pair: str
    verdict: Verdict
    different: tuple[str, ...] = ()
    refused: str | None = None
    found: str | None = None
    """An input beyond the draws on which the bytes differ, in words."""

    @property
    def confirmed(self) -> bool:
        """Whether the runs say what the verdict says."""
        if self.refused is not None:
            return False
        return self.differs == (self.verdict.outcome is Outcome.UNPROVED)

    @property
    def differs(self) -> bool:
        """Whether the bytes differ on some input."""
        return bool(self.different) or self.found is not None

    @property
    def outcome(self) -> Outcome:
        """What is known after the runs: canonical forms that differ are different kernels where the bytes differ."""
        unproved = self.verdict.outcome is Outcome.UNPROVED
        return Outcome.DIFFERENT if unproved and self.differs else self.verdict.outcome

    @property
    def nodes(self) -> tuple[str, str] | None:
        """The operations of the first divergence."""
        seen = self.verdict.divergence
        if seen is None or seen.left is None or seen.right is None:
            return None
        return seen.left.operation, seen.right.operation


def compiled(pair: Pair) -> tuple[tuple[Source, Source], tuple[Arch, Arch]]:
    """Both kernels, and their architectures with functions for all their operations."""
    sources, arches = [], []
    for case in (pair.left, pair.right):
        source, _, _ = compile_source(case)
        sources.append(replace(source, name=f"{pair.name}.{case.target}"))
        arches.append(with_stand_ins(registry.default().arch(case.target)))
    return (sources[0], sources[1]), (arches[0], arches[1])


def compared(pair: Pair, draws: Iterable[str] = DRAWS, seconds: float = 0.0) -> Compared:
    """The verdict on a pair, and both kernels run on draws; with `seconds`, a search for an input where none tells."""
    sources, arches = compiled(pair)
    found = compare(*sources, arches, Options())
    try:
        ready = [prepare(source, arch, Options()) for source, arch in zip(sources, arches, strict=True)]
        chosen = tuple(draws)
        left, right = (outputs(case, one, chosen) for case, one in zip((pair.left, pair.right), ready, strict=True))
        different = tuple(draw for draw in chosen if left[draw] != right[draw])
    except Unreadable as error:
        return Compared(pair.name, found.verdict, (), str(error))
    if different or found.verdict.outcome is not Outcome.UNPROVED or not seconds:
        return Compared(pair.name, found.verdict, different)
    seen = find_counterexample(*sources, arches, Options(), found, seconds)
    return Compared(pair.name, found.verdict, found=seen.sentence if isinstance(seen, Counterexample) else None)


def as_record(pair: Pair, found: Compared) -> dict[str, Any]:
    """One pair as the record has it."""
    return {
        "pair": pair.name,
        "expected": pair.expected,
        "verdict": found.outcome.value,
        "nodes": found.nodes,
        "different draws": len(found.different),
        "input found": found.found,
        "confirmed": found.confirmed,
        "same bytes expected": pair.same_bytes,
        "refused": found.refused,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare every pair; the exit status is 1 where a verdict is not the expected one, or bytes gainsay it."""
    parser = argparse.ArgumentParser(prog="bitwise_conformance.across", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, help="write the record here, as JSON")
    parser.add_argument("--pairs", nargs="*", default=[], help="these pairs only")
    parser.add_argument("--seconds", type=float, default=20.0, help="search for an input for so long (default 20)")
    chosen = parser.parse_args(arguments)
    from bitwise_conformance.corpus.across import pairs

    entries, wrong = [], 0
    for pair in pairs():
        if chosen.pairs and pair.name not in chosen.pairs:
            continue
        found = compared(pair, DRAWS, chosen.seconds)
        entries.append(as_record(pair, found))
        fits = found.verdict.outcome.value == pair.expected and (pair.nodes is None or found.nodes == pair.nodes)
        ill = not fits or (not found.confirmed and not pair.same_bytes)
        wrong += ill
        told = f"{len(found.different)} of {len(DRAWS)} draws differ {found.refused or found.found or ''}"
        print(f"{'WRONG ' * ill}{pair.name}: {found.verdict.outcome.value} {found.nodes or ''} {told} "
              f"{found.verdict.reason if not fits else ''}", flush=True)  # fmt: skip
    summary = {
        "pairs": len(entries),
        "equal": sum(each["verdict"] == "equal" for each in entries),
        "different": sum(each["verdict"] == "different" for each in entries),
        "unproved": sum(each["verdict"] == "unproved" for each in entries),
        "confirmed": sum(each["confirmed"] for each in entries),
        "wrong": wrong,
    }
    print(summary)
    if chosen.out:
        record = {"environment": reading_environment(), "draws": len(DRAWS), "summary": summary, "pairs": entries}
        chosen.out.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
