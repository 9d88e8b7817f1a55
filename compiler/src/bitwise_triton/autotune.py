"""Autotuning restricted to configurations that are proved to return the same bits as a reference.

    @triton.autotune(configs, key=["n"], prune_configs_by={"early_config_prune": equivalence_pruner()})
    @triton.jit
    def kernel(...): ...

Triton calls the pruner once for each new value of the tuning key. A proof may cover less than that: one launch, or one
specialisation. The pruner therefore gives the autotuner a separate cache of tuned configurations for each launch that
the proofs do not cover.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from bitwise_triton import equivalence
from bitwise_triton.compilation import (
    CompiledKernel,
    CompileJob,
    Grid,
    compile_all,
    configuration_name,
    make_job,
    split_settings,
    unwrap,
)
from bitwise_triton.config_binding import bind_configuration
from bitwise_triton.errors import CaptureError, UnverifiableReferenceError
from bitwise_triton.launch_cache import RecordTensors, install_launch_caches, running_autotuner
from bitwise_triton.pre_hooks import HookEffects
from bitwise_triton.tensor_contents import MAXIMUM_BYTES, Tensors, give_tensors, recorded_tensors
from bitwise_triton.tensor_stand_ins import stand_ins

if TYPE_CHECKING:
    from bitwise_core.execution.tensor_contents import TensorContents

logger = logging.getLogger("bitwise_triton")


@dataclass(frozen=True)
class ConfigurationReport:
    """The outcome of one configuration, and the reason as a sentence.

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
    """A configuration, its compiled kernel, and the effects of its pre-hook on tensors."""

    kernel: str
    name: str
    compiled: CompiledKernel | CaptureError
    effects: HookEffects


def _with_tensors(candidate: _Candidate, recorded: Mapping[str, TensorContents]) -> _Candidate:
    if isinstance(candidate.compiled, CaptureError):
        return candidate
    return replace(candidate, compiled=give_tensors(candidate.compiled, recorded))


