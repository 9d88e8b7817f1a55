"""GEMM kernels, compiled here and simulated on bit patterns: their bytes are those of the descriptor."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from bitwise_core.checker.partition import partition
from bitwise_core.checker.sources import Options
from bitwise_core.descriptors import Cut, GEMMDesc, Instruction, read
from bitwise_core.descriptors.merge_orders import MERGE_ORDERS, Addition, MergeOrder, index_bits
from bitwise_core.numerics import FLOAT_FORMATS, Bits, storage
from bitwise_core.plugins.installed import evaluate
from bitwise_nvidia_sm90.gemm.launch import kernel_calls
from bitwise_nvidia_sm90.gemm.plan import SLICE_ORDERS, UnsupportedGEMM, plan
from bitwise_nvidia_sm90.gemm.schedule import Schedule, fallback
from gemm_products import MMA, MMA_K8, WGMMA, Matrix, captured, compiled, matrix, random_patterns, run, source

GROUPS = "group(count=4) group(count=8)"
WARPS = f"{GROUPS} group(count=2 merge=halves)"
STRIDED_BLOCKS = (
    "cut(layout=strided count=4 tile=128) cut(layout=strided count=8 tile=128) cut(layout=strided count=2 tile=128"
)


def scalar(k: int, cuts: str = "", dtype: str = "fp16") -> GEMMDesc:
    given = f"k_cuts=[{cuts}]" if cuts else ""
    found = read(f"gemm(k={k} left_dtype={dtype} right_dtype={dtype} output_dtype={dtype} path=fma {given})")
    assert isinstance(found, GEMMDesc)
    return found


def single(k: int, rest: str = "") -> GEMMDesc:
    """Return a product of fp32 matrices, by tf32 instructions of the given unit or by fused multiply-adds."""
    path = rest if rest.startswith("path=") else f"path=fma {rest}"
    found = read(f"gemm(k={k} left_dtype=fp32 right_dtype=fp32 output_dtype=fp32 {path})")
    assert isinstance(found, GEMMDesc)
    return found


def tf32(k: int, family: str, rest: str = "") -> GEMMDesc:
    unit = f"instruction=instruction(architecture=sm_90 family={family} k=8) instruction_k=8"
    return single(k, f"path=matrix multiplied_as=tf32 {unit} {rest}")


def simulated(
    desc: GEMMDesc, a: Bits, b: Bits, chosen: Schedule | None, right: str = "C", left: str = "C"
) -> Bits:  # fmt: skip
    """Simulate the kernels that a descriptor launches; return the bit patterns of the output.

    `left` and `right` are the orders in which operands lie in memory: "C" by rows, "F" by columns.
    """
    m, n, k = a.shape[0], b.shape[1], desc.k
    strides = (n, 1) if right == "C" else (1, k)
    left_matrix = Matrix("A", (m, k), (k, 1) if left == "C" else (1, m), desc.left_dtype)
    right_matrix, out = Matrix("B", (k, n), strides, desc.right_dtype), Matrix("C", (m, n), (n, 1), desc.output_dtype)
    size = FLOAT_FORMATS[desc.output_dtype].bits // 8
    state = {
        "A": np.ascontiguousarray(a if left == "C" else a.T).view(np.uint8).ravel(),
        "C": np.full(m * n * size, 0xA5, dtype=np.uint8),
        "B": np.ascontiguousarray(b if right == "C" else b.T).view(np.uint8).ravel(),
    }  # fmt: skip

    def workspace(shape: tuple[int, ...], dtype: str) -> Matrix:
        state["W"] = np.full(int(np.prod(shape)) * FLOAT_FORMATS[dtype].bits // 8, 0x5A, dtype=np.uint8)
        return Matrix("W", shape, (shape[1] * shape[2], shape[2], 1), dtype)

    made = plan(desc)
    for call in kernel_calls(made, chosen or fallback(made, m, n), left_matrix, right_matrix, out, workspace):
        run(source(call), state)
    return state["C"].view(storage(8 * size)).reshape(m, n)


@pytest.mark.parametrize("start", ["first", "zero"])
@pytest.mark.parametrize("kind", ["slices", "lanes", "many slices"])
def test_sums_of_minus_zeros_start_from_the_descriptors_start(kind: str, start: str) -> None:
    pytest.importorskip("triton")
    if kind == "slices":  # each of 48 products of -2^-40, which fp16 rounds to -0
        cut = f"k_cuts=[cut(span=48 start={start} partial_dtype=fp16)]"
        desc, left, right = matrix(169, MMA, f"k_loop_step=64 short_iteration=first {cut}"), 0x8010, 0x0010
    else:  # products of -2^-266, which fp32 rounds to -0
        cut = f"cut(count=4 start={start}) cut(span=33)" if kind == "lanes" else f"cut(count=65 start={start})"
        desc, left, right = scalar(130, cut, "bf16"), 0x8001, 0x0001
    a, b = np.full((8, desc.k), left, dtype=np.uint16), np.full((desc.k, 16), right, dtype=np.uint16)
    found = simulated(desc, a, b, None, "C")
    assert (found == evaluate(desc, a, b)).all()
    assert (found == (0x8000 if start == "first" else 0)).all()


SCALARS = (
    (100, "", 3),
    (3, "cut(layout=strided count=32 merge=halves)", 3),
    (300, "cut(layout=strided count=32 merge=halves)", 3),
    (300, "cut(layout=strided count=2 tile=64 merge=halves)", 3),
    (300, "cut(span=64)", 3),
    (600, "cut(layout=strided count=16) cut(span=16)", 3),
    (430, f"cut(layout=strided count=20 tile=4 groups=[{'group(count=2) ' * 4}])", 3),
    (330, "cut(count=3) cut(layout=strided count=2 tile=55 merge=neighbours)", 3),
    (600, "cut(count=2) cut(span=256)", 3),
    (9100, f"{STRIDED_BLOCKS} merge=halves) cut(layout=strided count=128 merge=halves)", 1),
    (9100, f"cut(layout=strided count=31 tile=128 groups=[{GROUPS}]) cut(layout=strided count=128 merge=halves)", 1),
    (90, f"cut(layout=strided count=33 tile=128 groups=[{WARPS}]) cut(layout=strided count=128 merge=halves)", 1),
)


@pytest.mark.parametrize("start", ["first", "zero"])
@pytest.mark.parametrize(("k", "cuts", "n"), SCALARS)
def test_products_that_underflow_fp32(k: int, cuts: str, n: int, start: str) -> None:
    """Two rows of products below zero, two of both signs, and two of which some are larger."""
    pytest.importorskip("triton")
    if start == "zero":
        cuts = f"cut(count=1 start=zero) {cuts}"
        if cuts.count("cut(count=") > 1:  # one cut of slices at most
            cuts = re.sub(r"^.{24}cut\(count=(\d)", r"cut(count=\1 start=zero", cuts)
    desc = scalar(k, cuts, "bf16")
    random = np.random.default_rng(k)
    rows = [random.choice(np.array(left, np.uint16), (2, k)) for left in ([0x8001], [0x8001, 1], [0x8001, 0x9F80])]
    a, b = np.concatenate(rows), np.full((k, n), 0x0001, dtype=np.uint16)
    found = simulated(desc, a, b, None, "C")
    assert (found == evaluate(desc, a, b)).all()
    assert start == "first" or not found[:2].any()


@pytest.mark.parametrize(("right", "stages"), [("C", 3), ("F", 3), ("C", 2)])
@pytest.mark.parametrize(
    ("k", "cuts", "unroll"),
    [
        (633, "cut(layout=strided count=32 tile=20 merge=halves)", 20),
        (633, "cut(layout=strided count=32 tile=20 merge=halves)", 16),
        (300, "cut(layout=strided count=2 tile=64 merge=halves)", 16),
        (300, "cut(layout=strided count=2 tile=64 merge=halves)", 12),
        (200, "cut(layout=strided count=32 merge=halves)", 4),
        (1115, "cut(layout=strided count=16) cut(span=16)", 8),
        (700, "cut(count=3) cut(layout=strided count=2 tile=55 merge=neighbours)", 18),
        (1200, f"{STRIDED_BLOCKS} merge=halves) cut(layout=strided count=128 merge=halves)", 2),
        (101, "", 16),
    ],
)  # fmt: skip
def test_lanes_return_the_bytes_under_any_unrolling(k: int, cuts: str, unroll: int, right: str, stages: int) -> None:
    """Steps at equal distances or in several tiles, and k after the last one, in both layouts of the right operand."""
    pytest.importorskip("triton")
    desc, random = scalar(k, cuts, "bf16"), np.random.default_rng(k + unroll)
    a, b = random_patterns((1, k), "bf16", random), random_patterns((k, 5), "bf16", random)
    found = simulated(desc, a, b, Schedule(4, block_k=unroll, warps=2, stages=stages), right)
    assert (found == evaluate(desc, a, b)).all()


@pytest.mark.parametrize("slices", [2, 3, 5])
def test_slices_of_fp16_may_be_added_the_last_one_first(slices: int) -> None:
    pytest.importorskip("triton")
    span = 64
    cut = f"k_cuts=[cut(span={span} partial_dtype=fp16 merge_dtype=fp16 merge=chain-down)]"
    desc = matrix(span * slices - 16, WGMMA, f"accumulator_dtype=fp16 {cut}")
    random = np.random.default_rng(slices)
    a, b = (random.standard_normal(shape).astype(np.float16).view(np.uint16) for shape in ((24, desc.k), (desc.k, 40)))
    found = simulated(desc, a, b, None)
    assert (found == evaluate(desc, a, b)).all()
    ascending = desc.model_copy(update={"k_cuts": (desc.k_cuts[0].model_copy(update={"merge": "chain"}),)})
    assert (found != evaluate(ascending, a, b)).any() == (slices > 2)
    with pytest.raises(UnsupportedGEMM, match="added one after the other"):
        plan(matrix(256, WGMMA, "k_cuts=[cut(span=64 merge=chain-down)]"))


@pytest.mark.parametrize(
    ("k", "cuts"),
    [
        (23, ""), (45, "cut(count=1 start=zero)"), (150, "cut(count=2 start=zero) cut(span=16)"),
        (83, "cut(count=1 start=zero) cut(layout=strided count=8) cut(span=4)"),
        (70, "cut(layout=strided count=4 tile=3)"), (50, "cut(count=4)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("values", ["numbers", "subnormal"])
def test_lanes_of_fp16_accumulate_in_it(k: int, cuts: str, values: str) -> None:
    """With infinities and NaNs of random patterns, or with products and sums below the normal numbers of fp16."""
    pytest.importorskip("triton")
    cuts = cuts.replace("cut(", "cut(partial_dtype=fp16 merge_dtype=fp16 ")
    desc = read(
        f"gemm(k={k} left_dtype=fp16 right_dtype=fp16 output_dtype=fp16 accumulator_dtype=fp16 path=fma "
        f"k_cuts=[{cuts}])"
    )
    assert isinstance(desc, GEMMDesc)
    random = np.random.default_rng(k)
    if values == "numbers":
        a, b = random_patterns((3, k), "fp16", random), random_patterns((k, 5), "fp16", random)
    else:
        a, b = (
            (random.standard_normal(shape) * 2.0**exponent).astype(np.float16).view(np.uint16)
            for shape, exponent in (((3, k), -8), ((k, 5), -12))
        )
    found = simulated(desc, a, b, None)
    assert (found == evaluate(desc, a, b)).all()
    in_fp32 = desc.to_text().replace("=fp16 merge_dtype=fp16", "=fp32 merge_dtype=fp32")
    other = read(in_fp32.replace("accumulator_dtype=fp16 ", ""))
    assert isinstance(other, GEMMDesc)
    assert (found != evaluate(other, a, b)).any()


@pytest.mark.parametrize(
    ("m", "n", "k", "cuts", "unroll"),
    [
        (1, 9, 150, "cut(layout=strided count=4 tile=8 merge=halves) cut(span=16)", 4),
        (1, 10, 83, "cut(layout=strided count=8 tile=10 merge=halves)", 5),
        (11, 1, 135, "cut(layout=strided count=8) cut(span=8)", 4),
        (1, 13, 61, "", 8),
        (1, 8, 64, "cut(layout=strided count=2 tile=16 merge=halves)", 8),
    ],
)  # fmt: skip
def test_neighbours_that_are_loaded_at_once_have_the_bytes(m: int, n: int, k: int, cuts: str, unroll: int) -> None:
    """Of a row and of a column, with lines of every alignment, and with a last k whose line ends the matrix."""
    pytest.importorskip("triton")
    desc, random = scalar(k, cuts, "bf16"), np.random.default_rng(k + unroll)
    a, b = random_patterns((m, k), "bf16", random), random_patterns((k, n), "bf16", random)
    found = simulated(desc, a, b, Schedule(8, block_k=unroll, warps=1, wide=True), "C", left="F")
    assert (found == evaluate(desc, a, b)).all()


@pytest.mark.parametrize("neighbours", [64, 32, 16])
@pytest.mark.parametrize(
    ("m", "n", "k", "cuts", "rows", "dtype"),
    [
        (1, 70, 300, "cut(layout=strided count=32 tile=8 merge=halves)", 8, "bf16"),
        (1, 9, 150, "cut(layout=strided count=4 tile=8 merge=halves)", 8, "bf16"),
        (1, 67, 300, "cut(layout=strided count=8 tile=16 merge=halves)", 16, "fp16"),
        (1, 64, 131, "cut(count=1 start=zero) cut(layout=strided count=4 tile=16 merge=halves)", 8, "bf16"),
        (1, 129, 83, "cut(layout=strided count=4 merge=halves)", 4, "bf16"),
        (11, 1, 135, "cut(layout=strided count=8)", 4, "fp16"),
        (1, 5, 77, "cut(count=2 start=zero) cut(layout=strided count=2 tile=16 merge=halves)", 8, "bf16"),
        (1, 7, 50, "cut(layout=strided count=3 tile=4 groups=[group(count=2)])", 4, "bf16"),
        (1, 3, 5, "cut(layout=strided count=2 tile=8 merge=halves)", 8, "bf16"),
        (1, 39, 140, "cut(layout=strided count=4 tile=15 merge=halves)", 15, "bf16"),
    ],
)  # fmt: skip
def test_warps_with_a_lane_each_have_the_bytes(
    m: int, n: int, k: int, cuts: str, rows: int, dtype: str, neighbours: int
) -> None:
    """Of a row and of a column, with lines of every alignment, lanes without k, batches and rests, and slices."""
    if cuts.startswith("cut(count=2"):
        pytest.importorskip("triton")  # the kernel that adds slices
    desc, random = scalar(k, cuts, dtype), np.random.default_rng(k + rows)
    a, b = random_patterns((m, k), dtype, random), random_patterns((k, n), dtype, random)
    chosen = Schedule(neighbours, block_k=rows, lane_rows=True)
    assert (simulated(desc, a, b, chosen, "C", left="F") == evaluate(desc, a, b)).all()


@pytest.mark.parametrize(
    ("m", "n", "k", "cuts", "right", "dtype", "chosen"),
    [
        (5, 7, 300, "cut(layout=strided count=16) cut(span=16)", "F", "bf16", Schedule(4, block_k=16, warps=2)),
        (3, 19, 97, "cut(count=1 start=zero) cut(layout=strided count=8 merge=halves)", "C", "fp16",
         Schedule(16, block_k=4, warps=2)),
        (21, 2, 256, "cut(layout=strided count=16) cut(span=8)", "C", "bf16", Schedule(8, block_k=8, warps=2)),
        (1, 21, 600, "cut(layout=strided count=16) cut(span=32)", "F", "bf16", Schedule(8, block_k=32, warps=4)),
        (1, 9, 150, "cut(layout=strided count=32 merge=halves)", "F", "fp16", Schedule(4, block_k=4, warps=2)),
        (9, 3, 31, "cut(layout=strided count=4) cut(span=16)", "F", "fp16", Schedule(8, block_k=16, warps=1)),
        (16, 17, 64, "cut(layout=strided count=2 merge=halves) cut(span=16)", "F", "bf16",
         Schedule(32, block_k=16, warps=1)),
        (8, 35, 331, "cut(count=4 start=zero) cut(span=32)", "C", "bf16", Schedule(32, block_k=8, warps=4)),
        (3, 19, 90, "cut(count=4) cut(span=16)", "C", "fp16", Schedule(16, block_k=16, warps=2)),
        (5, 40, 163, "cut(count=16 merge=halves)", "C", "bf16", Schedule(32, block_k=4, warps=4)),
        (4, 9, 23, "cut(count=8) cut(span=8)", "C", "fp16", Schedule(8, block_k=4, warps=2)),
    ],
)  # fmt: skip
def test_threads_with_all_of_few_rows_have_the_bytes(
    m: int, n: int, k: int, cuts: str, right: str, dtype: str, chosen: Schedule
) -> None:
    """Of few rows and few columns, with whole tiles of k and parts, and values that underflow."""
    desc, random = scalar(k, cuts, dtype), np.random.default_rng(k)
    a, b = random_patterns((m, k), dtype, random), random_patterns((k, n), dtype, random)
    a[0, ::3], b[::3, 0] = 0x8001, 0x0001
    assert (simulated(desc, a, b, replace(chosen, few_rows=True), right) == evaluate(desc, a, b)).all()


@pytest.mark.parametrize("lanes", ["cut(layout=strided count=4)", "cut(count=4 start=zero)"], ids=["turns", "ranges"])
def test_kernels_of_few_rows_are_in_the_class_of_the_kernel_of_lanes(lanes: str) -> None:
    pytest.importorskip("triton")
    sources = []
    for span in (16, 8):
        desc = scalar(149, f"{lanes} cut(span={span})", "bf16")
        line = (21, 1) if "start" in lanes else (1, 151)  # the columns of one k, or the k of one column
        a, b, c = (Matrix(name, shape, strides, "bf16") for name, shape, strides in (
            ("A", (3, 149), (149, 1)), ("B", (149, 21), line), ("C", (3, 21), (21, 1)),
        ))  # fmt: skip
        blocks = ((32, span, 4), (16, 8, 2)) if line[1] == 1 else ((16, span, 1), (8, span, 1))
        chosen = [Schedule(block, block_k=steps, warps=each, few_rows=True) for block, steps, each in blocks]
        for each in [*chosen, Schedule(8, block_k=8, warps=1)]:
            (call,) = kernel_calls(plan(desc), each, a, b, c, lambda *_: None)
            sources.append(replace(source(call), name=f"{len(sources)} {each}"))
    found = partition(sources, "sm_90", Options(audit_contraction=False), workers=1)
    assert not found.unknown
    assert sorted(map(len, found.classes)) == [3, 3]


@pytest.mark.parametrize(
    ("m", "n", "k", "cuts", "right", "chosen"),
    [
        (5, 7, 300, "cut(layout=strided count=16) cut(span=16)", "F", Schedule(2, 4, 8, warps=1)),
        (3, 9, 83, "cut(layout=strided count=8 tile=10 merge=halves)", "C", Schedule(4, 4, 5, warps=2, stages=2)),
        (4, 5, 130, "cut(count=2) cut(layout=strided count=4 tile=4)", "F", Schedule(4, 2, 4, warps=1)),
    ],
)
def test_rows_that_share_loads_have_the_bytes(
    m: int, n: int, k: int, cuts: str, right: str, chosen: Schedule
) -> None:  # fmt: skip
    pytest.importorskip("triton")
    desc, random = scalar(k, cuts, "bf16"), np.random.default_rng(k)
    a, b = random_patterns((m, k), "bf16", random), random_patterns((k, n), "bf16", random)
    assert (simulated(desc, a, b, chosen, right) == evaluate(desc, a, b)).all()


@pytest.mark.parametrize("chosen", [Schedule(64, 16, 64), Schedule(64, 16, 64, tma=True)], ids=str)
@pytest.mark.parametrize("start", ["first", "zero"])
def test_a_single_slice_starts_from_the_descriptors_start(start: str, chosen: Schedule) -> None:
    pytest.importorskip("triton")
    desc = matrix(48, WGMMA, f"k_cuts=[cut(span=64 start={start} partial_dtype=fp16)]")
    a, b = np.full((8, 48), 0x8010, dtype=np.uint16), np.full((48, 16), 0x0010, dtype=np.uint16)
    found = simulated(desc, a, b, chosen, "C")
    assert (found == evaluate(desc, a, b)).all()
    assert (found == (0x8000 if start == "first" else 0)).all()


@pytest.mark.parametrize(
    ("desc", "m", "n", "chosen"),
    [
        (matrix(200, WGMMA), 64, 16, None),
        (matrix(200, WGMMA, dtype="bf16", out="fp32"), 20, 24, Schedule(64, 32, 32, 4, 4, 4)),
        (matrix(200, WGMMA), 20, 24, Schedule(16, 32, 128, 1, 2, 2)),
        (matrix(520, WGMMA, "k_cuts=[cut(span=128)] k_dropped=8"), 16, 16, None),
        (matrix(200, WGMMA), 130, 24, Schedule(64, 32, 64, 8, 4, 3, 2, True)),
        (matrix(520, WGMMA, "k_cuts=[cut(span=128)] k_dropped=8"), 64, 16, Schedule(64, 16, 64, 8, 4, 3, 3, True)),
        (
            matrix(432, "family=wgmma k=32", "k_cuts=[cut(span=256) cut(span=128)]", "e4m3", "bf16"),
            5, 32, Schedule(64, 32, 128, 8, 4, 3, 2, True),
        ),
        (matrix(200, WGMMA), 24, 136, Schedule(64, 32, 64, 8, 4, 3, 0, True, True)),
        (matrix(40, WGMMA, out="fp32"), 72, 88, Schedule(64, 32, 64, 8, 4, 2, 0, True, False, 2)),
        (
            matrix(520, WGMMA, "k_cuts=[cut(span=128)] k_dropped=8"),
            16, 72, Schedule(64, 16, 64, 8, 4, 3, 3, True, True),
        ),
        (matrix(200, WGMMA), 20, 24, Schedule(16, 32, 64, 1, 2, 3, 0, True)),
        (
            matrix(432, "family=wgmma k=32", "k_cuts=[cut(span=256) cut(span=128)]", "e4m3", "bf16"),
            24, 96, Schedule(64, 32, 128, 8, 4, 3, 0, True, True),
        ),
        (matrix(107, MMA_K8, "k_loop_step=32 short_iteration=first"), 16, 16, None),
        (matrix(169, MMA, "k_loop_step=64 short_iteration=first", "bf16"), 16, 16, None),
        (
            matrix(
                300, MMA_K8, "k_loop_step=32 short_iteration=first k_cuts=[cut(span=104 partial_dtype=bf16)]", "bf16"
            ),
            17, 9, None,
        ),
        (matrix(300, MMA, "k_loop_step=64 short_iteration=first k_cuts=[cut(span=104 merge_dtype=fp16)]"), 17, 9, None),
        (matrix(432, "family=wgmma k=32", "k_cuts=[cut(span=256) cut(span=128)]", "e4m3", "bf16"), 5, 32, None),
        (matrix(432, "family=wgmma k=32", "", "e4m3", "bf16"), 5, 32, None),
        (
            matrix(432, "family=wgmma k=32", "k_cuts=[cut(span=256)]", "e4m3", "fp32"),
            5, 32, Schedule(64, 32, 128, 8, 4, 3, 2, True),
        ),
        (matrix(520, WGMMA, "k_cuts=[cut(span=128)]"), 1, 1, None),
        (
            matrix(300, MMA, "k_loop_step=64 short_iteration=first "
                             "k_cuts=[cut(span=104 partial_dtype=fp16 start=zero)]", out="fp32"),
            17, 9, None,
        ),
        # Accumulators of fp16, on both units, with a short iteration first, and slices of that type.
        (matrix(200, WGMMA, "accumulator_dtype=fp16"), 64, 16, None),
        (matrix(169, MMA, "accumulator_dtype=fp16 k_loop_step=64 short_iteration=first"), 20, 24, None),
        (matrix(107, MMA_K8, "accumulator_dtype=fp16 k_loop_step=32 short_iteration=first"), 16, 16, None),
        (
            matrix(300, MMA, "accumulator_dtype=fp16 k_loop_step=64 short_iteration=first "
                             "k_cuts=[cut(span=104 partial_dtype=fp16 merge_dtype=fp16)]"),
            17, 9, Schedule(32, 32, 64, 8, 2, 4),
        ),
        (scalar(300, "cut(layout=strided count=32 merge=halves)"), 1, 12, None),
        (scalar(300, "cut(layout=strided count=2 tile=64 merge=halves)", "bf16"), 1, 12, Schedule(16, 1, 3)),
        (scalar(600, "cut(layout=strided count=16) cut(span=16)"), 1, 5, None),
        *(
            (scalar(430, f"cut(layout=strided count={lanes} tile=4 groups=[{'group(count=2) ' * halved}])"), 1, 9, None)
            for lanes, halved in ((26, 4), (20, 4), (17, 4), (12, 3), (10, 3), (6, 2), (3, 1))
        ),
        (scalar(600, "cut(count=1 start=zero) cut(layout=strided count=16) cut(span=16)"), 1, 9,
         Schedule(8, block_k=16, warps=4)),
        (scalar(600, "cut(layout=strided count=16) cut(span=16)", "bf16"), 5, 1, Schedule(2, block_k=8, warps=1)),
        (scalar(333, "cut(layout=strided count=6 tile=4 groups=[group(count=2) group(count=2)])"), 3, 3,
         Schedule(4, block_k=16, warps=1)),
        (scalar(330, "cut(count=3) cut(layout=strided count=2 tile=55 merge=neighbours)"), 12, 1, None),
        (scalar(330, "cut(count=55) cut(layout=strided count=4 tile=3 merge=halves)"), 12, 1, None),
        (scalar(300, "cut(count=32) cut(span=16)"), 1, 5, None),
        (scalar(600, "cut(count=2) cut(span=256)", "bf16"), 5, 3, None),
        (scalar(600, "cut(count=4 start=zero) cut(span=128)", "bf16"), 5, 3, None),
        (scalar(30), 6, 3, None),
        (single(37), 20, 24, None),
        (single(37, "k_cuts=[cut(count=1 start=zero)]"), 20, 24, Schedule(32, 16, 32)),
        (single(37, "accumulator_start=negative-zero"), 20, 24, None),
        (single(75, "k_cuts=[cut(count=1 start=zero) cut(span=32)]"), 20, 24, None),
        (single(75, "k_cuts=[cut(count=1 start=zero) cut(layout=strided count=3 tile=8)]"), 5, 70, None),
        *(
            (single(90, f"k_cuts=[cut(count=1 start=zero) cut(layout=strided count={count} tile=8 merge=paired)]"),
             5, 7, None)
            for count in (2, 3, 4, 5, 8, 13)
        ),
        (single(20, "k_cuts=[cut(layout=strided count=4 tile=8)]"), 5, 7, None),
        (single(90, "k_cuts=[cut(count=7 start=zero tile=16) cut(layout=strided count=4 merge=halves)]"), 1, 9, None),
        (tf32(45, "wgmma"), 64, 24, None),
        (tf32(45, "mma.sync", "k_loop_step=32 short_iteration=first"), 20, 24, None),
        (tf32(77, "mma.sync", "k_loop_step=16 short_iteration=first k_cuts=[cut(span=40)]"), 20, 24, None),
        (tf32(75, "wgmma", "k_cuts=[cut(layout=strided count=2 tile=32)]"), 64, 24, None),
        (tf32(203, "wgmma", "k_cuts=[cut(layout=strided count=3 tile=64 merge=paired)]"), 64, 24, None),
        (tf32(75, "wgmma", "k_cuts=[cut(layout=strided count=3 tile=16)]"), 64, 24, None),
        (scalar(9100, f"{STRIDED_BLOCKS} merge=halves) cut(layout=strided count=128 merge=halves)"), 1, 2, None),
        (
            scalar(9100, f"cut(layout=strided count=31 tile=128 groups=[{GROUPS}]) "
                         "cut(layout=strided count=128 merge=halves)"),
            1, 2, None,
        ),
        (
            scalar(40900, f"cut(layout=strided count=132 tile=256 groups=[{WARPS} group(count=2 merge=halves)]) "
                          "cut(layout=strided count=128 tile=2 merge=halves) cut(layout=strided count=2)"),
            1, 1, None,
        ),
        (
            scalar(90, f"cut(layout=strided count=33 tile=128 groups=[{WARPS}]) "
                       "cut(layout=strided count=128 merge=halves)"),
            2, 1, None,
        ),
    ],
    ids=str,
)  # fmt: skip
def test_bytes_are_those_of_the_descriptor(desc: GEMMDesc, m: int, n: int, chosen: Schedule | None) -> None:
    pytest.importorskip("triton")
    random = np.random.default_rng(desc.k)
    a, b = random_patterns((m, desc.k), desc.left_dtype, random), random_patterns((desc.k, n), desc.right_dtype, random)
    found = simulated(desc, a, b, chosen, "F" if desc.left_dtype == "e4m3" else "C")
    assert (found == evaluate(desc, a, b)).all()


@pytest.mark.parametrize("start", ["first", "zero"])
@pytest.mark.parametrize("cuts", ["", "cut(span=16)", "cut(layout=strided count=2 tile=8)"])
def test_sums_of_fp32_products_that_underflow(cuts: str, start: str) -> None:
    pytest.importorskip("triton")
    outer = "cut(count=1 start=zero)" if start == "zero" else ""
    desc = single(27, f"k_cuts=[{outer} {cuts}]" if outer or cuts else "")
    a, b = np.full((5, 27), -1e-30, np.float32), np.full((27, 6), 1e-30, np.float32)
    a[1::2, 3:9], b[20:] = -0.0, 0.0
    found = simulated(desc, a.view(np.uint32), b.view(np.uint32), None)
    assert (found == evaluate(desc, a.view(np.uint32), b.view(np.uint32))).all()
    assert (found == (0 if start == "zero" else 0x80000000)).all()


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_a_sum_from_minus_zero_keeps_the_sign_of_zero_products(dtype: str, k: int) -> None:
    pytest.importorskip("triton")
    desc = single(k, "accumulator_start=negative-zero").model_copy(
        update={"left_dtype": dtype, "right_dtype": dtype, "output_dtype": dtype}
    )
    bits = FLOAT_FORMATS[dtype].bits
    zero, minus = 0, 1 << bits - 1
    one = {"fp32": 0x3F800000, "fp16": 0x3C00, "bf16": 0x3F80}[dtype]
    a, b = np.full((5, k), minus, storage(bits)), np.full((k, 6), one, storage(bits))
    a[1::2], b[:, 3:] = zero, one | minus
    found = simulated(desc, a, b, None)
    assert (found == evaluate(desc, a, b)).all()
    assert (found == (a[:, :1] ^ b[:1]) & minus).all()


def test_operands_of_tf32_are_rounded_to_nearest_even() -> None:
    pytest.importorskip("triton")
    # Halves above even and odd fractions, a carry into the exponent, an infinity, and NaNs with any payload.
    rows = [0x3F801000, 0x3F803000, 0x3F801001, 0x3FFFF000, 0x00001000, 0x7F7FF000, 0x7F800000, 0x7F800001, 0xFFFFFFFF]
    a, b = np.zeros((9, 16), np.uint32), np.zeros((16, 16), np.uint32)
    a[:, 0], b[0] = rows, 0x3F800000
    desc = tf32(16, "wgmma")
    found, expected = simulated(desc, a, b, None), evaluate(desc, a, b)
    assert (found[:7] == expected[:7]).all()
    assert found[:7, 0].tolist() == [
        0x3F800000, 0x3F804000, 0x3F802000, 0x40000000, 0, 0x7F800000, 0x7F800000,
    ]  # fmt: skip
    assert np.isnan(found[7:].view(np.float32)).all()
    assert np.isnan(expected[7:].view(np.float32)).all()


@pytest.mark.parametrize(
    ("why", "desc"),
    [
        ("convert them to tf32 or not at all", matrix(64, WGMMA, "multiplied_as=fp32", "bf16")),
        ("2 cuts of k on a matrix unit", tf32(64, "wgmma", "k_cuts=[cut(span=32) cut(span=16)]")),
        ("distribute tiles of k to slices", tf32(64, "wgmma", "k_cuts=[cut(layout=strided count=2 merge=halves)]")),
        ("these kernels take 16, 32 and 64 on tf32", tf32(64, "mma.sync", "k_loop_step=8 short_iteration=first")),
        ("add their accumulator", tf32(64, "wgmma", "use_fast_accum=false")),
        ("accumulators of 64 k", matrix(
            512, "family=wgmma k=32", "k_cuts=[cut(span=256) cut(span=64)]", dtype="e4m3", out="bf16")),
        ("a scale", matrix(64, WGMMA, "alpha=2.0")),
        ("output_satfinite", matrix(64, WGMMA, "output_satfinite=true")),
        (
            "a tail outside of the cuts",
            matrix(64, WGMMA, "k_cuts=[cut(count=2 tile=16)] tail=tail(length=8 shares=[share(part=1)])"),
        ),
        ("use_fast_accum", matrix(64, WGMMA, "use_fast_accum=false")),
        ("64 lanes", scalar(640, "cut(layout=strided count=64)")),
        ("parts in groups", scalar(640, "cut(layout=strided count=26 groups=[group(count=2)])")),
        ("empty slices", scalar(64, "cut(count=33 tile=4) cut(layout=strided count=4)")),
        ("path mul_add", GEMMDesc(k=8, left_dtype="fp16", right_dtype="fp16", output_dtype="fp16", path="mul_add")),
        (
            "wgmma and mma.sync of sm_90",
            GEMMDesc(
                k=64, left_dtype="fp16", right_dtype="fp16", output_dtype="fp16", path="matrix", instruction_k=16,
                instruction=Instruction(architecture="sm_100", family="tcgen05", k=16),
            ),
        ),
        ("slices", matrix(512, WGMMA, "k_cuts=[cut(layout=strided count=2 tile=64)]")),
    ],
)  # fmt: skip
def test_unsupported_descriptors_raise(why: str, desc: GEMMDesc) -> None:
    with pytest.raises(UnsupportedGEMM, match=why):
        plan(desc)


def _middle_first(count: int) -> list[Addition]:
    """Return rounds over the bits of the lane index: from bit 1 upwards, bit 0 last."""
    found, left, bits = [], list(range(count)), (count - 1).bit_length()
    for bit in (*range(1, bits), 0)[:bits]:
        left = [part for part in left if not part >> bit & 1]
        found += [(part, part + (1 << bit)) for part in left]
    return found


def _outside_in(count: int) -> list[Addition]:
    return [(part, count - 1 - part) for part in range(count // 2)] + [(0, part) for part in range(1, (count + 1) // 2)]


ADDED = (
    MergeOrder("odd-last", "one after the other, the odd ones last",
               lambda count: [(0, part) for part in (*range(2, count, 2), *range(1, count, 2))]),
    MergeOrder("middle-first", "in rounds, the middle bit first", _middle_first, "a balanced tree", True),
    MergeOrder("outside-in", "in pairs from both ends", _outside_in, "pairs in a chain"),
)  # fmt: skip


def test_every_merge_order_of_lanes_is_simulated_or_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    for order in ADDED:
        monkeypatch.setitem(MERGE_ORDERS, order.name, order)
    random = np.random.default_rng(8)
    a, b = random_patterns((2, 300), "fp16", random), random_patterns((300, 3), "fp16", random)
    found = {}
    for name, order in MERGE_ORDERS.items():
        cut = f"cut(layout=strided count=8 tile=4 merge={name})"
        desc = scalar(300, cut).model_copy(update={"output_dtype": "fp32"})
        if order.running_sum or index_bits(order, 8):
            found[name] = simulated(desc, a, b, None).tobytes()
            assert found[name] == evaluate(desc, a, b).tobytes()
        else:
            with pytest.raises(
                UnsupportedGEMM, match=f"^lanes added {order.words}: these kernels add them one after the other"
            ):
                plan(desc)
    assert MERGE_ORDERS.keys() - found.keys() == {"outside-in", "paired"}
    assert len(set(found.values())) == len(found)


def test_every_merge_order_of_slices_is_planned_or_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    for order in ADDED:
        monkeypatch.setitem(MERGE_ORDERS, order.name, order)
    for name in MERGE_ORDERS:
        desc = matrix(512, WGMMA, f"k_cuts=[cut(count=4 tile=16 merge={name})]")
        if name in SLICE_ORDERS:
            assert plan(desc).slices.number == 4
        else:
            with pytest.raises(UnsupportedGEMM, match=r"the last one short, added one after the other$"):
                plan(desc)


def test_a_schedule_that_would_change_bits_raises() -> None:
    def workspace(shape: tuple[int, ...], dtype: str) -> Matrix:
        raise AssertionError(shape, dtype)

    desc = matrix(256, "family=wgmma k=32", "k_cuts=[cut(span=128)]", "e4m3", "bf16")
    sides = [Matrix(name, (64, 64), (64, 1), "e4m3") for name in "ABC"]
    for chosen in (
        Schedule(32, 64, 128), Schedule(64, 64, 64), Schedule(64, 64, 128, warps=2), Schedule(64, 8, 128),
        Schedule(64, 16, 128, warps=8),
    ):  # fmt: skip
        with pytest.raises(UnsupportedGEMM, match="fp8 needs iterations of 128 k"):
            kernel_calls(plan(desc), chosen, *sides, workspace)
    first = matrix(107, MMA, "k_loop_step=32 short_iteration=first")
    with pytest.raises(UnsupportedGEMM, match="divides the iteration of 32 k that runs first"):
        kernel_calls(plan(first), Schedule(64, 64, 64), *sides, workspace)


def test_cuts_that_start_accumulators_are_given_by_their_span() -> None:
    assert plan(scalar(600, "cut(span=512)")) == plan(GEMMDesc(**{**vars(scalar(600)), "k_cuts": (Cut(span=512),)}))


@pytest.mark.parametrize(
    ("desc", "chosen", "number"),
    [
        (matrix(200, WGMMA), Schedule(64, 32, 64, 8, 4, 3), 1),
        (matrix(200, WGMMA), Schedule(64, 32, 64, 8, 4, 3, 0, True), 1),
        (matrix(200, WGMMA), Schedule(64, 32, 64, 8, 4, 3, 2, True, True), 1),
        (matrix(520, WGMMA, "k_cuts=[cut(span=128)]"), Schedule(64, 32, 64, 8, 4, 3, 0, True), 2),
        (scalar(330, "cut(count=33) cut(layout=strided count=4 tile=3 merge=halves)"), Schedule(8, block_k=8), 2),
        (
            scalar(9100, f"cut(layout=strided count=31 tile=128 groups=[{GROUPS}]) "
                         "cut(layout=strided count=128 merge=halves)"),
            Schedule(4, block_k=8), 2,
        ),
    ],
    ids=str,
)  # fmt: skip
def test_a_dependent_launch_waits_before_it_accesses_memory(desc: GEMMDesc, chosen: Schedule, number: int) -> None:
    pytest.importorskip("triton")
    found = compiled(desc, 128, 64, chosen)
    assert len(found) == number
    for call, made in found:
        assert call.options["launch_pdl"] == 1
        (wait,) = (place.start() for place in re.finditer(r"griddepcontrol\.wait", made.assembly))
        (start,) = (place.start() for place in re.finditer(r"griddepcontrol\.launch_dependents", made.assembly))
        first = min(place.start() for place in re.finditer(r"\b(ld|st|cp|red|atom)\.(?!param)\S", made.assembly))
        assert wait < start < first


def test_schedules_of_one_descriptor_are_one_equivalence_class() -> None:
    pytest.importorskip("triton")
    schedules = (
        Schedule(64, 32, 64, 8, 4, 3), Schedule(64, 64, 32, 4, 4, 4), Schedule(128, 32, 128, 8, 8, 2),
        Schedule(64, 64, 64, 8, 4, 3, 132, True), Schedule(64, 32, 128, 8, 4, 2, 2, True),
        Schedule(64, 32, 64, 8, 4, 3, 0, True, True), Schedule(64, 64, 64, 8, 4, 2, 0, True, False, 2),
    )  # fmt: skip
    sources = [captured(matrix(200, WGMMA), 128, 64, chosen) for chosen in schedules]
    sources.append(captured(matrix(200, MMA_K8, "k_loop_step=32 short_iteration=first"), 128, 64, Schedule(64, 32, 64)))
    found = partition(sources, "sm_90", Options(audit_contraction=False))
    assert not found.unknown
    assert [len(each) for each in found.classes] == [7, 1]


def test_kernels_of_lanes_are_one_equivalence_class() -> None:
    """The kernel whose warps have a lane each and the one of Triton; another one where lanes have other values of k."""
    pytest.importorskip("triton")
    sources = []
    for tile, rows in ((16, 16), (16, 8), (8, 8)):
        desc = scalar(149, f"cut(layout=strided count=4 tile={tile} merge=halves)", "bf16")
        a, b, c = (Matrix(name, shape, (shape[1], 1), "bf16") for name, shape in (
            ("A", (1, 149)), ("B", (149, 67)), ("C", (1, 67)),
        ))  # fmt: skip
        chosen = [Schedule(neighbours, block_k=rows, lane_rows=True) for neighbours in (64, 32, 16)]
        chosen += [Schedule(8, block_k=8, warps=1)] * (rows == 16)
        for each in chosen:
            (call,) = kernel_calls(plan(desc), each, a, b, c, lambda *_: None)
            sources.append(replace(source(call), name=f"{len(sources)} {each}"))
    found = partition(sources, "sm_90", Options(audit_contraction=False), workers=1)
    assert not found.unknown
    assert sorted(map(len, found.classes)) == [3, 7]
