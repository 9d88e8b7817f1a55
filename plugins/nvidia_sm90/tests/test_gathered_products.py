"""Products whose operands are gathered without tensor maps: bytes of the descriptor, classes, races of mutants."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bitwise_core.checker.partition import partition
from bitwise_core.checker.sources import Options, Source
from bitwise_core.descriptors import GEMMDesc
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.numerics import FLOAT_FORMATS, Bits, storage
from bitwise_core.plugins.installed import evaluate
from bitwise_nvidia_sm90.gemm.kernels.text_kernel import TextKernel
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_text import warpgroup_kernel
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import (
    Gathering,
    TileError,
    WarpgroupTiles,
    shared_bytes_of_block,
)
from bitwise_nvidia_sm90.gemm.launch import KernelCall, kernel_calls
from bitwise_nvidia_sm90.gemm.plan import UnsupportedGEMM, plan
from bitwise_nvidia_sm90.gemm.schedule import Schedule, check
from gemm_products import MMA, MMA_K8, WGMMA, Matrix, matrix, random_patterns, run, source


def gathers(block_m: int, block_n: int, stages: int, number: int = 1, **fields: Any) -> Schedule:
    """Return a schedule whose operands are gathered, for `number` consumers."""
    given = {"gathering": 1, "programs": 132, **fields}
    return Schedule(
        block_m, block_n, 64, stages=stages, warps=4 * (number + given["gathering"]), consumers=number, **given
    )


def strides_of(rows: int, k: int, contiguous_k: bool, gap: int) -> tuple[int, int]:
    """Return the strides of an operand along its rows and k, with a gap between its lines."""
    return (k + gap, 1) if contiguous_k else (1, rows + gap)


def calls(
    desc: GEMMDesc, m: int, n: int, chosen: Schedule, layouts: str, gaps: tuple[int, int], address: int = 0
) -> tuple[list[KernelCall], dict[str, tuple[int, int]]]:
    """Return the launches of a product, and the strides of A and B.

    `layouts`: "t" or "n" for A and B, as BLAS names them; `gaps` are those between lines, and `address` that of both.
    """
    k = desc.k
    of_a = strides_of(m, k, layouts[0] == "t", gaps[0])
    of_b = strides_of(n, k, layouts[1] == "n", gaps[1])[::-1]

    def workspace(shape: tuple[int, ...], dtype: str) -> Matrix:
        return Matrix("W", shape, (shape[1] * shape[2], shape[2], 1), dtype)

    left = Matrix("A", (m, k), of_a, desc.left_dtype, address)
    right = Matrix("B", (k, n), of_b, desc.right_dtype, address)
    out = Matrix("C", (m, n), (n, 1), desc.output_dtype)
    return kernel_calls(plan(desc), chosen, left, right, out, workspace), {"A": of_a, "B": of_b}


def laid_out(values: Bits, strides: tuple[int, int]) -> Bits:
    """Return the memory of a matrix with these strides; NaNs fill what is between its values."""
    rows, columns = values.shape
    memory = np.full((rows - 1) * strides[0] + (columns - 1) * strides[1] + 1, 0xFFFF, values.dtype)
    memory[np.arange(rows)[:, None] * strides[0] + np.arange(columns)[None] * strides[1]] = values
    return memory


def product(
    desc: GEMMDesc, m: int, n: int, chosen: Schedule, layouts: str = "tn", gaps: tuple[int, int] = (1, 3),
    address: int = 0,
) -> tuple[Bits, Bits]:  # fmt: skip
    """Return the simulated bit patterns of a product of random operands, and those of the descriptor."""
    random = np.random.default_rng(desc.k)
    a, b = random_patterns((m, desc.k), desc.left_dtype, random), random_patterns((desc.k, n), desc.right_dtype, random)
    a.flat[0], b.flat[-1] = 0x8000, 0x7C00  # -0, and an infinity or a large number
    (first, *rest), strides = calls(desc, m, n, chosen, layouts, gaps, address)
    bits = FLOAT_FORMATS[desc.output_dtype].bits
    state = {
        **{
            name: np.concatenate([np.full(address, 0xFF, np.uint8), laid_out(each, strides[name]).view(np.uint8)])
            for name, each in (("A", a), ("B", b))
        },
        "C": np.full(m * n * bits // 8, 0xA5, dtype=np.uint8),
    }  # fmt: skip
    target = first.arguments["C"]
    if isinstance(target, Matrix) and target.name == "W":
        state["W"] = np.full(int(np.prod(target.shape)) * FLOAT_FORMATS[target.dtype].bits // 8, 0x5A, dtype=np.uint8)
    assert isinstance(first.kernel, TextKernel)
    for each in (first, *rest):
        run(source(each), state)
    return state["C"].view(storage(bits)).reshape(m, n), evaluate(desc, a, b)


FIRST = "k_loop_step={} short_iteration=first"
K8 = matrix(107, MMA_K8, FIRST.format(32), out="fp32")
SLICED = matrix(300, MMA_K8, f"{FIRST.format(32)} k_cuts=[cut(span=104 start=zero partial_dtype=bf16)]", "bf16")
PRODUCTS: dict[str, tuple[Any, ...]] = {
    "plain": (matrix(75, WGMMA), 20, 36, gathers(64, 40, 3)),
    "k 8": (matrix(83, MMA_K8, dtype="bf16", out="fp32"), 68, 20, gathers(64, 24, 2, programs=1)),
    "short first": (matrix(169, MMA, FIRST.format(64), "bf16", "fp32"), 20, 52, gathers(64, 56, 2)),
    "short first, k 8": (K8, 20, 36, gathers(64, 24, 3, programs=1)),
    "less than an instruction": (matrix(5, MMA_K8, FIRST.format(32)), 3, 9, gathers(64, 16, 2)),
    "no short iteration": (matrix(128, MMA, FIRST.format(64)), 9, 17, gathers(64, 24, 2)),
    "slices": (SLICED, 17, 9, gathers(64, 16, 3, programs=1)),
    "slices of whole iterations": (
        matrix(200, MMA, f"{FIRST.format(64)} k_cuts=[cut(span=64)]"), 9, 9, gathers(64, 16, 3, programs=2)
    ),
    "transposed": (K8, 9, 66, gathers(64, 16, 2, transposed=True, programs=1)),
    "transposed slices, rows of the weight": (SLICED, 9, 66, gathers(64, 16, 2, transposed=True, programs=1), "tt"),
    "contiguous rows": (K8, 66, 70, gathers(64, 64, 2, programs=1), "nt"),
    "contiguous rows of two chunks": (K8, 130, 66, gathers(128, 128, 2, 2, programs=1), "nt"),
    "two consumers": (K8, 130, 30, gathers(128, 32, 3, 2)),
    "two gatherers": (K8, 66, 30, gathers(64, 32, 3, gathering=2, programs=1)),
    "two gatherers of slices": (SLICED, 17, 30, gathers(64, 64, 3, gathering=2, programs=2), "nt", (0, 0)),
    "ping-pong": (K8, 130, 30, gathers(64, 32, 3, 2, ping_pong=True, programs=1)),
    "three resident blocks": (K8, 20, 36, gathers(64, 24, 3, resident=3)),
    "pairs": (matrix(106, MMA_K8, FIRST.format(32)), 20, 36, gathers(64, 24, 3), "tn", (2, 4)),
    "pairs of rows": (matrix(107, MMA_K8, FIRST.format(32)), 66, 36, gathers(64, 64, 3), "nt", (0, 2)),
    "one operand by pairs": (matrix(106, MMA_K8, FIRST.format(32)), 20, 36, gathers(64, 24, 3), "tn", (2, 3)),
    "unaligned operands": (matrix(106, MMA_K8, FIRST.format(32)), 20, 36, gathers(64, 24, 3), "tn", (2, 2), 2),
    "unaligned lines": (matrix(112, MMA, FIRST.format(64)), 20, 40, gathers(64, 24, 3), "tn", (0, 0), 14),
    "unaligned rows": (matrix(75, WGMMA), 40, 72, gathers(64, 64, 3), "nt", (0, 8), 6),
    "unaligned odd rows": (SLICED, 17, 65, gathers(64, 64, 3), "nt", (0, 0), 10),
    "values of k that are dropped": (matrix(107, MMA_K8, f"{FIRST.format(32)} k_dropped=3"), 9, 20,
                                     gathers(64, 24, 2)),
    "one row": (matrix(43, MMA, f"{FIRST.format(32)} k_cuts=[cut(span=64 start=zero)]"), 1, 65,
                gathers(64, 8, 2, transposed=True)),
    "a launch alone": (K8, 20, 36, gathers(64, 40, 2, overlap=False)),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_bytes_are_those_of_the_descriptor(name: str) -> None:
    if "slices" in name or "one row" in name:
        pytest.importorskip("triton")
    found, wanted = product(*PRODUCTS[name])
    assert (found == wanted).all()


def made(
    desc: GEMMDesc, m: int, n: int, chosen: Schedule, edits: list[tuple[str, str]] | None = None, layouts: str = "tn",
    address: int = 0,
) -> Source:  # fmt: skip
    """Return the only kernel of a schedule, with a changed text."""
    (call,), _ = calls(desc, m, n, chosen, layouts, (1, 3), address)
    if not isinstance(call.kernel, TextKernel):
        return replace(source(call), name=str(chosen))
    text = call.kernel.text
    for old, new in edits or ():
        assert old in text, old
        text = text.replace(old, new)
    return replace(source(call, text), name=str((chosen, edits)))


def classes(*sources: Source) -> tuple[list[int], int]:
    """Return the sizes of the classes of kernels, and how many are Unknown."""
    found = partition(list(sources), "sm_90", Options(audit_contraction=False), workers=1)
    return [len(each) for each in found.classes], len(found.unknown)


@pytest.mark.parametrize("layouts", ["tn", "nt"])
def test_kernels_of_unaligned_operands_are_one_class(layouts: str) -> None:
    """Whatever the tiles; a kernel that forgets the distance to the aligned address reads other values."""
    desc, wide = matrix(112, MMA, FIRST.format(64)), gathers(64, 64, 3)
    forgets = [("add.u64 %d_first_A, %d_first_A, %d_skew_A;", "")]
    sources = [made(desc, 20, 40, each, layouts=layouts, address=14) for each in (wide, replace(wide, block_m=128))]
    assert classes(*sources) == ([2], 0)
    assert classes(*sources, made(desc, 20, 40, wide, forgets, layouts, 14))[0] == [2, 1]


@pytest.mark.parametrize("desc", [K8, matrix(169, MMA, FIRST.format(64)), matrix(75, WGMMA)], ids=str)
def test_kernels_of_one_descriptor_are_one_class(desc: GEMMDesc) -> None:
    """Triton's kernel, which loads by pointers and multiplies the short iteration first, is in it."""
    pytest.importorskip("triton")
    schedules = (
        gathers(64, 48, 3), gathers(128, 24, 2, 2, gathering=2), gathers(64, 32, 3, 2, ping_pong=True, programs=1),
        gathers(64, 48, 2, resident=3, programs=2), Schedule(64, 32, 32, 8, 4, 2),
    )  # fmt: skip
    assert classes(*(made(desc, 70, 48, each) for each in schedules)) == ([len(schedules)], 0)


