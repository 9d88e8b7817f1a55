"""Conversions to bf16 by integers are one operation, where every instruction is that of the sequence."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_amd_gfx942.architecture import GFX942
from bitwise_amd_gfx942.bf16_rounding import bf16_roundings
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.execution import byte_functions, instruction_cones
from bitwise_core.execution.architecture import infos_of
from bitwise_core.execution.known_sequences import KnownSequence
from bitwise_core.numerics import operation
from gfx942_kernels import Array, reading, run, text_of

PREPARED = """s_movk_i32 s20, 0x7fff
v_mov_b32_e32 v20, 0x7fff
v_mul_f32_e32 v10, v2, v3
v_mov_b32_e32 v30, v4
v_mov_b32_e32 v31, v3
v_mov_b32_e32 v32, v2
v_mov_b32_e32 v33, v2
v_mov_b32_e32 v34, v2
v_mov_b32_e32 v35, v2
v_mov_b32_e32 v36, v2
v_mov_b32_e32 v37, v2
"""
"""Constants, the value x in v10, and enough instructions for the run to be searched."""

ROUNDED = f"""{PREPARED}v_bfe_u32 v11, v10, 16, 1
v_add3_u32 v11, v10, v11, s20
v_lshrrev_b32_e32 v11, 16, v11
v_cmp_o_f32_e32 vcc, v10, v10
v_cndmask_b32_e32 v5, v20, v11, vcc"""

ALSO = {
    "other operands of the sum": ("v10, v11, s20", "s20, v11, v10"),
    "a sum that begins with the bit": ("v10, v11, s20", "v11, v20, v10"),
    "the test in another mask": ("vcc", "s[22:23]"),
    "the opposite test": ("v_cmp_o_f32_e32", "v_cmp_u_f32_e32"),
    "the half of the select": (
        "v_lshrrev_b32_e32 v11, 16, v11\nv_cmp_o_f32_e32 vcc, v10, v10\nv_cndmask_b32_e32 v5, v20, v11, vcc",
        "v_cmp_o_f32_e32 vcc, v10, v10\nv_cndmask_b32_sdwa v5, v20, v11, vcc dst_sel:DWORD dst_unused:UNUSED_PAD "
        "src0_sel:DWORD src1_sel:WORD_1",
    ),
    "the bit of the high half": (
        "v_bfe_u32 v11, v10, 16, 1",
        "v_mov_b32_e32 v12, 1\n"
        "v_and_b32_sdwa v11, v10, v12 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD",
    ),
    "the bit of the high half as the second source": (
        "v_bfe_u32 v11, v10, 16, 1",
        "v_mov_b32_e32 v12, 1\n"
        "v_and_b32_sdwa v11, v12, v10 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:WORD_1",
    ),
    "two sums": ("v_add3_u32 v11, v10, v11, s20", "v_add_u32_e32 v11, v10, v11\nv_add_u32_e32 v11, 0x7fff, v11"),
    "two sums that begin with the number": (
        "v_add3_u32 v11, v10, v11, s20",
        "v_add_u32_e32 v12, s20, v10\nv_add_u32_e64 v11, v12, v11",
    ),
    "two sums of which the first has no x": (
        "v_add3_u32 v11, v10, v11, s20",
        "v_add_u32_e32 v11, v20, v11\nv_add_u32_e32 v11, v11, v10",
    ),
    "a sum that is used twice": ("v5, v20, v11, vcc", "v5, v20, v11, vcc\nv_xor_b32_e32 v5, v5, v11"),
    "a copy is tested": ("v_cmp_o_f32_e32 vcc, v10, v10", "v_mov_b32_e32 v12, v10\nv_cmp_o_f32_e32 vcc, v12, v12"),
    "a copy is added": (
        "v_add3_u32 v11, v10, v11, s20",
        "v_mov_b32_e32 v12, v10\nv_add3_u32 v11, v12, v11, s20",
    ),
    "copies of an accumulator": (
        "v_cmp_o_f32_e32 vcc, v10, v10",
        "v_accvgpr_write_b32 a3, v10\nv_accvgpr_read_b32 v12, a3\nv_accvgpr_read_b32 v13, a3\n"
        "v_cmp_o_f32_e32 vcc, v12, v13",
    ),
    "the register of x is written": ("v_lshrrev_b32_e32 v11, 16", "v_mov_b32_e32 v12, v10\nv_lshrrev_b32_e32 v11, 16"),
}
"""Replacements of which the result is the sequence's, too."""

