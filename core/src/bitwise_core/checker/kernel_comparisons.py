"""Comparisons of two kernels that are recalled or made: from readings of both, and block by block for large grids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from bitwise_core.checker.kernel_readings import ANALYSIS, AnalysisJob, cost_of
from bitwise_core.checker.readings import Reading, ReadingCache, kernel_subject, reading_key
from bitwise_core.checker.sources import Arches, Options, Source, buffers_of
from bitwise_core.checker.verdicts import Comparison, LargeComparison, Outcome, verdict
from bitwise_core.plugins import registry
from bitwise_core.plugins.references import Deferred

ComparisonJob: TypeAlias = tuple[AnalysisJob, AnalysisJob]

LARGE_COMPARISON = Reading(
    name="comparison of large grids",
    answer=Deferred("bitwise_core.checker.workers.worker_jobs:compare"),
    # The reason of the outcome names the kernels.
    subject=lambda job: [(source.name, kernel_subject(source, arch)) for source, arch in job],
    cost=lambda job: sum(map(cost_of, job)),
    lost=lambda job, reason: LargeComparison(Outcome.UNKNOWN, f"{reason} ({job[0][0].name})", interrupted=True),
    renamed=lambda result, job: result,
    keeps=lambda result: not result.interrupted,
    result=LargeComparison,
)
"""The comparison of two kernels of which at least one has a large grid."""


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
