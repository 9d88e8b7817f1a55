"""The reference of a kernel: decided without a measurement, alike in every process."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest

from bitwise_triton.inductor.reference import reference_of, untuned

triton = pytest.importorskip("triton")

NARROW, OUTER, TILED = (
    triton.Config({"XBLOCK": columns, "R0_BLOCK": rows}, num_warps=warps, num_stages=1)
    for columns, rows, warps in ((2, 128, 2), (64, 8, 4), (64, 64, 16))
)


def launcher(configuration: Any) -> Any:
    return SimpleNamespace(config=configuration)


class Kernel:
    """An autotuner of a reduction.  `asked` is what Inductor's functions were called with."""

    def __init__(self, kind: str | None = "REDUCTION", sizes: Any = None, **meta: Any) -> None:
        self.heuristic_type = SimpleNamespace(name=kind)
        self.size_hints = {"x": 131072, "r0_": 128} if sizes is None else sizes
        self.inductor_meta = {"reduction_hint": "OUTER", "max_autotune": True, **meta}
        self.triton_meta = {"signature": {"x": "*bf16"}, "device": 0}
        self.device_props = SimpleNamespace(major=9)
        self.filename = "kernel.py"
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


def test_the_order_of_the_launchers_does_not_matter() -> None:
    same = triton.Config({"R0_BLOCK": 8, "XBLOCK": 64}, num_warps=4, num_stages=1)
    for order in permutations(map(launcher, (NARROW, OUTER, TILED))):
        assert reference_of(order, same).config is OUTER


@pytest.mark.parametrize("change", [{"num_warps": 8}, {"num_stages": 2}, {"num_ctas": 2}])
def test_where_no_launcher_has_the_configuration_it_is_the_first_one(change: dict[str, int]) -> None:
    wanted = triton.Config(OUTER.kwargs, **{"num_warps": 4, "num_stages": 1, **change})
    listed = [launcher(NARROW), launcher(OUTER)]
    assert reference_of(listed, wanted) is listed[0]


def test_without_a_rule_it_is_the_first_one() -> None:
    listed = [launcher(TILED), launcher(OUTER)]
    assert reference_of(listed, None) is listed[0]
