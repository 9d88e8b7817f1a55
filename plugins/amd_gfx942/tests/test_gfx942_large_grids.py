"""Large grids: all blocks are represented by a few, of which the index of the block is a register."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from bitwise_amd_gfx942.architecture import GFX942
from bitwise_core.checker import analysis
from bitwise_core.checker.block_symmetry.grid import NotSymmetric
from bitwise_core.checker.block_symmetry.symmetry import summarise
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.results import LARGE_GRID
from bitwise_core.checker.sources import Options, Source, buffer_numbers
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.concrete import PreparedLaunch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Argument, Launch
from gfx942_kernels import HEAD, TAIL

ARGUMENTS = "".join(
    f"      - .address_space:  global\n        .offset:         {8 * index}\n        .size:           8\n"
    "        .value_kind:     global_buffer\n"
    for index in range(3)
)

START = """s_load_dwordx4 s[8:11], s[0:1], 0x0
s_load_dwordx2 s[12:13], s[0:1], 0x10
s_waitcnt lgkmcnt(0)
v_lshlrev_b32_e32 v1, 2, v0
s_lshl_b32 s4, s2, 8
v_add_u32_e32 v2, s4, v1
global_load_dword v3, v2, s[10:11]
global_load_dword v4, v2, s[12:13]
s_waitcnt vmcnt(0)
"""
"""s2 is the index of the block, v1 the byte offset of the lane, v2 that of the element, v3 and v4 those of a and b."""

SUM = f"{START}v_add_f32_e32 v5, v3, v4\nglobal_store_dword v2, v5, s[8:9]"

MASKED = f"""{START}v_cmp_gt_u32_e32 vcc, 40, v0
v_bfrev_b32_e32 v6, 1
v_cndmask_b32_e32 v7, v6, v2, vcc
s_mov_b64 s[16:17], s[12:13]
s_and_b32 s17, s17, 0xffff
s_mov_b32 s18, 0x7ffffffe
s_mov_b32 s19, 0x27000
buffer_load_dword v4, v7, s[16:19], 0 offen
s_mov_b64 s[20:21], s[8:9]
s_and_b32 s21, s21, 0xffff
s_mov_b32 s22, s18
s_mov_b32 s23, s19
s_waitcnt vmcnt(0)
v_add_f32_e32 v5, v3, v4
buffer_store_dword v5, v7, s[20:23], 0 offen"""
"""The offsets of the lanes from 40 on are out of bounds, as compilers write a mask."""


def source(name: str, body: str) -> Source:
    lines = "".join(f"\t{line}\n" for line in body.splitlines())
    text = HEAD + lines + TAIL.format(size=24, denormals=3, arguments=ARGUMENTS).lstrip("\n")
    buffers = tuple(Argument(kind="buffer", buffer=each, dtype="fp32") for each in ("out", "a", "b"))
    return Source(name, text, Launch(file=name, grid=(48, 1, 1), block=(64, 1, 1), args=buffers))


@pytest.fixture(params=["large", "executed in full"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "large":
        monkeypatch.setattr(analysis, "MAXIMUM_LANES", 0)
    return str(request.param)


@pytest.mark.parametrize(
    ("body", "change", "equal"),
    [
        (SUM, ("v5, v3, v4", "v5, v4, v3"), True),
        (SUM, ("v5, v3, v4", "v5, v3, v3"), False),
        (SUM, ("global_load_dword v3, v2", "global_load_dword v3, v1"), False),
        (SUM, ("v2, s4, v1\n", "v2, s4, v1\nv_mov_b32_e32 v6, v2\n"), True),
        # The blocks do the work of others: block 47 - i that of block i.
        (SUM, ("s_lshl_b32 s4, s2, 8", "s_sub_u32 s4, 47, s2\ns_lshl_b32 s4, s4, 8"), True),
        (SUM, ("s_waitcnt vmcnt(0)", "s_mul_i32 s4, s2, 256\nv_add_u32_e32 v2, s4, v1\ns_waitcnt vmcnt(0)"), True),
    ],
    ids=["operands", "other operand", "one row", "copies", "other blocks", "other rows"],
)
def test_blocks_of_a_grid(size: str, body: str, change: tuple[str, str], equal: bool) -> None:
    assert change[0] in body
    changed = body.replace(*change)
    found = compare(source("one", body), source("other", changed), GFX942, Options()).verdict
    assert (found.outcome is Outcome.EQUAL) == equal, found
    assert found.outcome is not Outcome.UNKNOWN, found
    assert (LARGE_GRID in found.notes) == (size == "large")


@pytest.mark.parametrize("operands", ["v3, v6", "v6, v3"])
@pytest.mark.parametrize("name", ["v_max_f32_e32", "v_min_f32_e32", "v_max_f16_e32", "v_min_f16_e32"])
def test_an_extremum_with_a_number_of_the_block(size: str, name: str, operands: str) -> None:
    """The pass over all blocks knows only that both operands are data, which does not make them one number."""
    body = f"{START}v_xor_b32_e32 v6, s2, v4\n{name} v5, {operands}\nglobal_store_dword v2, v5, s[8:9]"
    changed = body.replace("v6, s2, v4", "v6, 0, v4")
    found = compare(source("one", body), source("other", changed), GFX942, Options()).verdict
    assert found.outcome is not Outcome.EQUAL, found


@pytest.mark.parametrize(
    ("mask", "operands"),
    [("s_xor_b64", "v3, v6"), ("s_or_b64", "v6, v3"), ("s_xnor_b64", "v6, v3"), ("s_and_b64", "v3, v6")],
)
def test_masks_of_two_conditions_on_data(size: str, mask: str, operands: str) -> None:
    """They are two masks, of which neither is known to be the other, so either operand may be selected."""
    body = (
        f"{START}v_xor_b32_e32 v6, s2, v4\nv_cmp_gt_f32_e64 s[20:21], v3, v4\nv_cmp_lt_f32_e64 s[22:23], 0, v4\n"
        f"{mask} s[24:25], s[20:21], s[22:23]\nv_cndmask_b32_e64 v5, {operands}, s[24:25]\n"
        "global_store_dword v2, v5, s[8:9]"
    )
    changed = body.replace("v6, s2, v4", "v6, 0, v4")
    found = compare(source("one", body), source("other", changed), GFX942, Options()).verdict
    assert found.outcome is not Outcome.EQUAL, found


@pytest.mark.parametrize("operands", ["v3, v6", "v6, v3"])
@pytest.mark.parametrize("lanes", ["s_mov_b64 exec, s[22:23]", "s_xor_b64 exec, s[22:23], s[20:21]"])
def test_writes_in_the_lanes_of_conditions_on_data(size: str, lanes: str, operands: str) -> None:
    first, second = operands.split(", ")
    body = (
        f"{START}v_xor_b32_e32 v6, s2, v4\nv_cmp_gt_f32_e64 s[20:21], v3, v4\nv_cmp_lt_f32_e64 s[22:23], 0, v4\n"
        f"v_mov_b32_e32 v5, v4\ns_mov_b64 s[26:27], exec\ns_mov_b64 exec, s[20:21]\nv_mov_b32_e32 v5, {first}\n"
        f"{lanes}\nv_mov_b32_e32 v5, {second}\ns_mov_b64 exec, s[26:27]\nglobal_store_dword v2, v5, s[8:9]"
    )
    changed = body.replace("v6, s2, v4", "v6, 0, v4")
    found = compare(source("one", body), source("other", changed), GFX942, Options()).verdict
    assert found.outcome is not Outcome.EQUAL, found


@pytest.mark.parametrize(
    ("change", "equal"),
    [
        (("v5, v3, v4", "v5, v4, v3"), True),
        (("v_cmp_gt_u32_e32 vcc, 40, v0", "v_cmp_le_u32_e32 vcc, 40, v0"), None),
        (("vcc, 40, v0", "vcc, 41, v0"), False),
        (("v_bfrev_b32_e32 v6, 1", "v_mov_b32_e32 v6, -2"), True),
        (("v_bfrev_b32_e32 v6, 1", "v_mov_b32_e32 v6, 4"), False),
        (("s_mov_b64 s[16:17]", "v_add_u32_e32 v7, 4, v7\ns_mov_b64 s[16:17]"), False),
        (("s_mov_b64 s[16:17]", "v_add_u32_e32 v8, 4, v7\ns_mov_b64 s[16:17]"), True),
        (("v4, v7, s[16:19], 0 offen", "v4, v7, s[16:19], 0 offen offset:4"), False),
        (("v4, v7, s[16:19]", "v4, v2, s[16:19]"), True),
    ],
    ids=["operands", "other lanes", "one lane more", "another number", "a number in bounds", "a sum as the offset",
         "a sum with the offset", "another element", "an unmasked load"],
)  # fmt: skip
def test_masked_accesses_to_buffers(size: str, change: tuple[str, str], equal: bool | None) -> None:
    assert change[0] in MASKED
    changed = MASKED.replace(*change)
    if equal is None:  # with the sides of the select exchanged, the lanes are the same
        changed = changed.replace("v7, v6, v2, vcc", "v7, v2, v6, vcc")
    found = compare(source("one", MASKED), source("other", changed), GFX942, Options()).verdict
    assert (found.outcome is Outcome.EQUAL) == (equal is not False), found
    if found.outcome is Outcome.EQUAL:
        assert (LARGE_GRID in found.notes) == (size == "large")


@pytest.mark.parametrize("offset", ["v7", "v8"], ids=["the select", "a sum with it"])
@pytest.mark.parametrize(("number", "equal"), [("-2", True), ("0xfc", False)], ids=["out of bounds", "in bounds"])
def test_lanes_of_all_blocks_that_store_to_one_element(size: str, offset: str, number: str, equal: bool) -> None:
    """The last lane of the first block stores to its own element, where that is in bounds, and so do all others."""
    body = MASKED.replace("vcc, 40, v0", "vcc, 63, v0")
    body = body.replace("v_bfrev_b32_e32 v6, 1", f"v_mov_b32_e32 v6, {number}\nv_mov_b32_e32 v9, 0")
    if offset == "v8":
        body = body.replace("v4, v7, s[16:19]", "v4, v2, s[16:19]")
        body = body.replace("s_mov_b64 s[20:21]", "v_add_u32_e32 v8, v7, v9\ns_mov_b64 s[20:21]")
    body = body.replace("v5, v7, s[20:23]", f"v5, {offset}, s[20:23]")
    other = body.replace("v5, v3, v4", "v5, v4, v3")
    found = compare(source("one", body), source("other", other), GFX942, Options()).verdict
    if equal and offset == "v8" and size == "large":
        return  # a sum with an offset that is out of bounds in some lanes is not followed for all blocks at once
    assert (found.outcome is Outcome.EQUAL) == equal, found


CAUSAL = SUM.replace("v_add_f32_e32 v5, v3, v4", "v_cmp_ge_u32_e32 vcc, s2, v0\nv_cndmask_b32_e32 v5, v3, v4, vcc")
"""Block b stores elements of b in its first b + 1 lanes, and of a in the others."""


@pytest.mark.parametrize("followed", [True, False], ids=["together", "one by one"])
def test_blocks_of_many_classes_are_executed_together(followed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "FEW_LANES", 0)
    monkeypatch.setattr(analysis, "MAXIMUM_WORK_OF_MANY_LANES", 0)
    if not followed:
        original = analysis.outputs_of_all_blocks

        def refused(
            ready: PreparedLaunch, buffers: Mapping[str, int], options: Options, work: int | None = None, *limits: Any
        ) -> Any:
            if work is None:
                raise Unsupported("the launch stores too many elements")
            return original(ready, buffers, options, work, *limits)

        monkeypatch.setattr(analysis, "outputs_of_all_blocks", refused)
    for change, equal in ((("v_cmp_ge_u32_e32 vcc, s2, v0", "v_cmp_le_u32_e32 vcc, v0, s2"), True),
                          (("v_cmp_ge_u32_e32 vcc, s2, v0", "v_cmp_gt_u32_e32 vcc, s2, v0"), False)):  # fmt: skip
        assert change[0] in CAUSAL
        found = compare(source("one", CAUSAL), source("other", CAUSAL.replace(*change)), GFX942, Options()).verdict
        assert (found.outcome is Outcome.EQUAL) == equal, found
        assert (analysis.LARGE_GRID in found.notes) != followed


GATHER = """s_load_dwordx4 s[8:11], s[0:1], 0x0
s_load_dwordx2 s[12:13], s[0:1], 0x10
s_waitcnt lgkmcnt(0)
s_lshl_b32 s4, s2, 8
s_add_u32 s14, s12, s4
s_addc_u32 s15, s13, 0
s_load_dword s6, s[14:15], 0x0
s_lshl_b32 s7, s2, 6
s_waitcnt lgkmcnt(0)
s_add_i32 s17, s6, s7
s_mov_b32 s16, 0
s_ashr_i64 s[18:19], s[16:17], 30
s_add_u32 s18, s10, s18
s_addc_u32 s19, s11, s19
v_mov_b32_e32 v6, 0
global_load_dword v3, v6, s[18:19]
v_lshlrev_b32_e32 v1, 2, v0
v_add_u32_e32 v2, s4, v1
v_cmp_eq_u32_e32 vcc, 0, v0
s_and_saveexec_b64 s[20:21], vcc
s_cbranch_execz end
s_lshl_b64 s[20:21], s[2:3], 8
s_add_u32 s20, s8, s20
s_addc_u32 s21, s9, s21
s_waitcnt vmcnt(0)
global_store_dword v6, v3, s[20:21]
end:
"""
"""Block b stores a[64 b + i], where i is the integer b[64 b]: a sum of 32 bits, sign-extended."""


def gather_source(name: str, body: str) -> Source:
    """Return a kernel of two waves, of which the first one stores."""
    found = source(name, body.replace("s_lshl_b32 s4, s2, 8", "s_mov_b32 s3, 0\ns_lshl_b32 s4, s2, 8", 1))
    assert found.launch is not None
    sized = tuple(each.model_copy(update={"elements": 1 << 16}) for each in found.launch.args)
    return Source(name, found.text, found.launch.model_copy(update={"block": (128, 1, 1), "args": sized}))


@pytest.mark.parametrize(
    ("change", "equal"),
    [
        (("s17, s6, s7", "s17, s7, s6"), True),
        (("s_add_i32 s17, s6, s7", "s_mov_b32 s17, s6"), False),
        (("s_lshl_b32 s7, s2, 6", "s_lshl_b32 s7, s2, 5"), False),
        (("s[16:17], 30", "s[16:17], 31"), False),
        (("s[14:15], 0x0", "s[14:15], 0x4"), False),
    ],
    ids=["operands", "the first block alone", "other rows", "other elements", "another index"],
)
def test_gathers_from_sums_of_32_bits(size: str, change: tuple[str, str], equal: bool) -> None:
    assert change[0] in GATHER
    one, other = gather_source("one", GATHER), gather_source("other", GATHER.replace(*change))
    found = compare(one, other, GFX942, Options()).verdict
    assert (found.outcome is Outcome.EQUAL) == equal, found
    if equal:
        assert (LARGE_GRID in found.notes) == (size == "large")


@pytest.mark.parametrize(
    "change",
    [
        ("s_mov_b32 s16, 0\n", "s_mov_b32 s16, 0\ns_add_u32 s11, s11, 4\n"),  # a sum that wrapped around is in bounds
        ("s_lshl_b32 s7, s2, 6", "s_lshl_b32 s7, s2, 26"),  # not below 2**31
        ("s_mov_b32 s16, 0", "s_mov_b32 s16, 1"),
        ("s_ashr_i64", "s_lshr_b64"),
        ("global_load_dword v3, v6", "v_mov_b32_e32 v7, s6\nglobal_load_dword v3, v7"),  # more data is added
    ],
    ids=["beyond the buffer", "large numbers", "no zeros", "unsigned", "more data"],
)
def test_sums_of_32_bits_that_may_wrap_around(change: tuple[str, str]) -> None:
    assert change[0] in GATHER
    one = gather_source("one", GATHER)
    assert one.launch is not None
    buffers = buffer_numbers({each.buffer for each in one.launch.args if each.buffer})
    assert len(summarise(analysis.prepare(one, GFX942, Options()), buffers).classes) == 1
    with pytest.raises(NotSymmetric):
        summarise(analysis.prepare(gather_source("other", GATHER.replace(*change)), GFX942, Options()), buffers)


def test_a_buffer_of_unknown_size_has_elements_below_its_start() -> None:
    one = gather_source("one", GATHER)
    assert one.launch is not None
    open_buffers = tuple(each.model_copy(update={"elements": None}) for each in one.launch.args)
    prepared = analysis.prepare(
        Source("one", one.text, one.launch.model_copy(update={"args": open_buffers})), GFX942, Options()
    )
    with pytest.raises(NotSymmetric, match="state the number of elements"):
        summarise(prepared, {"a": 1, "b": 2, "out": 3})


SELECTED = SUM.replace(
    "s_lshl_b32 s4, s2, 8",
    "s_add_u32 s5, s2, 24\ns_sub_u32 s6, s2, 24\ns_cmp_ge_u32 s2, 24\ns_cselect_b32 s4, s6, s5\ns_lshl_b32 s4, s4, 8",
)
"""The first and the second half of the blocks do each other's work."""


