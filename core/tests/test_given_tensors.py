"""Kernels on tensors that are part of the launch: what is known, what is refused, and which launches are compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paged_texts import LENGTHS, TABLE, launch, page_sum
from typer.testing import CliRunner

import bitwise_core as bitwise
from bitwise_core.checker import analysis
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.partition import Partition, partition, verdicts
from bitwise_core.checker.results import LARGE_GRID
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import DIFFERENT_TREES, Comparison, Outcome
from bitwise_core.cli import app
from bitwise_core.execution.launch import Launch
from bitwise_core.plugins import registry

pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

PAGES = {
    "loop.ptx": page_sum(),
    "staged.ptx": page_sum(staged=True),
    "guarded.ptx": page_sum(guarded=True),
    "both.ptx": page_sum(staged=True, guarded=True),
    "reverse.ptx": page_sum(reverse=True),
    "exit.ptx": page_sum(exit_early=True),
}
SAME = ("loop.ptx", "staged.ptx", "guarded.ptx", "both.ptx")


def source(name: str, text: str, **fields: Any) -> Source:
    return Source(name, text, Launch.model_validate(launch(name, **fields)))


PARTITIONS: dict[str, Partition] = {}
"""The partitions of `PAGES` so far: several tests look at one."""


def classes(options: Options | None = None, **fields: Any) -> Partition:
    key = repr((options, sorted(fields.items())))
    if key not in PARTITIONS:
        sources = [source(name, text, **fields) for name, text in PAGES.items()]
        PARTITIONS[key] = partition(sources, "sm_90", options or Options(), workers=1)
    return PARTITIONS[key]


def compared(left: Source, right: Source, options: Options | None = None) -> Comparison:
    return compare(left, right, registry.default().arch("sm_90"), options or Options())


def outcome(left: Source, right: Source) -> tuple[Outcome, str]:
    verdict = compared(left, right).verdict
    return verdict.outcome, verdict.reason


# -- what is known ----------------------------------------------------------------------------------------------------


def test_kernels_are_equal_on_tensors_without_which_they_are_unknown() -> None:
    assert classes().classes == (SAME, ("reverse.ptx",), ("exit.ptx",))
    assert classes().unknown == {}
    names = [*SAME[:2], "reverse.ptx", "exit.ptx"]
    assert sorted(classes(table=None, lengths=None).unknown) == sorted(names)


def test_only_what_decides_must_be_given() -> None:
    assert classes(table=None).classes == (SAME, ("reverse.ptx",), ("exit.ptx",))
    unknown = classes(lengths=None).unknown
    assert sorted(unknown) == ["exit.ptx", "loop.ptx", "reverse.ptx", "staged.ptx"]


def test_kernels_merge_where_the_contents_do_not_tell_them_apart() -> None:
    found = classes(lengths=[1, 1, 1])
    assert found.classes == (("loop.ptx", "staged.ptx", "guarded.ptx", "both.ptx", "reverse.ptx", "exit.ptx"),)


def test_the_verdict_names_the_tensors() -> None:
    loop, guarded = source("a.ptx", PAGES["loop.ptx"]), source("b.ptx", PAGES["guarded.ptx"])
    verdict = compared(loop, guarded).verdict
    assert verdict.outcome is Outcome.EQUAL
    digests = {name: each.digest for name, each in loop.launch.given().items()} if loop.launch else {}
    assert verdict.tensors == {name: (digest,) for name, digest in digests.items()}
    named = f"T (12 i32, digest {digests['T'][:12]}), N (3 i32, digest {digests['N'][:12]})"
    assert f"the verdict holds for the contents that the launch gives of {named}" in verdict.notes


# -- which launches are compared --------------------------------------------------------------------------------------


@pytest.fixture(params=["in full", "by block symmetry"])
def grids(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "by block symmetry":
        monkeypatch.setattr(analysis, "MAXIMUM_WORK", 0)
    return str(request.param)


OTHER = [3, 1, 6, *TABLE[3:]]


@pytest.mark.usefixtures("grids")
def test_another_table_is_another_launch() -> None:
    loop = PAGES["loop.ptx"]
    left, right = source("a.ptx", loop), source("b.ptx", loop, table=OTHER)
    assert outcome(left, right) == (
        Outcome.UNKNOWN,
        "a.ptx and b.ptx are launched on different tensors: the buffer T has different contents; give the same "
        "contents for both kernels, or for none",
    )
    assert outcome(left, source("b.ptx", loop, table=None)) == (
        Outcome.UNKNOWN,
        "a.ptx and b.ptx are launched on different tensors: the buffer T has contents in one of the launches only; "
        "give the same contents for both kernels, or for none",
    )


@pytest.mark.usefixtures("grids")
def test_no_class_and_no_list_of_verdicts_mixes_launches() -> None:
    loop = PAGES["loop.ptx"]
    sources = [
        source("a.ptx", loop),
        source("b.ptx", loop, table=OTHER),
        source("c.ptx", loop, table=None),
        source("d.ptx", loop),
        source("e.ptx", loop, table=OTHER),
        source("f.ptx", loop, table=None),
    ]
    found = partition(sources, "sm_90", Options(), workers=1)
    assert found.classes == (("a.ptx", "d.ptx"), ("b.ptx", "e.ptx"), ("c.ptx", "f.ptx"))
    assert "the launches do not all give the same contents of T: kernels are compared only where they do" in found.notes
    assert found.unknown == {}
    outcomes = [each.outcome.value for each in verdicts(sources[0], sources[1:], "sm_90", Options(), workers=1)]
    assert outcomes == ["equal", "unknown", "unknown", "equal", "unknown", "unknown"]


@pytest.mark.usefixtures("grids")
def test_launches_are_told_apart_by_entries_that_no_kernel_reads() -> None:
    loop = PAGES["loop.ptx"]
    sources = [source("a.ptx", loop), source("b.ptx", loop, table=[*TABLE[:8], 9, 9, 9, 9])]
    assert partition(sources, "sm_90", Options(), workers=1).classes == (("a.ptx",), ("b.ptx",))
    assert outcome(*sources)[0] is Outcome.UNKNOWN


def test_the_same_bytes_in_another_type_are_the_same_launch() -> None:
    loop = PAGES["loop.ptx"]
    unsigned = launch("b.ptx")
    unsigned["args"][0]["dtype"] = "u32"
    assert outcome(source("a.ptx", loop), Source("b.ptx", loop, Launch.model_validate(unsigned)))[0] is Outcome.EQUAL


def test_a_changed_entry_that_is_read_changes_the_form_and_one_that_is_not_does_not() -> None:
    def form(**fields: Any) -> bytes | None:
        result = analysis.analyse(
            source("a.ptx", PAGES["loop.ptx"], **fields),
            registry.default().arch("sm_90"),
            {"T": 1, "N": 2, "X": 3, "Y": 4},
            Options(),
        )
        return result.signature

    assert form() == form(table=[*TABLE[:3], 9, *TABLE[4:8], 9, 9, 9, 9])  # entries of pages beyond the lengths
    assert form() != form(table=OTHER)
    assert form() != form(lengths=[2, 4, 0])


def order_of_additions(table: list[int], length: int, reverse: bool) -> object:
    """What the sum of a block's pages is, up to what addition allows: the first two pages may be exchanged."""
    pages = table[:length][::-1] if reverse else table[:length]
    return sorted(pages[:2]), pages[2:]


