"""Jobs of the workers of readings: the analysis of a kernel, the comparison of two, the search for a witness.

It is imported where a kernel is read: an answer that is recalled does not need the analysis.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping

from bitwise_core.assembly.module import AssemblyError
from bitwise_core.checker.analysis import Session, prepare
from bitwise_core.checker.comparison import compare_large
from bitwise_core.checker.determinism import WitnessResult
from bitwise_core.checker.kernel_comparisons import ComparisonJob
from bitwise_core.checker.kernel_readings import AnalysisJob, ForeignWorker
from bitwise_core.checker.order_witness import OrderWitness, find_order_witness
from bitwise_core.checker.readings import environment
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options
from bitwise_core.checker.verdicts import LargeComparison
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import ManifestError
from bitwise_core.execution.time_limit import TimeLimitExceeded, time_limit
from bitwise_core.plugins import registry


def session(buffers: Mapping[str, int], options: Options, expected: tuple[str | None] | None) -> Session:
    """The session of one worker.  Raises ForeignWorker where another environment than this is expected."""
    if expected is not None and environment() != expected[0]:
        raise ForeignWorker(
            f"the worker {platform.node()} runs another version of bitwise, of Python, NumPy or the assembler than "
            "this process, or its code was changed since it started; install the same versions and start it again"
        )
    return Session(buffers, options)


def analyse(session: Session, job: AnalysisJob) -> AnalysisResult:
    """Analyse one kernel."""
    source, arch = job
    return session.analyse(source, registry.default().arch(arch)).portable()


def compare(session: Session, job: ComparisonJob) -> LargeComparison:
    """Compare two kernels of which at least one has a large grid."""
    (left, of_left), (right, of_right) = job
    plugins = registry.default()
    return compare_large((left, right), (plugins.arch(of_left), plugins.arch(of_right)), session)


def find_witness(session: Session, job: AnalysisJob) -> WitnessResult:
    """Search for two orders of threads in which a launch leaves different bytes."""
    source, name = job
    try:
        with session.collector, time_limit(session.options.time_limit):
            found = find_order_witness(prepare(source, registry.default().arch(name), session.options))
    except (Unsupported, AssemblyError, ManifestError) as error:
        found = OrderWitness(None, str(error))
    except TimeLimitExceeded as error:
        return WitnessResult(None, str(error), interrupted=True)
    except MemoryError:
        return WitnessResult(None, "running the launch in several orders took too much memory", interrupted=True)
    return WitnessResult(found.element, found.reason)
