"""Whether a kernel returns the same bits in every run, and the places that make it depend on the order of threads."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from bitwise_core.checker.kernel_readings import ANALYSIS, Execution, analysis_jobs, readers
from bitwise_core.checker.readings import Reading, ReadingCache, kernel_subject
from bitwise_core.checker.results import AnalysisResult, Place
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.wording import COMMON_NOTES, counted
from bitwise_core.plugins.references import Deferred

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from bitwise_core.checker.workers.worker_pool import Progress


class Determinism(StrEnum):
    """Whether a kernel returns the same bits in every run.

    DETERMINISTIC: proved.  NONDETERMINISTIC: two orders of threads leave different bytes for some input.  UNKNOWN:
    neither is proved.
    """

    DETERMINISTIC = "deterministic"
    NONDETERMINISTIC = "nondeterministic"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class KernelDeterminism:
    """The verdict on one kernel: its name, the outcome, the reason, and the places that make it so.

    Of an UNKNOWN kernel, `places` are the accesses whose effect on the result is not settled.
    """

    name: str
    outcome: Determinism
    reason: str
    places: tuple[Place, ...] = ()

    def lines(self) -> tuple[str, ...]:
        """The reason and the places as lines of text.  A cause that a place states is left out of the reason."""
        reason = self.reason
        for place in self.places:
            stated = re.escape(place.reason) + r"( at line \d+(, with line \d+)?)?"
            reason = re.sub(rf"(\A|: ){stated}", "", reason).removeprefix("; ")
        return (*filter(None, [reason]), *map(str, self.places))

    def as_json(self) -> dict[str, object]:
        """The verdict as a JSON object."""
        places = [
            {
                "kind": each.kind,
                "reason": each.reason,
                "line": each.line,
                "source": each.source,
                "other_line": each.other_line,
                "other_source": each.other_source,
            }
            for each in self.places
        ]
        return {"name": self.name, "outcome": self.outcome.value, "reason": self.reason, "places": places}


@dataclass(frozen=True, slots=True)
class DeterminismReport:
    """The verdicts on kernels in their given order, the scope (`launch` or `every launch`), and the assumptions.

    `results` are the results of the analyses.
    """

    kernels: tuple[KernelDeterminism, ...]
    scope: str
    seconds: float
    results: tuple[AnalysisResult, ...]
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> KernelDeterminism:
        for each in self.kernels:
            if each.name == name:
                return each
        raise KeyError(f"{name}: the kernels are {', '.join(each.name for each in self.kernels)}")

    def __repr__(self) -> str:
        return f"DeterminismReport({self.sentence()})"

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><td>{escape(each.name)}</td><td>{each.outcome.value}</td><td>{escape(each.reason)}</td></tr>"
            for each in self.kernels
        )
        return f"{escape(self.sentence())}<table><tr><th>kernel</th><th>result</th><th>reason</th></tr>{rows}</table>"

    def count(self, outcome: Determinism) -> int:
        """The number of kernels with an outcome."""
        return sum(each.outcome is outcome for each in self.kernels)

    def sentence(self) -> str:
        """The numbers of kernels by outcome, and the scope, in one sentence."""
        counts = ", ".join(f"{self.count(outcome)} {outcome.value}" for outcome in Determinism)
        scope = "every launch" if self.scope == "every launch" else "the given launches"
        return f"{counted(len(self.kernels), 'kernel')}: {counts}, for {scope}"

    def as_json(self) -> dict[str, object]:
        """The report as the JSON object that the command prints."""
        return {
            "kernels": [each.as_json() for each in self.kernels],
            "scope": self.scope,
            "seconds": round(self.seconds, 3),
            "notes": list(dict.fromkeys((*self.notes, *COMMON_NOTES))),
        }


@dataclass(frozen=True, slots=True)
class WitnessResult:
    """See `OrderWitness`; `interrupted`: it stopped for a reason outside of the kernel."""

    element: str | None
    reason: str
    interrupted: bool = False


ORDER_WITNESS = Reading(
    name="order witness",
    answer=Deferred("bitwise_core.checker.workers.worker_jobs:find_witness"),
    subject=lambda job: kernel_subject(*job),
    cost=ANALYSIS.cost,
    lost=lambda job, reason: WitnessResult(None, reason, interrupted=True),
    renamed=lambda result, job: result,
    keeps=lambda result: not result.interrupted,
    result=WitnessResult,
)
"""Two orders of threads in which a launch leaves different bytes."""


def determinism(
    sources: Sequence[Source],
    target: str,
    options: Options,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    cache: ReadingCache | None = None,
) -> DeterminismReport:
    """Decide for each kernel whether it returns the same bits in every run; the keywords are those of `partition`.

    Raises KeyError where no plugin models a target.
    """
    start = time.perf_counter()
    jobs = analysis_jobs(sources, target)
    with readers(sources, target, options, Execution(workers, executor, cache, progress)) as reader:
        results = reader.read_all(ANALYSIS, jobs)
        open_places = [number for number, result in enumerate(results) if _may_have_witness(sources[number], result)]
        found = reader.read_all(ORDER_WITNESS, [jobs[number] for number in open_places]) if open_places else []
    witnesses = dict(zip(open_places, found, strict=True))
    kernels = tuple(_verdict(result, witnesses.get(number)) for number, result in enumerate(results))
    notes = dict.fromkeys(note for result in results if result.unknown is None for note in result.notes)
    return DeterminismReport(kernels, options.scope, time.perf_counter() - start, tuple(results), tuple(notes))


def _may_have_witness(source: Source, result: AnalysisResult) -> bool:
    """Whether running the launch in several orders may show that the result depends on them."""
    if source.launch is None or result.unknown is None or result.proved or result.malformed or result.failed:
        return False
    from bitwise_core.execution.races.undetermined import Kind

    # No order of threads shows what an asynchronous agent does not see.
    hidden = {Kind.UNDEFINED.value, Kind.PROXY.value}
    return any(each.kind not in hidden for each in result.places)


def _verdict(result: AnalysisResult, witness: WitnessResult | None) -> KernelDeterminism:
    if result.unknown is None:
        reason = "every order of threads returns the same bits"
        return KernelDeterminism(result.name, Determinism.DETERMINISTIC, reason)
    if result.proved:
        return KernelDeterminism(result.name, Determinism.NONDETERMINISTIC, result.unknown, result.places)
    if witness is not None and witness.element is not None:
        reason = f"{result.unknown}; {witness.reason}"
        return KernelDeterminism(result.name, Determinism.NONDETERMINISTIC, reason, result.places)
    reason = result.unknown if witness is None else f"{result.unknown}; not decided by a run: {witness.reason}"
    return KernelDeterminism(result.name, Determinism.UNKNOWN, reason, result.places)
