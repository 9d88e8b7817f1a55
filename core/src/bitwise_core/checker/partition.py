"""Kernels into classes of proved equals, over all cores."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TypeAlias

from bitwise_core.checker.analysis import AnalysisResult, Options, Session, Source, buffer_numbers
from bitwise_core.checker.comparison import compare_large
from bitwise_core.checker.verdicts import Outcome, Verdict, verdict
from bitwise_core.checker.worker_pool import Progress, WorkerPool
from bitwise_core.execution.architecture import Arch
from bitwise_core.plugins import registry

_NO_ANSWER = "the process that read it ended without an answer, most likely for lack of memory"


@dataclass(frozen=True, slots=True)
class Partition:
    """Classes in the order of their first kernels; Unknown kernels are classes of their own."""

    classes: tuple[tuple[str, ...], ...]
    unknown: Mapping[str, str]
    scope: str
    seconds: float
    readings: tuple[AnalysisResult, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Partition({self.sentence()})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{number}</td><td>{len(names)}</td><td>{escape(_shortened(names))}</td></tr>"
            for number, names in enumerate(self.classes[:_SHOWN], 1)
        )
        more = len(self.classes) - _SHOWN
        rest = f"<tr><td colspan=3>{more} more classes</td></tr>" if more > 0 else ""
        head = "<tr><th>class</th><th>kernels</th><th>names</th></tr>"
        return f"{escape(self.sentence())}<table>{head}{rows}{rest}</table>"

    def sentence(self) -> str:
        """How many kernels, classes and unknown kernels there are, for which scope."""
        kernels, unknown = sum(map(len, self.classes)), len(self.unknown)
        scope = "every launch" if self.scope == "every launch" else "the given launches"
        return f"{kernels} kernels, {len(self.classes) - unknown} classes, {unknown} unknown, for {scope}"

    def as_json(self) -> dict[str, object]:
        """The form that the command line prints."""
        return {
            "classes": [list(each) for each in self.classes],
            "unknown": dict(self.unknown),
            "scope": self.scope,
            "seconds": round(self.seconds, 3),
            "notes": list(self.notes),
        }


_SHOWN = 50
"""So many classes a notebook shows."""


def _shortened(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f", and {len(names) - 8} more" if len(names) > 8 else "")


@dataclass(frozen=True, slots=True)
class _Task:
    """What every job of one partition shares."""

    target: str
    buffers: Mapping[str, int]
    options: Options

    def session(self) -> Session:
        """A session of one process."""
        return Session(self.buffers, self.options)


Pool: TypeAlias = WorkerPool[Session]


def _task(sources: Sequence[Source], target: str, options: Options) -> _Task:
    registry.default().arch(target)
    launches = [source.launch for source in sources if source.launch is not None]
    if len({source.target or target for source in sources}) > 1:
        options = replace(options, cross_architecture=True)
    return _Task(target, buffer_numbers({name for launch in launches for name in launch.buffers()}), options)


def _arch(task: _Task, source: Source) -> Arch:
    return registry.default().arch(source.target or task.target)


def _read(session: Session, job: tuple[_Task, Source]) -> AnalysisResult:
    task, source = job
    return session.read(source, _arch(task, source)).portable()


def _compare(session: Session, job: tuple[_Task, Source, Source]) -> tuple[Outcome, str]:
    task, left, right = job
    return compare_large((left, right), (_arch(task, left), _arch(task, right)), session)


def _read_all(task: _Task, sources: Sequence[Source], workers: Pool) -> list[AnalysisResult]:
    found = workers.map(_read, [(task, source) for source in sources])
    return [
        AnalysisResult(source.name, None, _NO_ANSWER) if reading is None else reading
        for source, reading in zip(sources, found, strict=True)
    ]


def _compare_all(task: _Task, left: Source, others: Sequence[Source], workers: Pool) -> list[tuple[Outcome, str]]:
    found = workers.map(_compare, [(task, left, other) for other in others])
    return [(Outcome.UNKNOWN, f"{_NO_ANSWER} ({left.name})") if each is None else each for each in found]


def read_all(
    sources: Sequence[Source],
    target: str,
    options: Options,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[AnalysisResult]:
    """The readings of all kernels, in their order, made by up to `workers` processes (all cores by default).

    Raises KeyError where no plugin has the target.
    """
    task = _task(sources, target, options)
    with WorkerPool(task.session, min(workers, len(sources)) if workers else None, len(sources), progress) as pool:
        return _read_all(task, sources, pool)


def verdicts(
    reference: Source,
    others: Sequence[Source],
    target: str,
    options: Options,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Verdict]:
    """The verdict on the reference itself and then on each of the others against it, in their order.

    The first is Equal unless the reference could not be read.  Raises KeyError where no plugin has the target.
    """
    sources = [reference, *others]
    task = _task(sources, target, options)
    with WorkerPool(task.session, workers, len(sources), progress) as pool:
        first, *rest = _read_all(task, sources, pool)
        answers = [_itself(first, options), *(verdict(first, reading, options) for reading in rest)]
        if first.unknown is not None:
            return answers
        places = [n for n, each in enumerate(rest, 1) if each.unknown is None and (first.large or each.large)]
        compared = _compare_all(task, reference, [sources[n] for n in places], pool)
    for place, (outcome, reason) in zip(places, compared, strict=True):
        before = answers[place]
        answers[place] = Verdict(outcome, reason, before.scope, before.notes, before.conditions)
    return answers


def _itself(reading: AnalysisResult, options: Options) -> Verdict:
    if reading.unknown is not None:
        return verdict(reading, reading, options)
    return Verdict(Outcome.EQUAL, "it is the reference", options.scope, reading.notes, tuple(sorted(options.assume)))


def partition(
    sources: Sequence[Source],
    target: str,
    options: Options,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Partition:
    """Partitions kernels by proved equality; those that name a target of their own are read for it.

    Raises KeyError where no plugin has a target.
    """
    start = time.perf_counter()
    task = _task(sources, target, options)
    with WorkerPool(task.session, workers, len(sources), progress) as pool:
        readings = _read_all(task, sources, pool)
        classes, unknown = _by_signature(readings)
        for group in _large_groups(sources, readings):
            doubts = _by_comparison(task, group, sources, readings, classes, pool)
            unknown |= doubts
    ordered = sorted(classes, key=min)
    proved = [reading for place, reading in enumerate(readings) if place not in unknown]
    notes = tuple(dict.fromkeys(note for reading in proved for note in reading.notes))
    names = tuple(tuple(sources[place].name for place in sorted(members)) for members in ordered)
    by_name = {sources[place].name: reason for place, reason in sorted(unknown.items())}
    return Partition(names, by_name, options.scope, time.perf_counter() - start, tuple(readings), notes)


def _by_signature(readings: Sequence[AnalysisResult]) -> tuple[list[list[int]], dict[int, str]]:
    """Classes of the places of equal signatures, and why those that have none, or a lone program, are unknown."""
    classes: dict[object, list[int]] = {}
    unknown: dict[int, str] = {}
    for place, reading in enumerate(readings):
        if reading.unknown is not None:
            unknown[place] = reading.unknown
        classes.setdefault(reading.signature if reading.signature is not None else place, []).append(place)
    for members in classes.values():
        reason = readings[members[0]].program_only
        if len(members) == 1 and reason is not None:
            unknown[members[0]] = reason
    return list(classes.values()), unknown


def _large_groups(sources: Sequence[Source], readings: Sequence[AnalysisResult]) -> list[list[int]]:
    """The places of kernels that write the same buffers, where one of them at least has a large grid."""
    groups: dict[frozenset[str], list[int]] = {}
    for place, (source, reading) in enumerate(zip(sources, readings, strict=True)):
        if source.launch is not None and reading.unknown is None:
            groups.setdefault(frozenset(source.launch.buffers()), []).append(place)
    return [group for group in groups.values() if len(group) > 1 and any(readings[place].large for place in group)]


def _by_comparison(
    task: _Task,
    group: Sequence[int],
    sources: Sequence[Source],
    readings: Sequence[AnalysisResult],
    classes: list[list[int]],
    pool: Pool,
) -> dict[int, str]:
    """Merges classes of a group by comparing their first kernels; says why kernels that stay alone may not differ."""
    doubts: dict[int, str] = {}
    waiting = [members for members in classes if members[0] in group]
    while waiting:
        first, *others = waiting
        asked = [each for each in others if readings[first[0]].large or readings[each[0]].large]
        found = _compare_all(task, sources[first[0]], [sources[each[0]] for each in asked], pool)
        for members, (outcome, reason) in zip(asked, found, strict=True):
            if outcome is Outcome.EQUAL:
                first.extend(members)
                classes.remove(members)
                others.remove(members)
            elif outcome is Outcome.UNKNOWN:
                doubts.setdefault(members[0], reason)
        waiting = others
    alone = {members[0] for members in classes if len(members) == 1}
    return {place: reason for place, reason in doubts.items() if place in alone}
