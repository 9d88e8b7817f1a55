"""The readings behind verdicts and partitions, of one kernel or of two large grids, and where they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from bitwise_core.checker.readings import Readers, Reading, ReadingCache, environment, kernel_subject, reading_key
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Arches, Options, Source, buffers_of
from bitwise_core.checker.verdicts import Comparison, LargeComparison, Outcome, verdict
from bitwise_core.errors import BitwiseError
from bitwise_core.plugins import registry
from bitwise_core.plugins.references import Deferred

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from bitwise_core.checker.analysis import Session
    from bitwise_core.checker.worker_pool import Progress, WorkerPool

SESSION = Deferred("bitwise_core.checker.kernel_answers:session")
"""The session of one worker."""


@dataclass(frozen=True, slots=True)
class Execution:
    """How the kernels of a folder are read: processes (None: one per core), an executor instead, the cache, progress.

    An `executor` runs the readings of its caller: it must run the same code, with the same assembler.
    """

    workers: int | None = None
    executor: Executor | None = None
    cache: ReadingCache | None = None
    progress: Progress | None = None


@contextmanager
def readers(sources: Sequence[Source], target: str, options: Options, execution: Execution) -> Iterator[Readers]:
    """Provide the readers of kernels that are compared with each other.

    Raises KeyError where no plugin models a target.
    """
    plugins = registry.default()
    plugins.reference(target)
    if len({source.target or target for source in sources}) > 1:
        options = replace(options, cross_architecture=True)
    buffers = buffers_of(sources)
    with ExitStack() as stack:

        @cache
        def pool() -> WorkerPool[Session]:
            from bitwise_core.checker.worker_pool import WorkerPool

            executor = execution.executor
            make = partial(SESSION, buffers, options, None if executor is None else (environment(),))
            workers, limit = execution.workers, options.time_limit
            return stack.enter_context(WorkerPool(make, workers, len(sources), time_limit=limit, executor=executor))

        yield Readers(buffers, options, pool, execution.cache, execution.progress, lambda: plugins.arch(target))


class ForeignWorker(BitwiseError, RuntimeError):
    """A worker of an executor runs other code than the process that asks for its readings."""


AnalysisJob: TypeAlias = tuple[Source, str]
"""A kernel and the name of its architecture."""

ComparisonJob: TypeAlias = tuple[AnalysisJob, AnalysisJob]


def _without_analysis(job: AnalysisJob, reason: str) -> AnalysisResult:
    return AnalysisResult(job[0].name, None, reason, interrupted=True)


def _of_another_kernel(result: AnalysisResult, job: AnalysisJob) -> AnalysisResult | None:
    # The message on a malformed kernel names its file.
    return None if result.malformed or result.failed else replace(result, name=job[0].name)


def _keeps_analysis(result: AnalysisResult) -> bool:
    return not (result.malformed or result.failed or result.interrupted)


def _cost(job: AnalysisJob) -> float:
    from bitwise_core.execution.concrete import LANES_PER_BATCH

    source, _ = job
    launch = source.launch
    threads = 1 if launch is None or launch.block is None else prod(launch.block)
    return len(source.text) * (1 + (0 if launch is None else launch.blocks * threads / LANES_PER_BATCH))


ANALYSIS = Reading(
    name="analysis",
    answer=Deferred("bitwise_core.checker.kernel_answers:analyse"),
    subject=lambda job: kernel_subject(*job),
    cost=_cost,
    lost=_without_analysis,
    renamed=_of_another_kernel,
    keeps=_keeps_analysis,
    result=AnalysisResult,
)
"""The analysis of one kernel."""


LARGE_COMPARISON = Reading(
    name="comparison of large grids",
    answer=Deferred("bitwise_core.checker.kernel_answers:compare"),
    # The reason of the outcome names the kernels.
    subject=lambda job: [(source.name, kernel_subject(source, arch)) for source, arch in job],
    cost=lambda job: sum(map(_cost, job)),
    lost=lambda job, reason: LargeComparison(Outcome.UNKNOWN, f"{reason} ({job[0][0].name})", interrupted=True),
    renamed=lambda result, job: result,
    keeps=lambda result: not result.interrupted,
    result=LargeComparison,
)
"""The comparison of two kernels of which at least one has a large grid."""


def analysis_jobs(sources: Iterable[Source], target: str) -> list[AnalysisJob]:
    """The jobs of kernels; a kernel without a `target` has the given one."""
    return [(source, source.target or target) for source in sources]


_COMPARE: Callable[[Source, Source, Arches, Options], Comparison] = Deferred("bitwise_core.checker.comparison:compare")


def compare_or_recall(
    left: Source, right: Source, names: tuple[str, str], options: Options, cache: ReadingCache | None
) -> Comparison:
    """Compare two kernels as `comparison.compare` does, or recall the comparison where kept readings decide it.

    `names` are those of the architectures of both kernels.

    A recalled comparison is Equal or Unknown, or for every launch: what differs otherwise takes the programs and the
    trees, which are not kept.
    """
    if cache is None:
        return _compared(left, right, names, options)
    both = options if names[0] == names[1] else replace(options, cross_architecture=True)
    buffers = buffers_of((left, right))
    first, second = zip((left, right), names, strict=True)
    keys = [reading_key(ANALYSIS, job, buffers, both, cache) for job in (first, second)]
    of_both = reading_key(LARGE_COMPARISON, (first, second), buffers, both, cache)
    recalled = _recall(cache, keys, of_both, (left, right), both)
    if recalled is not None:
        return recalled
    found = _compared(left, right, names, options)
    for key, result in zip(keys, found.results, strict=True):
        cache.put(ANALYSIS, key, result)
    decided = found.verdict.outcome in (Outcome.EQUAL, Outcome.UNPROVED)
    if decided and any(result.large for result in found.results):
        cache.put(LARGE_COMPARISON, of_both, LargeComparison(found.verdict.outcome, found.verdict.reason))
    return found


def _compared(left: Source, right: Source, names: tuple[str, str], options: Options) -> Comparison:
    one, other = map(registry.default().arch, names)
    return _COMPARE(left, right, (one, other), options)


def _recall(
    cache: ReadingCache, keys: list[str | None], of_both: str | None, sources: tuple[Source, Source], options: Options
) -> Comparison | None:
    left, right = (cache.get(ANALYSIS, key) for key in keys)
    if left is None or right is None:
        return None
    results = replace(left, name=sources[0].name), replace(right, name=sources[1].name)
    found = verdict(*results, options)
    if (left.large or right.large) and left.unknown is None and right.unknown is None:
        large = cache.get(LARGE_COMPARISON, of_both)
        if large is None:
            return None
        found = replace(found, outcome=large.outcome, reason=large.reason)
    if found.outcome is Outcome.UNPROVED and not options.every_launch:
        return None
    return Comparison(results, found)
