"""What `same_bits` changes about the compilation of a kernel: pinned reductions, and one more configuration.

Inductor compiles kernels in processes of its own and in this one.  `changed_compilation` makes both compile alike: what
it sends to a process is `compile_kernel` with the `Compilation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from bitwise_triton.errors import CaptureError
from bitwise_triton.inductor.reference import preferred
from bitwise_triton.reductions import pinned_reductions

_LISTS = "_precompile_worker"
"""The method of Inductor's autotuner that compiles the listed configurations, `configs`."""


@dataclass(frozen=True)
class Compilation:
    """The order in which reductions fold, None for that of each configuration."""

    order: str | None = None


@contextmanager
def changed_compilation(compilation: Compilation, tasks: Any, heuristics: Any, kernels: Any) -> Iterator[None]:
    """Compile kernels so in this process and in those that Inductor starts.

    `tasks` and `heuristics` are Inductor's modules `async_compile` and `runtime.triton_heuristics`, and `kernels` is
    the class that generates kernels.  Raises CaptureError for a version that has others.
    """
    name = "_worker_compile_triton"
    before: Callable[..., Any] | None = getattr(tasks, name, None)
    if before is None:
        raise CaptureError(f"This version of torch compiles kernels in another way: it lacks {name}.")
    with changed_compilation_here(compilation, heuristics), _marked(kernels, compilation):
        setattr(tasks, name, partial(compile_kernel, compilation))
        try:
            yield
        finally:
            setattr(tasks, name, before)


def compile_kernel(compilation: Compilation, *arguments: Any, **keywords: Any) -> Any:
    """Compile a kernel in a process that Inductor started: the arguments and the result are those of its function."""
    from torch._inductor.runtime import compile_tasks, triton_heuristics

    with changed_compilation_here(compilation, triton_heuristics):
        return compile_tasks._worker_compile_triton(*arguments, **keywords)


@contextmanager
def changed_compilation_here(compilation: Compilation, heuristics: Any) -> Iterator[None]:
    """Compile kernels so in this process."""
    with ExitStack() as stack:
        if compilation.order is not None:
            try:
                stack.enter_context(pinned_reductions(compilation.order))
            except CaptureError as error:
                raise CaptureError(f"{error} With order=None, same_bits leaves reductions as they are.") from None
        stack.enter_context(_with_preferred(heuristics))
        yield


@contextmanager
def _marked(kernels: Any, compilation: Compilation) -> Iterator[None]:
    """Write the order into the source of each kernel: a process keeps modules with compiled kernels by their text."""
    name = "inductor_meta_common"
    before = vars(kernels).get(name)
    common: Callable[[], dict[str, Any]] | None = getattr(kernels, name, None)
    if before is None or common is None:
        raise CaptureError(f"This version of torch generates kernels in another way: it lacks {name}.")
    setattr(kernels, name, staticmethod(lambda: {**common(), "bitwise_order": str(compilation.order)}))
    try:
        yield
    finally:
        setattr(kernels, name, before)


@contextmanager
def _with_preferred(heuristics: Any) -> Iterator[None]:
    """Compile the preferred configuration of each kernel that has a choice, and keep the list of all on the autotuner.

    An autotuner is sent from one process to another with both.
    """
    autotuner = heuristics.CachingAutotuner
    before: Callable[[Any], None] | None = getattr(autotuner, _LISTS, None)
    if before is None:
        raise CaptureError(f"This version of torch has another autotuner: it lacks {_LISTS}.")
    choose = preferred(heuristics)

    def precompile(self: Any) -> None:
        if not self.compile_results and self.configs:
            note_preferred(self, choose)
            wanted = self.bitwise_preferred
            if wanted is not None and all(each.all_kwargs() != wanted.all_kwargs() for each in self.configs):
                self.configs = [*self.configs, wanted]
        before(self)

    setattr(autotuner, _LISTS, precompile)
    try:
        yield
    finally:
        setattr(autotuner, _LISTS, before)


def note_preferred(autotuner: Any, choose: Callable[[Any], Any]) -> None:
    """Keep the listed configurations of a kernel, and the preferred one if it has a choice, on its autotuner."""
    listed = list(autotuner.configs)
    autotuner.bitwise_listed = listed
    has_choice = len(listed) > 1 or is_searched(autotuner)
    autotuner.bitwise_preferred = choose(autotuner) if has_choice else None


def is_searched(autotuner: Any) -> bool:
    """Return whether Inductor looks for configurations besides the listed ones."""
    return any(autotuner.inductor_meta.get(name) for name in ("coordinate_descent_tuning", "combo_tuning_groups"))