OTHERS = {
    "another bit": ("v10, 16, 1", "v10, 15, 1"),
    "two bits": ("v10, 16, 1", "v10, 16, 2"),
    "a bit of another value": ("v11, v10, 16, 1", "v11, v3, 16, 1"),
    "another bit of the high half": (
        "v_bfe_u32 v11, v10, 16, 1",
        "v_mov_b32_e32 v12, 2\n"
        "v_and_b32_sdwa v11, v10, v12 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD",
    ),
    "the bit of the low half": (
        "v_bfe_u32 v11, v10, 16, 1",
        "v_mov_b32_e32 v12, 1\n"
        "v_and_b32_sdwa v11, v10, v12 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:WORD_1",
    ),
    "another number is added": ("s_movk_i32 s20, 0x7fff", "s_movk_i32 s20, 0x7ffe"),
    "each lane adds its own number": ("s20\n", "v0\n"),
    "x is added twice": ("v11, v10, v11, s20", "v11, v10, v10, s20"),
    "a sum of two": ("v_add3_u32 v11, v10, v11, s20", "v_add_u32_e32 v11, v10, v11"),
    "two sums that add another number": (
        "v_add3_u32 v11, v10, v11, s20",
        "v_add_u32_e32 v11, v10, v11\nv_add_u32_e32 v11, 0x7ffe, v11",
    ),
    "two sums of which one is a difference": (
        "v_add3_u32 v11, v10, v11, s20",
        "v_sub_u32_e32 v11, v10, v11\nv_add_u32_e32 v11, 0x7fff, v11",
    ),
    "two sums of which one saturates": (
        "v_add3_u32 v11, v10, v11, s20",
        "v_add_u32_e64 v11, v10, v11 clamp\nv_add_u32_e32 v11, 0x7fff, v11",
    ),
    "x is another value at the second sum": (
        "v_add3_u32 v11, v10, v11, s20",
        "v_add_u32_e32 v11, s20, v11\nv_add_f32_e32 v10, v10, v3\nv_add_u32_e32 v11, v11, v10",
    ),
    "another value is added": ("v11, v10, v11, s20", "v11, v3, v11, s20"),
    "another shift": ("v11, 16, v11", "v11, 15, v11"),
    "another number for NaN": ("v_mov_b32_e32 v20, 0x7fff", "v_mov_b32_e32 v20, 0x7ffe"),
    "a small number for NaN": ("v5, v20, v11", "v5, 64, v11"),
    "another value is tested": ("vcc, v10, v10", "vcc, v10, v3"),
    "another value alone is tested": ("vcc, v10, v10", "vcc, v3, v3"),
    "another test": ("v_cmp_o_f32_e32", "v_cmp_lt_f32_e32"),
    "a test of the magnitude": ("v_cmp_o_f32_e32 vcc, v10, v10", "v_cmp_o_f32_e64 vcc, |v10|, v10"),
    "the opposite test alone": ("v_cmp_o_f32_e32 vcc", "v_cmp_u_f32_e32 vcc"),
    "the opposite half of the select": (
        ALSO["the half of the select"][0],
        "v_cmp_u_f32_e32 vcc, v10, v10\nv_cndmask_b32_sdwa v5, v20, v11, vcc dst_sel:DWORD dst_unused:UNUSED_PAD "
        "src0_sel:DWORD src1_sel:WORD_1",
    ),
    "another mask": ("v5, v20, v11, vcc", "v5, v20, v11, s[24:25]"),
    "a copy is changed before the test": (
        "v_cmp_o_f32_e32 vcc, v10, v10",
        "v_mov_b32_e32 v12, v10\nv_add_f32_e32 v12, v12, v3\nv_cmp_o_f32_e32 vcc, v12, v12",
    ),
    "a copy of a later value is tested": (
        "v_cmp_o_f32_e32 vcc, v10, v10",
        "v_add_f32_e32 v10, v10, v3\nv_mov_b32_e32 v12, v10\nv_cmp_o_f32_e32 vcc, v12, v12",
    ),
    "a copy and another value are tested": (
        "v_cmp_o_f32_e32 vcc, v10, v10",
        "v_mov_b32_e32 v12, v10\nv_cmp_o_f32_e32 vcc, v12, v3",
    ),
    "x is another value at the sum": ("v_add3_u32", "v_add_f32_e32 v10, v10, v3\nv_add3_u32"),
    "x is another value at the test": ("v_cmp_o", "v_add_f32_e32 v10, v10, v3\nv_cmp_o"),
    "the mask is another one at the select": ("v_cndmask", "v_cmp_lt_f32_e32 vcc, v3, v10\nv_cndmask"),
    "other lanes at the select": ("v_cndmask", "s_mov_b64 exec, s[30:31]\nv_cndmask"),
    "other lanes at the sum": ("v_add3_u32", "s_mov_b64 exec, s[30:31]\nv_add3_u32"),
}
"""Replacements after which the instructions are no such sequence."""

