"""What same_bits changes about compilation, here and in other processes, on stand-ins of Inductor's modules."""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

triton = pytest.importorskip("triton")
from triton import knobs  # noqa: E402

from bitwise_triton.errors import CaptureError  # noqa: E402
from bitwise_triton.inductor import same_bits  # noqa: E402
from bitwise_triton.inductor.kernel_compilation import Compilation, changed_compilation  # noqa: E402
from bitwise_triton.reductions import OrderError  # noqa: E402

WIDE, NARROW = (triton.Config({"XBLOCK": size}, num_warps=8, num_stages=1) for size in (8, 1))
PREFERRED = {"XBLOCK": 2}


class CachingAutotuner:
    """An autotuner of a persistent reduction, 4,096 rows of 1,024.  It notes what is compiled, and in which state."""

    def __init__(self, configs: list[Any], **meta: object) -> None:
        self.configs, self.inductor_meta = configs, {"coordinate_descent_tuning": False, **meta}
        self.heuristic_type = SimpleNamespace(name="PERSISTENT_REDUCTION")
        self.size_hints = {"x": 4096, "r0_": 1024}
        self.compile_results: list[Any] = []
        self.pinned: list[bool] = []

    def _precompile_worker(self) -> None:
        self.pinned.append(knobs.runtime.add_stages_inspection_hook is not None)
        self.compile_results = list(self.configs)


class TritonKernel:
    """The class that generates kernels."""

    @classmethod
    def inductor_meta_common(cls) -> dict[str, Any]:
        return {"max_autotune": True}


@dataclass
class Modules:
    """The modules of Inductor that are changed."""

    tasks: Any = field(default_factory=lambda: SimpleNamespace(_worker_compile_triton=compiled))
    heuristics: Any = field(default_factory=lambda: SimpleNamespace(CachingAutotuner=CachingAutotuner))

    def changed(self, order: str | None) -> Any:
        return changed_compilation(Compilation(order), self.tasks, self.heuristics, TritonKernel)


def compiled(load: Any) -> Any:
    kernel = load()
    kernel._precompile_worker()
    return kernel


@pytest.fixture
def another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor's modules as a process that compiles kernels has them."""
    for name in ("torch", "torch._inductor", "torch._inductor.runtime"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    runtime: Any = sys.modules["torch._inductor.runtime"]
    runtime.compile_tasks = SimpleNamespace(_worker_compile_triton=compiled)
    runtime.triton_heuristics = SimpleNamespace(CachingAutotuner=CachingAutotuner)


@pytest.mark.parametrize("order", [None, "auto", "inner_tree"])
def test_another_process_compiles_as_this_one(order: str | None, another_process: None) -> None:
    modules = Modules()
    with modules.changed(order):
        sent = pickle.dumps(modules.tasks._worker_compile_triton)
        here = compiled(lambda: CachingAutotuner([NARROW, WIDE]))
    assert modules.tasks._worker_compile_triton is compiled
    there = pickle.loads(sent)(lambda: CachingAutotuner([NARROW, WIDE]))
    for kernel in (here, there):
        assert kernel.pinned == [order is not None]
        assert [each.kwargs["XBLOCK"] for each in kernel.bitwise_listed] == [1, 8]
        assert kernel.bitwise_preferred.kwargs == PREFERRED
        assert [each.kwargs for each in kernel.compile_results] == [NARROW.kwargs, WIDE.kwargs, PREFERRED]
    outside = compiled(lambda: CachingAutotuner([NARROW, WIDE]))
    assert outside.pinned == [False]
    assert outside.compile_results == [NARROW, WIDE]


def test_a_kernel_without_a_choice_has_no_other_configuration() -> None:
    with Modules().changed("auto"):
        alone = compiled(lambda: CachingAutotuner([WIDE]))
        searched = compiled(lambda: CachingAutotuner([WIDE], coordinate_descent_tuning=True))
        again = compiled(lambda: searched)
    assert alone.compile_results == [WIDE]
    assert [each.kwargs for each in searched.compile_results] == [WIDE.kwargs, PREFERRED]
    assert again.bitwise_listed == [WIDE]


def test_a_preferred_configuration_that_is_listed_is_compiled_once() -> None:
    listed = [triton.Config(PREFERRED, num_warps=4, num_stages=1), WIDE]
    with Modules().changed(None):
        assert compiled(lambda: CachingAutotuner(listed)).compile_results == listed


def test_the_source_of_a_kernel_has_the_order() -> None:
    before = vars(TritonKernel)["inductor_meta_common"]
    for order in (None, "auto"):
        with Modules().changed(order):
            assert TritonKernel.inductor_meta_common() == {"max_autotune": True, "bitwise_order": str(order)}
            assert TritonKernel().inductor_meta_common() == TritonKernel.inductor_meta_common()
    assert vars(TritonKernel)["inductor_meta_common"] is before


@pytest.mark.parametrize("part", ["_worker_compile_triton", "_precompile_worker", "inductor_meta_common"])
def test_another_version_is_refused(part: str) -> None:
    modules, kernels = Modules(), TritonKernel
    if part == "_worker_compile_triton":
        modules.tasks = SimpleNamespace()
    elif part == "_precompile_worker":
        modules.heuristics = SimpleNamespace(CachingAutotuner=object)
    else:
        kernels = object  # type: ignore[assignment,misc]
    changed = changed_compilation(Compilation(), modules.tasks, modules.heuristics, kernels)
    with pytest.raises(CaptureError, match=part), changed:
        pass


def test_where_reductions_cannot_be_pinned_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bitwise_triton.reductions.pinning.VERSIONS", ("9.8", "9.9"))
    with Modules().changed(None):
        pass
    with pytest.raises(CaptureError, match=r"Triton 9.8 to 9.9, .* With order=None"), Modules().changed("auto"):
        pass


def test_an_order_that_cannot_be_pinned_is_an_error() -> None:
    with pytest.raises(OrderError, match="chain"):
        same_bits(order="chain(0:)")
    with pytest.raises(OrderError, match="sideways"):
        same_bits(order="sideways")
