"""Pinning of the reductions in kernels that cannot be edited, such as a library's or generated ones."""

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
    """What `pinned_reductions` did, by kernel in the order of compilation.

    `kernels` lists the outcome of each reduction that the kernel itself does not pin. `lowered` lists every reduction
    that was lowered after layout assignment, with its order and layout. A kernel from Triton's cache is not compiled
    again and not listed.
    """

    order: Order | None
    kernels: list[tuple[str, tuple[ReductionOutcome, ...]]] = field(default_factory=list)
    lowered: list[tuple[str, LoweredReduction]] = field(default_factory=list)

    def unpinned(self) -> list[str]:
        """The floating-point reductions, scans and atomic sums that keep a free order, a sentence each."""
        return [
            f"{one.place}: kernel {name} keeps a free order, since {one.reason}."
            for name, outcomes in self.kernels
            for one in outcomes
            if not one.pinned
        ]

    def pinned(self) -> int:
        """The number of pinned reductions."""
        return sum(one.pinned for _, outcomes in self.kernels for one in outcomes)

    def layouts(self) -> list[str]:
        """The layout chosen for each lowered reduction, a sentence each, with the reason if it does not move."""
        return [one.sentence(name) for name, one in self.lowered]

    def descriptors(self) -> list[tuple[str, ReductionDesc]]:
        """The order of each lowered floating-point sum, by kernel name, with "auto" orders resolved."""
        found = [(name, one.descriptor()) for name, one in self.lowered]
        return [(name, one) for name, one in found if one is not None]


@contextmanager
def pinned_reductions(order: Order | str | None = "inner_tree", *, layout: bool = True) -> Iterator[PinningReport]:
    r"""Compile kernels so that every floating-point reduction folds the bits of its index in `order`, a tree.

        with pinned_reductions("inner_tree") as report:
            launch()  # compiles and launches Triton kernels that cannot be edited
        print(report.pinned(), *report.unpinned(), sep="\n")  # number of pinned reductions; source lines of the others

    A context manager, and a decorator of functions that launch kernels. It applies to all threads of this process, and
    to Triton 3.6 to 3.9. Kernels compiled inside have their own cache keys. An extent is that of the kernel's tile
    including its padding: the order of a loop over tiles, and of a dot, remains the kernel's. Divisions and square
    roots in a combine function are rounded correctly, which plain Triton does not guarantee.

    Sums and products, including those of `tree_sum` and related functions with their own orders, are lowered after
    layout assignment, which takes less compile time. With `layout` each is moved to another layout if the cost model of
    `bitwise_triton.reductions.layout_pass` favours it. The bits do not depend on that. With `order` None the kernels'
    free reductions stay free. With "auto" each gets an order that suits it (`Order.resolved`); `report.descriptors()`
    has them.

    Raises OrderError for an order with a chain, CaptureError for an unsupported version of Triton.
    """
    import triton
    from triton import knobs

    order = Order(order) if isinstance(order, str) else order
    if order is not None:
        rewriting.check_rewritable(order)
    if ".".join(triton.__version__.split(".")[:2]) not in VERSIONS:
        raise CaptureError(
            f"pinned_reductions supports Triton {VERSIONS[0]} to {VERSIONS[-1]}, not {triton.__version__}; "
            "use tree_sum and tree_reduce in the kernel instead, which work with every version."
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
    """The part of a cache key that identifies the order, the layout pass and this code."""
    folder = Path(__file__).parent
    code = b"".join(path.read_bytes() for path in sorted([*folder.glob("*.py"), *folder.glob("kernels/*.py")]))
    text = "free" if order is None else order.text
    return f"pinned_reductions-{text}-{'moved' if layout else 'still'}-{hashlib.sha256(code).hexdigest()}"


def _hook(found: PinningReport, key: str, before: Callable[..., Any] | None, layout: bool) -> Callable[..., Any]:
    """Triton's stage hook. Without arguments (from Triton 3.7) it returns its part of the cache keys."""

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
            reason = f"its program runs on {options.num_ctas} blocks"
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
        left = ReductionOutcome(
            "an unknown line", False, "it is written in Gluon, which fixes the layouts in the kernel"
        )
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
    """Add `key` to both cache keys of Triton 3.6, which do not include the stage hook."""
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
