"""Which configurations of an Inductor kernel may be chosen: those proved equal to the first one, launch by launch.

All configurations are timed first, and compared with the reference from the fastest one on, until one is equal: what is
slower needs no proof.  The proofs of one kernel for one launch have a limit of time.  What is not proved by then is not
chosen, so that the limit decides the speed of a model and never its bits.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any

from bitwise_triton.compilation import CompiledKernel, configuration_name
from bitwise_triton.equivalence import CandidateVerdict, compare_with_reference
from bitwise_triton.errors import CaptureError
from bitwise_triton.inductor.launches import launch_tensors, launched_kernel
from bitwise_triton.tensor_contents import MAXIMUM_BYTES, Tensors, give_tensors

if TYPE_CHECKING:
    from bitwise_core.execution.tensor_contents import TensorContents

logger = logging.getLogger("bitwise_triton")


@dataclass(frozen=True, slots=True)
class DroppedConfiguration:
    """A configuration that is not proved equal to the reference: the checker's outcome and reason."""

    configuration: str
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class KernelReport:
    """What one autotuning chose from, and what that cost.

    `kept` and `dropped` are the configurations besides the reference, which is always kept.  `slower` are those that
    took longer than the reference, or than a kept one: they needed no proof.  `seconds` is the time of the proofs.
    `milliseconds` has the time of each configuration that was timed, the dropped ones included, and `chosen` is the
    configuration that was taken.  Both are empty for templates, which Inductor times later.
    """

    kernel: str
    reference: str
    kept: tuple[str, ...]
    dropped: tuple[DroppedConfiguration, ...]
    seconds: float
    slower: tuple[str, ...] = ()
    chosen: str = ""
    milliseconds: tuple[tuple[str, float], ...] = ()

    @property
    def cost(self) -> float:
        """The time of the chosen configuration by that of the fastest one, dropped or not; 1 where they are unknown."""
        times = dict(self.milliseconds)
        return times[self.chosen] / min(times.values()) if times.get(self.chosen) else 1.0


PROOF_SECONDS = 30.0
"""How long the configurations of one kernel are compared for one launch."""

_MOST_AT_ONCE = 4
"""How many configurations are compared at the same time, each in a process of its own."""

_SHORTEST_READING = 0.5
"""With less time left, in seconds, no reading is begun."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a proof may assume and must cover, who receives the reports, and which tensors a proof may depend on.

    The proofs of one kernel for one launch end after about `seconds`.
    """

    assume: tuple[str, ...] = ()
    every_launch: bool = False
    report: Callable[[KernelReport], None] | None = None
    tensors: Tensors = True
    tensor_bytes: int = MAXIMUM_BYTES
    seconds: float = PROOF_SECONDS


@dataclass
class LaunchSelection:
    """The verdicts on the configurations of one kernel for one launch, each against the reference.

    `reference` is a compile result of the autotuner, as are the configurations that are judged.  `digests` are those of
    the tensors of the launch by buffer if a verdict Equal holds for their contents only, else None.  `spent` are the
    seconds of all proofs, and `times` the milliseconds of each configuration that was timed.
    """

    autotuner: Any
    arguments: tuple[Any, ...]
    reference: Any
    rules: Rules
    judged: list[tuple[Any, CandidateVerdict]] = field(default_factory=list)
    digests: tuple[tuple[str, str], ...] | None = None
    spent: float = 0.0
    times: dict[str, float] = field(default_factory=dict)
    _slower: list[Any] = field(default_factory=list)
    _recorded: Mapping[str, TensorContents] | None = None
    _reference_verdict: CandidateVerdict | None = None

    def fastest(self, results: Sequence[Any]) -> Any:
        """Return the first of the compile results that may be chosen.

        They are in the order of their times.  Those behind it are not compared with the reference.
        """
        faster = list(takewhile(lambda each: each is not self.reference, results))
        # Mostly the fastest one is equal.  Behind it, several are read at once.
        workers = min(_MOST_AT_ONCE, _processors())
        places = [0, *range(1, len(faster), workers)]
        groups = [faster[first:end] for first, end in pairwise([*places, len(faster)])]
        chosen = next((each for group in groups for each in self._equal_of(group)), self.reference)
        self._slower += [each for each in results if each is not self.reference and self._verdict(each) is None]
        return chosen

    def allows(self, result: Any) -> bool:
        """Return whether a configuration may be chosen."""
        return result is self.reference or bool(self._equal_of([result]))

    def has_allowed(self, result: Any) -> bool:
        """Return whether a configuration is the reference or was proved equal to it."""
        verdict = self._verdict(result)
        return result is self.reference or (verdict is not None and verdict.outcome == "equal")

    def refuses(self, result: Any) -> bool:
        """Return whether a configuration was compared, and may not be chosen."""
        verdict = self._verdict(result)
        return verdict is not None and verdict.outcome != "equal"

    def _equal_of(self, results: Sequence[Any]) -> list[Any]:
        """Return those configurations that are proved equal to the reference; the proofs are made at the same time.

        Where a proof fails because the reference is Unknown, no configuration is compared again.
        """
        new = [each for each in results if self._verdict(each) is None]
        if new and self._reference_verdict is None and self._left >= _SHORTEST_READING:
            start = time.perf_counter()
            verdicts = self._compared(new)
            self.spent += time.perf_counter() - start
            self._reference_verdict = next((each for each in verdicts if each.of_reference), None)
        elif new:
            ended = CandidateVerdict("unknown", f"The limit of {self.rules.seconds:g} s for the proofs is reached.")
            verdicts = [self._reference_verdict or ended] * len(new)
        else:
            verdicts = []
        self.judged.extend(zip(new, verdicts, strict=True))
        return [each for each in results if self.has_allowed(each)]

    @property
    def _left(self) -> float:
        return self.rules.seconds - self.spent

    def _verdict(self, result: Any) -> CandidateVerdict | None:
        return next((verdict for each, verdict in self.judged if each is result), None)

    def note(self, result: Any, milliseconds: float) -> None:
        """Keep the least time of a configuration."""
        if math.isfinite(milliseconds):
            name = _named(result)
            self.times[name] = min(milliseconds, self.times.get(name, math.inf))

    def publish(self, chosen: Any) -> None:
        """Report what was chosen from, once a configuration is chosen."""
        slower = [each for each in self._slower if self._verdict(each) is None]
        names = [_named(each) for each in (self.reference, *(each for each, _ in self.judged), *slower)]
        verdicts = [verdict for _, verdict in self.judged]
        times = tuple(self.times.items())
        publish(self.autotuner.fn.__name__, names, verdicts, self.spent, self.rules, _named(chosen), times)

    def _compared(self, others: Sequence[Any]) -> list[CandidateVerdict]:
        first, *kernels = map(self._kernel, (self.reference, *others))
        found = compared(first, kernels, self.rules, self._left)
        if (
            isinstance(first, CaptureError)
            or self.rules.every_launch
            or all(each.outcome != "unknown" for each in found)
        ):
            return found
        return self._compared_on_tensors(first, kernels, found)

    def _kernel(self, result: Any) -> CompiledKernel | CaptureError:
        try:
            return launched_kernel(self.autotuner, result, self.arguments)
        except CaptureError as error:
            return error

    def _compared_on_tensors(
        self, first: CompiledKernel, kernels: Sequence[CompiledKernel | CaptureError], found: list[CandidateVerdict]
    ) -> list[CandidateVerdict]:
        """Return the verdicts, with what is Unknown decided on the tensors of the launch where that is possible."""
        if self._recorded is None:
            self._recorded = launch_tensors(
                self.autotuner, self.reference, self.arguments, self.rules.tensors, self.rules.tensor_bytes
            )
        if not self._recorded:
            return found
        given = [each if isinstance(each, CaptureError) else give_tensors(each, self._recorded) for each in kernels]
        again = compared(give_tensors(first, self._recorded), given, self.rules, self._left)
        answers = [new if old.outcome == "unknown" else old for old, new in zip(found, again, strict=True)]
        if any(old.outcome == "unknown" and new.outcome == "equal" for old, new in zip(found, again, strict=True)):
            self.digests = digests_of(self._recorded)
        return answers


