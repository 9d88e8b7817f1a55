"""The reference of a kernel: decided without a measurement, alike in every process."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest

from bitwise_triton.inductor.reference import candidates, is_of_the_configuration, preferred, untuned

triton = pytest.importorskip("triton")

NARROW, OUTER, TILED = (
    triton.Config({"XBLOCK": columns, "R0_BLOCK": rows}, num_warps=warps, num_stages=1)
    for columns, rows, warps in ((2, 128, 2), (64, 8, 4), (64, 64, 16))
)


class Kernel:
    """An autotuner of a reduction.  `asked` is what Inductor's functions were called with."""

    def __init__(self, kind: str | None = "REDUCTION", sizes: Any = None, **meta: Any) -> None:
        self.heuristic_type = SimpleNamespace(name=kind)
        self.size_hints = {"x": 131072, "r0_": 128} if sizes is None else sizes
        self.inductor_meta = {"reduction_hint": "OUTER", "max_autotune": True, **meta}
        self.triton_meta = {"signature": {"x": "*bf16"}, "device": 0}
        self.device_props = SimpleNamespace(major=9)
        self.filename = "kernel.py"
        self.configs: Any = None
        self.fn = SimpleNamespace(fn=None, __name__="reduction")

    def _reload_kernel(self) -> Any:
        return SimpleNamespace(fn=SimpleNamespace(fn=len, __name__="reduction"))


def heuristics(*found: Any, asked: list[Any]) -> Any:
    """Stand-ins of Inductor's functions, which return these configurations."""

    def named(name: str) -> Callable[..., Any]:
        def heuristic(**arguments: Any) -> Callable[[Any], Any]:
            asked.append((name, arguments))
            arguments["size_hints"]["x"] = 1  # as Inductor does for some kernels
            arguments["inductor_meta"].pop("reduction_hint")
            arguments["triton_meta"].clear()

            def decorator(function: Any) -> Any:
                assert function.fn is len
                return SimpleNamespace(configs=list(found))

            return decorator

        return heuristic

    names = "reduction", "persistent_reduction", "cooperative_reduction"
    return SimpleNamespace(**{name: named(name) for name in names})


@pytest.mark.parametrize(
    ("kind", "grid", "expected"),
    [
        ("REDUCTION", "Grid1D", "reduction"),
        ("PERSISTENT_REDUCTION", "Grid1D", "persistent_reduction"),
        ("REDUCTION", "CooperativeReductionGrid", "cooperative_reduction"),
        ("PERSISTENT_REDUCTION", "CooperativeReductionGrid", "cooperative_reduction"),
    ],
)
def test_inductor_is_asked_without_autotuning(kind: str, grid: str, expected: str) -> None:
    asked: list[Any] = []
    kernel = Kernel(kind, grid_type=grid)
    before = dict(kernel.size_hints), dict(kernel.inductor_meta), dict(kernel.triton_meta)
    assert untuned(heuristics(OUTER, asked=asked))(kernel) is OUTER
    ((name, arguments),) = asked
    assert name == expected
    meta = arguments["inductor_meta"]
    assert not meta["max_autotune"]
    assert meta["deterministic"]
    assert meta["force_disable_caches"]
    assert arguments["reduction_hint"] == "OUTER"
    assert (kernel.size_hints, kernel.inductor_meta, kernel.triton_meta) == before


@pytest.mark.parametrize("kernel", [Kernel("POINTWISE"), Kernel(None), Kernel(sizes=[4096, 128]), Kernel("SPLIT_SCAN")])
def test_inductor_has_no_rule_for_other_kernels(kernel: Kernel) -> None:
    asked: list[Any] = []
    assert untuned(heuristics(OUTER, asked=asked))(kernel) is None
    assert asked == []


def test_another_version_of_inductor_is_not_asked() -> None:
    assert untuned(SimpleNamespace())(Kernel()) is None
    assert untuned(SimpleNamespace(reduction=lambda numel: None))(Kernel()) is None
    assert untuned(heuristics(asked=[]))(Kernel()) is None


