"""Compilation of the suite in a pool of processes, before anything is launched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from bitwise_bench.pinned_reductions.cases import Case, Step
from bitwise_triton.arguments import Buffer
from bitwise_triton.compilation import CompiledKernel, CompileJob, compile_job, make_job
from bitwise_triton.errors import CaptureError
from bitwise_triton.process_pool import run_in_processes


@dataclass(frozen=True)
class Variant:
    """An order, "" for the free one, with or without the layout pass."""

    order: str
    layout: bool = True


FREE = Variant("")


@dataclass(frozen=True)
class Build:
    """One configuration (by its number) of a case in one variant."""

    case: Case
    variant: Variant
    number: int

    def steps(self) -> list[Step]:
        """Its launches."""
        return self.case.steps(self.case.configurations[self.number], self.variant.order)

    def context(self) -> AbstractContextManager[Any]:
        """The context of its compiles and launches."""
        if self.variant == FREE:
            return nullcontext()
        return fully_pinned(self.variant.order if self.case.rewritten else None, layout=self.variant.layout)


@contextmanager
def fully_pinned(order: str | None, *, layout: bool) -> Iterator[None]:
    """`pinned_reductions(order, layout=layout)`. Raises CaptureError if a reduction keeps a free order."""
    from bitwise_triton.reductions.pinning import pinned_reductions

    with pinned_reductions(order, layout=layout) as done:
        yield
    if done.unpinned():
        raise CaptureError(done.unpinned()[0])


def jobs(build: Build, target: str) -> list[CompileJob]:
    """The compiles of a build, as `compile_job` takes them."""
    from bitwise_bench.pinned_reductions.kernels import benchmark

    types = {tensor.name: tensor.dtype for tensor in build.case.tensors}
    found = []
    for step in build.steps():
        kernel = getattr(benchmark, step.kernel)
        names = [name for name in kernel.arg_names if name not in step.constants]
        arguments: dict[str, Any] = {
            name: Buffer(value, types[value]) if isinstance(value, str) else value
            for name, value in zip(names, step.arguments, strict=True)
        }
        found.append(make_job(kernel, arguments, step.constants, step.options, grid=step.grid, target=target))
    return found


def captured(build: Build, target: str = "sm_90") -> list[CompiledKernel]:
    """The compiled kernels of a build. Raises CaptureError."""
    with build.context():
        return [compile_job(job) for job in jobs(build, target)]


@dataclass(frozen=True)
class Compiled:
    """The compile time of a build in seconds. `fresh` if no kernel came from the cache."""

    seconds: float
    fresh: bool


def compile_build(build: Build, target: str) -> Compiled:
    """Compile the kernels of a build. Raises CaptureError."""
    from triton import knobs

    hits: list[bool] = []
    before = knobs.compilation.listener
    knobs.compilation.listener = lambda **event: hits.append(event["cache_hit"])
    try:
        seconds = sum(one.compile_seconds for one in captured(build, target))
    finally:
        knobs.compilation.listener = before
    return Compiled(seconds, not any(hits))


def compile_all(
    builds: Sequence[Build], target: str, workers: int | None, progress: Callable[[int, int], None] | None = None
) -> list[Compiled | CaptureError]:
    """The compile time of each build, or its error."""
    if builds:
        # The first compile loads and initialises the compiler: do it before the fork and untimed.
        with suppress(CaptureError):
            compile_build(builds[0], target)
    return run_in_processes(lambda build: compile_build(build, target), builds, workers=workers, progress=progress)


def ratio(compiled: Mapping[tuple[Variant, int], Compiled | CaptureError], variant: Variant) -> float | None:
    """Compile time of a variant relative to the free order, over the configurations compiled afresh in both."""
    spent = [0.0, 0.0]
    for (this, number), one in compiled.items():
        free = compiled[FREE, number]
        if this != variant or isinstance(one, CaptureError) or isinstance(free, CaptureError):
            continue
        if one.fresh and free.fresh:
            spent[0] += free.seconds
            spent[1] += one.seconds
    return spent[1] / spent[0] if spent[0] else None
