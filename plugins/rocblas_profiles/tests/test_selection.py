"""The rules of selection on small tables: guards, ties, devices, grids, and what is refused."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from bitwise_rocblas_profiles.coverage import call_for
from bitwise_rocblas_profiles.describe import describe
from bitwise_rocblas_profiles.errors import Declined, NotSelected, RocblasError
from bitwise_rocblas_profiles.libraries import DEVICES, NOT_MEASURED, libraries, library, matching, select_in
from bitwise_rocblas_profiles.problem import FORMATS, Call, call_of_problem, letter
from bitwise_rocblas_profiles.selection import by_device, passes, select_equal, select_nearest, select_on_grid
from bitwise_rocblas_profiles.tables import BITS, GUARDS, PROBLEM, Generator, Hardware, LogicFile, Row, Solution

UNITS = 304
CALL = Call(128, 64, 256)
ANY = Hardware("gfx942")


def solution(**values: Any) -> Solution:
    bits = dict.fromkeys(BITS) | {"DepthU": 32, "GlobalSplitU": 1, "LocalSplitU": 1, "MacroTile0": 64, "MacroTile1": 32}
    guard = dict.fromkeys(GUARDS) | {"KernelLanguage": "Assembly"}
    for name, value in values.items():
        (bits if name in bits else guard)[name] = value
    return Solution(bits, guard)


def file_of(
    *solutions: Solution, rows: tuple[Row, ...] = (), selection: str = "Euclidean", generator: Generator = "Tensile",
    hardware: Hardware = ANY, **problem: Any,
) -> LogicFile:  # fmt: skip
    known = dict.fromkeys(PROBLEM) | {
        "DataType": "H", "DestDataType": "H", "ComputeDataType": "S", "TransposeA": 0, "TransposeB": 0, "TLUA": 1,
        "TLUB": 0, "StridedBatched": 1,
    } | problem  # fmt: skip
    rows = rows or tuple(Row(128, 64, 1, 256, number, 1.0) for number in range(len(solutions)))
    return LogicFile("a.yaml", "HHS_BH", generator, hardware, known, selection, solutions, rows)


@pytest.mark.parametrize(
    ("guard", "call", "expected"),
    [
        ({}, {}, True),
        ({"AssertFree0ElementMultiple": 8}, {}, True),
        ({"AssertFree0ElementMultiple": 8}, {"m": 129}, False),
        ({"AssertFree1ElementMultiple": 3}, {}, False),
        ({"AssertSummationElementMultiple": 512}, {}, False),
        ({"AssertSizeEqual": [[3, 256]]}, {}, True),
        ({"AssertSizeEqual": [[3, 256]]}, {"k": 257}, False),
        ({"AssertSizeGreaterThan": [[0, 128]]}, {}, False),
        ({"AssertSizeGreaterThan": [[0, 127]]}, {}, True),
        ({"AssertSizeLessThan": [[1, 64]]}, {}, False),
        ({"AssertSizeLessThan": [[2, 2]]}, {}, True),
        ({"AssertSizeLessThan": [[2, 2]]}, {"batch": 2}, False),
        ({"AssertSizeMultiple": [[0, 256]]}, {}, False),
        ({"AssertStrideAEqual": [[0, 1]], "AssertStrideBEqual": [[0, 1]]}, {}, True),
        ({"AssertStrideCEqual": [[1, 0]]}, {}, False),
        ({"AssertStrideAEqual": [[1, 128]]}, {}, True),
        ({"AssertStrideAEqual": [[1, 128]]}, {"lda": 136}, False),
        ({"GlobalLoadVectorWidthA": 16}, {"m": 15}, False),
        ({"GlobalLoadVectorWidthB": 128}, {}, True),
        ({"GlobalSplitU": 4, "_GlobalAccumulation": "MultipleBuffer", "MinKForGSU": 64}, {}, True),
        ({"GlobalSplitU": 4, "_GlobalAccumulation": "MultipleBuffer", "MinKForGSU": 65}, {}, False),
        ({"GlobalSplitU": 2, "_GlobalAccumulation": "MultipleBuffer"}, {}, False),
        ({"_WorkspaceSizePerElemC": 8}, {"workspace": 128 * 64 * 8}, True),
        ({"_WorkspaceSizePerElemC": 8}, {"workspace": 128 * 64 * 8 - 1}, False),
        ({"WorkGroupMappingXCC": 16, "WorkGroupMappingXCCGroup": -1}, {}, True),
        ({"WorkGroupMappingXCC": 32, "WorkGroupMappingXCCGroup": -1}, {}, False),
        ({"WorkGroupMappingXCC": 304, "WorkGroupMappingXCCGroup": 304}, {}, False),
        ({"WorkGroupMappingXCC": 8, "WorkGroupMappingXCCGroup": 20}, {}, False),
        ({"SynchronizerSizeCheck": [2, 10240, 64]}, {"m": 64, "n": 64}, True),
        ({"SynchronizerSizeCheck": [2, 10240, 64]}, {"m": 65, "n": 64}, False),
        ({"BufferLoad": 1}, {"lda": 1 << 26}, False),
        ({"BufferStore": 1}, {"ldd": 1 << 27}, False),
        ({"BufferStore": 0}, {"ldd": 1 << 27}, True),
    ],
)
def test_the_guards_of_a_solution(guard: dict[str, Any], call: dict[str, Any], expected: bool) -> None:
    one = solution(**guard)
    assert passes(one, file_of(one), replace(CALL, **call), UNITS) is expected


def test_the_guards_of_hipblaslt() -> None:
    one = solution(GlobalSplitU=8, _GlobalAccumulation="MultipleBuffer")
    file = file_of(one, generator="TensileLite")
    assert passes(one, file, CALL, UNITS)
    assert not passes(one, file, replace(CALL, k=255), UNITS)
    assert passes(one, file, replace(CALL, workspace=4 * 8 * 128 * 64), UNITS)
    assert not passes(one, file, replace(CALL, workspace=4 * 8 * 128 * 64 - 1), UNITS)


def test_an_address_that_may_be_out_of_reach_is_refused() -> None:
    one = solution(BufferStore=1)
    with pytest.raises(NotSelected, match="depends on pointers that are not published"):
        passes(one, file_of(one), replace(CALL, ldd=(1 << 26) - 1), UNITS)


def test_a_file_without_strided_batches_is_passed_over() -> None:
    one = solution()
    assert not passes(one, file_of(one, StridedBatched=0), CALL, UNITS)


def test_the_nearest_size_is_selected() -> None:
    rows = (Row(100, 64, 1, 256, 0, 9.0), Row(140, 64, 9, 256, 1, 1.0), Row(128, 70, 1, 256, 2, 1.0))
    file = file_of(solution(), solution(), solution(AssertFree1ElementMultiple=128), rows=rows)
    found = select_nearest([file], CALL, UNITS)
    assert found is not None
    assert (found.number, found.distance) == (1, 144.0)
    assert select_nearest([file_of(solution(AssertFree0ElementMultiple=1000))], CALL, UNITS) is None


def test_ties_go_to_the_larger_speed_and_then_upwards() -> None:
    below, above = Row(120, 64, 1, 256, 0, 1.0), Row(136, 64, 1, 256, 1, 1.0)
    one, other = solution(), solution(DepthU=64)
    for rows, number in (((below, above), 1), ((replace(below, speed=2.0), above), 0)):
        found = select_nearest([file_of(one, other, rows=rows)], CALL, UNITS)
        assert found is not None
        assert found.number == number
    same = (replace(above, solution=0), above)
    with pytest.raises(NotSelected, match="which of them is met first is not published"):
        select_nearest([file_of(one, other, rows=same)], CALL, UNITS)
    found = select_nearest([file_of(one, one, rows=same)], CALL, UNITS)
    assert found is not None
    assert found.distance == 64.0


def test_an_exact_size_comes_first_and_needs_its_batch() -> None:
    rows = (Row(128, 64, 2, 256, 0, 1.0), Row(128, 64, 1, 256, 1, 1.0), Row(128, 64, 1, 256, 2, 9.0))
    file = file_of(solution(), solution(AssertFree0ElementMultiple=3), solution(), rows=rows, selection="Equality")
    found = select_equal([file], CALL, UNITS)
    assert found is not None
    assert found.number == 2
    assert select_equal([file], replace(CALL, k=255), UNITS) is None
    near = file_of(solution(), rows=(Row(128, 64, 1, 255, 0, 1.0),))
    device = DEVICES["MI300X"]
    assert select_in([near, file], CALL, device) == found
    assert select_in([near, file], replace(CALL, k=255), device) is not found


def test_a_grid_takes_the_next_larger_point() -> None:
    rows = tuple(Row(m, n, 1, k, 0, 1.0) for m in (64, 256) for n in (32, 128) for k in (128, 512))
    file = file_of(solution(), rows=rows, selection="GridBased", generator="TensileLite")
    for call, point in (
        (CALL, (256, 128, 128)), (replace(CALL, m=999), (256, 128, 128)),
        (replace(CALL, m=64, n=32, k=500), (64, 32, 512)),
        (replace(CALL, m=40, n=64, batch=4), (64, 128, 128)), (replace(CALL, m=60, n=20, batch=4), (256, 32, 128)),
    ):  # fmt: skip
        found = select_on_grid([file], call, UNITS)
        assert found is not None
        assert (found.row.m, found.row.n, found.row.k) == point
    with pytest.raises(NotSelected, match="not described for sizes above 32768"):
        select_on_grid([file], replace(CALL, k=40000), UNITS)
    strict = file_of(solution(AssertFree0ElementMultiple=999), rows=rows, selection="GridBased")
    with pytest.raises(NotSelected, match="no solution at 256 x 128 may run this call"):
        select_on_grid([strict], CALL, UNITS)
    assert select_on_grid([], CALL, UNITS) is None


def test_the_files_of_a_device() -> None:
    kinds = [(None, None), (None, False), (80, None), (None, True), (304, False)]
    files = [file_of(solution(), hardware=Hardware("gfx942", count, apu)) for count, apu in kinds]
    order = {
        name: [[kinds[files.index(file)] for file in group] for group in by_device(files, each.apu, each.compute_units)]
        for name, each in DEVICES.items()
    }
    assert order == {
        "MI300X": [[(304, False)], [(None, False)], [(None, None)]],
        "MI300A": [[(None, True)], [(None, None)]],
        "MI308X": [[(None, False)], [(80, None)], [(None, None)]],
    }


def test_tf32_without_a_solution_is_computed_in_fp32() -> None:
    known = libraries()["rocblas", "6.2"]
    wide = known.select(Call(4096, 4096, 4096, "X", "X", "S"), DEVICES["MI300X"])
    assert wide.file.tag == "SB_MX"
    without = replace(known, table=replace(known.table, files=tuple(f for f in known.table.files if f.tag != "SB_MX")))
    found = without.answer(Call(4096, 4096, 4096, "X", "X", "S"), DEVICES["MI300X"])
    assert (found.selected.file.tag, found.desc.left_dtype) == ("SB", "fp32")


def test_a_smaller_workspace_selects_another_solution() -> None:
    known = libraries()["rocblas", "6.2"]
    device = DEVICES["MI300X"]
    selected = {
        space: known.select(Call(16, 16, 8192, workspace=space), device).solution.bits["GlobalSplitU"]
        for space in (128 << 20, 0)
    }
    assert selected == {128 << 20: 32, 0: 1}


@pytest.mark.parametrize(
    ("call", "options", "sentence"),
    [
        (Call(64, 64, 64, bias=True), {}, "has no products with a bias"),
        (Call(64, 64, 64), {"types": "HHS_BH"}, "rocblas has one problem type for these types"),
        (Call(64, 64, 64, "S", "S", "H"), {}, "has no solution that may run"),
    ],
)
def test_rocblas_refuses(call: Call, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(NotSelected, match=sentence):
        libraries()["rocblas", "6.2"].select(call, DEVICES["MI300X"], **options)


@pytest.mark.parametrize(
    ("call", "options", "sentence"),
    [
        (Call(64, 64, 64), {}, "which matching problem type it searches first is not published; there are HHS_BH"),
        (Call(64, 64, 64, "S", "S", "H"), {}, "is not published; there is none"),
        (Call(64, 64, 64), {"types": "BBS_BH"}, "has no problem type BBS_BH for NN M 64"),
        (
            Call(65, 63, 61), {"types": "HHS_BH_Bias_HAS_SAV_UserArgs"},
            r"the grid of the others, gfx942/GridBased/aquavanjaram_Cijk_Ailk_Bljk_HHS_BH_Bias_HAS_SAV_UserArgs.yaml",
        ),
    ],
)  # fmt: skip
def test_hipblaslt_refuses(call: Call, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(NotSelected, match=sentence):
        libraries()["hipblaslt", "2024-10"].select(call, DEVICES["MI300X"], **options)


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(RocblasError, match=r"no tables of rocblas:7; there are rocblas:6.2, hipblaslt:2024-10"):
        library("rocblas:7")
    with pytest.raises(RocblasError, match="gfx942 multiplies e4m3fnuz, not e4m3"):
        letter("e4m3")
    with pytest.raises(RocblasError, match="products of fp64 are not described"):
        letter("fp64")


def test_a_start_that_depends_on_the_batch_is_declined() -> None:
    known = libraries()["rocblas", "6.2"]
    file, number = next(
        (file, row.solution)
        for file in known.table.files
        for row in file.rows
        if file.solutions[row.solution].bits["StaggerUMapping"] == 2 and file.solutions[row.solution].bits["StaggerU"]
    )
    call = call_for(file, number)
    assert describe(file.solutions[number], file, call).iteration_rotation is None
    with pytest.raises(Declined, match=r"^stagger by batch: the start of the loop over k depends on the number"):
        describe(file.solutions[number], file, replace(call, batch=2))


def test_random_calls_are_answered_or_refused_with_a_sentence() -> None:
    source = random.Random(7)
    types = (("H", "H", "H"), ("H", "H", "S"), ("B", "B", "B"), ("S", "S", "S"), ("X", "X", "S"), ("F8", "B8", "H"),
             ("B8", "B8", "F8"), ("F8", "F8", "S"), ("F8", "F8", "B"), ("H", "F8", "H"))  # fmt: skip
    answered, sentences = 0, set[str]()
    for _ in range(400):
        a, b, d = source.choice(types)
        m, n, k = (source.choice((1, source.randint(1, 64), source.randint(1, 9000))) for _ in range(3))
        call = Call(
            m, n, k, a, b, d, source.choice(("S", "S", "S", "H")), source.random() < 0.5, source.random() < 0.5,
            source.choice((1, 1, 1, 7)), bias=source.random() < 0.1, workspace=source.choice((0, 1 << 20, 128 << 20)),
        )  # fmt: skip
        known = source.choice(list(libraries().values()))
        tags = sorted({file.tag for file in matching(known.table.files, call)}) if known.name == "hipblaslt" else []
        try:
            found = known.answer(
                call,
                source.choice(list(DEVICES.values())),
                source.choice([None, *tags]),
                source.choice((None, "M", "N")),
            )
        except RocblasError as error:
            sentences.add(str(error))
            continue
        answered += 1
        assert (found.desc.k, found.desc.left_dtype in FORMATS.values()) == (k, True)
        assert NOT_MEASURED in found.notes
    assert answered > 100
    assert len(sentences) > 20


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"m": 0}, "m is 0"), ({"lda": 100}, "lda is 100: the columns of the matrix have 128 elements"),
        ({"workspace": -1}, "the workspace is -1 bytes"),
    ],
)  # fmt: skip
def test_an_impossible_call_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RocblasError, match=sentence):
        replace(CALL, **fields)


def test_the_call_of_a_row_major_problem() -> None:
    from bitwise_core.descriptors.problem import GEMMProblem

    problem = GEMMProblem(m=7, n=5, k=3, a="e4m3fnuz", b="e5m2fnuz", out="fp32", transpose_b=True, ld_a=9)
    call = call_of_problem(problem, 4)
    assert call == Call(5, 7, 3, "B8", "F8", "S", transpose_a=True, ldb=9, workspace=4)
    with pytest.raises(RocblasError, match="a is a vector"):
        call_of_problem(GEMMProblem(m=1, n=5, k=3, a="fp16", b="fp16", out="fp16"), 4)