ONE = gathers(64, 64, 2, programs=1)
TWO = gathers(64, 64, 3, gathering=2, programs=1)
RELEASE = "@%p_leads mbarrier.arrive.shared::cta.b64 _, [%r_used];"
ARRIVE = "fence.proxy.async.shared::cta;\nshl.b32 %r_at, %r_stage, 3;\nadd.u32 %r_at, %r_at, %r_full;\n"
WAIT_EMPTY = "WAIT_EMPTY: mbarrier.try_wait.parity.shared::cta.b64 %p_ready, [%r_at], %r_empty_parity;"
RACES: dict[str, tuple[Schedule, list[tuple[str, str]]]] = {
    "the gatherer does not wait": (ONE, [(WAIT_EMPTY, ""), ("@!%p_ready bra WAIT_EMPTY;", "")]),
    "no proxy fence after the stores": (ONE, [(ARRIVE, ARRIVE.split("\n", 1)[1])]),
    "a stage is full before it is written": (
        ONE, [("[%r_full+0], 128", "[%r_full+0], 64"), ("[%r_full+8], 128", "[%r_full+8], 64")]
    ),
    "a stage is released before it is read": (ONE, [("wgmma.wait_group.sync.aligned 1;\n", "")]),
    "both gatherers write every stage": (TWO, [("@%p_skips bra GATHERED;", "")]),
    "arrivals at the wrong time": (
        ONE, [("mbarrier.arrive.shared::cta.b64 _, [%r_at];", ""),
              ("\nmad.lo.u32 %r_to_A, %r_stage, 8192, %r_shared;",
               "\nadd.u32 %r_at, %r_at, %r_full;\nsub.u32 %r_at, %r_at, %r_empty;\n"
               "mbarrier.arrive.shared::cta.b64 _, [%r_at];\n"
               "mad.lo.u32 %r_to_A, %r_stage, 8192, %r_shared;")]
    ),
}  # fmt: skip
"""Schedules, and changes to their kernels that take away an order which the result needs."""