FIRST = "v_mov_b32_e32 v5, v4\nv_cmp_lt_f32_e64 s[24:25], v3, v2\nv_cmp_gt_u32_e64 s[30:31], 20, v0\n"


def text(change: tuple[str, str] | None = None) -> str:
    """Return the instructions after a replacement."""
    body = ROUNDED
    if change is not None:
        assert body.count(change[0]) >= 1
        body = body.replace(*change)
    if change == ALSO["the opposite test"]:
        body = body.replace("v5, v20, v11", "v5, v11, v20")
    if change == ALSO["the test in another mask"]:
        body = body.replace("v_cmp_o_f32_e32", "v_cmp_o_f32_e64").replace("v_cndmask_b32_e32", "v_cndmask_b32_e64")
    return f"{FIRST}{body}\ns_mov_b64 exec, -1"


def sequences(body: str) -> list[KnownSequence]:
    kernel = GFX942.parse(text_of(body), "kernel.amdgcn").kernels[0]
    return list(bf16_roundings(kernel, infos_of(kernel, GFX942.opcodes), 0, len(kernel.instructions)))


def by_instruction(body: str, monkeypatch: pytest.MonkeyPatch) -> AnalysisResult:
    with monkeypatch.context() as patch:
        patch.setattr(instruction_cones, "_known_sequences", lambda *_: ())
        return reading(body)


def in_some_lanes(change: tuple[str, str] | None = None, after: str = "") -> str:
    """Return the instructions after a replacement, in a short block that some lanes execute, with others after it."""
    body = text(change).removesuffix("s_mov_b64 exec, -1")
    first = "v_bfe" if "v_bfe" in body else "v_and_b32_sdwa"
    body = body.replace(first, f"s_mov_b64 exec, s[30:31]\ns_branch start\nstart:\n{first}", 1)
    return f"v_mov_b32_e32 v11, v3\n{body}{after}s_mov_b64 exec, -1"


def values() -> tuple[Array, Array]:
    """Return factors of which the products are special numbers, halfway cases, and drawn ones."""
    special = [
        0,
        1 << 31,
        1,
        0x8000,
        0x7F800000,
        0xFF800000,
        0x7FC00000,
        0x7F7FFFFF,
        0x7F7F8000,
        0x3F808000,
        0x3F818000,
    ]
    drawn = np.random.default_rng(2).integers(0, 1 << 32, 512 - len(special), dtype=np.uint64).astype(np.uint32)
    words = np.concatenate([np.array(special, dtype=np.uint32), drawn])
    return words.astype(np.uint64), np.full(512, 0x3F800000, dtype=np.uint64)