@pytest.mark.parametrize("seed", range(24))
def test_the_order_of_pages_decides_on_random_tables(seed: int, grids: str) -> None:
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 5, 3).tolist() if seed % 3 else random.integers(0, 3, 3).tolist()
    table = random.integers(0, 1 + int(random.integers(1, 4)), 12).tolist()
    same = all(
        order_of_additions(table[4 * block : 4 * block + 4], length, False)
        == order_of_additions(table[4 * block : 4 * block + 4], length, True)
        for block, length in enumerate(lengths)
    )
    found = classes(table=table, lengths=lengths)
    position = {name: number for number, names in enumerate(found.classes) for name in names}
    merged = {name: position[name] == position["loop.ptx"] for name in PAGES}
    if grids == "in full":
        assert found.unknown == {}
        assert merged == {**dict.fromkeys(SAME, True), "reverse.ptx": same, "exit.ptx": all(lengths)}
    else:
        assert not merged["reverse.ptx"] or same
        assert not merged["exit.ptx"] or all(lengths)
    moved = random.permutation(4).tolist()
    table_moved = np.array(table).reshape(3, 4)[:, moved].reshape(-1).tolist()
    loop = PAGES["loop.ptx"]
    other = source("b.ptx", loop, table=table_moved, lengths=lengths)
    expected = Outcome.EQUAL if table_moved == table else Outcome.UNKNOWN
    assert outcome(source("a.ptx", loop, table=table, lengths=lengths), other)[0] is expected


# -- what is refused --------------------------------------------------------------------------------------------------


