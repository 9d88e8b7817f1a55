"""Kernels compiled for two architectures: the verdict on each pair against execution of both on bit patterns.

    python -m bitwise_bench.readings.cross_architecture --out records/cross-architecture-sm90-gfx942.json

An equal pair must return the same bytes on every kind of input.  A pair whose canonical forms differ is different where
the bytes differ on one of these inputs or on one that the search for a counterexample finds.  Approximate instructions
without documented bits are executed by surrogate functions, see `bitwise_bench.simulation.recorder`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.compilation.sources import compile_source
from bitwise_bench.draws.inputs import DRAWS
from bitwise_bench.environment import analysis_environment
from bitwise_bench.readings.assumed import reading
from bitwise_bench.simulation.execution import outputs
from bitwise_bench.simulation.recorder import with_surrogates
from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.counterexamples import find_counterexample
from bitwise_core.checker.sources import Source
from bitwise_core.checker.verdicts import Counterexample, Outcome, Verdict
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.plugins import registry

if TYPE_CHECKING:
    from bitwise_bench.corpus.kernels.cross_architecture import Pair


@dataclass(frozen=True, slots=True)
class PairResult:
    """The result for a pair: the verdict, and the kinds of input on which the bytes differ.

    `refused` is the reason why a kernel could not be executed, `counterexample` the one that the search found.
    """

    pair: str
    verdict: Verdict
    different: tuple[str, ...] = ()
    refused: str | None = None
    counterexample: str | None = None

    @property
    def confirmed(self) -> bool:
        """Whether the execution agrees with the verdict."""
        if self.refused is not None:
            return False
        return self.differs == (self.verdict.outcome is Outcome.UNPROVED)

    @property
    def differs(self) -> bool:
        """Whether the bytes differ on some input."""
        return bool(self.different) or self.counterexample is not None

    @property
    def outcome(self) -> Outcome:
        """The outcome after the execution: unproved becomes different where the bytes differ."""
        unproved = self.verdict.outcome is Outcome.UNPROVED
        return Outcome.DIFFERENT if unproved and self.differs else self.verdict.outcome

    @property
    def divergence(self) -> tuple[str, str] | None:
        """The operations of the two nodes at the first divergence."""
        seen = self.verdict.divergence
        if seen is None or seen.left is None or seen.right is None:
            return None
        return seen.left.operation, seen.right.operation


def compile_pair(pair: Pair) -> tuple[tuple[Source, Source], tuple[Arch, Arch]]:
    """Compile both kernels; return their sources, and their architectures with a function for every operation."""
    sources, arches = [], []
    for case in (pair.left, pair.right):
        source, _, _ = compile_source(case)
        sources.append(replace(source, name=f"{pair.name}.{case.target}"))
        arches.append(with_surrogates(registry.default().arch(case.target)))
    return (sources[0], sources[1]), (arches[0], arches[1])


def compare_pair(pair: Pair, draws: Iterable[str] = DRAWS, seconds: float = 0.0) -> PairResult:
    """Compare the kernels of a pair and execute both on some kinds of input.

    If an unproved pair has the same bytes on all of them, a counterexample is searched for up to `seconds`.
    """
    sources, arches = compile_pair(pair)
    options = reading(*(arch.name for arch in arches))
    found = compare(*sources, arches, options)
    try:
        ready = [prepare(source, arch, options) for source, arch in zip(sources, arches, strict=True)]
        chosen = tuple(draws)
        left, right = (outputs(case, one, chosen) for case, one in zip((pair.left, pair.right), ready, strict=True))
        different = tuple(draw for draw in chosen if left[draw] != right[draw])
    except Unsupported as error:
        return PairResult(pair.name, found.verdict, (), str(error))
    if different or found.verdict.outcome is not Outcome.UNPROVED or not seconds:
        return PairResult(pair.name, found.verdict, different)
    seen = find_counterexample(*sources, arches, options, found, seconds)
    return PairResult(
        pair.name, found.verdict, counterexample=seen.sentence if isinstance(seen, Counterexample) else None
    )


def as_record(pair: Pair, found: PairResult) -> dict[str, Any]:
    """Return the entry of a pair in the record."""
    return {
        "pair": pair.name,
        "expected": pair.expected,
        "verdict": found.outcome.value,
        "divergence": found.divergence,
        "different draws": len(found.different),
        "counterexample": found.counterexample,
        "confirmed": found.confirmed,
        "same bytes expected": pair.same_bytes,
        "refused": found.refused,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare every pair; the exit status is 1 where a verdict is not the expected one or the bytes contradict it."""
    parser = command_parser("readings.cross_architecture", __doc__)
    parser.add_argument("--out", type=Path, help="write the record here, as JSON")
    parser.add_argument("--pairs", nargs="*", default=[], help="these pairs only")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="time limit of the search for a counterexample (default 20)"
    )
    chosen = parser.parse_args(arguments)
    from bitwise_bench.corpus.kernels.cross_architecture import pairs

    entries, wrong = [], 0
    for pair in pairs():
        if chosen.pairs and pair.name not in chosen.pairs:
            continue
        found = compare_pair(pair, DRAWS, chosen.seconds)
        entries.append(as_record(pair, found))
        fits = found.verdict.outcome.value == pair.expected and (pair.nodes is None or found.divergence == pair.nodes)
        wrong_pair = not fits or (not found.confirmed and not pair.same_bytes)
        wrong += wrong_pair
        draws = f"{len(found.different)} of {len(DRAWS)} kinds of input differ"
        notes = (found.divergence, draws, found.refused, found.counterexample, None if fits else found.verdict.reason)
        said = " ".join(str(note) for note in notes if note)
        print(f"{'WRONG ' * wrong_pair}{pair.name}: {found.verdict.outcome.value} {said}", flush=True)
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
        record = {"environment": analysis_environment(), "draws": len(DRAWS), "summary": summary, "pairs": entries}
        chosen.out.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