def equivalence_pruner(
    reference: int | Mapping[str, object] | CompiledKernel | None = None,
    *,
    function: Any = None,
    assume: Sequence[str] = (),
    every_launch: bool = False,
    target: Any = None,
    grid: Grid | None = None,
    report: Callable[[list[ConfigurationReport]], None] | None = None,
    tensors: Tensors = True,
    tensor_bytes: int = MAXIMUM_BYTES,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> EquivalencePruner:
    """A pruner for `triton.autotune(..., prune_configs_by={"early_config_prune": equivalence_pruner()})`.

    It keeps the configurations that are proved to return the same bits as `reference`: the first one (default), an
    index, the unique configuration with those settings (`{"BLOCK": 128, "num_warps": 4}`), or a kernel compiled
    elsewhere.

    `assume` names conditions that a proof may use ("finite"). `every_launch` requires proofs for all integer arguments.
    `target` ("sm_90") defaults to the current GPU. `grid` is needed only if the pruner is called without one. `report`
    receives a `ConfigurationReport` for each configuration; they are also logged. `function`, the decorated kernel or a
    callable that returns it, is needed only if the pruner is not called by Triton's autotuner itself; the proofs are
    then valid for the launch of the call only.

    Where a proof fails because control flow or addresses depend on data, it is tried again with the contents of the
    call's tensors of integers and booleans, of up to `tensor_bytes` bytes each. What is proved so holds for these
    contents: a launch of such a kernel reads them, and other contents are tuned anew. `tensors=False` turns this off; a
    list of names includes these tensors of floats. A kernel that updates such a tensor needs Triton's `restore_value`
    for it, as tuning in place does in any case.

    Calling the pruner raises CaptureError, or UnverifiableReferenceError if the reference's own result could not be
    established.
    """
    return EquivalencePruner(
        reference, function, tuple(assume), every_launch, target, grid, report, tensors, tensor_bytes, workers, progress
    )


@dataclass(frozen=True, eq=False)
class EquivalencePruner:
    """The pruner that `equivalence_pruner` returns; its fields are documented there."""

    reference: int | Mapping[str, object] | CompiledKernel | None
    function: Any
    assume: tuple[str, ...]
    every_launch: bool
    target: Any
    grid: Grid | None
    report: Callable[[list[ConfigurationReport]], None] | None
    tensors: Tensors
    tensor_bytes: int
    workers: int | None
    progress: Callable[[int, int], None] | None

    def __call__(self, configurations: Sequence[Any], named_arguments: Mapping[str, Any], **keywords: Any) -> list[Any]:
        """The configurations to keep, at least one, as Triton's autotuner requires. Raises CaptureError."""
        function = self._function()
        autotuner = running_autotuner(function, named_arguments)
        decorated = function if autotuner is None else autotuner.fn
        if decorated is None:
            raise CaptureError(
                "The calling autotuner was not found; pass the kernel, as equivalence_pruner(function=lambda: kernel)."
            )
        settings = {**named_arguments, **keywords}
        every_launch = self.every_launch or (settings.get("grid") or self.grid) is None
        candidates = self._compile(decorated, configurations, settings)
        record = self._recorder(decorated, autotuner, candidates)
        reports, depends = self._judge_with_tensors(configurations, candidates, every_launch, record, settings)
        self._publish(reports)
        kept = [configuration for configuration, one in zip(configurations, reports, strict=True) if one.kept]
        if not kept:
            raise CaptureError(
                f"No configuration of kernel {reports[0].kernel!r} is proved equal to the reference that was compiled "
                "elsewhere; the reports have the reasons."
            )
        if autotuner is not None:
            install_launch_caches(
                autotuner, settings, every_launch=every_launch, grid=self.grid, tensors=record if depends else None
            )
        return kept

    def _recorder(self, decorated: Any, autotuner: Any, candidates: Sequence[_Candidate]) -> RecordTensors:
        """The function that records the tensors of a launch, except for those that a hook changes before it."""
        kernel, _ = unwrap(decorated)
        # A configuration names a tensor's attributes in its effects, as in x.grad.
        changed = {call[0].split(".")[0] for one in candidates for call in one.effects}
        changed.update(getattr(autotuner, "reset_to_zero", ()))
        opaque = bool(getattr(autotuner, "user_defined_pre_hook", False))

        def record(settings: Mapping[str, Any]) -> dict[str, TensorContents]:
            values, _ = split_settings(kernel, settings)
            return recorded_tensors(values, False if opaque else self.tensors, self.tensor_bytes, changed)

        return record

    def _judge_with_tensors(
        self,
        configurations: Sequence[Any],
        candidates: Sequence[_Candidate],
        every_launch: bool,
        record: RecordTensors,
        settings: Mapping[str, Any],
    ) -> tuple[list[ConfigurationReport], bool]:
        """Reports on the candidates, and whether they hold for the contents of the launch's tensors only.

        Contents are used only if something is Unknown without them and more is proved with them.
        """
        reports, failure = None, None
        try:
            reports = self._judge(configurations, candidates, every_launch)
        except UnverifiableReferenceError as error:
            failure = error
        if reports is not None and not any(one.outcome == "unknown" for one in reports):
            return reports, False
        recorded = {} if every_launch else record(settings)
        if recorded:
            given = [_with_tensors(one, recorded) for one in candidates]
            try:
                again = self._judge(configurations, given, every_launch, recorded)
            except UnverifiableReferenceError as error:
                failure = error
            else:
                if reports is None or sum(one.kept for one in again) > sum(one.kept for one in reports):
                    return again, True
        if reports is None:
            assert failure is not None
            raise failure
        return reports, False

    def _function(self) -> Any:
        """The decorated kernel if one was given, directly or by a callable."""
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
        jobs: list[CompileJob | CaptureError] = []
        effects: list[HookEffects] = []
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
        self,
        configurations: Sequence[Any],
        candidates: Sequence[_Candidate],
        every_launch: bool,
        recorded: Mapping[str, TensorContents] | None = None,
    ) -> list[ConfigurationReport]:
        reference, effects = self._reference(configurations, candidates)
        if recorded and isinstance(self.reference, CompiledKernel):
            reference = give_tensors(reference, recorded)
        compiled = [one.compiled for one in candidates if isinstance(one.compiled, CompiledKernel)]
        kernels = [reference, *(one for one in compiled if one is not reference)]
        verdicts = equivalence.compare_with_reference(reference, kernels, every_launch=every_launch, assume=self.assume)
        if len(verdicts) != len(kernels):
            raise CaptureError(f"The checker returned {len(verdicts)} verdicts for {len(kernels)} kernels.")
        if verdicts[0].outcome != "equal":
            raise UnverifiableReferenceError(
                f"The result of the reference ({reference.name}) of kernel {candidates[0].kernel!r} could not be "
                f"established, so no configuration can be proved equal to it. {verdicts[0].reason}"
            )
        verdict_of = {id(one): verdict for one, verdict in zip(kernels, verdicts, strict=True)}
        return [_report(one, reference, effects, verdict_of) for one in candidates]

    def _reference(
        self, configurations: Sequence[Any], candidates: Sequence[_Candidate]
    ) -> tuple[CompiledKernel, HookEffects]:
        if isinstance(self.reference, CompiledKernel):
            return self.reference, ()
        chosen = candidates[reference_index(configurations, self.reference)]
        if isinstance(chosen.compiled, CaptureError):
            raise UnverifiableReferenceError(f"The reference configuration cannot be used. {chosen.compiled}")
        return chosen.compiled, chosen.effects

    def _publish(self, reports: list[ConfigurationReport]) -> None:
        for one in reports:
            level = logging.INFO if one.kept else logging.WARNING
            logger.log(level, "%s (%s): %s. %s", one.kernel, one.configuration, one.outcome, one.reason)
        if self.report is not None:
            self.report(reports)