def test_a_load_beyond_the_values_is_unknown_and_never_zero() -> None:
    found = classes(table=TABLE[:7])
    sentence = "the buffer T is read at element 7 (4 bytes at byte 28), beyond the 7 values that the launch gives"
    assert sentence in found.unknown["loop.ptx"]
    sentence = "the buffer T is read at element 8 (8 bytes at byte 32), beyond the 7 values that the launch gives"
    assert sentence in found.unknown["staged.ptx"]
    assert classes(lengths=LENGTHS[:2]).classes == tuple((name,) for name in PAGES)


def test_an_unknown_names_the_tensors_that_would_answer_it() -> None:
    for fields, names in (({"table": None, "lengths": None}, "N and T"), ({"lengths": None}, "N")):
        for reason in classes(**fields).unknown.values():
            assert reason.endswith(f"; give the contents of {names} in the manifest")


def test_tensors_that_decide_through_other_tensors_are_named() -> None:
    bound = "ld.global.b32 %r6, [%rd1];\nmul.wide.u32 %rd5, %r6, 4;\nadd.s64 %rd7, %rd2, %rd5;\n"
    bound += "ld.global.b32 %r3, [%rd7];\n"
    loop = "mov.f32 %f1, 0f00000000;\nLOOP:\nadd.rn.f32 %f1, %f1, %f1;\nadd.s32 %r3, %r3, -1;\n"
    text = COPY.format(body=bound + loop + "setp.gt.s32 %p1, %r3, 0;\n@%p1 bra LOOP;\n")
    left = source("a.ptx", text, table=None, lengths=None)
    assert outcome(left, left)[1].endswith("; give the contents of N and T in the manifest")
    left = source("a.ptx", text, lengths=None)
    assert outcome(left, left)[1].endswith("; give the contents of N in the manifest")
    left = source("a.ptx", text, table=[2])
    assert outcome(left, left)[0] is Outcome.EQUAL


def test_every_launch_ignores_the_contents() -> None:
    options = Options(every_launch=True)
    given, others = classes(options), classes(options, table=None, lengths=None)
    assert (given.classes, given.as_json()["tensors"]) == (others.classes, {})
    assert not any("contents" in each for each in (*given.notes, *given.unknown.values()))
    loop = PAGES["guarded.ptx"]
    verdict = compared(source("a.ptx", loop), source("b.ptx", loop, table=OTHER), options).verdict
    assert "different tensors" not in verdict.reason


# -- block symmetry ---------------------------------------------------------------------------------------------------

COPY = """.version 8.3
.target sm_90
.address_size 64
.visible .entry k(.param .u64 table, .param .u64 lengths, .param .u64 x, .param .u64 y)
.reqntid 32
{{
.reg .pred %p<9>;
.reg .b32 %r<20>;
.reg .b64 %rd<20>;
.reg .f32 %f<9>;
ld.param.u64 %rd1, [table];
ld.param.u64 %rd2, [lengths];
ld.param.u64 %rd3, [x];
ld.param.u64 %rd4, [y];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
{body}
shl.b32 %r9, %r2, 5;
add.s32 %r9, %r9, %r1;
mul.wide.u32 %rd10, %r9, 4;
add.s64 %rd11, %rd4, %rd10;
st.global.f32 [%rd11], %f1;
ret;
}}
"""
_PAGE = """mul.wide.u32 %rd5, %r2, 4;
add.s64 %rd7, %rd1, %rd5;
ld.global.b32 %r5, [%rd7];
"""
_ELEMENT = """shl.b32 %r6, %r5, 5;
add.s32 %r6, %r6, %r1;
mul.wide.u32 %rd8, %r6, 4;
add.s64 %rd9, %rd3, %rd8;
ld.global.f32 %f1, [%rd9];
"""
BY_TABLE = COPY.format(body=_PAGE + _ELEMENT)
BY_BLOCK = COPY.format(body="mov.u32 %r5, %r2;\n" + _ELEMENT)
AS_DATA = COPY.format(body=_PAGE + "cvt.rn.f32.u32 %f1, %r5;\n")
BLOCKS = 300


def blocks(name: str, text: str, table: list[int]) -> Source:
    return source(name, text, table=table, grid=[BLOCKS])


