"""Which configurations of an Inductor kernel may be chosen: those proved equal to the first one, launch by launch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bitwise_triton.compilation import CompiledKernel, configuration_name
from bitwise_triton.equivalence import CandidateVerdict, compare_with_reference
from bitwise_triton.errors import CaptureError
from bitwise_triton.inductor.launches import launched_kernel

logger = logging.getLogger("bitwise_triton")


@dataclass(frozen=True, slots=True)
class DroppedConfiguration:
    """A configuration that is not proved equal to the reference: the checker's outcome and reason."""

    configuration: str
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class KernelReport:
    """What one autotuning may choose from, and the seconds that the proofs took.

    `kept` and `dropped` are the configurations besides the reference, which is always kept.
    """

    kernel: str
    reference: str
    kept: tuple[str, ...]
    dropped: tuple[DroppedConfiguration, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Rules:
    """What a proof may assume and must cover, and who receives the reports."""

    assume: tuple[str, ...] = ()
    every_launch: bool = False
    report: Callable[[KernelReport], None] | None = None


@dataclass
class LaunchSelection:
    """The verdicts on the configurations of one kernel for one launch, each against the reference.

    `reference` is a compile result of the autotuner, as are the configurations that are judged.
    """

    autotuner: Any
    arguments: tuple[Any, ...]
    reference: Any
    rules: Rules
    judged: list[tuple[Any, CandidateVerdict]] = field(default_factory=list)

    def judge(self, results: Sequence[Any]) -> None:
        """Compare compile results with the reference, and report the outcome."""
        start = time.perf_counter()
        others = [each for each in results if each is not self.reference and self._verdict(each) is None]
        if not others:
            return
        found = self._compared(others)
        self.judged += zip(others, found, strict=True)
        kept, dropped = [], []
        for each, verdict in zip(others, found, strict=True):
            name = configuration_name({}, each.config.all_kwargs())
            if verdict.outcome == "equal":
                kept.append(name)
            else:
                dropped.append(DroppedConfiguration(name, verdict.outcome, verdict.reason))
        reference = configuration_name({}, self.reference.config.all_kwargs())
        seconds = time.perf_counter() - start
        publish(KernelReport(self.autotuner.fn.__name__, reference, tuple(kept), tuple(dropped), seconds), self.rules)

    def allows(self, result: Any) -> bool:
        """Return whether a configuration may be chosen."""
        if result is self.reference:
            return True
        self.judge([result])
        verdict = self._verdict(result)
        return verdict is not None and verdict.outcome == "equal"

    def _verdict(self, result: Any) -> CandidateVerdict | None:
        return next((verdict for each, verdict in self.judged if each is result), None)

    def _compared(self, others: Sequence[Any]) -> list[CandidateVerdict]:
        try:
            first = launched_kernel(self.autotuner, self.reference, self.arguments)
        except CaptureError as error:
            return [CandidateVerdict("unknown", f"The reference cannot be read. {error}") for _ in others]
        kernels: list[CompiledKernel | CaptureError] = []
        for each in others:
            try:
                kernels.append(launched_kernel(self.autotuner, each, self.arguments))
            except CaptureError as error:
                kernels.append(error)
        return compared(first, kernels, self.rules)


def compared(
    reference: CompiledKernel, kernels: Sequence[CompiledKernel | CaptureError], rules: Rules
) -> list[CandidateVerdict]:
    """Return a verdict for each kernel; an error in its place is Unknown."""
    known = [each for each in kernels if isinstance(each, CompiledKernel)]
    try:
        found = compare_with_reference(
            reference, known, every_launch=rules.every_launch, assume=rules.assume, workers=1
        )
    except CaptureError as error:
        found = [CandidateVerdict("unknown", str(error)) for _ in known]
    answers = iter(found)
    return [
        next(answers) if isinstance(each, CompiledKernel) else CandidateVerdict("unknown", str(each))
        for each in kernels
    ]


def publish(report: KernelReport, rules: Rules) -> None:
    """Log a report, and pass it on."""
    logger.info(
        "%s: %d of %d configurations are proved equal to (%s), in %.2f s",
        report.kernel, len(report.kept), len(report.kept) + len(report.dropped), report.reference, report.seconds,
    )  # fmt: skip
    for each in report.dropped:
        logger.info("%s (%s): %s. %s", report.kernel, each.configuration, each.outcome, each.reason)
    if rules.report is not None:
        rules.report(report)