def classes_of(body: str) -> int:
    one = source("one", body)
    return len(summarise(analysis.prepare(one, GFX942, Options()), {"a": 1, "b": 2, "out": 3}).classes)


def test_a_select_by_the_number_of_a_block_divides_no_grid(size: str) -> None:
    assert SELECTED != SUM
    assert classes_of(SELECTED) == 1
    assert compare(source("one", SELECTED), source("other", SUM), GFX942, Options()).verdict.outcome is Outcome.EQUAL
    other = SELECTED.replace("s_cselect_b32 s4, s6, s5", "s_cselect_b32 s4, s5, s5")
    found = compare(source("one", SELECTED), source("other", other), GFX942, Options()).verdict
    assert found.outcome is not Outcome.EQUAL


PRODUCT = SUM.replace(
    "v_add_f32_e32 v5, v3, v4", "v_mfma_f32_16x16x4_f32 v[8:11], v3, v4, 0\ns_nop 15\nv_mov_b32_e32 v5, v8"
)


def test_products_of_the_number_of_a_block_are_no_translations() -> None:
    assert classes_of(PRODUCT) == 1
    with pytest.raises(NotSymmetric, match="depends on the block's number"):
        classes_of(PRODUCT.replace("v_mfma", "v_mov_b32_e32 v3, s2\nv_mfma"))