@pytest.mark.usefixtures("grids")
def test_blocks_whose_addresses_come_from_a_table() -> None:
    same, swapped = list(range(BLOCKS)), list(range(BLOCKS))
    assert outcome(blocks("a.ptx", BY_TABLE, same), blocks("b.ptx", BY_BLOCK, same))[0] is Outcome.EQUAL
    swapped[7], swapped[201] = 201, 7
    assert outcome(blocks("a.ptx", BY_TABLE, swapped), blocks("b.ptx", BY_BLOCK, swapped))[0] is Outcome.UNPROVED
    assert outcome(blocks("a.ptx", BY_TABLE, swapped), blocks("b.ptx", BY_TABLE, swapped))[0] is Outcome.EQUAL


@pytest.mark.usefixtures("grids")
@pytest.mark.parametrize("changed", [0, 7, BLOCKS - 1])
def test_numbers_of_a_table_as_data_tell_blocks_apart(changed: int) -> None:
    constant = COPY.format(body="mov.f32 %f1, 0f40400000;\n")  # 3
    table = [3] * BLOCKS
    assert outcome(blocks("a.ptx", AS_DATA, table), blocks("b.ptx", constant, table))[0] is Outcome.EQUAL
    table[changed] = 4
    assert outcome(blocks("a.ptx", AS_DATA, table), blocks("b.ptx", constant, table))[0] is Outcome.UNPROVED


def test_grids_without_symmetry_are_compared_in_full_up_to_a_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    constant = COPY.format(body="mov.f32 %f1, 0f40400000;\n")  # 3
    table = [3] * (BLOCKS - 1) + [4]
    pair = blocks("a.ptx", AS_DATA, table), blocks("b.ptx", constant, table)
    monkeypatch.setattr(analysis, "MAXIMUM_WORK", 0)
    assert outcome(*pair) == (Outcome.UNPROVED, DIFFERENT_TREES)
    monkeypatch.setattr(analysis, "MAXIMUM_LANES", 0)
    found, reason = outcome(*pair)
    assert found is Outcome.UNKNOWN
    assert "could not be compared block by block" in reason or "not proved to be translations" in reason


@pytest.mark.usefixtures("grids")
def test_large_grids_of_different_launches_are_not_compared() -> None:
    sources = [blocks("a.ptx", BY_TABLE, list(range(BLOCKS))), blocks("b.ptx", BY_TABLE, [0] * BLOCKS)]
    found = partition(sources, "sm_90", Options(), workers=1)
    assert (found.classes, found.unknown) == ((("a.ptx",), ("b.ptx",)), {})


def test_a_grid_is_large_in_these_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "MAXIMUM_WORK", 0)
    table = list(range(BLOCKS))
    notes = compared(blocks("a.ptx", BY_TABLE, table), blocks("b.ptx", BY_BLOCK, table)).verdict.notes
    assert LARGE_GRID in notes


def test_a_large_grid_that_writes_its_table_is_not_decided_by_symmetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "MAXIMUM_LANES", 0)
    text = COPY.format(body="mov.u32 %r8, 1;\n" + _PAGE + "st.global.b32 [%rd7], %r8;\n" + _ELEMENT)
    _, reason = outcome(blocks("a.ptx", text, list(range(BLOCKS))), blocks("b.ptx", text, list(range(BLOCKS))))
    assert "a buffer whose contents the launch gives is both read and written" in reason


def test_a_large_grid_may_write_a_buffer_that_it_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "MAXIMUM_LANES", 0)
    entry = launch("a.ptx", table=list(range(BLOCKS)), grid=[BLOCKS])
    entry["args"][3]["values"] = [0.0] * 32 * BLOCKS
    pair = [
        Source(f"{name}.ptx", text, Launch.model_validate(entry)) for name, text in (("a", BY_TABLE), ("b", BY_BLOCK))
    ]
    assert outcome(pair[0], pair[1])[0] is Outcome.EQUAL


def test_a_large_grid_beyond_its_table_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "MAXIMUM_LANES", 0)
    short = list(range(BLOCKS - 1))
    found, reason = outcome(blocks("a.ptx", BY_TABLE, short), blocks("b.ptx", BY_TABLE, short))
    assert found is Outcome.UNKNOWN
    assert "the buffer T is read at element 299 (4 bytes at byte 1196), beyond the 299 values" in reason


# -- stores, widths and copies ----------------------------------------------------------------------------------------


def one_block(name: str, body: str, table: object = None, dtype: str = "i32", **fields: Any) -> Source:
    """One block that stores %f1, on a table T of contents of any type."""
    entry = launch(name, grid=[1], **fields)
    entry["args"][0] = {"buffer": "T", "dtype": dtype, "values": [5, 6, 7, 8] if table is None else table}
    return Source(name, COPY.format(body=body), Launch.model_validate(entry))


_AS_FLOAT = "cvt.rn.f32.u32 %f1, %r5;\n"


