"""`same_bits`: two processes that tune a compiled model on their own return the same bytes.

    with same_bits() as reports:
        model = torch.compile(model, mode="max-autotune-no-cudagraphs")
        model(batch).sum().backward()
    for report in reports:
        print(report)

TorchInductor times the configurations of each kernel and keeps the fastest, so that the bits of a model depend on the
run.  Inside `same_bits` it times only configurations that are proved to return the bits of one reference, which is the
same in every process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ContextDecorator, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from bitwise_triton.errors import CaptureError
from bitwise_triton.inductor.kernel_compilation import Compilation, changed_compilation
from bitwise_triton.inductor.reference import preferred
from bitwise_triton.inductor.selection import PROOF_SECONDS, KernelReport, Rules
from bitwise_triton.inductor.static_launcher import static_launcher
from bitwise_triton.inductor.templates import Templates, preprocessing
from bitwise_triton.inductor.tuning import Settled, hooked_autotuner, untimed_fields
from bitwise_triton.reductions import Order
from bitwise_triton.reductions.rewriting import check_rewritable
from bitwise_triton.tensor_contents import MAXIMUM_BYTES, Tensors

CACHE_TAG = "bitwise same bits 4"
"""Compiled graphs and tuned configurations are cached under this tag: those of other runs are not read."""

_SETTINGS: dict[str, Any] = {
    # The configurations that an earlier run chose.
    "autotune_local_cache": False,
    "autotune_remote_cache": False,
    "bundled_autotune_remote_cache": False,
    # Decisions by time that are not about configurations: whether to fuse, and which kernel computes a reduction.
    "benchmark_fusion": False,
    "benchmark_epilogue_fusion": False,
    "benchmark_combo_kernel": False,
    "triton.multi_kernel": 0,
    "triton.mix_order_reduction_autotune_split_size": False,
    "pipeline_max_autotune_gemm": False,
    "incremental_autotune": False,
    # A product that may be padded is, without a comparison by time.
    "force_shape_pad": True,
    # Its compile results hold machine code only.  What is chosen is launched through it all the same.
    "use_static_cuda_launcher": False,
}
_UNFUSED = {"epilogue_fusion": False, "prologue_fusion": False}
"""With templates in Triton: a proof about a template says nothing about the kernel into which another is fused."""


def same_bits(
    *,
    templates: Templates = "library",
    order: Order | str | None = "auto",
    assume: Sequence[str] = (),
    every_launch: bool = False,
    report: Callable[[KernelReport], None] | None = None,
    tensors: Tensors = False,
    tensor_bytes: int = MAXIMUM_BYTES,
    proof_seconds: float = PROOF_SECONDS,
) -> SameBits:
    """Return a context manager, and decorator, under which TorchInductor's autotuning does not change bits.

    Compile and run the model inside of it, the first backward pass included: graphs are compiled and kernels tuned when
    they run first.  `enable()` does this for the rest of the process.

    Each kernel keeps the bits of one of its configurations, the reference (`bitwise_triton.inductor.reference`).
    `order` pins the reductions of all kernels (`pinned_reductions`), so that the rows of a block and its warps do not
    change their bits and most configurations are equal to it.  With None they fold as each configuration does, and only
    those that fold alike are equal.

    `templates`: products, convolutions and attention keep the bits of a library's call where Inductor offers one
    ("library"), or those of the first Triton template ("triton"), which then is not fused with other operations.
    `assume` names conditions that a proof may use ("finite").  `every_launch` requires proofs for every launch; by
    default each launch with other numbers among its arguments is tuned by itself.  `report` receives a `KernelReport`
    for each tuning; entering returns the list of all.

    With `tensors=True`, where a proof fails because control flow or addresses depend on data, it is tried with the
    tensors of integers and booleans of the launch, of up to `tensor_bytes` bytes each.  Such a choice holds for their
    contents: every later launch of the kernel waits for the GPU to read them, which no CUDA graph can record, and other
    contents are tuned by themselves.

    The proofs of one kernel for one launch end after about `proof_seconds`: what is not proved by then is not chosen,
    and is reported as dropped.  The bits do not depend on it.
    """
    if not proof_seconds > 0:
        raise ValueError(f"proof_seconds is {proof_seconds!r}; it is a number of seconds above 0")
    if templates not in ("library", "triton"):
        raise ValueError(f"templates is {templates!r}; it is 'library' or 'triton'")
    pinned = Order(order) if isinstance(order, str) else order
    if pinned is not None:
        check_rewritable(pinned)
    rules = Rules(tuple(assume), every_launch, report, tensors, tensor_bytes, proof_seconds)
    return SameBits(templates, None if pinned is None else pinned.text, rules)


class SameBits(ContextDecorator):
    """What `same_bits` returns; its arguments are documented there."""

    def __init__(self, templates: Templates, order: str | None, rules: Rules) -> None:
        self._templates, self._compilation, self._report = templates, Compilation(order), rules.report
        self.reports: list[KernelReport] = []
        self._rules = replace(rules, report=self._receive)
        self._stack: ExitStack | None = None

    def __enter__(self) -> list[KernelReport]:
        if self._stack is not None:
            raise RuntimeError("same_bits is active already; make another one to nest them")
        with ExitStack() as stack:
            settled = static_launcher()  # as the user configured it
            stack.enter_context(_configured(self._templates, self._compilation))
            stack.enter_context(_hooked(self._templates, self._compilation, self._rules, settled))
            self._stack = stack.pop_all()
        return self.reports

    def __exit__(self, *exception: object) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            stack.close()

    def enable(self) -> list[KernelReport]:
        """Enter for the rest of the process, or until `disable`."""
        return self.__enter__()

    def disable(self) -> None:
        """End the context."""
        self.__exit__()

    def _receive(self, report: KernelReport) -> None:
        self.reports.append(report)
        if self._report is not None:
            self._report(report)


@contextmanager
def _configured(templates: Templates, compilation: Compilation) -> Iterator[None]:
    """Set Inductor's configuration, as far as this version of torch has these settings."""
    try:
        import torch.compiler.config as compiler_config
        from torch._inductor import config
    except ImportError as error:
        raise CaptureError(f"torch with TorchInductor is needed: {error}.") from None
    wanted = {**_SETTINGS, **(_UNFUSED if templates == "triton" else {})}
    tag = f"{compiler_config.cache_key_tag}{CACHE_TAG} {templates} {compilation.order}"
    known = {name: value for name, value in wanted.items() if _has(config, name)}
    with config.patch(known), compiler_config.patch(cache_key_tag=tag):
        yield


