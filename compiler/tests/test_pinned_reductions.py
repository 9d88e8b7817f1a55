"""Pinned reductions, compiled and checked: one class of configurations for each order."""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

triton = pytest.importorskip("triton")
pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

import triton.language as tl  # noqa: E402

from bitwise_bench.pinned_reductions.kernels.small_cases import PinnedCase, cases, sources  # noqa: E402
from bitwise_core.checker.partition import partition  # noqa: E402
from bitwise_core.checker.sources import Options  # noqa: E402
from bitwise_core.cli.tree_command import tree_of as dependence_tree  # noqa: E402
from bitwise_core.ir.evaluation import evaluate_many  # noqa: E402
from bitwise_core.ir.nodes import Load, Operation, descendants  # noqa: E402
from bitwise_core.plugins.registry import default  # noqa: E402
from bitwise_triton import Buffer, CaptureError, compile_configuration  # noqa: E402
from bitwise_triton.reductions import Order, evaluate, tree_of  # noqa: E402
from bitwise_triton.reductions.kernels.functions import add_rounded, tree_reduce, tree_sum  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_machine_code")

CASES = {case.name: case for case in cases()}
CHUNKED = [name for name, case in CASES.items() if case.chunked]


STEPS = {24: 5, 16: 3}
"""Which configurations of a large space are compiled: in each of these, every value of every parameter."""


def classes(case: PinnedCase, order: str, every: int = 1) -> int:
    """The number of classes of the configurations, none of them unknown; `every` is for cases of few of them."""
    step = STEPS.get(len(case.configurations), every)
    found = partition(sources(case, order, step), "sm_90", Options(), workers=1)
    assert not found.unknown
    return len(found.classes)


def written(case: PinnedCase, order: str) -> str:
    return f"chain(7:), {order}" if case.chunked else order


@pytest.mark.parametrize("name", CASES)
def test_the_chosen_configurations_have_every_value(name: str) -> None:
    every = CASES[name].configurations
    chosen = every[:: STEPS.get(len(every), 1)]
    for parameter in every[0]:
        assert {each[parameter] for each in chosen} == {each[parameter] for each in every}


@pytest.mark.parametrize("name", CASES)
def test_all_configurations_of_one_order_are_one_class(name: str) -> None:
    assert classes(CASES[name], written(CASES[name], "inner_tree")) == 1


@pytest.mark.parametrize("name", ["whole_row_sum", "whole_column_sum", "softmax", "row_dot", "layer_norm"])
@pytest.mark.parametrize("order", ["outer_tree", "3, 1, inner_tree", "chain(4:6), outer_tree"])
def test_every_order_of_the_bits_is_one_class(name: str, order: str) -> None:
    assert classes(CASES[name], order, every=3) == 1


@pytest.mark.parametrize("name", CHUNKED)
@pytest.mark.parametrize("order", ["inner_tree(:7), chain(7:)", "chain(7:), outer_tree"])
def test_the_tile_size_of_a_long_axis_does_not_change_the_class(name: str, order: str) -> None:
    assert classes(CASES[name], order) == 1


FREE = {"whole_row_sum": 4, "whole_column_sum": 5, "row_sum": 4, "softmax": 3, "row_dot": 3}


