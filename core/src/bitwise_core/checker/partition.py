"""The partition of kernels into equivalence classes, by parallel analyses."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bitwise_core.checker.kernel_comparisons import LARGE_COMPARISON
from bitwise_core.checker.kernel_readings import ANALYSIS, AnalysisJob, Execution, analysis_jobs, readers
from bitwise_core.checker.readings import Readers, ReadingCache
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome, Verdict, given_tensors, verdict
from bitwise_core.checker.wording import COMMON_NOTES, counted
from bitwise_core.execution.assumptions import conditions_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from bitwise_core.checker.workers.worker_pool import Progress


@dataclass(frozen=True, slots=True)
class Partition:
    """Equivalence classes of kernels, in the order of their first kernels; an Unknown kernel is a class by itself.

    `unknown` maps the names of Unknown kernels to the reasons.  `scope` is `launch` or `every launch`.  `results` are
    the results of all kernels in their given order, `notes` the assumptions of the analyses.  Kernels whose launches
    give a buffer different contents are in different classes.
    """

    classes: tuple[tuple[str, ...], ...]
    unknown: Mapping[str, str]
    scope: str
    seconds: float
    results: tuple[AnalysisResult, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Partition({self.sentence()})"

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><td>{number}</td><td>{len(names)}</td><td>{escape(_shortened(names))}</td></tr>"
            for number, names in enumerate(self.classes[:_MAXIMUM_SHOWN_CLASSES], 1)
        )
        more = len(self.classes) - _MAXIMUM_SHOWN_CLASSES
        rest = f"<tr><td colspan=3>{more} more classes</td></tr>" if more > 0 else ""
        head = "<tr><th>class</th><th>kernels</th><th>names</th></tr>"
        return f"{escape(self.sentence())}<table>{head}{rows}{rest}</table>"

    def sentence(self) -> str:
        """The numbers of kernels, classes and unknown kernels, and the scope, in one sentence."""
        kernels, unknown = sum(map(len, self.classes)), len(self.unknown)
        scope = "every launch" if self.scope == "every launch" else "the given launches"
        classes = counted(len(self.classes) - unknown, "class")
        return f"{counted(kernels, 'kernel')}, {classes}, {unknown} unknown, for {scope}"

    def as_json(self) -> dict[str, object]:
        """The partition as the JSON object that the command prints."""
        return {
            "classes": [list(each) for each in self.classes],
            "unknown": dict(self.unknown),
            "scope": self.scope,
            "seconds": round(self.seconds, 3),
            "notes": list(dict.fromkeys((*self.notes, *COMMON_NOTES))),
            "tensors": {name: list(digests) for name, digests in given_tensors(self.results).items()},
        }


_MAXIMUM_SHOWN_CLASSES = 50
"""The number of classes shown in a notebook."""


def _shortened(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f", and {len(names) - 8} more" if len(names) > 8 else "")


def verdicts(
    reference: Source,
    others: Sequence[Source],
    target: str,
    options: Options,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    cache: ReadingCache | None = None,
) -> list[Verdict]:
    """The verdict on the reference itself, and then on each of the others compared with it, in the given order.

    The keywords are those of `partition`.
    The first is EQUAL unless the reference is Unknown.  Raises KeyError where no plugin models the target.
    """
    sources = [reference, *others]
    with readers(sources, target, options, Execution(workers, executor, cache, progress)) as reader:
        jobs = analysis_jobs(sources, target)
        if workers == 1:  # nothing else is read where the reference is Unknown
            (first,) = reader.read_all(ANALYSIS, jobs[:1])
            rest = reader.read_all(ANALYSIS, jobs[1:]) if first.unknown is None else [first] * len(others)
        else:
            first, *rest = reader.read_all(ANALYSIS, jobs)
        answers = [_verdict_on_itself(first, options), *(verdict(first, result, options) for result in rest)]
        if first.unknown is not None:
            return answers
        positions = [n for n, each in enumerate(rest, 1) if each.unknown is None and (first.large or each.large)]
        compared = reader.read_all(LARGE_COMPARISON, [(jobs[0], jobs[n]) for n in positions])
    for position, each in zip(positions, compared, strict=True):
        answers[position] = replace(answers[position], outcome=each.outcome, reason=each.reason)
    return answers


def _verdict_on_itself(result: AnalysisResult, options: Options) -> Verdict:
    if result.unknown is not None:
        return verdict(result, result, options)
    conditions, tensors = conditions_of(options.assume), given_tensors([result])
    return Verdict(Outcome.EQUAL, "it is the reference", options.scope, result.notes, conditions, tensors=tensors)


def partition(
    sources: Sequence[Source],
    target: str,
    options: Options,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    cache: ReadingCache | None = None,
) -> Partition:
    """Partition kernels by proved equality.  A kernel with a `target` is analysed for that architecture.

    The kernels are read in `workers` processes (None: one per core), or by an `executor` of the caller; `cache` keeps
    the readings, and `progress` is called after each of them.

    Raises KeyError where no plugin models a target.
    """
    start = time.perf_counter()
    jobs = analysis_jobs(sources, target)
    with readers(sources, target, options, Execution(workers, executor, cache, progress)) as reader:
        results = reader.read_all(ANALYSIS, jobs)
        classes, unknown = _by_signature(results)
        for group in _large_groups(sources, results):
            unknown |= _by_comparison(group, jobs, results, classes, reader)
    ordered = sorted(classes, key=min)
    proved = [result for position, result in enumerate(results) if position not in unknown]
    notes = tuple(dict.fromkeys([*(note for result in proved for note in result.notes), *_tensor_notes(results)]))
    names = tuple(tuple(sources[position].name for position in sorted(members)) for members in ordered)
    by_name = {sources[position].name: reason for position, reason in sorted(unknown.items())}
    return Partition(names, by_name, options.scope, time.perf_counter() - start, tuple(results), notes)


def _by_signature(results: Sequence[AnalysisResult]) -> tuple[list[list[int]], dict[int, str]]:
    """Group the positions of results by signature and by the tensors of their launches.

    Return the reasons why some of them are Unknown as well, by position.  A kernel on a large grid is a class by
    itself.  A class of one kernel of which the program text alone was compared is Unknown.
    """
    classes: dict[object, list[int]] = {}
    unknown: dict[int, str] = {}
    tensors = _tensors_that_differ(results)
    for position, result in enumerate(results):
        if result.unknown is not None:
            unknown[position] = result.unknown
        key = position if result.signature is None else (result.signature, tensors[position])
        classes.setdefault(key, []).append(position)
    for members in classes.values():
        reason = results[members[0]].program_only
        if len(members) == 1 and reason is not None:
            unknown[members[0]] = reason
    return list(classes.values()), unknown


def _contested(results: Sequence[AnalysisResult]) -> list[str]:
    """The buffers to which the launches do not all give the same contents."""
    found: dict[str, set[str | None]] = {}
    for result in results:
        for name, digest in result.tensors.items():
            found.setdefault(name, set()).add(digest)
    return sorted(name for name, digests in found.items() if len(digests) > 1)


def _tensors_that_differ(results: Sequence[AnalysisResult]) -> list[tuple[tuple[str, str | None], ...]]:
    """For each result, the contents of the buffers that not all launches give alike; only equal ones are compared."""
    names = _contested(results)
    return [tuple((name, each.tensors[name]) for name in names if name in each.tensors) for each in results]


def _tensor_notes(results: Sequence[AnalysisResult]) -> list[str]:
    return [
        f"the launches do not all give the same contents of {name}: kernels are compared only where they do"
        for name in _contested(results)
    ]


def _large_groups(sources: Sequence[Source], results: Sequence[AnalysisResult]) -> list[list[int]]:
    """Groups of positions of kernels with the same buffers and tensors, of which at least one has a large grid."""
    groups: dict[object, list[int]] = {}
    tensors = _tensors_that_differ(results)
    for position, (source, result) in enumerate(zip(sources, results, strict=True)):
        if source.launch is not None and result.unknown is None:
            groups.setdefault((frozenset(source.launch.buffers()), tensors[position]), []).append(position)
    return [group for group in groups.values() if len(group) > 1 and any(results[position].large for position in group)]


def _by_comparison(
    group: Sequence[int],
    jobs: Sequence[AnalysisJob],
    results: Sequence[AnalysisResult],
    classes: list[list[int]],
    reader: Readers,
) -> dict[int, str]:
    """Merge classes of a group by comparing their first kernels; the reasons why single kernels remain Unknown."""
    reasons: dict[int, str] = {}
    pending = [members for members in classes if members[0] in group]
    while pending:
        first, *others = pending
        compared = [each for each in others if results[first[0]].large or results[each[0]].large]
        found = reader.read_all(LARGE_COMPARISON, [(jobs[first[0]], jobs[each[0]]) for each in compared])
        for members, each in zip(compared, found, strict=True):
            if each.outcome is Outcome.EQUAL:
                first.extend(members)
                classes.remove(members)
                others.remove(members)
            elif each.outcome is Outcome.UNKNOWN:
                reasons.setdefault(members[0], each.reason)
        pending = others
    alone = {members[0] for members in classes if len(members) == 1}
    return {position: reason for position, reason in reasons.items() if position in alone}