def literal(number: float) -> str:
    return f"mov.f32 %f1, 0f{np.float32(number).view(np.uint32):08X};\n"


def loads(name: str, body: str, number: float, table: object = None, dtype: str = "i32") -> None:
    """The body leaves `number` in %f1, and no other number."""
    for wanted, expected in ((number, Outcome.EQUAL), (number + 1, Outcome.UNPROVED)):
        left, right = one_block(name, body, table, dtype), one_block("literal.ptx", literal(wanted), table, dtype)
        assert outcome(left, right)[0] is expected


@pytest.mark.parametrize(
    ("body", "number"),
    [
        ("ld.global.b32 %r5, [%rd1+4];\n", 6),
        ("ld.global.u8 %r5, [%rd1+8];\n", 7),
        ("ld.global.u16 %r5, [%rd1+6];\n", 0),
        ("ld.global.b64 %rd9, [%rd1];\nshr.u64 %rd9, %rd9, 32;\ncvt.u32.u64 %r5, %rd9;\n", 6),
        ("ld.global.v4.b32 {%r6, %r7, %r5, %r8}, [%rd1];\n", 7),
        ("ld.global.v2.b64 {%rd8, %rd9}, [%rd1];\ncvt.u32.u64 %r5, %rd9;\n", 7),
        ("ld.global.nc.b32 %r5, [%rd1+12];\n", 8),
        ("setp.eq.u32 %p1, %r1, 99;\n@%p1 st.global.b32 [%rd1], 9;\nld.global.b32 %r5, [%rd1];\n", 5),
    ],
)
def test_loads_of_any_width(body: str, number: int) -> None:
    loads("a.ptx", body + _AS_FLOAT, number)


@pytest.mark.parametrize(
    ("store", "load", "number"),
    [
        ("st.global.b16 [%rd1+4], 9;\n", "ld.global.b32 %r5, [%rd1+4];\n", 9),
        ("st.global.b8 [%rd1+5], 1;\n", "ld.global.b32 %r5, [%rd1+4];\n", 262),
        ("st.global.b8 [%rd1+5], 1;\n", "ld.global.u16 %r5, [%rd1+4];\n", 262),
        ("st.global.b8 [%rd1+5], 1;\n", "ld.global.u8 %r5, [%rd1+4];\n", 6),
        ("mov.b64 %rd9, 0x900000002;\nst.global.b64 [%rd1], %rd9;\n", "ld.global.b32 %r5, [%rd1+4];\n", 9),
    ],
)
def test_loads_beside_stores_of_another_width(store: str, load: str, number: int) -> None:
    found = one_block("a.ptx", store + load + _AS_FLOAT)
    for wanted, expected in ((number, Outcome.EQUAL), (number + 1, Outcome.UNPROVED)):
        assert outcome(found, one_block("literal.ptx", store + literal(wanted)))[0] is expected


@pytest.mark.parametrize(("place", "number"), [(0, 9), (4, 6)])
def test_a_load_after_a_store_of_the_same_thread_sees_the_store(place: int, number: int) -> None:
    store = "mov.u32 %r5, 9;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 st.global.b32 [%rd1], %r5;\n"
    body = store + f"@%p1 ld.global.b32 %r5, [%rd1+{place}];\n" + _AS_FLOAT
    for wanted, expected in ((number, Outcome.EQUAL), (5, Outcome.UNPROVED)):
        by_hand = store + f"@%p1 mov.u32 %r5, {wanted};\n" + _AS_FLOAT
        assert outcome(one_block("a.ptx", body), one_block("b.ptx", by_hand))[0] is expected


@pytest.mark.parametrize(
    ("dtype", "table", "load"),
    [
        ("u8", [1, 2, 3, 4], "ld.global.b32 %r5, [%rd1];\nshr.u32 %r5, %r5, 16;\nand.b32 %r5, %r5, 255;\n"),
        ("i64", [-1, 3], "ld.global.b64 %rd9, [%rd1+8];\ncvt.u32.u64 %r5, %rd9;\n"),
        ("i16", [-1, 3], "ld.global.s16 %r5, [%rd1+2];\n"),
        ("i1", [0, True, True], "ld.global.u8 %r5, [%rd1+2];\nadd.s32 %r5, %r5, 2;\n"),
    ],
)
def test_tables_of_other_types(dtype: str, table: list[int], load: str) -> None:
    loads("a.ptx", load + _AS_FLOAT, 3, table, dtype)