def _has(config: Any, name: str) -> bool:
    for part in name.split("."):
        if not hasattr(config, part):
            return False
        config = getattr(config, part)
    return True


@contextmanager
def _hooked(templates: Templates, compilation: Compilation, rules: Rules, settled: Settled | None) -> Iterator[None]:
    from torch._inductor import async_compile, select_algorithm
    from torch._inductor.codegen.triton import TritonKernel
    from torch._inductor.runtime import coordinate_descent_tuner, triton_heuristics

    hook = preprocessing(templates, rules)
    selector_hooks = getattr(select_algorithm, "add_preprocessing_fn", None)
    if selector_hooks is None:
        raise CaptureError("This version of torch cannot restrict the choices of templates; use torch 2.9 or later.")
    autotuner, compile_result = triton_heuristics.CachingAutotuner, triton_heuristics.TritonCompileResult
    with (
        untimed_fields(coordinate_descent_tuner.CoordescTuner),
        changed_compilation(compilation, async_compile, triton_heuristics, TritonKernel),
        hooked_autotuner(autotuner, compile_result, rules, settled, preferred(triton_heuristics)),
    ):
        selector_hooks(hook)
        try:
            yield
        finally:
            select_algorithm.get_algorithm_selector_cache().preprocessing_fns.remove(hook)
