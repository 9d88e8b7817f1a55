"""Compare the configurations of a Triton kernel without a GPU: `capture`, `compare` and `partition`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bitwise_triton.compilation import CompiledKernel, Grid, configuration_name
from bitwise_triton.configurations import compile_configurations
from bitwise_triton.equivalence import checker, source_of
from bitwise_triton.errors import CaptureError
from bitwise_triton.tensor_contents import (
    MAXIMUM_BYTES,
    Tensors,
    buffer_bytes,
    give_tensors,
    recorded_tensors,
    state_sizes,
)
from bitwise_triton.tensor_stand_ins import stand_ins

if TYPE_CHECKING:
    from bitwise_core.checker.verdicts import Verdict


@dataclass(frozen=True, slots=True, repr=False)
class ConfigurationPartition:
    """Equivalence classes of configurations, all by their index in the list that was partitioned.

    `classes` are in the order of their first members. `unknown` maps a configuration that could not be analysed to the
    reason; it is in a class of its own. `failed` maps a configuration that does not compile to the error; it is in no
    class. `names` are the configurations as text, and `scope` is the scope of every verdict: `launch` or `every
    launch`.
    """

    classes: tuple[tuple[int, ...], ...]
    unknown: Mapping[int, str]
    failed: Mapping[int, str]
    names: tuple[str, ...]
    scope: str

    def __repr__(self) -> str:
        counts = [f"{len(self.names)} configurations", f"{len(self.classes)} classes"]
        counts += [f"{len(self.unknown)} unknown"] if self.unknown else []
        counts += [f"{len(self.failed)} failed"] if self.failed else []
        return f"<ConfigurationPartition: {', '.join(counts)}; scope: {self.scope}>"

    def class_of(self, index: int) -> tuple[int, ...]:
        """The class of a configuration. Raises KeyError for one that does not compile."""
        for members in self.classes:
            if index in members:
                return members
        raise KeyError(index)


def capture(
    kernel: Any,
    configs: Sequence[Any],
    args: Mapping[str, Any],
    *,
    grid: Grid,
    constants: Mapping[str, object] | None = None,
    target: str = "sm_90",
    tensors: Tensors = True,
    tensor_bytes: int = MAXIMUM_BYTES,
    workers: int | None = None,
) -> list[CompiledKernel]:
    """Compile every `triton.Config` of a kernel for `target`, in order. No GPU is needed.

    `args` are the runtime arguments by parameter name: `Buffer`, `TensorMap`, numbers, or tensors. `constants` are
    `tl.constexpr` arguments that the configurations do not set. `grid` is as in a launch. `write_folder` writes the
    result as a folder for the `bitwise` command.

    The contents of tensors of integers and booleans of up to `tensor_bytes` bytes become part of the launch, as do the
    `values` of a `Buffer`: page tables, lengths, ids and flags. `tensors=False` leaves all tensors symbolic, so that
    verdicts hold for all their contents; a list of names records these tensors of floats as well. The number of
    elements of each tensor's memory is part of the launch too: what is read beyond it is undetermined. Raises the first
    CaptureError; `compile_configurations` returns the errors in place.
    """
    recorded, sizes = recorded_tensors(args, tensors, tensor_bytes), buffer_bytes(args)
    outcomes = compile_configurations(
        kernel, configs, stand_ins(args), grid, constants=constants, target=target, workers=workers
    )
    compiled = []
    for outcome in outcomes:
        if isinstance(outcome, CaptureError):
            raise outcome
        compiled.append(state_sizes(give_tensors(outcome, recorded), sizes))
    return compiled


def compare(
    kernel: Any,
    config_a: Any,
    config_b: Any,
    args: Mapping[str, Any],
    *,
    grid: Grid,
    constants: Mapping[str, object] | None = None,
    target: str = "sm_90",
    every_launch: bool = False,
    assume: Sequence[str] = (),
    tensors: Tensors = True,
    tensor_bytes: int = MAXIMUM_BYTES,
    search_seconds: float = 5.0,
) -> Verdict:
    """The checker's verdict on two configurations of a kernel; the other arguments are as in `capture`.

    The verdict holds for this launch, or for every launch with `every_launch`. `assume` names conditions that a proof
    may use, such as "finite". Without a proof, a counterexample is searched for about `search_seconds` (0: not at all).
    Raises CaptureError if a configuration does not compile or the target has no checker.
    """
    from bitwise_core.checker.counterexamples import search_verdict
    from bitwise_core.checker.kernel_comparisons import compare_or_recall
    from bitwise_core.checker.readings import open_cache

    arch, options = checker(target, every_launch=every_launch, assume=assume)
    left, right = capture(
        kernel,
        [config_a, config_b],
        args,
        grid=grid,
        constants=constants,
        target=target,
        tensors=tensors,
        tensor_bytes=tensor_bytes,
    )
    sources = source_of(left), source_of(right)
    found = compare_or_recall(*sources, (arch.name, arch.name), options, open_cache())
    return search_verdict(*sources, arch, options, found, search_seconds)


def partition(
    kernel: Any,
    configs: Sequence[Any],
    args: Mapping[str, Any],
    *,
    grid: Grid,
    constants: Mapping[str, object] | None = None,
    target: str = "sm_90",
    every_launch: bool = False,
    assume: Sequence[str] = (),
    tensors: Tensors = True,
    tensor_bytes: int = MAXIMUM_BYTES,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ConfigurationPartition:
    """Partition the configurations of a kernel into classes of proved bitwise equivalence.

    The arguments are as in `capture` and `compare`; `workers` processes compile and analyse (default: all cores), and
    `progress` gets the number of finished and of all compiles. Raises CaptureError if the target has no checker.
    """
    from bitwise_core.checker.partition import partition as partition_sources
    from bitwise_core.checker.readings import open_cache

    _, options = checker(target, every_launch=every_launch, assume=assume)
    recorded, sizes = recorded_tensors(args, tensors, tensor_bytes), buffer_bytes(args)
    outcomes = compile_configurations(
        kernel, configs, stand_ins(args), grid, constants=constants, target=target, workers=workers, progress=progress
    )
    sources = [
        source_of(state_sizes(give_tensors(one, recorded), sizes), str(index))
        for index, one in enumerate(outcomes)
        if not isinstance(one, CaptureError)
    ]
    found = partition_sources(sources, target, options, workers=workers, cache=open_cache())
    return ConfigurationPartition(
        classes=tuple(tuple(int(name) for name in members) for members in found.classes),
        unknown={int(name): reason for name, reason in found.unknown.items()},
        failed={index: str(one) for index, one in enumerate(outcomes) if isinstance(one, CaptureError)},
        names=tuple(configuration_name({}, config.all_kwargs()) for config in configs),
        scope=found.scope,
    )