def test_signed_numbers_are_sign_extended() -> None:
    loads("a.ptx", "ld.global.s16 %r5, [%rd1];\ncvt.rn.f32.s32 %f1, %r5;\n", -7, [-7], "i16")


def test_floats_are_constants_of_the_terms() -> None:
    body = "ld.global.f32 %f1, [%rd1];\nld.global.f32 %f2, [%rd1+4];\nadd.rn.f32 %f1, %f1, %f2;\n"
    loads("a.ptx", body, 3.5, [1.25, 2.25], "fp32")
    scaled = "ld.global.f32 %f2, [%rd1];\nld.global.f32 %f1, [%rd3];\nmul.rn.f32 %f1, %f1, %f2;\n"
    plain = "ld.global.f32 %f1, [%rd3];\n"
    for scale, expected in ((1.0, Outcome.EQUAL), (2.0, Outcome.UNPROVED)):
        pair = (one_block(name, body, [scale], "fp32") for name, body in (("a.ptx", scaled), ("b.ptx", plain)))
        assert outcome(*pair)[0] is expected


_BEYOND = "the buffer T is read at element 4 ({} bytes at byte 16), beyond the 4 values"


def unknown_reason(body: str, table: object = None, dtype: str = "i32", **fields: Any) -> str:
    found, reason = outcome(one_block("a.ptx", body, table, dtype, **fields), one_block("b.ptx", body, table, dtype))
    assert found is Outcome.UNKNOWN
    return reason


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("ld.global.b32 %r5, [%rd1+16];\n", _BEYOND.format(4)),
        ("ld.global.b64 %rd9, [%rd1+16];\n", _BEYOND.format(8)),
        ("ld.global.v4.b32 {%r6, %r7, %r5, %r8}, [%rd1+16];\n", "the buffer T is read at element 4 (4 bytes"),
        ("ld.global.b32 %r5, [%rd1+2];\n", "an access of 4 bytes is not aligned to its size"),
        ("st.global.b32 [%rd1], %r1;\nld.global.b32 %r5, [%rd1];\n", "(a race"),
    ],
)  # fmt: skip
def test_loads_that_have_no_number(body: str, sentence: str) -> None:
    assert sentence in unknown_reason("mov.u32 %r5, 0;\n" + body + _AS_FLOAT)


def test_a_block_that_reads_what_another_writes_is_unknown() -> None:
    body = _PAGE + "setp.eq.u32 %p1, %r2, 1;\n@%p1 st.global.b32 [%rd1], 2;\n" + _AS_FLOAT
    for order in (body, body.replace(_PAGE, "") + _PAGE + _AS_FLOAT):
        entry = launch("a.ptx", table=[1, 1, 1])
        found = Source("a.ptx", COPY.format(body=order), Launch.model_validate(entry))
        reason = outcome(found, found)[1]
        assert "a block reads global memory that another block of the launch writes" in reason


def test_a_store_of_the_value_that_memory_holds_is_no_race() -> None:
    body = _PAGE + "mov.u32 %r7, 1;\nst.global.b32 [%rd1], %r7;\n" + _AS_FLOAT
    for order in (body, body.replace(_PAGE, "") + _PAGE + _AS_FLOAT):
        found = Source("a.ptx", COPY.format(body=order), Launch.model_validate(launch("a.ptx", table=[1, 1, 1])))
        assert outcome(found, found)[0] is Outcome.EQUAL


def test_a_mask_hides_what_lies_beyond_the_values() -> None:
    body = "mov.u32 %r5, 9;\nsetp.lt.u32 %p1, %r1, 4;\nmul.wide.u32 %rd5, %r1, 4;\nadd.s64 %rd7, %rd1, %rd5;\n"
    masked = body + "@%p1 ld.global.b32 %r5, [%rd7];\n" + _AS_FLOAT
    by_hand = body + "@%p1 add.s32 %r5, %r1, 5;\n" + _AS_FLOAT
    assert outcome(one_block("a.ptx", masked), one_block("b.ptx", by_hand))[0] is Outcome.EQUAL
    assert "the buffer T is read at element 4 " in unknown_reason(masked.replace("@%p1 ld", "ld"))


def test_an_atomic_operation_starts_from_the_given_number() -> None:
    added = "setp.ne.u32 %p1, %r1, 0;\n@!%p1 red.global.add.u32 [%rd1], 2;\nmov.f32 %f1, 0f00000000;\n"
    stored = "setp.ne.u32 %p1, %r1, 0;\nmov.u32 %r5, {};\n@!%p1 st.global.b32 [%rd1], %r5;\nmov.f32 %f1, 0f00000000;\n"
    for number, expected in ((7, Outcome.EQUAL), (8, Outcome.UNPROVED)):
        pair = one_block("a.ptx", added), one_block("b.ptx", stored.format(number))
        assert outcome(*pair)[0] is expected


