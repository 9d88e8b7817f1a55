"""Rewritten kernels and deferred lowering: their configurations are one class."""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

triton = pytest.importorskip("triton")
pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

import triton.language as tl  # noqa: E402

from bitwise_bench.pinned_reductions.kernels.small_cases import cases, sources  # noqa: E402
from bitwise_core.checker.partition import partition  # noqa: E402
from bitwise_core.checker.sources import Options  # noqa: E402
from bitwise_core.cli.tree_command import tree_of as dependence_tree  # noqa: E402
from bitwise_core.ir.evaluation import evaluate_many  # noqa: E402
from bitwise_core.plugins.registry import default  # noqa: E402
from bitwise_triton import Buffer, CaptureError, compile_configuration  # noqa: E402
from bitwise_triton.arguments import to_triton  # noqa: E402
from bitwise_triton.equivalence import source_of  # noqa: E402
from bitwise_triton.reductions import Order, OrderError, evaluate, pinned_reductions  # noqa: E402
from bitwise_triton.reductions.kernels.functions import tree_sum  # noqa: E402

CASES = {case.name: case for case in cases()}


@triton.jit
def half_of_right(a, b):
    return a + b * 0.5


@triton.jit
def plain_welford(mean_a, squares_a, weight_a, mean_b, squares_b, weight_b):
    delta = mean_b - mean_a
    weight = weight_a + weight_b
    share = weight_b / weight
    return mean_a + delta * share, squares_a + squares_b + delta * delta * weight_a * share, weight


@triton.jit
def library(x, y, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr):
    """A kernel without orders, whose combines depend on the operand order."""
    row = tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    value = tl.load(x + row[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :])
    squares = tl.sum(value * value, 1)
    one = tl.full(value.shape, 1.0, tl.float32)
    mean, spread, weight = tl.reduce((value, tl.zeros_like(value), one), 1, plain_welford)
    tl.store(y + row * 8, squares)
    tl.store(y + row * 8 + 1, tl.reduce(value, 1, half_of_right))
    tl.store(y + row * 8 + 2, mean)
    tl.store(y + row * 8 + 3, spread)
    tl.store(y + row * 8 + 4, weight)
    tl.store(y + row * 8 + 5, tl.max(value, 1))
    tl.store(y + row * 8 + 6, tl.sum(value.to(tl.bfloat16), 1))


@triton.jit
def over_all_axes(x, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    value = tl.load(x + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :])
    tl.store(y, tl.sum(value))


LIBRARY = [(1, 1), (1, 4), (4, 1), (4, 2)]
"""Rows of a program and warps: a warp has whole rows, and rows are divided among warps."""


def library_sources(target: str = "sm_90") -> list[Any]:
    arguments: dict[str, Any] = {"x": Buffer("X", "fp32"), "y": Buffer("Y", "fp32")}
    return [
        source_of(
            compile_configuration(
                library, arguments, {"ROW_BLOCK": rows, "BLOCK": 128}, grid=(8 // rows,), num_warps=warps, target=target
            ),
            f"{rows}x{warps}",
        )
        for rows, warps in LIBRARY
    ]


@pytest.mark.parametrize("order", ["inner_tree", "2, outer_tree"])
def test_rewritten_kernels_are_one_class(triton_cache: Any, order: str) -> None:
    with pinned_reductions(order) as done:
        pinned = library_sources()
    assert done.pinned() == 4 * len(LIBRARY)  # A maximum does not depend on the order.
    assert done.unpinned() == []
    found = partition(pinned, "sm_90", Options(), workers=1)
    assert (len(found.classes), found.unknown) == (1, {})


@pytest.mark.usefixtures("without_machine_code")
def test_kernels_that_are_not_rewritten_are_several_classes() -> None:
    assert len(partition(library_sources(), "sm_90", Options(), workers=1).classes) > 1


def test_the_auto_order_is_resolved_once_for_all_configurations(triton_cache: Any) -> None:
    with pinned_reductions("auto") as done:
        pinned = library_sources()
    found = partition(pinned, "sm_90", Options(), workers=1)
    assert (len(found.classes), found.unknown) == (1, {})
    chosen = Order("inner_tree(:2), outer_tree(9:), inner_tree")
    assert {desc for _, desc in done.descriptors()} == {
        chosen.descriptor(128), chosen.descriptor(128, "bf16", "bf16")
    }  # fmt: skip
    assert len(done.descriptors()) == 2 * len(LIBRARY)
    stays = "it keeps its layout, since each reduction is inside one warp."
    assert sum(line.endswith(stays) for line in done.layouts()) > 0
    assert sum("it moves before step" in line for line in done.layouts()) > 0


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("whole_row_sum", "auto"),
        ("whole_column_sum", "outer_tree"),
        ("row_dot", "auto"),
        ("even_welford_rows", "outer_tree"),
    ],
)
def test_reductions_of_kernel_functions_are_the_same_late_and_early(name: str, order: str, triton_cache: Any) -> None:
    """Emitted directly, lowered late, and lowered late with the layout pass: one class."""
    case = CASES[name]
    every = 5 if len(case.configurations) > 20 else 3
    early = sources(case, order, every, title="early ")
    with pinned_reductions(None) as done:
        moved = sources(case, order, every, title="moved ")
    with pinned_reductions(None, layout=False) as still:
        late = sources(case, order, every, title="late ")
    assert done.kernels == still.kernels == []
    assert any("it moves before step" in line for line in done.layouts()) == (name != "even_welford_rows")
    assert all(line.endswith("since the pass is off.") for line in still.layouts())
    kernels = [*early, *moved, *late]
    found = partition(kernels, "sm_90", Options(), workers=1)
    assert ([len(names) for names in found.classes], found.unknown) == ([len(kernels)], {})


