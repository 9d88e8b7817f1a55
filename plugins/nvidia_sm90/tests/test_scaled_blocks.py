"""Kernels of products with scales of blocks, compiled here and simulated: the bytes of the description."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bitwise_core.checker.partition import partition
from bitwise_core.checker.sources import Options
from bitwise_core.descriptors import Cut, Epilogue, GEMMDesc, Instruction, Step
from bitwise_core.descriptors.evaluation import evaluate_finished
from bitwise_core.descriptors.problem import FinishedGEMM
from bitwise_core.plugins import registry
from bitwise_nvidia_ptx.assembler.installed import PtxasNotFound
from bitwise_nvidia_ptx.assembler.ptxas import Ptxas
from bitwise_nvidia_sm90.gemm import scaled_blocks
from bitwise_nvidia_sm90.gemm.block_scaling import BlockScaling
from bitwise_nvidia_sm90.gemm.kernels.block_scales import BlockScales
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_text import warpgroup_kernel
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import SHARED_BYTES, WarpgroupTiles
from bitwise_nvidia_sm90.gemm.launch import KernelCall, kernel_calls
from bitwise_nvidia_sm90.gemm.plan import UnsupportedGEMM, plan
from bitwise_nvidia_sm90.gemm.scaled_block_schedules import ranked_schedules
from bitwise_nvidia_sm90.gemm.scaled_blocks import check, span_of, triton_call
from bitwise_nvidia_sm90.gemm.schedule import Schedule
from covering import covering_params
from gemm_products import Matrix, cost_of_product, random_patterns, run, source, values_of_product


def described(k: int, family: str = "wgmma", scaling: Any = "product_first", span: int | None = None) -> FinishedGEMM:
    cuts = (*((Cut(span=span),) if span else ()), Cut(span=128))
    product = GEMMDesc(
        k=k, left_dtype="e4m3", right_dtype="e4m3", output_dtype="fp32", path="matrix", instruction_k=32,
        k_cuts=cuts, instruction=Instruction(architecture="sm_90", family=family, k=32),
    )  # fmt: skip
    steps = Epilogue.of(Step(name="convert", dtype="bf16"))
    return FinishedGEMM(product=product, steps=steps, block_scaling=scaling)


def wide(block_m: int, block_n: int, stages: int, number: int, **fields: Any) -> Schedule:
    """Return a schedule with consumers."""
    given = {"block_k": 128, "programs": 3, **fields}
    return Schedule(block_m, block_n, stages=stages, warps=4 * (number + 1), tma=True, consumers=number, **given)


def scaled_operands(
    m: int, n: int, k: int, shared: tuple[int, int]
) -> tuple[dict[str, tuple[Any, str]], dict[str, Matrix]]:
    """Return the bytes of operands and scales by buffer, and the matrices; scales of rows lie as PyTorch wants them."""
    dice = np.random.default_rng(m)
    blocks, lines = -(-k // 128), (-(-m // shared[0]), -(-n // shared[1]))
    scales = [dice.uniform(-3, 3, (blocks, each)).astype(np.float32) for each in lines]
    values = {
        "A": (random_patterns((m, k), "e4m3", dice), "e4m3"), "B": (random_patterns((n, k), "e4m3", dice), "e4m3"),
        "SA": (scales[0], "fp32"), "SB": (scales[1], "fp32"),
    }  # fmt: skip
    matrices = {
        "A": Matrix("A", (m, k), (k, 1), "e4m3"), "B": Matrix("B", (k, n), (1, k), "e4m3"),
        "C": Matrix("C", (m, n), (n, 1), "bf16"), "SA": Matrix("SA", (lines[0], blocks), (1, lines[0]), "fp32"),
        "SB": Matrix("SB", (blocks, lines[1]), (lines[1], 1), "fp32"),
    }  # fmt: skip
    return values, matrices


def result(calls: list[KernelCall], values: dict[str, tuple[Any, str]], m: int, n: int) -> Any:
    """Return the simulated patterns of the output of calls."""
    state = {name: np.ascontiguousarray(bits).view(np.uint8).ravel() for name, (bits, _) in values.items()}
    state["C"] = np.full(2 * m * n, 0xA5, np.uint8)
    for each in calls:
        for given in each.arguments.values():
            if isinstance(given, Matrix) and given.name == "W" and "W" not in state:
                state["W"] = np.full(int(np.prod(given.shape)) * 4, 0x5A, np.uint8)
        run(source(each), state)
    return state["C"].view(np.uint16).reshape(m, n)


def wanted(desc: FinishedGEMM, values: dict[str, tuple[Any, str]], m: int, n: int) -> Any:
    """Return the patterns of the description."""
    down, across = (values[name][0].T for name in ("SA", "SB"))
    down, across = (
        np.repeat(each, 1 if len(each) == size else 128, 0)[:size] for each, size in ((down, m), (across, n))
    )
    return evaluate_finished(
        desc, values["A"][0], np.ascontiguousarray(values["B"][0].T),
        [np.ascontiguousarray(down), np.ascontiguousarray(across.T)], hardware=registry.default().hardware,
    )  # fmt: skip


@pytest.mark.parametrize(("m", "n", "k", "scaling", "span", "shared"), [
    (3, 5, 384, "product_first", None, (1, 1)), (70, 130, 144, "left_first", None, (128, 1)),
    (5, 16, 656, "left_first", 256, (1, 1)), (66, 136, 512, "product_first", 128, (1, 128)),
])  # fmt: skip
def test_the_kernel_has_the_bytes_of_the_description(
    m: int, n: int, k: int, scaling: Any, span: int | None, shared: tuple[int, int]
) -> None:
    pytest.importorskip("triton")
    desc = described(k, scaling=scaling, span=span)
    assert span_of(desc) == span
    values, given = scaled_operands(m, n, k, shared)
    call = triton_call(desc, *(given[name] for name in ("A", "B", "C", "SA", "SB")))
    assert (result([call], values, m, n) == wanted(desc, values, m, n)).all()


TILES: list[tuple[int, int, int, Any, int | None, tuple[int, int], Schedule]] = [
    # Two consumers share a tile; columns share a scale, then rows do.
    (70, 144, 384, "product_first", None, (1, 128), wide(128, 64, 3, 2)),
    (150, 48, 256, "product_first", None, (128, 1), wide(128, 48, 2, 2)),
    # Neither is shared, in pairs and one by one; a tile each in turn, whose rows are columns of the output.
    (66, 40, 384, "left_first", None, (1, 1), wide(64, 24, 4, 1)),
    (33, 130, 512, "left_first", None, (1, 1), wide(64, 32, 3, 2, ping_pong=True, transposed=True)),
    # Slices, rows of a third of a tile each, and blocks that share copies.
    (200, 16, 768, "product_first", 256, (1, 128), wide(192, 16, 3, 3)),
    (70, 64, 640, "product_first", None, (128, 1), wide(64, 32, 3, 1, cluster_n=2, programs=2)),
    (16, 256, 384, "product_first", None, (1, 128), wide(64, 16, 3, 1, transposed=True)),
    # Columns in two blocks that share a scale each: rows with scales of their own, of two parts, and with a shared one.
    (70, 264, 384, "product_first", None, (1, 128), wide(64, 96, 3, 1)),
    (140, 300, 256, "left_first", None, (1, 128), wide(128, 48, 3, 1)),
    (140, 300, 256, "product_first", None, (1, 128), wide(128, 48, 3, 1)),
    (70, 340, 384, "left_first", None, (128, 128), wide(64, 160, 2, 2, ping_pong=True)),
    (200, 400, 256, "product_first", None, (128, 128), wide(64, 112, 2, 1, cluster_n=2, programs=2)),
    (390, 66, 512, "product_first", 256, (128, 1), wide(128, 144, 2, 2, transposed=True)),
    (260, 66, 256, "left_first", None, (128, 1), wide(192, 48, 3, 3, transposed=True)),
    # One stage; and a tile with too many sums for two sets of them.
    (10, 24, 128, "product_first", None, (1, 1), wide(64, 16, 2, 1)),
    (20, 130, 256, "left_first", None, (1, 1), wide(64, 128, 3, 1)),
    # Scales of columns in shared memory: outside of the matrix, shared by rows, of slices in clusters, of rows.
    (66, 132, 384, "left_first", None, (1, 1), wide(64, 72, 2, 1)),
    (20, 144, 256, "product_first", None, (128, 1), wide(128, 72, 3, 2)),
    (130, 80, 768, "left_first", 256, (1, 1), wide(64, 80, 2, 1, cluster_m=2, programs=2)),
    (84, 70, 384, "product_first", None, (1, 1), wide(64, 88, 3, 2, ping_pong=True, transposed=True)),
    (250, 48, 384, "product_first", None, (1, 128), wide(64, 16, 3, 1, cluster_m=4, programs=4)),
    (70, 128, 384, "left_first", None, (1, 1), wide(64, 32, 2, 1, cluster_n=4, programs=4)),
    # Parts of the columns of a stage have sums in turn: two and four of them.
    (70, 150, 384, "product_first", None, (128, 1), wide(64, 144, 2, 1)),
    (70, 200, 640, "left_first", None, (1, 1), wide(64, 192, 2, 1)),
    (150, 200, 384, "product_first", 256, (1, 128), wide(64, 192, 2, 2, ping_pong=True)),
    (140, 252, 256, "product_first", None, (128, 1), wide(128, 256, 2, 2)),
    (250, 90, 384, "left_first", None, (1, 1), wide(128, 96, 3, 1, transposed=True)),
    # Scales of rows in shared memory: outside of the matrix, of slices in clusters, of two consumers, beside columns.
    (68, 40, 384, "left_first", None, (1, 1), wide(64, 24, 4, 1)),
    (132, 48, 512, "product_first", 256, (1, 128), wide(64, 16, 3, 1, cluster_m=2, programs=2)),
    (140, 24, 640, "product_first", None, (1, 128), wide(128, 8, 2, 2)),
    (36, 132, 512, "left_first", None, (1, 1), wide(64, 32, 3, 2, ping_pong=True, transposed=True)),
    # Three rounds of the slots of scales, in one job and in several.
    (20, 24, 1792, "left_first", None, (1, 1), wide(64, 24, 2, 1)),
    (140, 48, 896, "left_first", None, (1, 1), wide(128, 16, 2, 2, programs=1)),
]


def values_of(case: tuple[Any, ...]) -> dict[str, Hashable]:
    """Return what decides the paths of the kernel of a product with scaled blocks."""
    m, n, k, scaling, span, shared, chosen = case
    stages = min(3, -(-k // (128 * chosen.stages)))
    plain = values_of_product(described(k, scaling=scaling, span=span).product, m, n, chosen)
    return plain | {"scaling": scaling, "shared": shared, "rounds of stages": stages}


def cost_of_tiles(case: tuple[Any, ...]) -> float:
    """Return roughly the time of a simulation."""
    m, n, k, scaling, span, _, chosen = case
    return cost_of_product(described(k, scaling=scaling, span=span).product, m, n, chosen)


@pytest.mark.parametrize("case", covering_params(TILES, values_of, cost=cost_of_tiles))
def test_kernels_of_warpgroups_have_the_bytes_of_the_description(case: tuple[Any, ...]) -> None:
    m, n, k, scaling, span, shared, chosen = case
    desc = described(k, scaling=scaling, span=span)
    values, given = scaled_operands(m, n, k, shared)

    def workspace(shape: tuple[int, ...], dtype: str) -> Matrix:
        return Matrix("W", shape, (shape[1] * shape[2], shape[2], 1), dtype)

    calls = kernel_calls(
        plan(desc.product), chosen, given["A"], given["B"], given["C"], workspace,
        scaling=BlockScaling(given["SA"], given["SB"], scaling == "left_first"),
    )  # fmt: skip
    if len(calls) > 1:
        pytest.importorskip("triton")
    assert (result(calls, values, m, n) == wanted(desc, values, m, n)).all()


MAPPED_COLUMNS = BlockScales(128, 1, "product", mapped_columns=True)


@pytest.mark.parametrize(("block_n", "consumers", "scales", "alternate", "parts"), [
    (128, 2, BlockScales(1, 128, "product"), True, 1), (112, 2, BlockScales(1, 1, "rows"), True, 1),
    (128, 2, BlockScales(1, 1, "rows"), False, 2), (96, 2, None, True, 1), (128, 2, None, True, 1),
    (160, 2, None, False, 1), (80, 3, None, True, 1), (96, 3, None, False, 1), (144, 2, MAPPED_COLUMNS, False, 2),
    (256, 2, MAPPED_COLUMNS, False, 4), (136, 2, BlockScales(1, 1, "rows"), False, 1),
])  # fmt: skip
def test_two_sets_of_sums_alternate_where_registers_suffice(
    block_n: int, consumers: int, scales: BlockScales | None, alternate: bool, parts: int
) -> None:
    tiles = WarpgroupTiles(
        64 * consumers, block_n, 3, consumers, False, (1, 1), 8, ("e4m3", "e4m3"), "bf16", starts_accumulators=True,
        scales=scales,
    )  # fmt: skip
    tiles.check()
    assert (tiles.sums_alternate, tiles.column_parts) == (alternate, parts)
    text = warpgroup_kernel(tiles).text
    assert ("next_sum" in text) == (alternate or parts > 1)
    assert f"m64n{block_n // parts}k32" in text


@pytest.mark.parametrize(("block_m", "block_n", "consumers"), [(64, 144, 1), (128, 256, 2)])
def test_the_assembler_overlaps_parts_of_columns(block_m: int, block_n: int, consumers: int, tmp_path: Path) -> None:
    """Its message C7514 says that it serialised the instructions."""
    tiles = WarpgroupTiles(
        block_m, block_n, 3, consumers, False, (1, 1), 8, ("e4m3", "e4m3"), "bf16", starts_accumulators=True,
        scales=MAPPED_COLUMNS,
    )  # fmt: skip
    assert tiles.column_parts > 1
    path = tmp_path / "kernel.ptx"
    path.write_text(warpgroup_kernel(tiles).text)
    try:
        assembler = Ptxas.locate("sm_90a").path
    except PtxasNotFound as error:
        pytest.skip(str(error))
    command = [str(assembler), "-arch=sm_90a", "-v", str(path), "-o", str(tmp_path / "kernel.o")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "0 bytes spill stores" in done.stderr
    assert "C7514" not in done.stderr


@pytest.mark.parametrize(("m", "n", "shared"), [(2048, 4096, (1, 128)), (300, 1800, (128, 1)), (128, 7168, (1, 1))])
def test_ranked_schedules_have_kernels(m: int, n: int, shared: tuple[int, int]) -> None:
    """The first ones keep most multiprocessors busy, and all of them run."""
    desc = described(2048, scaling="left_first" if shared == (1, 1) else "product_first")
    _, given = scaled_operands(m, n, 2048, shared)
    scaling = BlockScaling(given["SA"], given["SB"], desc.block_scaling == "left_first")
    own = scaling.scales(m, n, False), scaling.scales(m, n, True)
    found = ranked_schedules(plan(desc.product), m, n, own, ("e4m3", "e4m3", "bf16"), 132)
    assert len(set(found)) == len(found) > 20
    for each in (*found[:3], *found[-3:]):
        matrices = (given[name] for name in "ABC")
        (call,) = kernel_calls(plan(desc.product), each, *matrices, lambda *_: None, scaling=scaling)
        assert call.kernel.shared_bytes <= SHARED_BYTES
    assert found[0].tiles(m, n) >= 50


def test_schedules_and_the_triton_kernel_are_one_class() -> None:
    """With these scales, and another class with the other order."""
    pytest.importorskip("triton")
    sources = []
    for order in ("product_first", "left_first"):
        desc = described(384, scaling=order)
        _, given = scaled_operands(128, 64, 384, (1, 1))
        scaling = BlockScaling(given["SA"], given["SB"], order == "left_first")
        schedules = (
            wide(128, 32, 3, 2), wide(64, 72, 2, 1), wide(64, 64, 2, 1, transposed=True),
            wide(64, 16, 3, 2, ping_pong=True), wide(128, 128, 2, 1),
        )  # fmt: skip
        for chosen in schedules if order == "left_first" else schedules[:1]:
            (call,) = kernel_calls(
                plan(desc.product), chosen, given["A"], given["B"], given["C"], lambda *_: None, scaling=scaling
            )
            sources.append(replace(source(call), name=f"{order} {chosen}"))
        call = triton_call(desc, *(given[name] for name in ("A", "B", "C", "SA", "SB")))
        sources.append(replace(source(call), name=f"{order} by Triton"))
    found = partition(sources, "sm_90", Options(audit_contraction=False), workers=1)
    assert not found.unknown
    assert sorted(map(len, found.classes)) == [2, 6]


def test_copies_of_scales_wait_for_fenced_reads() -> None:
    """A warp that never fences its reads, or whose slots are replaced before it does, is refused as a race."""
    _, given = scaled_operands(64, 16, 1152, (1, 1))
    scaling = BlockScaling(given["SA"], given["SB"], left_first=True)
    (call,) = kernel_calls(
        plan(described(1152, scaling="left_first").product), wide(64, 16, 2, 1), given["A"], given["B"], given["C"],
        lambda *_: None, scaling=scaling,
    )  # fmt: skip
    text = call.kernel.text
    slot, fence = (
        r"mad.lo.u32 (%r_(?:target|next_scales|next_row_scales)), %r_parity, \d+, \1;",
        "%r_used, %r_last_used",
    )
    assert len(re.findall(slot, text)) >= 4
    assert text.count(fence) >= 2
    mutants = re.sub(slot, "", text), text.replace(fence, "%r_used, 1")
    sources = [replace(source(call), name=str(place), text=each) for place, each in enumerate((text, *mutants))]
    found = partition(sources, "sm_90", Options(audit_contraction=False), workers=1)
    assert set(found.unknown) == {"1", "2"}
    assert all("an asynchronous copy may overtake a load of shared memory" in each for each in found.unknown.values())


def test_scales_need_accumulators_of_blocks_and_columns_in_two_blocks() -> None:
    _, given = scaled_operands(64, 304, 256, (1, 128))
    arguments = given["A"], given["B"], given["C"], lambda *_: None
    scaling = BlockScaling(given["SA"], given["SB"], left_first=False)
    with pytest.raises(UnsupportedGEMM, match="block_n 152: the columns of a tile are in at most two blocks of 128"):
        kernel_calls(plan(described(256).product), wide(64, 152, 2, 1), *arguments, scaling=scaling)
    with pytest.raises(UnsupportedGEMM, match="scales of blocks of k need fp8 operands"):
        kernel_calls(plan(described(256).product), Schedule(64, 64, 128), *arguments, scaling=scaling)


def test_other_sums_are_refused() -> None:
    check(described(256))
    with pytest.raises(UnsupportedGEMM, match="multiply fp8 operands by wgmma"):
        check(described(256, "mma.sync"))
    plain = FinishedGEMM(product=described(256).product, steps=described(256).steps)
    with pytest.raises(UnsupportedGEMM, match="multiply fp8 operands by wgmma"):
        check(plain)
    with pytest.raises(ValueError, match="the product has a cut of span 128"):
        FinishedGEMM(
            product=described(256).product.model_copy(update={"k_cuts": ()}),
            steps=plain.steps,
            block_scaling="left_first",
        )
    with pytest.raises(ValueError, match="in slices of whole blocks"):
        described(512, span=192)


@pytest.mark.parametrize(("most", "expected", "ran"), [(1, 2, [1, 2]), (2, 3, [1, 2, 3]), (9, 4, [1, 2, 3, 4])])
def test_the_fastest_of_so_many_schedules_that_run_is_chosen(
    monkeypatch: pytest.MonkeyPatch, most: int, expected: int, ran: list[int]
) -> None:
    """Schedule 1 has no kernel; the launch is that of the first other one, or of the fastest of several."""
    tried: list[int] = []
    compared: list[str] = []

    def prepare(*given: Any, **_: Any) -> Any:
        tried.append(given[2])
        if given[2] == 1:
            raise UnsupportedGEMM("no kernel")
        return SimpleNamespace(code=(str(given[2]),), launch=given[2])

    def matrix(place: int) -> Any:
        found = SimpleNamespace(data_ptr=lambda: place)
        found.detach = lambda: found
        return found

    def fastest_of(found: list[Any], places: list[int]) -> Any:
        assert places == [1, 2, 5, 3, 4]
        return found[-1]

    monkeypatch.setattr(scaled_blocks, "schedules", lambda *_, **__: [1, 2, 3, 4])
    monkeypatch.setattr(scaled_blocks, "prepare", prepare)
    monkeypatch.setattr(scaled_blocks, "compare_first", lambda code, *_: compared.append(*code))
    monkeypatch.setattr(scaled_blocks, "fastest_of", fastest_of)
    a, b, scales_a, scales_b, out = map(matrix, range(1, 6))
    assert scaled_blocks.prepare_scaled(described(256), a, b, scales_a, scales_b, out, most) == expected
    assert (tried, compared) == (ran, [str(each) for each in ran[1:]])