def test_an_offset_of_the_argument_does_not_move_the_contents() -> None:
    body = "ld.global.b32 %r5, [%rd1];\n" + _AS_FLOAT
    moved = one_block("a.ptx", body)
    assert moved.launch is not None
    arguments = (moved.launch.args[0].model_copy(update={"offset": 8}), *moved.launch.args[1:])
    moved = Source("a.ptx", moved.text, moved.launch.model_copy(update={"args": arguments}))
    assert outcome(moved, one_block("b.ptx", literal(7)))[0] is Outcome.EQUAL


def test_a_load_that_reaches_past_the_last_value_is_unknown() -> None:
    body = "ld.global.b64 %rd9, [%rd1+8];\ncvt.u32.u64 %r5, %rd9;\n" + _AS_FLOAT
    sentence = "the buffer T is read at element 2 (8 bytes at byte 8), beyond the 3 values"
    assert sentence in unknown_reason(body, [5, 6, 7])
    loads("a.ptx", body, 7, [5, 6, 7, 8])


def test_one_load_from_given_and_other_buffers() -> None:
    chosen = "setp.lt.u32 %p1, %r1, 4;\nselp.b64 %rd5, %rd1, %rd3, %p1;\nmul.wide.u32 %rd6, %r1, 4;\n"
    body = chosen + "add.s64 %rd7, %rd5, %rd6;\nld.global.b32 %r5, [%rd7];\n" + _AS_FLOAT
    by_hand = (
        "setp.lt.u32 %p1, %r1, 4;\nmul.wide.u32 %rd6, %r1, 4;\nadd.s64 %rd7, %rd3, %rd6;\nadd.s32 %r5, %r1, {};\n"
        "@!%p1 ld.global.b32 %r5, [%rd7];\n" + _AS_FLOAT
    )
    for first, expected in ((5, Outcome.EQUAL), (6, Outcome.UNPROVED)):
        pair = one_block("a.ptx", body), one_block("b.ptx", by_hand.format(first))
        assert outcome(*pair)[0] is expected


def test_lanes_with_a_known_address_in_a_load_at_computed_addresses() -> None:
    index = "ld.global.b32 %r6, [%rd3];\nand.b32 %r6, %r6, 3;\nsetp.lt.u32 %p1, %r1, 4;\nselp.b32 %r6, {}, %r6, %p1;\n"
    body = index + "mul.wide.u32 %rd5, %r6, 4;\nadd.s64 %rd7, %rd1, %rd5;\nld.global.b32 %r5, [%rd7];\n{}" + _AS_FLOAT
    by_hand = body.format(0, "@%p1 mov.u32 %r5, 7;\n")
    assert outcome(one_block("a.ptx", body.format(2, "")), one_block("b.ptx", by_hand))[0] is Outcome.EQUAL
    assert outcome(one_block("a.ptx", body.format(1, "")), one_block("b.ptx", by_hand))[0] is Outcome.UNPROVED
    assert "the buffer T is read at element 4 " in unknown_reason(body.format(4, ""))


def test_a_load_at_a_computed_address_in_given_contents_is_a_term() -> None:
    body = "ld.global.b32 %r6, [%rd3];\nand.b32 %r6, %r6, 3;\nmul.wide.u32 %rd5, %r6, 4;\nadd.s64 %rd7, %rd1, %rd5;\n"
    gathered = body + "ld.global.b32 %r5, [%rd7];\n" + _AS_FLOAT
    assert outcome(one_block("a.ptx", gathered), one_block("b.ptx", gathered))[0] is Outcome.EQUAL
    assert outcome(one_block("a.ptx", gathered), one_block("b.ptx", literal(5)))[0] is Outcome.UNPROVED


# -- runs on bit patterns ---------------------------------------------------------------------------------------------


def folder(tmp_path: Path, **fields: Any) -> Path:
    names = ("loop.ptx", "reverse.ptx", "guarded.ptx")
    for name in names:
        (tmp_path / name).write_text(PAGES[name])
    np.save(tmp_path / "table.npy", np.array(TABLE, np.int32))
    entries = [launch(name, **{"table": "table.npy", **fields}) for name in names]
    (tmp_path / "manifest.json").write_text(json.dumps({"kernels": entries}))
    return tmp_path