def reference_index(configurations: Sequence[Any], reference: int | Mapping[str, object] | None) -> int:
    """The index of the configuration that `reference` selects; see `equivalence_pruner`. Raises CaptureError."""
    if reference is None:
        return 0
    if isinstance(reference, int):
        if not 0 <= reference < len(configurations):
            raise CaptureError(
                f"There is no configuration {reference}; valid indices are 0 to {len(configurations) - 1}."
            )
        return reference
    found = [
        index
        for index, configuration in enumerate(configurations)
        if reference.items() <= configuration.all_kwargs().items()
    ]
    if len(found) != 1:
        shown = configuration_name(reference, {})
        raise CaptureError(
            f"{len(found)} configurations have the settings of the reference ({shown}); exactly one must have them."
        )
    return found[0]


def _report(
    candidate: _Candidate,
    reference: CompiledKernel,
    effects: HookEffects,
    verdict_of: Mapping[int, equivalence.CandidateVerdict],
) -> ConfigurationReport:
    compiled = candidate.compiled
    if isinstance(compiled, CaptureError):
        return ConfigurationReport(candidate.kernel, candidate.name, False, "failed", str(compiled), None)
    seconds = compiled.compile_seconds
    if candidate.effects != effects:
        reason = "Its pre_hook has other effects on tensors than the reference's."
        return ConfigurationReport(candidate.kernel, candidate.name, False, "unknown", reason, seconds)
    if compiled is reference:
        return ConfigurationReport(candidate.kernel, candidate.name, True, "reference", "It is the reference.", seconds)
    verdict = verdict_of[id(compiled)]
    kept = verdict.outcome == "equal"
    return ConfigurationReport(candidate.kernel, candidate.name, kept, verdict.outcome, verdict.reason, seconds)