def _named(result: Any) -> str:
    return configuration_name({}, result.config.all_kwargs())


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def digests_of(recorded: Mapping[str, TensorContents]) -> tuple[tuple[str, str], ...]:
    """Return the digests of the contents of tensors, by buffer."""
    return tuple(sorted((name, contents.digest) for name, contents in recorded.items()))


def compared(
    reference: CompiledKernel | CaptureError,
    kernels: Sequence[CompiledKernel | CaptureError],
    rules: Rules,
    time_limit: float | None = None,
) -> list[CandidateVerdict]:
    """Return a verdict for each kernel; an error in its place, or in that of the reference, is Unknown.

    A kernel that is read for more than `time_limit` seconds (None: the checker's default) is Unknown.
    """
    if isinstance(reference, CaptureError):
        return [CandidateVerdict("unknown", f"The reference cannot be read. {reference}", True) for _ in kernels]
    known = [each for each in kernels if isinstance(each, CompiledKernel)]
    try:
        found = compare_with_reference(
            reference,
            known,
            every_launch=rules.every_launch,
            assume=rules.assume,
            workers=min(len(known), _MOST_AT_ONCE, _processors()) or 1,
            time_limit=time_limit,
        )
    except CaptureError as error:
        found = [CandidateVerdict("unknown", str(error)) for _ in known]
    answers = iter(found)
    return [
        next(answers) if isinstance(each, CompiledKernel) else CandidateVerdict("unknown", str(each))
        for each in kernels
    ]


def publish(
    kernel: str,
    names: Sequence[str],
    verdicts: Sequence[CandidateVerdict],
    seconds: float,
    rules: Rules,
    chosen: str = "",
    milliseconds: tuple[tuple[str, float], ...] = (),
) -> None:
    """Log and pass on what one autotuning chose from.

    `names` are those of the reference, of the configurations to which the verdicts belong, and of those without one,
    which are slower.
    """
    reference, *others = names
    judged = list(zip(others, verdicts, strict=False))
    slower = tuple(others[len(judged) :])
    kept = tuple(name for name, verdict in judged if verdict.outcome == "equal")
    dropped = tuple(
        DroppedConfiguration(name, verdict.outcome, verdict.reason)
        for name, verdict in judged
        if verdict.outcome != "equal"
    )
    found = KernelReport(kernel, reference, kept, dropped, seconds, slower, chosen, milliseconds)
    logger.info(
        "%s: %d of %d configurations are proved equal to (%s), in %.2f s; %d are slower; (%s) is chosen, at %.3f of "
        "the least time",
        kernel, len(kept), len(judged), reference, seconds, len(slower), chosen, found.cost,
    )  # fmt: skip
    for each in dropped:
        logger.info("%s (%s): %s. %s", kernel, each.configuration, each.outcome, each.reason)
    if rules.report is not None:
        rules.report(found)