def test_the_sequence_rounds_to_bf16() -> None:
    x, one = values()
    expected = operation("convert.rn.bf16.fp32").evaluate(x.astype(np.uint32))
    for name, change in ALSO.items():
        if name != "a sum that is used twice":
            assert (run(text(change), x, one, threads=512) == expected).all(), name
    assert (run(text(), x, one, threads=512) == expected).all()


@pytest.mark.parametrize("change", [None, *ALSO.values()], ids=["plain", *ALSO])
def test_the_sequence_is_one_operation(change: tuple[str, str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    body = text(change)
    assert len(sequences(body)) == 1
    found = reading(body)
    assert found.signature is not None
    assert found.signature == by_instruction(body, monkeypatch).signature


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The sequences that are executed, and whether each is computed as one operation."""
    ran: list[bool] = []
    made = byte_functions._known_value

    def noted(*arguments: object) -> object:
        value = made(*arguments)  # type: ignore[arg-type]
        ran.append(value is not None)
        return value

    monkeypatch.setattr(byte_functions, "_known_value", noted)
    return ran


def test_it_is_executed_as_one_operation(computed: list[bool]) -> None:
    assert reading(text()).signature is not None
    assert computed == [True]


@pytest.mark.parametrize("change", [None, *ALSO.values()], ids=["plain", *ALSO])
def test_it_is_one_operation_in_some_lanes(
    change: tuple[str, str] | None, computed: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = in_some_lanes(change)
    assert reading(body).signature == by_instruction(body, monkeypatch).signature is not None
    assert computed == [True]
    x, one = values()
    assert (run(body, x, one, threads=512)[20:] == run(f"{FIRST}v_mov_b32_e32 v5, v4", x, one, threads=512)[20:]).all()


@pytest.mark.parametrize(
    "after",
    [
        "v_mov_b32_e32 v5, v11\n",
        "s_mov_b64 exec, -1\nv_mov_b32_e32 v5, v11\n",
        "v_mov_b32_e32 v11, v2\ns_mov_b64 exec, -1\nv_add_u32_e32 v5, v5, v11\n",
        "s_mov_b64 exec, s[24:25]\nv_mov_b32_e32 v11, v2\ns_mov_b64 exec, -1\nv_add_u32_e32 v5, v5, v11\n",
        "s_mov_b64 exec, -1\nv_mov_b32_dpp v5, v11 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf\n",
        "s_mov_b64 exec, vcc\nv_mov_b32_e32 v5, v2\n",
        "s_barrier\nv_mov_b32_e32 v5, v11\n",
    ],
)
def test_what_reads_a_member_in_some_lanes(after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other lanes keep their registers, and results of members that something reads are computed."""
    body = in_some_lanes(after=after)
    found, expected = reading(body), by_instruction(body, monkeypatch)
    assert (found.signature, found.unknown) == (expected.signature, expected.unknown)
    assert found.signature is not None


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_what_differs_is_read_by_instruction(change: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    found, whole = reading(text(change)), reading(text())
    assert found.signature is not None
    assert found.signature == by_instruction(text(change), monkeypatch).signature
    assert found.signature != whole.signature
    body = in_some_lanes(change)
    assert reading(body).signature == by_instruction(body, monkeypatch).signature


def test_results_of_members_stay_in_inactive_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lanes in which a later write does not act hold the sum, which is computed for them."""
    kept = (
        f"{FIRST}{ROUNDED}\ns_mov_b64 exec, s[30:31]\nv_mov_b32_e32 v11, v3\ns_mov_b64 exec, -1\nv_mov_b32_e32 v5, v11"
    )
    assert len(sequences(kept)) == 1
    assert reading(kept).signature == by_instruction(kept, monkeypatch).signature is not None


def test_inactive_lanes_keep_their_registers() -> None:
    x, one = values()
    kept = run(f"{FIRST}s_mov_b64 exec, s[30:31]\n{ROUNDED}\ns_mov_b64 exec, -1", x, one, threads=512)
    whole = run(text(), x, one, threads=512)
    inside = np.arange(512) < 20
    assert (kept[inside] == whole[inside]).all()
    assert not (kept[~inside] == whole[~inside]).all()


def rounded_and_more(test: str) -> str:
    """Return a rounding whose result long arithmetic takes, with its test of x, after another test in the same mask."""
    before = "v_cmp_lt_f32_e32 vcc, v3, v2\n"
    body = ROUNDED.replace("v_cmp_o_f32_e32 vcc, v10, v10\n", test)
    more = [f"v_xor_b32_e32 v5, {number}, v5\nv_add_u32_e32 v5, v5, v0" for number in range(2, 12)]
    return "\n".join([f"{before}{body}", *more])


def test_a_rounding_inside_of_a_longer_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its test of x, which is skipped for the rounding alone, is an input of the longer computation."""
    body, other = rounded_and_more("v_cmp_o_f32_e32 vcc, v10, v10\n"), rounded_and_more("")
    assert len(sequences(body)) == 1
    assert reading(body).signature == by_instruction(body, monkeypatch).signature is not None
    assert reading(body).signature != reading(other).signature


MASKED = (
    f"{FIRST}s_mov_b32 s26, 0xffff0000\n{ROUNDED}".replace(
        "v_lshrrev_b32_e32 v11, 16, v11", "v_and_b32_e32 v11, s26, v11"
    ).replace("v20, 0x7fff", "v20, 0x7fff0000")
    + "\ns_mov_b64 exec, -1"
)
"""The sequence whose result is fp32 again."""

MASKED_ALSO = {
    "the mask as a literal": ("v11, s26, v11", "v11, 0xffff0000, v11"),
    "the mask as the second source": ("v_and_b32_e32 v11, s26, v11", "v_and_b32_e64 v11, v11, s26"),
    "the mask in a vector register": (
        "v_and_b32_e32 v11, s26, v11",
        "v_mov_b32_e32 v12, s26\nv_and_b32_e32 v11, v11, v12",
    ),
    "the number for NaN as a literal": ("v5, v20, v11, vcc", "v5, 0x7fff0000, v11, vcc"),
}

MASKED_OTHERS = {
    "another mask": ("0xffff0000", "0xfffe0000"),
    "a mask of the low half": ("0xffff0000", "0xffff"),
    "each lane has its own mask": ("v11, s26, v11", "v11, v0, v11"),
    "the number for NaN of the low half": ("v20, 0x7fff0000", "v20, 0x7fff"),
    "another number for NaN": ("v20, 0x7fff0000", "v20, 0x7fff8000"),
    "another value is masked": ("v11, s26, v11", "v11, s26, v3"),
    "the mask is added": ("v_and_b32_e32 v11", "v_add_u32_e32 v11"),
    "another number is added": ("s_movk_i32 s20, 0x7fff", "s_movk_i32 s20, 0x7ffe"),
    "the opposite test": ("v_cmp_o_f32_e32", "v_cmp_u_f32_e32"),
}


@pytest.mark.parametrize("change", [("", ""), *MASKED_ALSO.values()], ids=["plain", *MASKED_ALSO])
def test_a_rounding_whose_result_is_fp32(
    change: tuple[str, str], computed: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = MASKED.replace(*change)
    assert len(sequences(body)) == 1
    x, one = values()
    half = operation("convert.rn.bf16.fp32").evaluate(x.astype(np.uint32)).astype(np.uint32)
    assert (run(body, x, one, threads=512) == half << np.uint32(16)).all()
    found = reading(body)
    assert computed == [True]
    assert found.signature == by_instruction(body, monkeypatch).signature is not None


@pytest.mark.parametrize("change", MASKED_OTHERS.values(), ids=MASKED_OTHERS)
def test_a_masked_sum_that_is_no_rounding(
    change: tuple[str, str], computed: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MASKED.count(change[0]) >= 1
    body = MASKED.replace(*change)
    found = reading(body)
    assert True not in computed
    assert found.signature == by_instruction(body, monkeypatch).signature is not None
    assert found.signature != reading(MASKED).signature
