"""The readings behind all verdicts, each of one kernel, and where they are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from bitwise_core.checker.readings import Readers, Reading, ReadingCache, environment, kernel_subject
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options, Source, buffers_of
from bitwise_core.errors import BitwiseError
from bitwise_core.plugins import registry
from bitwise_core.plugins.references import Deferred

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from bitwise_core.checker.analysis import Session
    from bitwise_core.checker.workers.worker_pool import Progress, WorkerPool

SESSION = Deferred("bitwise_core.checker.workers.worker_jobs:session")
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
            from bitwise_core.checker.workers.worker_pool import WorkerPool

            executor = execution.executor
            make = partial(SESSION, buffers, options, None if executor is None else (environment(),))
            workers, limit = execution.workers, options.time_limit
            return stack.enter_context(WorkerPool(make, workers, len(sources), time_limit=limit, executor=executor))

        yield Readers(buffers, options, pool, execution.cache, execution.progress, lambda: plugins.arch(target))


class ForeignWorker(BitwiseError, RuntimeError):
    """A worker of an executor runs other code than the process that asks for its readings."""


AnalysisJob: TypeAlias = tuple[Source, str]
"""A kernel and the name of its architecture."""


def _without_analysis(job: AnalysisJob, reason: str) -> AnalysisResult:
    return AnalysisResult(job[0].name, None, reason, interrupted=True)


def _of_another_kernel(result: AnalysisResult, job: AnalysisJob) -> AnalysisResult | None:
    # The message on a malformed kernel names its file.
    return None if result.malformed or result.failed else replace(result, name=job[0].name)


def _keeps_analysis(result: AnalysisResult) -> bool:
    return not (result.malformed or result.failed or result.interrupted)


def cost_of(job: AnalysisJob) -> float:
    """An estimate of the time of an analysis, in any unit."""
    from bitwise_core.execution.concrete import LANES_PER_BATCH

    source, _ = job
    launch = source.launch
    threads = 1 if launch is None or launch.block is None else prod(launch.block)
    return len(source.text) * (1 + (0 if launch is None else launch.blocks * threads / LANES_PER_BATCH))


ANALYSIS = Reading(
    name="analysis",
    answer=Deferred("bitwise_core.checker.workers.worker_jobs:analyse"),
    subject=lambda job: kernel_subject(*job),
    cost=cost_of,
    lost=_without_analysis,
    renamed=_of_another_kernel,
    keeps=_keeps_analysis,
    result=AnalysisResult,
)
"""The analysis of one kernel."""


def analysis_jobs(sources: Iterable[Source], target: str) -> list[AnalysisJob]:
    """The jobs of kernels; a kernel without a `target` has the given one."""
    return [(source, source.target or target) for source in sources]
