"""Autotuning among configurations that are proved to return the same bits as a reference.

    @triton.autotune(configs, key=["n"], prune_configs_by={"early_config_prune": same_bits()})
    @triton.jit
    def kernel(...): ...

Triton calls the predicate once for each new value of the tuning key. A proof may hold for less than that: for the one
launch that was read, or for the specialisation that was compiled. So the predicate also gives the autotuner a separate
cache of tuned configurations for each launch that a proof cannot be carried over to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bitwise_triton import verdicts
from bitwise_triton.binding import bind_configuration
from bitwise_triton.compilation import Captured, Grid, Job, compile_all, configuration_name, make_job, unwrap
from bitwise_triton.errors import CaptureError, UndeterminedReferenceError
from bitwise_triton.guard import guard_launches, running_autotuner
from bitwise_triton.hooks import Effects
from bitwise_triton.launch import stand_ins

logger = logging.getLogger("bitwise_triton")


@dataclass(frozen=True)
class Report:
    """What became of one configuration, and why in a sentence.

    `outcome` is "reference", the checker's verdict, or "failed" for a configuration that does not compile.
    """

    kernel: str
    configuration: str
    kept: bool
    outcome: Literal["reference", "equal", "different", "unproved", "unknown", "failed"]
    reason: str
    compile_seconds: float | None


@dataclass(frozen=True)
class _Candidate:
    """A configuration, what it is compiled to, and what its hook does to tensors before each launch."""

    kernel: str
    name: str
    compiled: Captured | CaptureError
    effects: Effects


def same_bits(
    reference: int | Mapping[str, object] | Captured | None = None,
    *,
    function: Any = None,
    assume: Sequence[str] = (),
    every_launch: bool = False,
    target: Any = None,
    grid: Grid | None = None,
    report: Callable[[list[Report]], None] | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SameBits:
    """A predicate for `triton.autotune(..., prune_configs_by={"early_config_prune": same_bits()})`.

    It keeps the configurations proved to return the same bits as `reference`: the first one (the default), the one of
    that index, the only one with those settings (`{"BLOCK": 128, "num_warps": 4}`), or a kernel compiled elsewhere.

    `assume` names conditions that the proofs may use ("finite"). `every_launch` asks for proofs that hold whatever the
    integers of the launch are. `target` ("sm_90") defaults to the current GPU. `grid` is needed only where the
    predicate is called without one. `report` receives a `Report` for each configuration; they are also logged.
    `function`, the decorated kernel or a callable that returns it, is needed only where the predicate is called by
    other code than Triton's autotuner; the proofs are then for the launch it was called with, and no other.

    Calling the predicate raises CaptureError, which is an UndeterminedReferenceError when the result of the reference
    itself could not be established.
    """
    return SameBits(reference, function, tuple(assume), every_launch, target, grid, report, workers, progress)


@dataclass(frozen=True, eq=False)
class SameBits:
    """The predicate that `same_bits` makes; see there for its fields."""

    reference: int | Mapping[str, object] | Captured | None
    function: Any
    assume: tuple[str, ...]
    every_launch: bool
    target: Any
    grid: Grid | None
    report: Callable[[list[Report]], None] | None
    workers: int | None
    progress: Callable[[int, int], None] | None

    def __call__(self, configurations: Sequence[Any], named_arguments: Mapping[str, Any], **keywords: Any) -> list[Any]:
        """The configurations to keep, as Triton's autotuner asks: never none. Raises CaptureError."""
        function = self._function()
        autotuner = running_autotuner(function, named_arguments)
        decorated = function if autotuner is None else autotuner.fn
        if decorated is None:
            raise CaptureError(
                "same_bits cannot find the autotuner that asks; name the kernel, as same_bits(function=lambda: kernel)."
            )
        settings = {**named_arguments, **keywords}
        every_launch = self.every_launch or (settings.get("grid") or self.grid) is None
        candidates = self._compile(decorated, configurations, settings)
        reports = self._judge(configurations, candidates, every_launch)
        self._publish(reports)
        kept = [configuration for configuration, one in zip(configurations, reports, strict=True) if one.kept]
        if not kept:
            raise CaptureError(
                f"No configuration of kernel {reports[0].kernel!r} is proved equal to the reference that was compiled "
                "elsewhere; the reports say why."
            )
        if autotuner is not None:
            guard_launches(autotuner, settings, every_launch=every_launch, grid=self.grid)
        return kept

    def _function(self) -> Any:
        """The decorated kernel that was named, if one was, at once or by a callable."""
        named = self.function is None or hasattr(self.function, "fn")
        return self.function if named else self.function()

    def _target(self) -> Any:
        if self.target is not None:
            return self.target
        from triton.runtime.driver import driver

        try:
            return driver.active.get_current_target()
        except RuntimeError as error:
            raise CaptureError(f"There is no GPU to take the target from ({error}); pass target='sm_90'.") from None

    def _compile(self, decorated: Any, configurations: Sequence[Any], settings: Mapping[str, Any]) -> list[_Candidate]:
        kernel, _ = unwrap(decorated)
        target = self._target()
        jobs: list[Job | CaptureError] = []
        effects: list[Effects] = []
        for configuration in configurations:
            try:
                launch = bind_configuration(decorated, configuration, settings, self.grid)
                job = make_job(
                    kernel,
                    stand_ins(launch.values),
                    {},
                    launch.options,
                    grid=launch.grid or (1, 1, 1),
                    target=target,
                    name=launch.name,
                )
                jobs.append(job)
                effects.append(launch.effects)
            except CaptureError as error:
                jobs.append(error)
                effects.append(())
        compiled = compile_all(jobs, workers=self.workers, progress=self.progress)
        names = [configuration_name({}, configuration.all_kwargs()) for configuration in configurations]
        return [
            _Candidate(kernel.__name__, name, one, touched)
            for name, one, touched in zip(names, compiled, effects, strict=True)
        ]

    def _judge(
        self, configurations: Sequence[Any], candidates: Sequence[_Candidate], every_launch: bool
    ) -> list[Report]:
        reference, effects = self._reference(configurations, candidates)
        compiled = [one.compiled for one in candidates if isinstance(one.compiled, Captured)]
        asked = [reference, *(one for one in compiled if one is not reference)]
        answers = verdicts.equal_to_reference(reference, asked, every_launch=every_launch, assume=self.assume)
        if len(answers) != len(asked):
            raise CaptureError(f"The checker gave {len(answers)} verdicts on {len(asked)} kernels.")
        if answers[0].outcome != "equal":
            raise UndeterminedReferenceError(
                f"The result of the reference ({reference.name}) of kernel {candidates[0].kernel!r} could not be "
                f"established, so no configuration can be proved equal to it. {answers[0].reason}"
            )
        verdict_of = {id(one): answer for one, answer in zip(asked, answers, strict=True)}
        return [_report(one, reference, effects, verdict_of) for one in candidates]

    def _reference(self, configurations: Sequence[Any], candidates: Sequence[_Candidate]) -> tuple[Captured, Effects]:
        if isinstance(self.reference, Captured):
            return self.reference, ()
        chosen = candidates[reference_index(configurations, self.reference)]
        if isinstance(chosen.compiled, CaptureError):
            raise UndeterminedReferenceError(f"The reference configuration cannot be used. {chosen.compiled}")
        return chosen.compiled, chosen.effects

    def _publish(self, reports: list[Report]) -> None:
        for one in reports:
            level = logging.INFO if one.kept else logging.WARNING
            logger.log(level, "%s (%s): %s. %s", one.kernel, one.configuration, one.outcome, one.reason)
        if self.report is not None:
            self.report(reports)