def test_a_sum_over_all_axes_has_the_order_of_its_elements(triton_cache: Any) -> None:
    arguments: dict[str, Any] = {"x": Buffer("X", "fp32"), "y": Buffer("Y", "fp32")}
    constants: dict[str, object] = {"ROWS": 16, "COLUMNS": 32}
    with pinned_reductions():
        found = [
            source_of(
                compile_configuration(over_all_axes, arguments, constants, grid=(1,), num_warps=warps), str(warps)
            )
            for warps in (1, 2, 4)
        ]
    assert len(partition(found, "sm_90", Options(), workers=1).classes) == 1
    tree, _ = dependence_tree(found[0], default().arch("sm_90"), Options(), "Y[0]", None)
    values = np.random.default_rng(3).standard_normal((4, 512)).astype(np.float32)
    bits = evaluate_many(tree.root, lambda _, offset, size: values.view(np.uint32)[:, offset // (size // 8)])
    assert bits.view(np.float32).tolist() == evaluate(Order("inner_tree"), values).tolist()


def test_a_rewritten_sum_is_the_sum_of_the_kernel_functions(triton_cache: Any) -> None:
    case = CASES["whole_row_sum"]
    with pinned_reductions("3, outer_tree"):
        rewritten = sources(case, "", every=5)
    every = [*rewritten, *sources(case, "3, outer_tree", every=6, title="own ")]
    found = partition(every, "sm_90", Options(), workers=1)
    assert ([len(names) for names in found.classes], found.unknown) == ([len(every)], {})


def test_the_order_is_part_of_the_cache_key(triton_cache: Any) -> None:
    case = CASES["whole_row_sum"]
    texts = []
    for order in (None, "inner_tree", "outer_tree", "inner_tree", None):
        if order is None:
            texts.append(sources(case, "", every=100)[0].text)
        else:
            with pinned_reductions(order):
                texts.append(sources(case, "", every=100)[0].text)
    assert triton_cache.compiles == [False, False, False, True, True]
    assert texts[0] == texts[4]
    assert texts[1] == texts[3]
    assert len(set(texts)) == 3


@pinned_reductions("outer_tree")
def launched(arguments: dict[str, Any]) -> Any:
    return library.run(**arguments, ROW_BLOCK=1, BLOCK=128, grid=(8,), warmup=True, num_warps=2)


def test_a_decorated_launch_is_rewritten(without_gpu: Any) -> None:
    arguments = {name: to_triton(name, Buffer(name, "fp32")) for name in ("x", "y")}
    library.device_caches.clear()
    plain = library.run(**arguments, ROW_BLOCK=1, BLOCK=128, grid=(8,), warmup=True, num_warps=2)
    pinned, again = launched(arguments), launched(arguments)
    assert pinned is again
    assert plain.asm["ttgir"].count('"tt.reduce"') == 5
    assert pinned.asm["ttgir"].count('"tt.reduce"') == 4 * 7 + 1
    library.device_caches.clear()


@triton.jit
def later(a, b):
    return tl.inline_asm_elementwise("add.f32 $0, $1, $2;", "=r,r,r", [a, b], tl.float32, is_pure=False, pack=1)


@triton.jit
def unread(a, b):
    return tl.inline_asm_elementwise("max.f32 $0, $1, $2;", "=r,r,r", [a, b], tl.float32, is_pure=True, pack=1)


@triton.jit
def approximate(a, b):
    return tl.log(tl.exp(a) + tl.exp(b))


@triton.jit
def strange(x, y, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    tl.store(y, tl.reduce(value, 0, later))
    tl.store(y + 1, tl.reduce(value, 0, unread))
    tl.store(y + 2, tl.reduce(value, 0, approximate))
    tl.store(y + 4 + tl.arange(0, BLOCK), tl.cumsum(value, 0))
    tl.atomic_add(y, tl.sum(value, 0))
    tl.store(y + 1, tl.cumsum(value.to(tl.int32), 0).to(tl.float32).sum(0))
    tl.store(y + 4 + tl.arange(0, 2 * BLOCK), tl.cat(value, value, can_reorder=True))


def test_unpinned_reductions_are_reported_by_source_line(triton_cache: Any) -> None:
    arguments: dict[str, Any] = {"x": Buffer("X", "fp32"), "y": Buffer("Y", "fp32")}
    with pinned_reductions() as done:
        compile_configuration(strange, arguments, {"BLOCK": 128}, grid=(1,))
    reasons = [
        (3, "its combine function has assembly that is not pure"),
        (4, "its combine function has assembly other than one rounded operation"),
        (5, "its combine function has the operation math.exp, which may be rounded in several ways"),
        (6, "the compiler chooses the order of a scan"),
        (7, "its atomic additions are performed in the order in which blocks arrive"),
        (9, "the compiler chooses the order of the elements of a concatenation"),
    ]
    first = strange.starting_line_number
    assert done.unpinned() == [
        f"{__file__}:{first + line}: kernel strange keeps a free order, since {reason}." for line, reason in reasons
    ]
    assert done.pinned() == 2


def test_unsupported_orders_and_versions_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(OrderError, match="has a chain; kernels are rewritten to trees only"),
        pinned_reductions("chain"),
    ):
        pass
    monkeypatch.setattr(triton, "__version__", "3.10.0")
    with (
        pytest.raises(CaptureError, match=r"supports Triton 3\.6 to 3\.9, not 3\.10\.0"),
        pinned_reductions(),
    ):
        pass


@triton.jit
def own_sum(x, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr, AXIS: tl.constexpr):
    value = tl.load(x + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :])
    total = tree_sum(value, AXIS)
    tl.store(y + tl.arange(0, total.shape[0]), total)


@triton.jit
def plain_sum(x, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr, AXIS: tl.constexpr):
    value = tl.load(x + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :])
    total = tl.sum(value, AXIS)
    tl.store(y + tl.arange(0, total.shape[0]), total)


