"""Packed operands: the packing kernel against NumPy, and whole products against the bytes of the descriptor."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.numerics import FLOAT_FORMATS, Bits, storage
from bitwise_core.plugins.installed import evaluate
from bitwise_nvidia_sm90.gemm.launch import KernelCall, kernel_calls
from bitwise_nvidia_sm90.gemm.packed_operands import packed_plan, packed_slices
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, Slices, UnsupportedGEMM, plan
from bitwise_nvidia_sm90.gemm.schedule import Schedule, check
from gemm_products import MMA, MMA_K8, WGMMA, Matrix, compiled_kernel, matrix, random_patterns, run, source

pytest.importorskip("triton")

TMA = Schedule(64, 32, 64, 8, 4, 3, tma=True, packed=True)
CONSUMERS = Schedule(64, 48, 64, 8, 8, 3, 132, True, consumers=1, packed=True)
FIRST = "k_loop_step={} short_iteration=first"


def laid_out(values: Bits, strides: tuple[int, int]) -> Bits:
    """Return the memory of a matrix with these strides, in elements; 0xA5 bytes fill what is between its values."""
    rows, columns = values.shape
    memory = np.full(
        (rows - 1) * strides[0] + (columns - 1) * strides[1] + 1, 0xA5A5A5A5 >> (32 - 8 * values.itemsize), values.dtype
    )
    memory[places(values.shape, strides)] = values
    return memory


def places(shape: tuple[int, ...], strides: tuple[int, int]) -> Any:
    return np.arange(shape[0])[:, None] * strides[0] + np.arange(shape[1])[None] * strides[1]


def calls(
    made: MatrixPlan,
    chosen: Schedule,
    shape: tuple[int, int],
    strides: tuple[tuple[int, int], ...],
    *types: str,
    address: int = 0,
) -> tuple[list[KernelCall], dict[str, Any]]:
    """Return the launches of a product of this shape, and the bytes of its workspaces.

    `strides` and `types` are those of A, B and C, and `address` is that of A.
    """
    m, n = shape
    a, b, out = (
        Matrix(name, each, strides, dtype, address if name == "A" else 0)
        for name, each, strides, dtype in zip("ABC", ((m, made.k), (made.k, n), shape), strides, types, strict=True)
    )
    state: dict[str, Any] = {}

    def workspace(shape: tuple[int, ...], dtype: str) -> Matrix:
        name = f"W{len(state)}"
        state[name] = np.full(int(np.prod(shape)) * FLOAT_FORMATS[dtype].bits // 8, 0x5A, dtype=np.uint8)
        dense = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
        return Matrix(name, shape, dense, dtype)

    return kernel_calls(made, chosen, a, b, out, workspace), state


def packed_rows(rows: Bits, made: MatrixPlan) -> Bits:
    """Return rows of k values as packed operands hold them, by one loop over iterations and instructions."""
    taken = 8 if made.instruction_k8 else 16
    found = []
    for start in range(0, made.k, made.slices.span):
        part = rows[:, start : min(start + made.slices.span, made.k)]
        groups, at = [], 0
        while at < part.shape[1]:
            short = (part.shape[1] - at) % made.short_first if made.short_first else 0
            iteration = part[:, at : at + (short or made.short_first or part.shape[1])]
            at += iteration.shape[1]
            for first in range(0, iteration.shape[1], taken):
                group = iteration[:, first : first + taken]
                groups.append(np.pad(group, ((0, 0), (0, 16 - group.shape[1]))))
        found.append(np.concatenate(groups, axis=1))
    whole = -(-max(each.shape[1] for each in found) // 64) * 64
    return np.concatenate([np.pad(each, ((0, 0), (0, whole - each.shape[1]))) for each in found], axis=1)


PLANS = {
    "plain": MatrixPlan(70, Slices(1, 70), 0, False, 0),
    "slices": MatrixPlan(107, Slices(2, 56), 0, False, 0),
    "k8": MatrixPlan(75, Slices(1, 75), 0, True, 0),
    "short first": MatrixPlan(107, Slices(1, 107), 32, False, 0),
    "short first, k8": MatrixPlan(107, Slices(1, 107), 32, True, 0),
    "short first, k8, slices": MatrixPlan(101, Slices(3, 40), 16, True, 0),
    "first iteration of more than one instruction": MatrixPlan(153, Slices(2, 121), 64, False, 0),
    "last slice without a short iteration": MatrixPlan(104, Slices(2, 72), 32, False, 0),
    "less than an iteration": MatrixPlan(5, Slices(1, 5), 32, True, 0),
}
LAYOUTS: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "rows": lambda rows, k: (k + 3, 1),
    "columns": lambda rows, k: (1, rows + 1),
    "neither": lambda rows, k: (2 * k + 1, 2),
    "columns apart": lambda rows, k: (3, 3 * rows + 2),
}


def packed_by_the_kernel(made: MatrixPlan, a: Bits, b: Bits, layouts: tuple[str, str]) -> list[Bits]:
    """Return the operands, each given in rows of k, as the simulated kernel packs them."""
    strides = LAYOUTS[layouts[0]](*a.shape), LAYOUTS[layouts[1]](*b.shape)
    of_b = strides[1][1], strides[1][0]
    out = (len(b), 1)
    (call, *_), state = calls(made, TMA, (len(a), len(b)), (strides[0], of_b, out), "bf16", "bf16", "bf16")
    state |= {"A": laid_out(a, strides[0]).view(np.uint8), "B": laid_out(b, strides[1]).view(np.uint8)}
    run(source(call), state)
    return [state[name].view(np.uint16).reshape(len(each), -1) for name, each in (("W0", a), ("W1", b))]


def random_operands(rows: int, columns: int, k: int) -> tuple[Bits, Bits]:
    """Return two matrices of all bit patterns, NaNs among them."""
    random = np.random.default_rng(k)
    a, b = (random.integers(0, 1 << 16, (each, k), dtype=np.uint16) for each in (rows, columns))
    return a, b


@pytest.mark.parametrize("name", PLANS)
def test_packed_operands_are_those_of_numpy(name: str) -> None:
    made = PLANS[name]
    a, b = random_operands(66, 3, made.k)
    found = packed_by_the_kernel(made, a, b, ("rows", "columns"))
    for each, operand in zip(found, (a, b), strict=True):
        wanted = packed_rows(operand, made)
        assert each.shape == (len(operand), packed_slices(made)[0])
        assert (each == wanted).all()


@pytest.mark.parametrize("layouts", [("columns", "rows"), ("neither", "columns apart")])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (64, 1), (5, 130)])
def test_operands_of_every_layout_and_size_are_packed(layouts: tuple[str, str], rows: int, columns: int) -> None:
    made = PLANS["short first, k8"]
    a, b = random_operands(rows, columns, made.k)
    found = packed_by_the_kernel(made, a, b, layouts)
    for each, operand in zip(found, (a, b), strict=True):
        assert (each == packed_rows(operand, made)).all()


PRODUCTS = {
    "rows that no map has": (matrix(75, WGMMA, out="fp32"), TMA, (20, 36), None),
    "k 8": (matrix(107, MMA_K8, FIRST.format(32), out="fp32"), TMA, (20, 36), None),
    "k 8, the short iteration last": (matrix(83, MMA_K8, dtype="bf16", out="fp32"), CONSUMERS, (68, 20), None),
    "short first": (matrix(169, MMA, FIRST.format(64), "bf16", "fp32"), CONSUMERS, (20, 52), None),
    "transposed": (
        matrix(107, MMA, FIRST.format(32), out="fp32"), replace(CONSUMERS, transposed=True), (50, 66), None
    ),
    "transposed, TMA": (
        matrix(107, MMA_K8, FIRST.format(32), out="fp32"), replace(TMA, transposed=True), (34, 66), None
    ),
    "slices": (
        matrix(300, MMA_K8, f"{FIRST.format(32)} k_cuts=[cut(span=104 partial_dtype=bf16)]", "bf16"), TMA, (17, 9), None
    ),
    "slices of warpgroups": (
        matrix(300, MMA, f"{FIRST.format(64)} k_cuts=[cut(span=104 merge_dtype=fp16)]"), CONSUMERS, (17, 9), None
    ),
    "transposed slices": (
        matrix(150, MMA_K8, f"{FIRST.format(32)} k_cuts=[cut(span=72)]"), replace(CONSUMERS, transposed=True), (9, 66),
        None,
    ),
    "one slice from zero": (
        matrix(43, MMA, f"{FIRST.format(32)} k_cuts=[cut(span=64 start=zero)]"), CONSUMERS, (9, 12), None
    ),
    "values of k that are dropped": (matrix(107, MMA_K8, f"{FIRST.format(32)} k_dropped=3"), CONSUMERS, (9, 20), None),
    "columns of C": (matrix(107, MMA_K8, FIRST.format(32), out="fp32"), CONSUMERS, (34, 20), (1, 37)),
    "C with gaps": (matrix(75, WGMMA), TMA, (10, 12), (31, 2)),
}  # fmt: skip


def simulated(
    desc: GEMMDesc,
    made: MatrixPlan,
    chosen: Schedule,
    a: Bits,
    b: Bits,
    strides: tuple[int, int] | None = None,
    changed: Callable[[Bits], Bits] | None = None,
    operand_strides: tuple[tuple[int, int], tuple[int, int]] | None = None,
) -> Bits:
    """Return the output of all launches.  Without `operand_strides`, A has rows and B columns that no tensor map has.

    `made` is the plan of the packing and of the product, which multiplies packed operands as `changed` returns them, in
    groups of shape (groups, 16).
    """
    m, n = a.shape[0], b.shape[1]
    out, (of_a, of_b) = strides or (n, 1), operand_strides or ((desc.k | 1, 1), (1, desc.k | 3))
    types = desc.left_dtype, desc.right_dtype, desc.output_dtype
    sequence, state = calls(made, chosen, (m, n), (of_a, of_b, out), *types)
    bits = FLOAT_FORMATS[desc.output_dtype].bits
    blank = np.zeros((m, n), dtype=storage(bits))
    state |= {name: laid_out(*each).view(np.uint8) for name, each in zip("ABC", ((a, of_a), (b, of_b), (blank, out)))}  # noqa: B905
    for index, call in enumerate(sequence):
        run(source(call), state)
        if changed is not None and index == 0:
            for name in ("W0", "W1"):
                state[name] = changed(state[name].view(np.uint16).reshape(-1, 16)).view(np.uint8).ravel()
    return np.asarray(state["C"].view(storage(bits))[places((m, n), out)])


def operands(desc: GEMMDesc, m: int, n: int) -> tuple[Bits, Bits]:
    random = np.random.default_rng(desc.k)
    a, b = random_patterns((m, desc.k), desc.left_dtype, random), random_patterns((desc.k, n), desc.right_dtype, random)
    return a, b


@pytest.mark.parametrize("name", PRODUCTS)
def test_bytes_are_those_of_the_descriptor(name: str) -> None:
    desc, chosen, (m, n), strides = PRODUCTS[name]
    a, b = operands(desc, m, n)
    made = plan(desc)
    assert isinstance(made, MatrixPlan)
    assert (simulated(desc, made, chosen, a, b, strides) == evaluate(desc, a, b)).all()


@pytest.mark.parametrize(
    "changed",
    [{"short_first": 0}, {"short_first": 16}, {"instruction_k8": False}, {"short_first": 0, "instruction_k8": False}],
    ids=str,
)
def test_another_packing_has_other_bytes(changed: dict[str, Any]) -> None:
    """The short iteration last, another first iteration, and instructions of another k."""
    desc = matrix(123, MMA_K8, FIRST.format(32), out="fp32")
    a, b = operands(desc, 20, 36)
    made = plan(desc)
    assert isinstance(made, MatrixPlan)
    wanted = evaluate(desc, a, b)
    assert (simulated(desc, made, TMA, a, b) == wanted).all()
    assert (simulated(desc, replace(made, **changed), TMA, a, b) != wanted).any()


def _swap_groups(packed: Bits) -> Bits:
    return packed.reshape(-1, 2, 16)[:, ::-1].copy()


def _merge_groups(packed: Bits) -> Bits:
    """Move the values of every second group into the zeros of the one before."""
    pairs = packed.reshape(-1, 2, 2, 8)
    return np.stack([pairs[:, :, 0], np.zeros_like(pairs[:, :, 0])], axis=1)


@pytest.mark.parametrize("changed", [_swap_groups, _merge_groups])
@pytest.mark.parametrize("chosen", [TMA, CONSUMERS], ids=str)
def test_values_in_other_groups_have_other_bytes(changed: Callable[[Bits], Bits], chosen: Schedule) -> None:
    desc = matrix(123, MMA_K8, FIRST.format(32), out="fp32")
    a, b = operands(desc, 20, 36)
    made = plan(desc)
    assert isinstance(made, MatrixPlan)
    assert (simulated(desc, made, chosen, a, b, changed=changed) != evaluate(desc, a, b)).any()


MAPPED = {"A": (1, 40), "B": (24, 1)}  # of 40 rows and 24 columns
UNMAPPED = {"A": (1, 41), "B": (25, 1)}


@pytest.mark.parametrize("chosen", [TMA, CONSUMERS, replace(CONSUMERS, transposed=True)], ids=str)
@pytest.mark.parametrize("packed", ["A", "B", "AB", ""])
def test_an_operand_that_the_product_can_take_is_not_packed(packed: str, chosen: Schedule) -> None:
    desc = matrix(75, WGMMA, out="fp32")
    made = plan(desc)
    assert isinstance(made, MatrixPlan)
    strides = [(UNMAPPED if name in packed else MAPPED)[name] for name in "AB"]
    a, b = operands(desc, 40, 24)
    sequence, state = calls(made, chosen, (40, 24), (*strides, (24, 1)), "fp16", "fp16", "fp32")
    assert len(sequence) == 1 + bool(packed)
    assert [len(each) for each in state.values()] == [{"A": 40, "B": 24}[name] * 128 * 2 for name in packed]
    found = simulated(desc, made, chosen, a, b, operand_strides=(strides[0], strides[1]))
    assert (found == evaluate(desc, a, b)).all()


def test_an_unaligned_operand_and_one_of_another_order_are_packed() -> None:
    strides = ((72, 1), (24, 1), (24, 1))
    for made, address, count in (
        (plan(matrix(72, WGMMA)), 0, 0), (plan(matrix(72, WGMMA)), 2, 1), (plan(matrix(72, MMA_K8)), 0, 2),
        (plan(matrix(72, MMA, FIRST.format(32))), 0, 2), (plan(matrix(72, WGMMA, "k_cuts=[cut(span=64)]")), 0, 0),
        (plan(matrix(72, WGMMA, "k_cuts=[cut(span=48)]")), 0, 2),
    ):  # fmt: skip
        assert isinstance(made, MatrixPlan)
        _, state = calls(made, TMA, (40, 24), strides, "fp16", "fp16", "fp16", address=address)
        assert len(state) - (made.slices.number > 1) == count


def test_values_after_the_last_k_are_not_multiplied() -> None:
    """The matrix of a product with dropped k holds infinities after the last one; one operand is packed."""
    desc = matrix(75, WGMMA, "k_dropped=3", out="fp32")
    made = plan(desc)
    assert isinstance(made, MatrixPlan)
    a, b = operands(desc, 40, 24)
    a[:, 72:], b[72:] = 0x7C00, 0x7C00
    wanted = evaluate(desc, a, b)
    for chosen in (TMA, CONSUMERS):
        for strides in ((MAPPED["A"], UNMAPPED["B"]), (UNMAPPED["A"], MAPPED["B"]), (UNMAPPED["A"], UNMAPPED["B"])):
            assert (simulated(desc, made, chosen, a, b, operand_strides=strides) == wanted).all()


def test_a_product_packs_then_multiplies_then_adds_slices() -> None:
    desc = matrix(300, MMA_K8, f"{FIRST.format(32)} k_cuts=[cut(span=104)]")
    made = plan(desc)
    assert isinstance(made, MatrixPlan)
    sequence, state = calls(made, TMA, (17, 9), ((300, 1), (9, 1), (9, 1)), "fp16", "fp16", "fp16")
    assert [each.kernel.__name__ for each in sequence] == ["pack", "tma_product", "merge"]
    assert packed_plan(made) == MatrixPlan(3 * 256, Slices(3, 256), 0, False, 0)
    # Lines of sums are aligned to pairs.
    assert [len(each) for each in state.values()] == [17 * 768 * 2, 9 * 768 * 2, 3 * 17 * 10 * 4]
    assert sequence[0].grid == (2 * 12,)


@pytest.mark.parametrize("layouts", [("rows", "columns"), ("columns", "rows")])
def test_packing_waits_before_it_accesses_memory_and_stores_whole_vectors(layouts: tuple[str, str]) -> None:
    made = MatrixPlan(1024, Slices(1, 1024), 32, True, 0)
    of_a, of_b = LAYOUTS[layouts[0]](512, 1024), LAYOUTS[layouts[1]](512, 1024)
    (call, *_), _ = calls(made, TMA, (512, 512), (of_a, of_b[::-1], (512, 1)), "fp16", "fp16", "fp16")
    assert call.options["launch_pdl"] == 1
    text = compiled_kernel(call).assembly
    (wait,) = (place.start() for place in re.finditer(r"griddepcontrol\.wait", text))
    (start,) = (place.start() for place in re.finditer(r"griddepcontrol\.launch_dependents", text))
    first = min(place.start() for place in re.finditer(r"\b(ld|st|cp|red|atom)\.(?!param)\S", text))
    assert wait < start < first
    stores = re.findall(r"st\.global\.(\S+)", text)
    assert stores
    assert set(stores) == {"v4.b32"}


@pytest.mark.parametrize(
    ("desc", "chosen", "why"),
    [
        (matrix(107, MMA, FIRST.format(32)), replace(TMA, tma=False), "packed operands need tensor maps"),
        (
            matrix(432, "family=wgmma k=32", "k_cuts=[cut(span=128)]", "e4m3", "bf16"), replace(TMA, block_k=128),
            "only operands of 16 bits are packed",
        ),
        (matrix(300, MMA_K8, f"{FIRST.format(32)} k_cuts=[cut(span=90)]"), replace(TMA, block_k=128),
         "a slice of 192 k must be whole iterations"),
        (matrix(107, MMA, FIRST.format(32)), replace(TMA, packed=False), "with tma but not packed"),
    ],
    ids=str,
)  # fmt: skip
def test_schedules_that_do_not_fit_raise(desc: GEMMDesc, chosen: Schedule, why: str) -> None:
    with pytest.raises(UnsupportedGEMM, match=why):
        check(plan(desc), chosen)