@pytest.mark.parametrize("name", RACES)
def test_a_missing_order_has_no_result(name: str) -> None:
    chosen, edits = RACES[name]
    desc = matrix(203, MMA_K8, FIRST.format(32))
    assert classes(made(desc, 70, 48, chosen)) == ([1], 0)
    assert classes(made(desc, 70, 48, chosen, edits))[1] == 1


MUTANTS: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "the short iteration last": ("tn", [("and.b32 %r_short, %r_length, 31;", "mov.u32 %r_short, 0;")]),
    "another first iteration": ("tn", [("and.b32 %r_short, %r_length, 31;", "and.b32 %r_short, %r_length, 7;")]),
    "the second iteration at the end of the group": (
        "tn",
        [("sub.u32 %r_moved, %r_short, %r_moved;", "mov.u32 %r_moved, 0;")],
    ),
    "values after the last k": (
        "tn",
        [
            (f"setp.ge.and.s32 %p_fast, %r_count_{name}, 8,", f"setp.ge.and.s32 %p_fast, %r_count_{name}, 1,")
            for name in "AB"
        ],
    ),
    "one value after the last k": (
        "tn",
        [
            (f"setp.gt.and.s32 %p_exists, %r_count_{name}, 3,", f"setp.gt.and.s32 %p_exists, %r_count_{name}, 2,")
            for name in "AB"
        ],
    ),
    "lines after the last k": ("nt", [("sub.s32 %r_count_line, %r_count_line, %r_inside_group;", "")]),
    "the unswizzled place": ("tn", [("xor.b32 %r_place_k, %r_place_k, %r_at;", "mov.b32 %r_place_k, %r_at;")]),
    "another swizzle of lines": (
        "nt",
        [("xor.b32 %r_place_rows, %r_place_rows, %r_at;", "mov.b32 %r_place_rows, %r_at;")],
    ),
    "words that are not shifted": ("tn", [("setp.ne.u32 %p_shifted, %r_at, 0;", "setp.ne.u32 %p_shifted, %r_at, 9;")]),
    "words that are shifted by one alone": ("tn", [("and.b32 %r_at, %r_low_A, 8;", "mov.b32 %r_at, 0;")]),
    "halves that are not shifted": (
        "tn",
        [("mad.lo.u32 %r_halves_A, %r_at, 0x1111, 0x3210;", "mov.u32 %r_halves_A, 0x3210;")],
    ),
    "without the last vector": (
        "tn",
        [("setp.ne.and.u32 %p_fast, %r_low_A, 0,", "setp.lt.and.u32 %p_fast, %r_low_A, 4,")],
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_another_order_or_place_is_not_equal(name: str) -> None:
    layouts, edits = MUTANTS[name]
    whole, other = (made(K8, 70, 64, ONE, each, layouts) for each in ([], edits))
    found, unknown = classes(whole, whole, other)
    assert found in ([1, 2], [2, 1]), "both copies are one class, and the other kernel is none of it"
    assert unknown <= 1


ZEROS = "{%r_zero, %r_zero, %r_zero, %r_zero};"
FIRST_ZEROS = f"st.shared.v4.b32 [%r_zeros+0], {ZEROS}\n"


@pytest.mark.parametrize(
    ("edit", "has_result"),
    [
        (("mov.b32 %r_zero, 0;", "mov.b32 %r_zero, 1065369472;"), True), ((FIRST_ZEROS, ""), False),
    ],
    ids=["ones", "a part is not written"],
)  # fmt: skip
def test_lines_of_zeros_are_written_once(edit: tuple[str, str], has_result: bool) -> None:
    whole, other = (made(K8, 70, 64, ONE, each, "nt") for each in ([], [edit]))
    assert whole.text.count("%r_zeros+") == 2 * 2 * 64 * 128 // (16 * 256)
    assert "%r_zeros" not in made(matrix(75, WGMMA), 70, 64, ONE, [], "nt").text
    found, unknown = classes(whole, whole, other)
    assert (sorted(found), unknown) == ([1, 2], 0 if has_result else 1)


@pytest.mark.parametrize(("layouts", "name"), [("tn", "A"), ("nt", "B")])
def test_no_vector_ends_outside_of_an_operand(layouts: str, name: str) -> None:
    (call,), strides = calls(K8, 66, 60, ONE, layouts, (1, 3))
    assert isinstance(call.kernel, TextKernel)
    checked = f"setp.le.and.s64 %p_fast, %d_last, %d_end_{name}, %p_exists;"
    assert checked in call.kernel.text
    text = call.kernel.text.replace(checked, "mov.pred %p_fast, %p_exists;")
    shapes = {"A": (66, 107), "B": (107, 60)}
    state = {each: laid_out(np.zeros(shapes[each], np.uint16), strides[each]).view(np.uint8) for each in "AB"}
    state["C"] = np.zeros(66 * 60 * 4, np.uint8)
    with pytest.raises(Unsupported, match=f"buffer {name} .* out of its bounds"):
        run(source(call, text), state)


def _tiles(block_m: int, block_n: int, resident: int, warpgroups: int, **fields: Any) -> WarpgroupTiles:
    given = {
        "consumers": 1, "store": "elements", "gathering": Gathering(warpgroups, 32, True, (True, True)), **fields
    }  # fmt: skip
    return WarpgroupTiles(
        block_m, block_n, 2, ping_pong=False, cluster=(1, 1), group=8, operands=("bf16", "bf16"), output="bf16",
        resident=resident, **given,
    )  # fmt: skip


TEXTS = (
    _tiles(64, 16, 4, 1, a_k_major=False), _tiles(64, 32, 3, 1), _tiles(64, 128, 2, 1), _tiles(64, 32, 2, 2),
    _tiles(128, 64, 1, 2, a_k_major=False), _tiles(128, 128, 1, 2, consumers=2, store="map"),
    _tiles(128, 128, 1, 1, consumers=2, a_k_major=False, b_k_major=False),
    _tiles(128, 192, 1, 1, consumers=2, a_k_major=False, b_k_major=False),
    _tiles(64, 64, 2, 1, b_k_major=False, gathering=Gathering(1, 0, False, (False, True))),
    _tiles(128, 128, 1, 2, consumers=2, gathering=Gathering(2, 64, False, (True, False))),
)  # fmt: skip


@pytest.mark.parametrize("tiles", TEXTS, ids=lambda each: warpgroup_kernel(each).name)
def test_the_assembler_keeps_the_loads_in_registers(tiles: WarpgroupTiles, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    from triton import knobs

    text = warpgroup_kernel(tiles).text
    (tmp_path / "kernel.ptx").write_text(text)
    command = [knobs.nvidia.ptxas.path, "-arch=sm_90a", "-v", "kernel.ptx", "-o", "kernel.cubin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    messages = done.stdout + done.stderr
    assert not done.returncode, messages
    assert "0 bytes spill stores, 0 bytes spill loads" in messages
    assert not re.search(r"warning|\(C\d+\)", messages), messages
    assert text.index("griddepcontrol.wait") < re.search(r"\b(ld|st)\.global", text).start()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"cluster": (2, 1)}, "a gathering has none"), ({"resident": 5}, "1 to 4"),
        ({"gathering": Gathering(3, 0, False, (False, False))}, "3 warpgroups"),
        ({"block_n": 32, "b_k_major": False}, "block_n 32: a multiple of 64"),
        ({"block_n": 128, "resident": 3}, "64 accumulators"),
        ({"starts_accumulators": True}, "8 bits"),
    ],
)  # fmt: skip
def test_tiles_without_a_kernel_raise(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(TileError, match=re.escape(why)):
        warpgroup_kernel(replace(TEXTS[1], **changed))


@pytest.mark.parametrize(
    ("desc", "chosen", "why"),
    [
        (K8, replace(ONE, tma=True), "either tma or a gathering"), (K8, replace(ONE, packed=True), "packed operands"),
        (K8, replace(ONE, warps=4), "4 more"), (K8, replace(ONE, consumers=0), "gathering need consumers"),
        (matrix(432, "family=wgmma k=32", "k_cuts=[cut(span=128)]", "e4m3", "bf16"), replace(ONE, block_k=128),
         "operands of 16 bits"),
    ],
    ids=str,
)  # fmt: skip
def test_schedules_that_do_not_fit_raise(desc: GEMMDesc, chosen: Schedule, why: str) -> None:
    with pytest.raises(UnsupportedGEMM, match=why):
        check(plan(desc), chosen)


def test_an_operand_without_contiguous_lines_is_not_gathered() -> None:
    left, right = Matrix("A", (64, 107), (230, 2), "fp16"), Matrix("B", (107, 64), (65, 1), "fp16")
    out = Matrix("C", (64, 64), (64, 1), "fp32")
    with pytest.raises(UnsupportedGEMM, match="contiguous rows or columns"):
        kernel_calls(plan(K8), ONE, left, right, out, lambda *_: None)


@pytest.mark.parametrize(("m", "n", "blocks"), [(17, 9, 1), (177, 403, 3), (530, 1000, 4), (4000, 4001, 0)])
def test_blocks_that_add_slices_are_bounded_to_an_even_share(m: int, n: int, blocks: int) -> None:
    found, _ = calls(SLICED, m, n, gathers(64, 64, 2), "tn", (1, 3))
    assert found[-1].shared_bytes == (shared_bytes_of_block(blocks) if blocks else 0)
    share = -(-found[-1].grid[0] // 132)
    assert (blocks - 1) * 132 < found[-1].grid[0] if blocks else share > 24
    assert "pairs" in found[0].kernel.name, "lines of sums have an even length"