@pytest.mark.parametrize(
    ("sizes", "listed", "block", "warps"),
    [
        ({"x": 4096, "r0_": 1024}, {"XBLOCK": 1}, {"XBLOCK": 2}, 4),
        ({"x": 65536, "r0_": 512}, {"XBLOCK": 8}, {"XBLOCK": 4}, 4),
        ({"x": 4096, "r0_": 32}, {"XBLOCK": 128}, {"XBLOCK": 64}, 4),
        ({"x": 64, "r0_": 8192}, {"XBLOCK": 1}, {"XBLOCK": 1}, 16),
        ({"x": 1, "r0_": 256}, {}, {}, 1),
        ({"y": 512, "x": 16, "r0_": 64}, {"XBLOCK": 4, "YBLOCK": 8}, {"XBLOCK": 4, "YBLOCK": 8}, 4),
        ({"x": 512, "r0_": 16, "r1_": 64}, {"XBLOCK": 8}, {"XBLOCK": 2}, 4),
    ],
)
def test_of_a_persistent_reduction_it_is_a_block_of_full_words(
    sizes: dict[str, int], listed: dict[str, int], block: dict[str, int], warps: int
) -> None:
    asked: list[Any] = []
    kernel = Kernel("PERSISTENT_REDUCTION", sizes)
    others = [dict.fromkeys(listed, 1), {name: 8 * size for name, size in listed.items()}]
    configs = [triton.Config(each, num_warps=8, num_stages=2) for each in (listed, *others)]
    for kernel.configs in permutations(configs):
        before = [each.all_kwargs() for each in kernel.configs]
        found = preferred(heuristics(OUTER, asked=asked))(kernel)
        assert (found.kwargs, found.num_warps, found.num_stages) == (block, warps, 1)
        assert [each.all_kwargs() for each in kernel.configs] == before
    assert asked == []


@pytest.mark.parametrize(
    "kernel",
    [Kernel(), Kernel("PERSISTENT_REDUCTION", {"x": 16, "r0_": 8}), Kernel("PERSISTENT_REDUCTION", {"r0_": 8})],
)
def test_of_another_reduction_it_is_what_inductor_takes_without_autotuning(kernel: Kernel) -> None:
    kernel.configs = [triton.Config({"XBLOCK": 4, "RSPLIT_SIZE": 8})]
    assert preferred(heuristics(OUTER, asked=[]))(kernel) is OUTER


def test_the_order_of_the_list_does_not_matter() -> None:
    same = triton.Config({"R0_BLOCK": 8, "XBLOCK": 64}, num_warps=4, num_stages=1)
    assert {tuple(map(id, candidates(order, None))) for order in permutations((NARROW, OUTER, TILED))} == {
        tuple(map(id, (TILED, OUTER, NARROW)))
    }
    assert candidates([NARROW, OUTER], same)[0] is same


def test_of_other_kernels_it_has_eight_elements_in_each_thread_of_four_warps() -> None:
    listed = [
        triton.Config({"XBLOCK": size}, num_warps=warps) for size, warps in ((2048, 8), (512, 4), (1024, 4), (256, 1))
    ]
    assert [each.kwargs["XBLOCK"] for each in candidates(listed, None)] == [1024, 2048, 256, 512]


def test_of_a_tiled_kernel_it_is_the_most_square_block() -> None:
    sizes = (1, 1024, 4), (1024, 1, 4), (32, 32, 4), (256, 16, 8), (64, 64, 8)
    listed = [triton.Config({"XBLOCK": x, "YBLOCK": y}, num_warps=warps) for x, y, warps in sizes]
    for order in permutations(listed):
        assert candidates(order, None)[0].kwargs == {"XBLOCK": 32, "YBLOCK": 32}


class OutOfResources(Exception):
    """What Triton raises for a configuration that needs more than the GPU has."""


class PTXASError(Exception):
    """What Triton raises for an assembler that fails."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OutOfResources("out of resource: shared memory"), True),
        (PTXASError("Internal Triton PTX codegen error"), True),
        (PTXASError("`ptxas` failed with error code -9"), False),
        (RuntimeError("No valid triton configs. OutOfResources: shared memory"), True),
        (RuntimeError("No valid triton configs. PTXASError: `ptxas` failed with error code -15"), False),
        (RuntimeError("No valid triton configs. OutOfMemoryError: out of memory"), False),
        (RuntimeError("PassManager::run failed"), True),
        (MemoryError(), False),
        (OSError("no space left on device"), False),
    ],
)
def test_what_fails_here_only_does_not_change_the_reference(error: Exception, expected: bool) -> None:
    assert is_of_the_configuration(error) is expected