@pytest.mark.parametrize("name", FREE)
def test_the_free_order_has_several_classes(name: str) -> None:
    found = classes(CASES[name], "")
    assert found > 1
    if triton.__version__ == "3.6.0":
        assert found == FREE[name]


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("whole_row_sum", "inner_tree"),
        ("whole_row_sum", "5, outer_tree"),
        ("whole_column_sum", "outer_tree"),
        ("whole_column_sum", "chain(3:), inner_tree"),
        ("row_sum", "chain(7:), inner_tree"),
        ("row_sum", "inner_tree(:7), chain(7:)"),
        ("column_sum", "chain(7:), outer_tree"),
    ],
)
def test_the_dependence_tree_of_an_output_is_the_descriptors(name: str, order: str) -> None:
    """The tree in the assembly and the order's own evaluation have the same bits."""
    case = CASES[name]
    source = sources(case, order, every=100)[0]
    tree, _ = dependence_tree(source, default().arch("sm_90"), Options(), "Y[3]", None)
    draws = 25
    words = np.random.default_rng(7).integers(0, 2**32, (draws, case.rows, case.columns), np.uint32)
    words[: draws // 2] = words[: draws // 2] & 0x83FFFFFF | 0x3C000000
    words[0] = 1 << 31
    flat = words.reshape(draws, -1)
    loads = [node for node in descendants(tree.root) if isinstance(node, Load)]
    count = case.columns if case.axis else case.rows
    assert len(loads) == count
    assert sum(isinstance(node, Operation) for node in descendants(tree.root)) >= count - 1
    with np.errstate(all="ignore"):
        found = evaluate_many(tree.root, lambda _, offset, bits: flat[:, offset // (bits // 8)])
        values = words[:, 3, :] if case.axis else words[:, :, 3]
        expected = evaluate(Order(order), np.ascontiguousarray(values).view(np.float32))
    nan = np.isnan(expected)
    assert not nan[: draws // 2].any()
    assert (np.isnan(found.view(np.float32)) == nan).all()
    assert found.view(np.uint32)[~nan].tolist() == expected.view(np.uint32)[~nan].tolist()


def joined(order: Order, values: Any) -> Any:
    """Sum, sum of squared deviations and count along the last axis, as `welford` combines them."""
    one = np.float32(1)

    def join(a: Any, b: Any) -> Any:
        least, greatest = np.minimum(a[2], b[2]), np.maximum(a[2], b[2])
        count, alone = a[2] + b[2], least == 0
        share = least / np.where(alone, one, greatest)
        left = np.where(a[2] > b[2], a[0] * share, a[0])
        right = np.where(b[2] > a[2], b[0] * share, b[0])
        apart = np.maximum(left, right) - np.minimum(left, right)
        scaled = apart * (greatest / np.where(alone, one, least * count))
        # The product is exact, and with long doubles only the final rounding matters for these numbers.
        fused = (scaled.astype(np.longdouble) * apart + (a[1] + b[1])).astype(np.float32)
        return np.stack([a[0] + b[0], np.where(alone, a[1] + b[1], fused), count])

    def fold(tree: Any) -> Any:
        if isinstance(tree, int):
            return np.stack([values[..., tree], 0 * values[..., tree], 0 * values[..., tree] + one])
        return join(*(fold(side) for side in tree))

    return fold(tree_of(order, values.shape[-1]))


@pytest.mark.parametrize(
    ("name", "order"),
    [("even_welford_rows", "inner_tree"), ("even_welford_rows", "3, outer_tree"), ("welford_rows", "2, inner_tree")],
)
def test_means_and_squared_deviations_are_those_of_the_join(name: str, order: str) -> None:
    """Known and computed counts give the same bits, padded or not."""
    case = CASES[name]
    values = np.random.default_rng(5).standard_normal((20, case.rows, case.columns)).astype(np.float32)
    flat = values.view(np.uint32).reshape(len(values), -1)
    source = sources(case, order, every=3)[1]
    total, squares, _ = joined(Order(order), values[:, 3, :])
    for place, expected in ((6, total), (7, squares)):
        tree, _ = dependence_tree(source, default().arch("sm_90"), Options(), f"Y[{place}]", None)
        found = evaluate_many(tree.root, lambda _, offset, bits: flat[:, offset // (bits // 8)])
        assert found.view(np.float32).tolist() == (expected / np.float32(case.columns)).tolist()


@triton.jit
def mixed(x, y, ORDER: tl.constexpr, AXIS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tile = tl.load(x + at[:, None] * 4 + tl.arange(0, 4)[None, :])
    half = tree_sum(tile.to(tl.float16), AXIS, ORDER)
    brain = tree_sum(tile.to(tl.bfloat16), AXIS, ORDER)
    double = tree_reduce((tile.to(tl.float64),), AXIS, add_rounded, ORDER)[0]
    tl.store(y + tl.arange(0, 4), half.to(tl.float32) + brain + double.to(tl.float32))


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_every_type_compiles_for_every_target(target: str) -> None:
    arguments: dict[str, Any] = {"x": Buffer("X", "fp32"), "y": Buffer("Y", "fp32")}
    constants: dict[str, object] = {"ORDER": "1, outer_tree", "AXIS": -2, "BLOCK": 64}
    found = compile_configuration(mixed, arguments, constants, grid=(1,), target=target, num_warps=2)
    counts = {"gfx942": ("v_add_f16", "v_add_f64")}.get(target, ("add.rn.f16", "add.rn.f64"))
    assert all(found.assembly.count(name) > 0 for name in counts)
    assert "fma" not in found.assembly.lower().replace("fmac", "fma")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ORDER": "inner"}, "a step is a bit number"),
        ({"ORDER": "0"}, "leaves bit 1 of 6"),
        ({"AXIS": 2}, "Axis 2 of a pinned reduction is not one of the 2 axes"),
    ],
)
def test_mistakes_are_errors_of_the_compilation(change: dict[str, object], message: str) -> None:
    arguments: dict[str, Any] = {"x": Buffer("X", "fp32"), "y": Buffer("Y", "fp32")}
    constants: dict[str, object] = {"ORDER": "inner_tree", "AXIS": 0, "BLOCK": 64, **change}
    with pytest.raises(CaptureError) as caught:
        compile_configuration(mixed, arguments, constants, grid=(1,))
    assert message in str(caught.value) + str(caught.value.__context__.__cause__)


def test_a_tile_smaller_than_the_chunk_is_rejected() -> None:
    case = CASES["row_sum"]
    arguments: dict[str, Any] = {"x": Buffer("X", "fp32"), "y": Buffer("Y", "fp32"), "rows": 8, "columns": 1000}
    constants: dict[str, object] = {"ROW_BLOCK": 1, "BLOCK": 64, "PIECE": 64, "TOTALS": 128}
    constants["ORDER"] = "chain(7:), inner_tree"
    with pytest.raises(CaptureError) as caught:
        compile_configuration(case.kernel, arguments, constants, grid=case.grid)
    assert "has chunks of 128 and the tile has 64 elements" in str(caught.value.__context__.__cause__) + str(
        caught.value
    )