def command(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


def test_a_counterexample_is_found_on_the_given_tensors(tmp_path: Path) -> None:
    kernels, out = folder(tmp_path), tmp_path / "in.npz"
    status, text, _ = command(
        "diff", str(kernels / "loop.ptx"), str(kernels / "reverse.ptx"), "--json", "--out", str(out)
    )
    found = json.loads(text)
    assert (status, found["outcome"]) == (1, "different")
    assert sorted(found["tensors"]) == ["N", "T"]
    with np.load(out) as arrays:
        assert arrays["T"].tolist() == TABLE
        assert arrays["N"].tolist() == LENGTHS
    after = []
    for name in ("loop.ptx", "reverse.ptx"):
        result = tmp_path / f"{name}.npz"
        assert command("run", str(kernels / name), "--inputs", str(out), "--out", str(result))[0] == 0
        with np.load(result) as arrays:
            after.append(arrays["Y"].tobytes())
    assert after[0] != after[1]


def test_a_run_beyond_the_given_values_is_no_counterexample(tmp_path: Path) -> None:
    kernels = folder(tmp_path, table=TABLE[:7])
    _, text, _ = command("diff", str(kernels / "loop.ptx"), str(kernels / "reverse.ptx"), "--json")
    found = json.loads(text)
    assert (found["outcome"], found["counterexample"]) == ("unknown", None)
    assert any("the buffer T holds 28 bytes and is read at byte 28" in note for note in found["notes"])


def test_different_tensors_are_not_searched(tmp_path: Path) -> None:
    kernels = folder(tmp_path)
    manifest = json.loads((kernels / "manifest.json").read_text())
    manifest["kernels"][1]["args"][0]["values"] = OTHER
    (kernels / "manifest.json").write_text(json.dumps(manifest))
    status, text, _ = command("diff", str(kernels / "loop.ptx"), str(kernels / "reverse.ptx"), "--json")
    found = json.loads(text)
    assert (status, found["outcome"], found["counterexample"]) == (3, "unknown", None)
    assert "the buffer T has different contents" in found["reason"]
    assert any(note.startswith("no input was tried: the buffer T has different contents") for note in found["notes"])


def test_a_partition_names_the_tensors(tmp_path: Path) -> None:
    status, text, _ = command("partition", str(folder(tmp_path)), "--json", "--workers", "1")
    found = json.loads(text)
    assert (status, found["classes"]) == (0, [["loop.ptx", "guarded.ptx"], ["reverse.ptx"]])
    assert sorted(found["tensors"]) == ["N", "T"]
    (tmp_path / "table.npy").unlink()
    status, text, errors = command("partition", str(tmp_path))
    assert (status, text) == (2, "")
    assert "kernels.0.args.0: the values of the buffer T are named as table.npy, which does not exist" in errors


def test_a_run_takes_the_given_tensors_and_refuses_others(tmp_path: Path) -> None:
    kernels = folder(tmp_path)
    x = np.arange(8 * 32, dtype=np.float32)
    y = np.zeros(96, np.float32)
    after = bitwise.run(kernels / "loop.ptx", {"X": x, "Y": y})
    pages = [x.reshape(8, 32)[page] for page in TABLE]
    assert np.array_equal(after["Y"].reshape(3, 32), [sum(pages[:3]), sum(pages[4:8]), np.zeros(32)])
    assert any(note.startswith("the verdict holds for the contents") for note in after.notes)
    with pytest.raises(bitwise.BitwiseError, match="the array T is not what the launch gives for this buffer"):
        bitwise.run(kernels / "loop.ptx", {"X": x, "Y": y, "T": np.array(OTHER, np.int32)})
    np.savez(tmp_path / "in.npz", X=x, Y=y, T=np.array(OTHER, np.int32))
    status, _, errors = command(
        "run", str(kernels / "loop.ptx"), "--inputs", str(tmp_path / "in.npz"), "--out", "o.npz"
    )
    assert status == 2
    assert "the array T is not what the launch gives for this buffer; omit it, or change the manifest" in errors


def test_the_python_interface_takes_arrays() -> None:
    entry = launch("a.ptx", table=np.array(TABLE, np.int32))
    assert bitwise.compare(PAGES["loop.ptx"], PAGES["guarded.ptx"], entry).outcome is Outcome.EQUAL
    with pytest.raises(bitwise.BitwiseError, match=r"args\.0: the values of the buffer T hold 0\.5 at index 0"):
        bitwise.compare(PAGES["loop.ptx"], PAGES["guarded.ptx"], launch("a.ptx", table=[0.5]))