def reference_index(configurations: Sequence[Any], reference: int | Mapping[str, object] | None) -> int:
    """The index of the configuration that `reference` (see `same_bits`) names. Raises CaptureError."""
    if reference is None:
        return 0
    if isinstance(reference, int):
        if not 0 <= reference < len(configurations):
            raise CaptureError(f"There is no configuration {reference}; there are {len(configurations)}, from 0.")
        return reference
    found = [
        index
        for index, configuration in enumerate(configurations)
        if reference.items() <= configuration.all_kwargs().items()
    ]
    if len(found) != 1:
        shown = configuration_name(reference, {})
        raise CaptureError(
            f"{len(found)} configurations have the settings of the reference ({shown}); give settings that one has."
        )
    return found[0]


def _report(
    candidate: _Candidate, reference: Captured, effects: Effects, verdict_of: Mapping[int, verdicts.Verdict]
) -> Report:
    compiled = candidate.compiled
    if isinstance(compiled, CaptureError):
        return Report(candidate.kernel, candidate.name, False, "failed", str(compiled), None)
    seconds = compiled.compile_seconds
    if candidate.effects != effects:
        reason = "Its pre_hook changes the contents of tensors in another way than the reference's."
        return Report(candidate.kernel, candidate.name, False, "unknown", reason, seconds)
    if compiled is reference:
        return Report(candidate.kernel, candidate.name, True, "reference", "It is the reference.", seconds)
    verdict = verdict_of[id(compiled)]
    kept = verdict.outcome == "equal"
    return Report(candidate.kernel, candidate.name, kept, verdict.outcome, verdict.reason, seconds)
