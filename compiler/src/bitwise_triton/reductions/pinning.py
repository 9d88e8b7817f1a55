"""Pinning the reductions of kernels that cannot be edited: a library's, or those that a compiler has written."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitwise_triton.errors import CaptureError
from bitwise_triton.reductions import rewriting
from bitwise_triton.reductions.order import Order
from bitwise_triton.reductions.placeholder import LoweredReduction
from bitwise_triton.reductions.rewriting import ReductionOutcome

if TYPE_CHECKING:
    from bitwise_core.descriptors import ReductionDesc

VERSIONS = ("3.6", "3.7", "3.8", "3.9")


@dataclass
class PinningReport:
    """What `pinned_reductions` has done, each kernel by name in the order of compiling.

    `kernels` has what became of the reductions of kernels that do not pin them, `placed` every reduction that was made
    late, with its order and where it was made. A kernel that comes from Triton's cache is not compiled again and not
    listed.
    """

    order: Order | None
    kernels: list[tuple[str, tuple[ReductionOutcome, ...]]] = field(default_factory=list)
    lowered: list[tuple[str, LoweredReduction]] = field(default_factory=list)

    def unpinned(self) -> list[str]:
        """The reductions, scans and atomic sums over floats that keep their free order, a sentence each."""
        return [
            f"{one.place}: kernel {name} keeps a free order, since {one.reason}."
            for name, outcomes in self.kernels
            for one in outcomes
            if not one.pinned
        ]

    def pinned(self) -> int:
        """How many reductions are pinned."""
        return sum(one.pinned for _, outcomes in self.kernels for one in outcomes)

    def layouts(self) -> list[str]:
        """Where each reduction that was made late is made, a sentence each, with the reason where it stays."""
        return [one.sentence(name) for name, one in self.lowered]

    def descriptors(self) -> list[tuple[str, ReductionDesc]]:
        """The order of each sum over floats that was made late, by its kernel's name; open orders are decided here."""
        found = [(name, one.descriptor()) for name, one in self.lowered]
        return [(name, one) for name, one in found if one is not None]


@contextmanager
def pinned_reductions(order: Order | str | None = "inner_tree", *, layout: bool = True) -> Iterator[PinningReport]:
    """Every reduction over floats of a kernel compiled inside folds the bits of its index in `order`, a tree.

        with pinned_reductions("inner_tree") as done:
            launch()  # whatever compiles and launches Triton kernels that cannot be edited
        print(done.pinned(), *done.unpinned(), sep="\\n")  # how many reductions are pinned, and where and why one is not

    A context manager and a decorator of functions that launch kernels. It holds for this process, all of its threads,
    and Triton 3.6 to 3.9; kernels compiled inside are cached under a key of their own. Extents are those of the
    kernel's tiles, with what it fills them up with: the order of a loop over tiles, and of a dot, is the kernel's.
    Divisions and square roots inside a combine function are rounded correctly, which plain Triton leaves open.

    Sums and products, also those of `tree_sum` and its kin, which keep the order that their kernel gives them, are made
    when the compiler has chosen layouts, in less compile time; with `layout` each is moved to another layout where
    `bitwise_triton.reductions.layout_pass` says that this pays. The bits do not depend on it. With no order (None)
    reductions that kernels leave free stay free; with "open" each has an order that suits it (`Order.chosen`), which
    `done.descriptors()` tells.

    Raises OrderError for an order with a chain, CaptureError for another version of Triton.
    """
    import triton
    from triton import knobs

    order = Order(order) if isinstance(order, str) else order
    if order is not None:
        rewriting.check_rewritable(order)
    if ".".join(triton.__version__.split(".")[:2]) not in VERSIONS:
        raise CaptureError(
            f"Reductions are rewritten for Triton {VERSIONS[0]} to {VERSIONS[-1]}, and this is {triton.__version__}; "
            "use tree_sum and tree_reduce in the kernel instead, which work with any version."
        )
    from bitwise_triton.reductions.kernels.placeholder_ops import deferred_lowering

    found = PinningReport(order)
    before = knobs.runtime.add_stages_inspection_hook
    key = _cache_key(order, layout)
    with _extended_cache_keys(key, triton.__version__), deferred_lowering():
        knobs.runtime.add_stages_inspection_hook = _hook(found, key, before, layout)
        try:
            yield found
        finally:
            knobs.runtime.add_stages_inspection_hook = before