def one_sum(kernel: Any, rows: int, columns: int, axis: int, dtype: str = "fp32", **options: int) -> Any:
    arguments: dict[str, Any] = {"x": Buffer("X", dtype), "y": Buffer("Y", dtype)}
    constants: dict[str, object] = {"ROWS": rows, "COLUMNS": columns, "AXIS": axis}
    return compile_configuration(kernel, arguments, constants, grid=(1,), **options)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_program_of_several_blocks_is_not_pinned(axis: int, triton_cache: Any) -> None:
    with pinned_reductions() as done:
        one_sum(plain_sum, 64, 64, axis, num_ctas=2)
    assert done.pinned() == 0
    assert done.unpinned()[0].endswith("keeps a free order, since its program runs on 2 blocks.")
    for context in (nullcontext(), pinned_reductions(None)):
        with context, pytest.raises(CaptureError, match="inside one block, not in 2; compile with num_ctas=1"):
            one_sum(own_sum, 64, 64, axis, num_ctas=2)


def test_a_sum_of_one_element_is_that_element(triton_cache: Any) -> None:
    """There is no addition, so -0.0 is preserved; all three kernels have the same additions."""
    with pinned_reductions() as done:
        rewritten = one_sum(plain_sum, 64, 1, 1)
    assert (done.pinned(), done.unpinned()) == (0, [])
    for found in (rewritten, one_sum(own_sum, 64, 1, 1)):
        assert re.findall(r"(?:add|fma)(?:\.rn)?\.f32", found.assembly) == []
    with pinned_reductions(None) as done:
        assert one_sum(own_sum, 64, 1, 1).assembly == one_sum(own_sum, 64, 1, 1).assembly
    assert done.layouts() == []


def test_sums_of_integers_are_unchanged_or_exact(triton_cache: Any) -> None:
    plain = one_sum(plain_sum, 4, 128, 1, "i32").assembly
    with pinned_reductions() as done:
        assert one_sum(plain_sum, 4, 128, 1, "i32").assembly == plain
    assert (done.pinned(), done.unpinned()) == (0, [])
    with pinned_reductions(None):
        late = one_sum(own_sum, 4, 128, 1, "i32")
    early, plain_one = one_sum(own_sum, 4, 128, 1, "i32"), one_sum(plain_sum, 4, 128, 1, "i32")
    every = [source_of(one, title) for title, one in (("late", late), ("early", early), ("plain", plain_one))]
    found = partition(every, "sm_90", Options(), workers=1)
    assert (len(found.classes), found.unknown) == (1, {})


@pytest.mark.parametrize("target", ["sm_80", "sm_100", "gfx942"])
def test_late_lowering_compiles_for_every_target(target: str, triton_cache: Any) -> None:
    with pinned_reductions("auto") as done:
        library_sources(target)
    signalling = "its maximum or minimum depends on the order if an operand is a signalling NaN."
    assert [line.partition("since ")[2] for line in done.unpinned()] == [signalling] * (
        len(LIBRARY) * (target == "gfx942")
    )
    assert sum("it moves before step" in line for line in done.layouts()) > 0
