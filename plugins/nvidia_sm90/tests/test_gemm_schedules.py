"""Schedules of products: candidates, tuned schedules, and prepared launches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bitwise_core.descriptors import Epilogue, GEMMDesc, Step, read
from bitwise_nvidia_sm90.gemm import measured_schedules as measured
from bitwise_nvidia_sm90.gemm import prepared_launches as prepared
from bitwise_nvidia_sm90.gemm import run
from bitwise_nvidia_sm90.gemm.device_costs import H100, DeviceProperties, costs_of, costs_of_device, fitted_devices
from bitwise_nvidia_sm90.gemm.expected_times import (
    Finishing,
    corrected_seconds,
    expected_seconds,
    modelled_seconds,
    quantities,
)
from bitwise_nvidia_sm90.gemm.fusions import Fusion
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import SHARED_BYTES
from bitwise_nvidia_sm90.gemm.plan import BlocksPlan, MatrixPlan, Slices, UnsupportedGEMM, plan
from bitwise_nvidia_sm90.gemm.schedule import Schedule, check, fallback
from bitwise_nvidia_sm90.gemm.schedule_candidates import mapped_schedules
from bitwise_nvidia_sm90.gemm.schedule_ranking import schedules_to_try

WGMMA = "instruction=instruction(architecture=sm_90 family=wgmma k=16) instruction_k=16"
MMA = (
    "instruction=instruction(architecture=sm_90 family=mma.sync k=16) instruction_k=16 k_loop_step=64 "
    "short_iteration=first"
)
FP8 = "instruction=instruction(architecture=sm_90 family=wgmma k=32) instruction_k=32 k_cuts=[cut(span=128)]"


def matrix(k: int, rest: str, dtype: str = "fp16", out: str = "fp16") -> GEMMDesc:
    found = read(f"gemm(k={k} left_dtype={dtype} right_dtype={dtype} output_dtype={out} path=matrix {rest})")
    assert isinstance(found, GEMMDesc)
    return found


@pytest.mark.parametrize(("m", "n"), [(1, 4096), (16, 2048), (256, 12288), (3072, 1536), (16384, 8192)])
@pytest.mark.parametrize("desc", [matrix(4096, WGMMA), matrix(8, WGMMA), matrix(4096, FP8, "e4m3", "bf16")], ids=str)
def test_candidates_fit_and_end_with_the_fallback(desc: GEMMDesc, m: int, n: int) -> None:
    made = plan(desc)
    assert isinstance(made, MatrixPlan)
    found = schedules_to_try(made, m, n)
    assert found[-1] == fallback(made, m, n)
    assert not found[-1].tma
    assert 4 <= len(found) == len(set(found)) <= 32
    every = list(mapped_schedules(made, m, n, 132))
    expected = dict(zip(every, expected_seconds(made, every, m, n).tolist(), strict=True))
    ranked = [expected[each] for each in found[:-1]]
    assert ranked == sorted(ranked)
    for each in found:
        check(made, each)
        if each.tma:
            size = 1 if made.accumulator_k else 2
            assert (each.block_m + each.block_n) * each.block_k * size * each.stages <= SHARED_BYTES


def test_plans_with_the_short_iteration_first_use_tma_with_packed_operands_only() -> None:
    found = schedules_to_try(plan(matrix(169, MMA)), 512, 512)
    assert len(found) > 4
    assert all(each.tma == each.packed for each in found)


@pytest.mark.parametrize(
    ("cuts", "n"),
    [
        ("cut(layout=strided count=16) cut(span=32)", 4099), ("cut(layout=strided count=16) cut(span=8)", 3),
        ("cut(layout=strided count=128 merge=halves)", 1000), ("cut(span=64)", 77),
    ],
)  # fmt: skip
def test_lanes_have_schedules_with_whole_blocks(cuts: str, n: int) -> None:
    desc = read(f"gemm(k=4099 left_dtype=bf16 right_dtype=bf16 output_dtype=bf16 path=fma k_cuts=[{cuts}])")
    assert isinstance(desc, GEMMDesc)
    made = plan(desc)
    assert not isinstance(made, (MatrixPlan, BlocksPlan))
    found = schedules_to_try(made, 1, n)
    assert found[-1] == fallback(made, 1, n)
    assert 4 <= len(found) == len(set(found)) <= 32
    for each in found:
        check(made, each)
        assert each.block_m & (each.block_m - 1) == 0
        assert each == found[-1] or each.block_k <= max(4, made.chunk)
    assert schedules_to_try(made, 1, n, most=2) == [found[0], found[-1]]


@pytest.mark.parametrize(
    ("k", "cuts", "first"),
    [
        (3069, "cut(layout=strided count=16 tile=64 merge=halves)", (16, 32, 8)),
        (3069, "cut(layout=strided count=8 tile=64 merge=halves)", (32, 32, 8)),
        (633, "cut(layout=strided count=32 tile=20 merge=halves)", (8, 20, 8)),
    ],
)  # fmt: skip
def test_lanes_of_neighbouring_elements_have_whole_warps_of_them(
    k: int, cuts: str, first: tuple[int, int, int]
) -> None:
    desc = read(f"gemm(k={k} left_dtype=bf16 right_dtype=bf16 output_dtype=bf16 path=fma k_cuts=[{cuts}])")
    assert isinstance(desc, GEMMDesc)
    odd, across = (True, False, True), (True, False)
    found = schedules_to_try(plan(desc), 1, 2693, k_contiguous=across, mapped=odd)
    assert found[0].lane_rows
    assert not schedules_to_try(plan(desc), 1, 2696, k_contiguous=across)[0].lane_rows
    others = [each for each in found if not each.lane_rows]
    assert (others[0].block_m, others[0].block_k, others[0].warps) == first
    assert found != schedules_to_try(plan(desc), 1, 2693)
    assert found == schedules_to_try(plan(desc), 2693, 1, k_contiguous=(False, True), mapped=(False, True, True))
    assert others[0].stages == (3 if "count=32" in cuts else 2)  # few lanes load ahead
    many = schedules_to_try(plan(desc), 1, 26930, k_contiguous=across, mapped=odd)
    assert {each.stages for each in many} == {3}


@pytest.mark.parametrize(
    ("cuts", "m", "n", "across", "first"),
    [
        # The fastest schedules of products on an H200 without tensor maps: elements and k of an iteration, and warps.
        ("cut(layout=strided count=32 tile=64 merge=halves)", 1, 639, True, (16, 16, 16)),
        ("cut(layout=strided count=32 tile=60 merge=halves)", 1, 1835, True, (16, 15, 16)),
        ("cut(layout=strided count=16 tile=64 merge=halves)", 1, 2265, True, (32, 16, 16)),
        ("cut(layout=strided count=16 tile=64 merge=halves)", 1, 2560, True, (64, 16, 16)),
        ("cut(layout=strided count=8 tile=64 merge=halves)", 1, 4359, True, (64, 32, 8)),
        ("cut(layout=strided count=16) cut(span=16)", 4, 472, False, (8, 16, 4)),
        ("cut(layout=strided count=16) cut(span=16)", 2, 1687, False, (16, 16, 4)),
        ("cut(layout=strided count=16) cut(span=16)", 6, 2301, False, (32, 16, 4)),
        ("cut(layout=strided count=16) cut(span=32)", 1, 4907, False, (16, 32, 4)),
    ],
)
def test_the_first_schedules_of_lanes_are_those_measured(
    cuts: str, m: int, n: int, across: bool, first: tuple[int, int, int]
) -> None:
    desc = read(f"gemm(k=1927 left_dtype=bf16 right_dtype=bf16 output_dtype=bf16 path=fma k_cuts=[{cuts}])")
    assert isinstance(desc, GEMMDesc)
    found = schedules_to_try(plan(desc), m, n, k_contiguous=(True, not across), mapped=(False, False, True))[0]
    assert (found.block_m, found.block_k, found.warps) == first
    assert (found.lane_rows, found.few_rows) == (across, not across)


def test_lanes_that_take_turns_at_k_have_programs_of_one_warp() -> None:
    desc = read("gemm(k=3249 left_dtype=bf16 right_dtype=bf16 output_dtype=bf16 path=fma "
                "k_cuts=[cut(layout=strided count=16)])")  # fmt: skip
    assert isinstance(desc, GEMMDesc)
    found = schedules_to_try(plan(desc), 1, 2671)[0]
    assert (found.block_m, found.block_k, found.warps) == (2, 16, 1)


@pytest.mark.parametrize("m", [16, 300])
def test_products_that_the_cache_just_holds_have_schedules_that_do_not_overlap(m: int) -> None:
    made = {k: MatrixPlan(k, Slices(1, k), 0, False, 0) for k in (512, 4096, 32768)}
    alone = {k: any(not each.overlap for each in schedules_to_try(each_plan, m, 4096, most=500))
             for k, each_plan in made.items()}  # fmt: skip
    assert alone == {512: False, 4096: True, 32768: False}
    resident = [each for each in schedules_to_try(made[4096], m, 4096, most=500) if each.resident == 2]
    assert resident
    assert all(each.consumers == 1 for each in resident)


def test_expected_times_increase_with_the_work() -> None:
    chosen = Schedule(128, 128, 64, 8, 4, 4, 0, True)
    made = MatrixPlan(4096, Slices(1, 4096), 0, False, 0)
    few, many = (expected_seconds(made, [chosen], *each)[0] for each in ((128 * 132, 128), (128 * 132 * 2, 256)))
    assert costs_of().costs["launch"] < few < many
    assert chosen.tiles(129, 256) == 4
    assert Schedule(128, 64, transposed=True, tma=True).tiles(96, 256) == 4


def operands(m: int, n: int, layout: str = "nt", k: int = 4096, address: int = 0) -> tuple[Any, Any, Any]:
    """Return A, B and the output as records of shape and strides."""

    def stored(rows: int, columns: int, axis: str) -> Any:
        strides = (columns, 1) if axis == "n" else (1, rows)
        return SimpleNamespace(
            shape=(rows, columns), stride=lambda: strides, dtype="torch.float16", data_ptr=lambda: address,
            element_size=lambda: 2, numel=lambda: rows * columns, device=SimpleNamespace(type="cpu", index=None),
        )  # fmt: skip

    return stored(m, k, layout[0]), stored(k, n, layout[1]), stored(m, n, "n")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(measured.FILE_VARIABLE, str(tmp_path / "tuned" / "schedules.json"))
    monkeypatch.setattr(measured, "_tuned", {})
    monkeypatch.setattr(measured, "schedule_key", lambda desc, a, b, out: f"{desc.k} {out.shape}")
    measured._load_file.cache_clear()
    return measured.schedule_file()


def test_a_tuned_schedule_comes_first_in_later_processes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desc, given = matrix(4096, WGMMA), operands(512, 512)
    chosen = Schedule(64, 64, 64, 8, 4, 5, 0, True)
    measured.store("4096 (512, 512)", chosen, folder)
    measured.store("other", Schedule(64, 64), folder)
    monkeypatch.setattr(measured, "_tuned", {})
    found = list(measured.candidates(desc, plan(desc), *given, 4))
    assert found[0] == chosen
    assert found[1:][-4:] == schedules_to_try(plan(desc), 512, 512, most=4)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"4096 (512, 512)": {"height": 3}}', '{"4096 (512, 512)": 5}'])
def test_a_file_that_cannot_be_read_is_ignored(folder: Path, text: str) -> None:
    folder.parent.mkdir(parents=True)
    folder.write_text(text)
    desc, given = matrix(4096, WGMMA), operands(512, 520)
    found = list(measured.candidates(desc, plan(desc), *given, 4))
    assert found == schedules_to_try(plan(desc), 512, 520, most=4)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_the_layouts_of_operands_decide_the_order(folder: Path, layout: str) -> None:
    desc = matrix(4096, WGMMA)
    found = list(measured.candidates(desc, plan(desc), *operands(512, 520, layout), 8))
    k_contiguous = (layout[0] == "n", layout[1] == "t")
    starts = 128, 128 if k_contiguous[1] else 16  # 1040 bytes are no multiple of a line of the cache, nor of a sector
    assert found == schedules_to_try(plan(desc), 512, 520, most=8, k_contiguous=k_contiguous, alignments=starts)
    assert found != schedules_to_try(plan(desc), 512, 520, most=8, k_contiguous=k_contiguous) or k_contiguous[1]
    every = schedules_to_try(plan(desc), 512, 520, most=1000, k_contiguous=k_contiguous)
    others = schedules_to_try(plan(desc), 512, 520, most=1000, k_contiguous=(k_contiguous[0], not k_contiguous[1]))
    assert every != others


@pytest.mark.parametrize(("k", "address"), [(4097, 0), (4096, 2)])
def test_operands_that_no_tensor_map_allows_are_packed(folder: Path, k: int, address: int) -> None:
    desc = matrix(k, WGMMA)
    found = list(measured.candidates(desc, plan(desc), *operands(2048, 2048, k=k, address=address), 64))
    assert found[0].packed
    assert any(not each.tma for each in found)
    assert all(each.packed == each.tma for each in found)
    fp8 = matrix(4096, FP8, "e4m3", "bf16")
    assert not any(each.tma for each in schedules_to_try(plan(fp8), 2048, 2048, mapped=(False, True, True)))


def test_products_with_a_short_first_iteration_are_packed() -> None:
    found = schedules_to_try(plan(matrix(2049, MMA)), 2048, 2048, most=64)
    assert found[0].packed
    assert {each.packed for each in found} == {True, False}


@pytest.mark.parametrize("k_contiguous", [(True, True), (True, False)])
@pytest.mark.parametrize("cuts", ["", "k_cuts=[cut(span=456)]"])
def test_few_rows_that_no_tensor_map_has_are_gathered(k_contiguous: tuple[bool, bool], cuts: str) -> None:
    made = plan(matrix(2731, f"{MMA} {cuts}"))
    assert isinstance(made, MatrixPlan)
    few = schedules_to_try(made, 28, 5233, k_contiguous=k_contiguous, mapped=(False, False, False))
    assert few[0].gathering
    assert not few[0].tma
    many = schedules_to_try(made, 5233, 5233, k_contiguous=k_contiguous, mapped=(False, False, False))
    assert many[0].packed
    for each in schedules_to_try(made, 28, 5233, None, 1000, k_contiguous, (False, False, False)):
        check(made, each)
        if each.gathering and not k_contiguous[1]:
            assert (each.block_m if each.transposed else each.block_n) % 64 == 0
    fp8 = schedules_to_try(plan(matrix(4096, FP8, "e4m3", "bf16")), 28, 5233, mapped=(False, True, True))
    assert not any(each.gathering for each in fp8)


def test_tiles_of_warpgroups_have_the_fewest_columns_and_large_clusters_few_rows() -> None:
    made = MatrixPlan(4096, Slices(1, 4096), 0, False, 0)

    def consumed(m: int, k_contiguous: tuple[bool, bool] = (True, True)) -> list[Schedule]:
        every = schedules_to_try(made, m, 5120, most=1 << 20, k_contiguous=k_contiguous)
        return [each for each in every if each.consumers]

    few = consumed(39)
    assert few[0].block_n == 40
    assert {each.block_n for each in few if each.transposed} == {16, 24, 40}
    assert {each.block_n % 16 for each in consumed(39, (False, True)) if each.transposed} == {0}
    assert max(each.cluster_m * each.cluster_n for each in few) == 8
    assert max(each.cluster_m * each.cluster_n for each in consumed(4096)) == 8
    assert max(each.cluster_m * each.cluster_n for each in consumed(4097)) == 2


def test_large_products_have_large_tiles_of_warpgroups() -> None:
    made = MatrixPlan(4096, Slices(1, 4096), 0, False, 0)
    small, large, largest = (list(mapped_schedules(made, rows, 4096, 132)) for rows in (512, 1280, 4096))
    assert {each.consumers for each in small} == {0, 1, 2, 3}
    assert {each.consumers for each in large} == {1, 2, 3}
    assert {each.consumers for each in largest} == {2, 3}
    fp8 = MatrixPlan(4096, Slices(1, 4096), 0, False, 128)
    assert 0 in {each.consumers for each in mapped_schedules(fp8, 4096, 4096, 132)}


def test_small_tiles_have_stages_of_more_k() -> None:
    def depths(k: int, m: int) -> dict[int, int]:
        """The largest tile by the k of a stage."""
        found: dict[int, int] = {}
        for each in schedules_to_try(MatrixPlan(k, Slices(1, k), 0, False, 0), m, 5120, most=1 << 20):
            if each.consumers:
                found[each.block_k] = max(found.get(each.block_k, 0), each.block_m * each.block_n)
        return found

    few = depths(4096, 8)
    assert set(few) == {64, 128, 256}
    many = depths(4096, 4096)
    assert many[64] > many[128] > many[256] >= 64 * 16
    assert set(depths(511, 8)) == {64, 128}
    sliced = MatrixPlan(4096, Slices(3, 1408), 0, False, 0)
    found = {each.block_k for each in schedules_to_try(sliced, 8, 5120, most=1 << 20) if each.consumers}
    assert found == {64, 128}  # a slice is whole stages


def test_columns_through_maps_take_no_time_of_their_own() -> None:
    chosen = Schedule(128, 104, 64, 8, 12, 6, 132, True, True, consumers=2)

    def modelled(slices: int = 1, **given: Any) -> float:
        made = MatrixPlan(4096, Slices(slices, 4096 // slices), 0, False, 0)
        found = quantities(made, [chosen], 303, 5120, (True, True), True, **given)
        return float(modelled_seconds(found, costs_of().costs)[0])

    one_by_one = modelled(maps_columns=False)
    assert modelled() < one_by_one - 1e-6
    assert modelled(finishing=Finishing(1)) > modelled()
    assert modelled(2) == modelled(2, maps_columns=False)


def test_clusters_that_fit_beside_no_other_one_share_multiprocessors() -> None:
    """Of 132 multiprocessors, 120 hold a cluster of four with one block each; two blocks fit on each."""
    made = MatrixPlan(1536, Slices(1, 1536), 0, False, 0)
    alone = Schedule(64, 64, warps=8, stages=5, programs=240, tma=True, transposed=True, consumers=1, resident=2)
    tried = [alone, replace(alone, cluster_n=4)]

    def of_clusters(blocks: int) -> float:
        """Return the time in clusters over that without, of a product of this number of blocks."""
        found = quantities(made, tried, 256, 16 * blocks, (True, True), True)
        without, within = modelled_seconds(found, costs_of().costs).tolist()
        return float(within / without)

    assert of_clusters(128) > of_clusters(120) + 0.1 > 1


def test_a_device_without_costs_of_its_own_has_those_of_an_h100_by_its_rates() -> None:
    properties, costs = fitted_devices()[H100]
    assert costs_of(properties) is costs_of() is costs
    faster = costs_of(replace(properties, name="another", memory=1.5 * properties.memory))
    assert faster is costs_of(replace(properties, name="another", memory=1.5 * properties.memory))
    assert {name: each for name, each in faster.costs.items() if each != costs.costs[name]} == {
        "memory": 1.5 * costs.costs["memory"]
    }
    few = costs_of(DeviceProperties("few", 78))
    assert few.multiprocessors == 78
    assert few.costs["cache"] == costs.costs["cache"] * 78 / 132
    assert few.costs["operations"] == costs.costs["operations"]
    half = costs_of(replace(properties, name="slow", clock=properties.clock / 2, cached_bytes=1e6))
    assert half.costs["operations"] == costs.costs["operations"] / 2
    assert half.costs["cached bytes"] == costs.costs["cached bytes"] * 1e6 / properties.cached_bytes
    made = MatrixPlan(4096, Slices(1, 4096), 0, False, 0)
    grids = {each.programs for each in schedules_to_try(made, 4096, 4096, few) if each.consumers}
    assert max(grids) <= 78
    assert costs_of_device(SimpleNamespace(type="cpu", index=None)) is costs


def test_only_times_near_the_least_are_corrected() -> None:
    made = MatrixPlan(4096, Slices(1, 4096), 0, False, 0)
    every = schedules_to_try(made, 96, 5120, most=1 << 20)[:-1]
    given = quantities(made, every, 96, 5120, (True, True), True)
    modelled = modelled_seconds(given, costs_of().costs)
    found = corrected_seconds(given, costs_of().costs, costs_of().correction)
    far = modelled > 1.5 * modelled.min()
    assert far.any()
    assert (found[far] == modelled[far]).all()
    assert (found != modelled)[~far].any()


def test_the_first_result_of_kernels_is_compared_with_the_fallback(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("triton")
    ran: list[Schedule] = []
    wrong: list[str] = []

    def prepare(desc: Any, made: Any, chosen: Schedule, a: Any, b: Any, out: Any) -> Any:
        ran.append(chosen)
        out.copy_(a @ b)
        code = f"{chosen.block_m} {chosen.tma}"
        if code in wrong:
            out[0, 1] += 1
        return prepared.PreparedProduct(desc, chosen, (code,), lambda a, b, out: None)

    monkeypatch.setattr(run, "prepare", prepare)
    monkeypatch.setattr(run, "_prepared", {})
    monkeypatch.setattr(run, "_compared", set())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    desc, last = matrix(64, WGMMA), fallback(plan(matrix(64, WGMMA)), 48, 64)
    a, b = torch.ones(48, 64).half(), torch.ones(64, 64).half()
    out = torch.empty(64, 48).half().t()

    def first() -> list[Schedule]:
        ran.clear()
        run.clear_cache()
        assert run.run(desc, a, b, out) is out
        return list(ran)

    (chosen, everywhere), again = first(), first()
    assert (chosen.tma, everywhere) == (True, last)
    assert again == [chosen, last]  # an output of one repeated value does not count
    a[3, 4] = 2
    assert first() == [chosen, last]
    assert first() == [chosen]
    monkeypatch.setattr(run, "_compared", set())
    wrong.append(f"{chosen.block_m} True")
    with pytest.raises(measured.ScheduleMismatch, match="which one is unknown"):
        first()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert first() == [chosen]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(run, "LARGEST_COMPARED", 48 * 64 - 1)
    assert first() == [chosen]


def test_tiles_of_fp8_outputs_fill_the_lines_that_are_stored() -> None:
    made = MatrixPlan(4096, Slices(1, 4096), 0, False, 0)
    every = schedules_to_try(made, 4096, 4416, most=1000)
    narrow = [each for each in every if each.consumers and not each.transposed and each.block_n % 32]
    narrow = [each for each in narrow if each.block_n < 128][:8]
    assert narrow
    sixteen = expected_seconds(made, narrow, 4096, 4416)
    eight = expected_seconds(made, narrow, 4096, 4416, finishing=Finishing(1))
    assert bool((eight > sixteen).all())  # fewer bytes, stored one by one
    filled = [each for each in every if each.consumers and not each.transposed and each.block_n % 32 == 0][:8]
    assert filled
    assert expected_seconds(made, filled, 4096, 4416, finishing=Finishing(1)).max() <= (
        expected_seconds(made, filled, 4096, 4416).max() * 1.02
    )


def test_operands_of_an_epilogue_are_loaded_as_the_sums_are_stored() -> None:
    made = MatrixPlan(512, Slices(1, 512), 0, False, 0)
    by_elements = Schedule(128, 128, 64, 8, 12, 4, 132, True, True, consumers=2)
    through_map = Schedule(128, 128, 64, 8, 12, 4, 132, True, consumers=2)
    more = [
        expected_seconds(made, [each], 4096, 4096, finishing=Finishing(2, 2))[0]
        / expected_seconds(made, [each], 4096, 4096)[0]
        for each in (by_elements, through_map)
    ]
    assert more[0] > 1.3 * more[1] >= 1.3


@pytest.mark.parametrize("operator", [1e-6, 0.0])
def test_separate_kernels_run_where_they_are_expected_to_be_faster(
    operator: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    desc = matrix(4096, WGMMA)
    a, b, out = operands(512, 512)
    fusion = Fusion(Epilogue.of("add"), "fp16", (out,))
    assert fusion.bytes_of_operators(100) == [600]
    monkeypatch.setattr(run, "operator_seconds", lambda size, device: operator)
    monkeypatch.setattr(run, "prepare", lambda desc, plan, chosen, *given: chosen)
    if operator:
        found = run.run_fused(desc, fusion, a, b, out)
        assert found == schedules_to_try(plan(desc), 512, 512, finishing=Finishing(2, 1))[0]  # type: ignore[comparison-overlap]
    else:
        with pytest.raises(UnsupportedGEMM, match="separate kernels are expected to take less time"):
            run.run_fused(desc, fusion, a, b, out)
        run.run_fused(desc, fusion, a, b, out, schedules_to_try(plan(desc), 512, 512)[0])


def test_the_bytes_of_operators_are_those_of_their_types() -> None:
    convert = Step(name="convert", dtype="e4m3")
    matrix_operand, bias = SimpleNamespace(element_size=lambda: 2), SimpleNamespace(element_size=lambda: 2)
    fusion = Fusion(Epilogue.of("bias", "swiglu", convert), "bf16", (bias, matrix_operand))
    assert fusion.bytes_of_operators(10) == [40, 60, 40, 30]
    assert (fusion.matrices, fusion.element_size) == (1, 2)