def _cache_key(order: Order | None, layout: bool) -> str:
    """What makes a kernel compiled here another one: the order, whether it is moved, and this code."""
    folder = Path(__file__).parent
    code = b"".join(path.read_bytes() for path in sorted([*folder.glob("*.py"), *folder.glob("kernels/*.py")]))
    text = "free" if order is None else order.text
    return f"pinned_reductions-{text}-{'moved' if layout else 'still'}-{hashlib.sha256(code).hexdigest()}"


def _hook(found: PinningReport, key: str, before: Callable[..., Any] | None, layout: bool) -> Callable[..., Any]:
    """Triton's stage hook: without arguments (from 3.7 on) it gives its part of the cache keys."""

    def hook(*arguments: Any, **keywords: Any) -> Any:
        if not arguments and not keywords:
            texts = before() if before is not None else ("", "")
            return f"{texts[0]}{key}", f"{texts[1]}{hashlib.sha256(key.encode()).hexdigest()}"
        if before is not None:
            before(*arguments, **keywords)
        backend, stages, options = arguments[:3]
        if "ttir" in stages:
            if found.order is not None:
                stages["ttir"] = _rewrite_stage(stages["ttir"], found, found.order, backend.target.backend, options)
            stages["ttgir"] = _lowering_stage(stages["ttgir"], found, options, layout)
        elif found.order is not None:
            stages["ttgir"] = _gluon_stage(stages["ttgir"], found)
        return None

    return hook


def _rewrite_stage(
    make: Callable[[Any, Any], Any], found: PinningReport, order: Order, backend: str, options: Any
) -> Callable[..., Any]:
    def stage(source: Any, metadata: Any) -> Any:
        module = make(source, metadata)
        text, outcomes = rewriting.rewrite(str(module), order, backend)
        if options.num_ctas > 1:
            reason = f"its program is spread over {options.num_ctas} blocks"
            outcomes = tuple(replace(one, pinned=False, reason=one.reason or reason) for one in outcomes)
        found.kernels.append((module.get_entry_func_name(), outcomes))
        return _parsed(text, module) if any(one.pinned for one in outcomes) else module

    return stage


def _lowering_stage(
    make: Callable[[Any, Any], Any], found: PinningReport, options: Any, layout: bool
) -> Callable[..., Any]:
    from bitwise_triton.reductions.kernels.lowering import lower_placeholders

    def stage(source: Any, metadata: Any) -> Any:
        module = make(source, metadata)
        name = module.get_entry_func_name()
        found.lowered += [(name, one) for one in lower_placeholders(module, options, move=layout)]
        return module

    return stage


def _gluon_stage(make: Callable[[Any, Any], Any], found: PinningReport) -> Callable[[Any, Any], Any]:
    def stage(source: Any, metadata: Any) -> Any:
        module = make(source, metadata)
        name = module.get_entry_func_name()
        left = ReductionOutcome("an unknown line", False, "it is written in Gluon, whose layouts are the kernel's own")
        found.kernels.append((name, (left,) if '"tt.reduce"' in str(module) else ()))
        return module

    return stage


def _parsed(text: str, module: Any) -> Any:
    from triton._C.libtriton import ir

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pinned.ttir"
        path.write_text(text)
        parsed = ir.parse_mlir_module(str(path), module.context)
    parsed.context = module.context
    return parsed


@contextmanager
def _extended_cache_keys(key: str, version: str) -> Iterator[None]:
    """Adds `key` to the keys of both caches in Triton 3.6, whose stage hook has no part in them."""
    if not version.startswith("3.6."):
        yield
        return
    from triton.compiler import compiler
    from triton.runtime import jit

    disk, memory = compiler.get_cache_key, jit.compute_cache_key

    def disk_key(*arguments: Any, **keywords: Any) -> str:
        return f"{disk(*arguments, **keywords)}-{key}"

    def memory_key(known: Any, specialization: Any, options: Any) -> str:
        return f"{memory(known, specialization, options)}-{key}"

    compiler.get_cache_key, jit.compute_cache_key = disk_key, memory_key
    try:
        yield
    finally:
        compiler.get_cache_key, jit.compute_cache_key = disk, memory
