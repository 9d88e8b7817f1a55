# ruff: noqa: E501 - a line of assembly is read as one
"""Kernels for gfx942 whose lanes and waves work together."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Frame, Shape, Slot, pick
from bitwise_bench.adversary.instruction_sets.gfx942_kernel import HEAD, tail
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES

_HEAD = HEAD + (
    "s_load_dwordx4 s[8:11], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\ns_mul_i32 s3, s2, {block}\nv_lshlrev_b32_e32 v1, 4, v0\n"
    "v_add_u32_e32 v2, s3, v1\nglobal_load_dwordx4 v[10:13], v2, s[8:9]\ns_add_u32 s12, s8, s3\ns_addc_u32 s13, s9, 0\n"
    "s_waitcnt vmcnt(0)\nv_mov_b32_e32 v20, v10\nv_mov_b32_e32 v21, v11\nv_mov_b32_e32 v22, v12\nv_mov_b32_e32 v23, v13\nv_and_b32_e32 v3, 63, v0\n"
    "v_lshlrev_b32_e32 v4, 2, v3\nv_xor_b32_e32 v5, 4, v4\nv_xor_b32_e32 v6, 0x80, v4\nv_lshlrev_b32_e32 v7, 1, v4\n"
)
"""v10 to v13: the words of this thread; s[12:13]: the input of the block; v1: the own 16 bytes; v3: the lane; v5 to v7: other lanes."""
_END = "s_mov_b64 exec, -1\ns_waitcnt vmcnt(0) lgkmcnt(0)\nglobal_store_dwordx4 v2, v[20:23], s[10:11]\n" + tail(2, 64)
FRAME = Frame(LANGUAGES["gfx942"], _HEAD.replace("{{", "{"), _END)
_NAMES = ("v20", "v21", "v22", "v23")


def mixing(dice: random.Random) -> Slot:
    """Return a slot that changes one of the results."""
    one, other, third = (dice.choice(_NAMES) for _ in range(3))
    return pick(
        dice,
        f"v_add_f32_e32 {one}, {other}, {third};", f"v_add_f32_e32 {one}, {third}, {other};", f"v_max_f32_e32 {one}, {other}, {third};",
        f"v_max_f32_e32 {one}, {third}, {other};", f"v_fma_f32 {one}, {other}, 0.5, {third};", f"v_fma_f32 {one}, 0.5, {other}, {third};",
        f"v_mov_b32_e32 {one}, {other};", f"v_xor_b32_e32 {one}, {other}, {third};", f"v_pk_add_f16 {one}, {other}, {third};",
    )  # fmt: skip


def _lanes(dice: random.Random) -> Slot:
    """Return a slot in which lanes exchange values."""
    one, to = dice.choice(_NAMES), dice.choice(_NAMES)
    use = dice.choice(
        (f"v_add_f32_e32 {to}, {to}, v30;", f"v_max_f32_e32 {to}, v30, {to};", f"v_mov_b32_e32 {to}, v30;")
    )
    exchanges = [
        f"v_mov_b32_dpp v30, {one} quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf; {use}",
        f"v_mov_b32_dpp v30, {one} row_shr:1 row_mask:0xf bank_mask:0xf; {use}",
        f"v_mov_b32_dpp v30, {one} row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:0; {use}",
        f"v_mov_b32_dpp v30, {one} row_ror:8 row_mask:0xf bank_mask:0xf; {use}",
        f"v_mov_b32_dpp v30, {one} row_mirror row_mask:0xa bank_mask:0xf; {use}",
        f"v_mov_b32_dpp v30, {one} row_half_mirror row_mask:0xf bank_mask:0x3; {use}",
        f"v_add_f32_dpp {to}, {one}, {to} quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf;",
        f"v_add_f32_dpp {to}, {one}, {to} row_bcast:15 row_mask:0xa bank_mask:0xf;",
        f"ds_swizzle_b32 v30, {one} offset:swizzle(SWAP,1); s_waitcnt lgkmcnt(0); {use}",
        f"ds_swizzle_b32 v30, {one} offset:swizzle(SWAP,16); s_waitcnt lgkmcnt(0); {use}",
        f"ds_bpermute_b32 v30, v5, {one}; s_waitcnt lgkmcnt(0); {use}",
        f"ds_bpermute_b32 v30, v6, {one}; s_waitcnt lgkmcnt(0); {use}",
        f"ds_permute_b32 v30, v5, {one}; s_waitcnt lgkmcnt(0); {use}",
        f"ds_permute_b32 v30, v7, {one}; s_waitcnt lgkmcnt(0); {use}",
        f"v_readlane_b32 s20, {one}, 5; v_mov_b32_e32 v30, s20; {use}",
        f"v_readfirstlane_b32 s20, {one}; v_mov_b32_e32 v30, s20; {use}",
        f"v_readlane_b32 s20, {one}, 5; v_writelane_b32 {to}, s20, 9;",
        f"v_readlane_b32 s20, {one}, 0; v_mov_b32_e32 v30, s20; {use}",
    ]  # fmt: skip
    return tuple(dice.sample(exchanges, 6))


def _masked(dice: random.Random, number: int, *, by_data: bool = True) -> tuple[Slot, Slot]:
    """Return the slots around instructions that some lanes execute; `by_data`: data may choose them."""
    kept = f"s[{24 + 4 * number}:{25 + 4 * number}]"
    tests = dice.choice(
        (
            ("v_cmp_gt_u32_e32 vcc, 8, v3;", "v_cmp_gt_u32_e64 vcc, 8, v3;"),
            ("v_cmp_gt_u32_e32 vcc, 40, v3;",),
            ("v_cmp_gt_u32_e32 vcc, 64, v0;", "v_cmp_le_u32_e32 vcc, 64, v0; s_xor_b64 vcc, vcc, -1;"),
        )
        if not by_data
        else (
            ("v_cmp_gt_u32_e32 vcc, 8, v3;", "v_cmp_gt_u32_e64 vcc, 8, v3;"),
            ("v_cmp_lt_f32_e32 vcc, v10, v11;", "v_cmp_nge_f32_e32 vcc, v10, v11;", "v_cmp_gt_f32_e32 vcc, v11, v10;"),
            (
                "v_cmp_lt_f32_e32 vcc, v10, v11; v_cmp_lt_f32_e64 s[40:41], v10, v12; s_and_b64 vcc, vcc, s[40:41];",
                "v_cmp_lt_f32_e32 vcc, v10, v11; v_cmp_lt_f32_e64 s[40:41], v10, v12; s_or_b64 vcc, vcc, s[40:41];",
            ),
        )
    )
    ends = (f"s_or_b64 exec, exec, {kept};", f"s_mov_b64 exec, {kept};", f"s_xor_b64 exec, exec, {kept};")
    return tuple(f"{test} s_and_saveexec_b64 {kept}, vcc;" for test in tests), ends[: dice.choice((1, 2, 3))]


def _lanes_of_waves(dice: random.Random) -> Shape:
    """Exchanges between lanes under execution masks that numbers or data set."""
    slots: list[Slot] = [("v_mov_b32_e32 v30, v13; s_nop 0;",)]
    for number in range(dice.randint(1, 3)):
        by_data = dice.random() < 0.4
        before, after = _masked(dice, number, by_data=by_data)
        inside = [mixing(dice) if by_data else dice.choice((_lanes(dice), mixing(dice))) for _ in range(2)]
        slots += [before, *inside, after] if dice.random() < 0.6 else inside
    return Shape([*slots, mixing(dice)], dice.choice((64, 128)), fixed=(1, 0))


def _shared(dice: random.Random) -> Shape:
    """Shared memory in units of 1 to 16 bytes, of all lanes or of some."""
    writes = [
        "ds_write_b128 v1, v[20:23];", "ds_write2_b64 v1, v[20:21], v[22:23] offset1:1;", "ds_write_b64 v1, v[20:21]; ds_write_b64 v1, v[22:23] offset:8;",
        "ds_write_b32 v1, v20; ds_write_b32 v1, v21 offset:4; ds_write_b64 v1, v[22:23] offset:8;", "ds_write2_b32 v1, v20, v21 offset1:1; ds_write2_b32 v1, v22, v23 offset0:2 offset1:3;",
        "ds_write_b96 v1, v[20:22]; ds_write_b32 v1, v23 offset:12;", "ds_write_b128 v1, v[10:13];", "ds_write_b64 v1, v[22:23];", "ds_write_b16 v1, v20 offset:2;", "ds_write_b16_d16_hi v1, v21;", "ds_write_b8 v1, v22 offset:5;",
    ]  # fmt: skip
    other = dice.choice((0, 1, 5, 64))
    place = f"v_xor_b32_e32 v31, {other}, v0; v_lshlrev_b32_e32 v31, 4, v31;"
    reads = [
        f"{place} ds_read_b128 v[20:23], v31; s_waitcnt lgkmcnt(0);", f"{place} ds_read2_b64 v[20:23], v31 offset1:1; s_waitcnt lgkmcnt(0);",
        f"{place} ds_read_b64 v[20:21], v31; ds_read_b64 v[22:23], v31 offset:8; s_waitcnt lgkmcnt(0);", f"{place} ds_read2_b32 v[20:21], v31 offset1:1; s_waitcnt lgkmcnt(0);",
        f"{place} ds_read_b96 v[20:22], v31; s_waitcnt lgkmcnt(0);", f"{place} ds_read_u16 v20, v31 offset:2; ds_read_u8 v21, v31 offset:5; s_waitcnt lgkmcnt(0);", f"{place} ds_read_u16_d16 v20, v31; s_waitcnt lgkmcnt(0); ds_read_u16_d16_hi v20, v31 offset:2; s_waitcnt lgkmcnt(0);",
        f"{place} ds_read_b64 v[22:23], v31; s_waitcnt lgkmcnt(0);",
    ]  # fmt: skip
    barrier = ("s_waitcnt lgkmcnt(0); s_barrier;",)
    before, after = _masked(dice, 0)
    middle: list[Slot] = [tuple(dice.sample(writes, 4))]
    if dice.random() < 0.6:
        middle = [before, *middle, after]
    slots: list[Slot] = [
        ("ds_write_b128 v1, v[10:13]; s_waitcnt lgkmcnt(0); s_barrier;",),
        tuple(dice.sample(writes, 4)),
        barrier,
        mixing(dice),
        *middle,
        barrier,
        tuple(dice.sample(reads, 4)),
        mixing(dice),
    ]
    return Shape(slots, 128, fixed=(1, 0))


_UNITS = (
    "v_mfma_f32_16x16x16_f16",
    "v_mfma_f32_16x16x16_bf16",
    "v_mfma_f32_4x4x4_16b_f16",
    "v_mfma_f32_16x16x8_xf32",
    "v_mfma_f32_16x16x32_fp8_fp8",
    "v_mfma_f32_16x16x32_fp8_bf8",
)


def _matrix_chain(dice: random.Random) -> Shape:
    """Chains of matrix steps whose accumulators are moved, read or used as operands between."""
    unit = dice.choice(_UNITS)

    def step() -> Slot:
        a, b = dice.choice(("v[10:11]", "v[12:13]", "v[32:33]")), dice.choice(("v[12:13]", "v[10:11]", "v[34:35]"))
        other = dice.choice(_UNITS)
        return pick(
            dice, f"{unit} v[20:23], {a}, {b}, v[20:23];", f"{unit} v[20:23], {b}, {a}, v[20:23];", f"{other} v[20:23], {a}, {b}, v[20:23];", f"{unit} v[20:23], v[32:33], {b}, v[20:23];",
            f"{unit} v[20:23], v[20:21], {b}, v[20:23];", f"{unit} v[20:23], {a}, {b}, 0;", f"{unit} v[36:39], {a}, {b}, v[20:23]; v_mov_b32_e32 v20, v36; v_mov_b32_e32 v21, v37; v_mov_b32_e32 v22, v38; v_mov_b32_e32 v23, v39;",
        )  # fmt: skip

    start = pick(
        dice,
        "v_mov_b32_e32 v32, 0; v_mov_b32_e32 v33, 0;",
        "v_mov_b32_e32 v32, v13; v_mov_b32_e32 v33, v12;",
        "v_mov_b32_e32 v32, v12; v_mov_b32_e32 v33, v13;",
    )
    zeros = "".join(f"v_mov_b32_e32 v2{each}, 0;" for each in range(4))
    between = pick(
        dice,
        "v_mov_b32_e32 v20, v21;",
        "v_add_f32_e32 v20, 0x80000000, v20;",
        "v_mul_f32_e32 v22, 1.0, v22;",
        "v_xor_b32_e32 v23, 0x80000000, v23;",
        "v_max_f32_e32 v20, v20, v21;",
        "s_nop 1;",
        "v_add_f32_dpp v20, v20, v20 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf;",
    )
    slots: list[Slot] = [
        ("v_mov_b32_e32 v34, v10; v_mov_b32_e32 v35, v12;",),
        start,
        (zeros, "s_nop 0;"),
        step(),
        step(),
        between,
        step(),
        step(),
        mixing(dice),
    ]
    return Shape(slots, dice.choice((64, 128)), "h2" if "f16" in unit else "f32", (1, 0))


_FEW_LANES = (
    "v_cmp_gt_u32_e32 vcc, 4, v3;" + "".join(f"v_cndmask_b32_e32 {each}, 0, {each}, vcc;" for each in _NAMES),
)
"""Other lanes than the first four return nothing, so that they have no effect but on these."""


def _long_loop(dice: random.Random) -> Shape:
    """A loop that lanes of a wave end together by data, after up to 90 iterations."""
    steps = [
        dice.choice(
            (
                mixing(dice), mixing(dice),
                pick(dice, "v_readfirstlane_b32 s20, v21; v_add_f32_e32 v22, s20, v22;", "v_readlane_b32 s20, v21, 0; v_add_f32_e32 v22, s20, v22;", "v_readlane_b32 s20, v21, 7; v_add_f32_e32 v22, s20, v22;"),
                pick(dice, *(f"v_cmp_lt_u32_e64 s[24:25], 9, v3; v_cndmask_b32_e64 {to}, {to}, {other}, s[24:25];" for to in ("v21", "v22") for other in ("v10", "v11", "v12", "v13"))),
                pick(dice, "v_cmp_lt_f32_e64 s[24:25], v20, v21; v_cndmask_b32_e64 v23, v23, v21, s[24:25];", "v_cmp_gt_f32_e64 s[24:25], v21, v20; v_cndmask_b32_e64 v23, v23, v21, s[24:25];", "v_cmp_lt_f32_e64 s[24:25], v20, v21; v_cndmask_b32_e64 v23, v21, v23, s[24:25];"),
                pick(dice, "v_mov_b32_e32 v23, v22; v_mov_b32_e32 v22, v21;", "v_mov_b32_e32 v22, v21; v_mov_b32_e32 v23, v22;", "v_mov_b32_e32 v22, v13;", "s_nop 0;"),
            )
        )
        for _ in range(dice.randint(1, 3))
    ]  # fmt: skip
    step: Slot = (
        "v_fma_f32 v20, v20, v26, v27;",
        "v_fma_f32 v20, v26, v20, v27;",
        "v_fma_f32 v20, v20, v26, v28;",
        "v_add_f32_e32 v20, v20, v21;",
    )
    start = tuple(f"v_mov_b32_e32 v2{place}, {value};" for place in (1, 2, 3) for value in ("v11", "v12", "0", "v10"))
    # Above the limit, or never after as many iterations.
    ends = [
        f"s_add_u32 s30, s30, 1; s_cmp_lt_u32 s30, {count}; s_cselect_b32 s20, 0x3f400000, 0x7f800000; {test}"
        for test, count in (
            ("v_cmp_lt_f32_e32 vcc, s20, v20; s_cbranch_vccnz .LAGAIN;", 90), ("v_cmp_gt_f32_e64 vcc, v20, s20; s_cbranch_vccnz .LAGAIN;", 90),
            ("v_cmp_lt_f32_e32 vcc, s20, v20; s_and_b64 s[28:29], vcc, exec; s_cbranch_scc1 .LAGAIN;", 90), ("v_cmp_lt_f32_e32 vcc, s20, v20; s_cbranch_vccnz .LAGAIN;", 89),
            ("v_cmp_lt_f32_e32 vcc, s20, v21; s_cbranch_vccnz .LAGAIN;", 90), ("v_cmp_lg_f32_e32 vcc, v20, v20; v_cmp_lt_f32_e32 vcc, s20, v20; s_cbranch_vccnz .LAGAIN;", 90),
        )
    ]  # fmt: skip
    begin = "v_mov_b32_e32 v26, 0x3f780000; v_mov_b32_e32 v27, 0x3c800000; v_mov_b32_e32 v28, 0x3cc00000; v_mov_b32_e32 v29, 0x3f400000; v_mov_b32_e32 v30, v13; s_mov_b32 s30, 0;"
    if dice.random() < 0.3:
        # Other lanes than the first ten decide how often it is repeated, by what they have in two registers before.
        begin += "v_mov_b32_e32 v41, 0xbd800000; v_mov_b32_e32 v42, 0xbe000000; v_mov_b32_e32 v43, 0xbe800000;"
        later = "v_mov_b32_e32 v21, v22; v_mov_b32_e32 v22, -1.0; v_cmp_lt_u32_e64 s[24:25], 9, v3; v_cndmask_b32_e64 v22, v22, {}, s[24:25];"
        step, steps = step[-1:], [tuple(later.format(each) for each in ("v41", "v42", "v43"))]
    steps.insert(dice.randint(0, len(steps)), step)
    slots: list[Slot] = [(begin,), tuple(dice.sample(start, 3)), tuple(dice.sample(start, 3)), (".LAGAIN:",)]
    slots += [*steps, tuple(ends)]
    return Shape([*slots, dice.choice((_FEW_LANES, ("s_nop 0;",)))], dice.choice((64, 128)), fixed=(4, 2))


def _branches(dice: random.Random) -> Shape:
    """Branches that waves take by a value of one lane, by any lane, or by a number, with exchanges on their sides."""
    tests = dice.choice(
        (
            ("v_readfirstlane_b32 s20, v10; v_mov_b32_e32 v31, s20; v_cmp_lt_f32_e32 vcc, 0.5, v31; s_cbranch_vccnz .LOTHER;", "v_readlane_b32 s20, v10, 0; v_mov_b32_e32 v31, s20; v_cmp_lt_f32_e32 vcc, 0.5, v31; s_cbranch_vccnz .LOTHER;", "v_readlane_b32 s20, v10, 1; v_mov_b32_e32 v31, s20; v_cmp_lt_f32_e32 vcc, 0.5, v31; s_cbranch_vccnz .LOTHER;"),
            ("v_cmp_lt_f32_e32 vcc, v10, v11; s_cbranch_vccnz .LOTHER;", "v_cmp_lt_f32_e32 vcc, v10, v11; s_and_b64 s[20:21], vcc, exec; s_cbranch_scc1 .LOTHER;", "v_cmp_lt_f32_e32 vcc, v10, v11; s_or_b64 s[20:21], vcc, vcc; s_cbranch_scc1 .LOTHER;", "v_cmp_lt_f32_e32 vcc, v10, v12; s_cbranch_vccnz .LOTHER;", "v_cmp_nlt_f32_e32 vcc, v10, v11; s_andn2_b64 vcc, exec, vcc; s_cbranch_vccnz .LOTHER;"),
            ("v_readfirstlane_b32 s20, v10; s_cmp_lt_i32 s20, 0; s_cbranch_scc1 .LOTHER;", "v_readfirstlane_b32 s20, v10; s_bitcmp1_b32 s20, 31; s_cbranch_scc1 .LOTHER;", "v_readfirstlane_b32 s20, v10; s_cmp_gt_i32 s20, -1; s_cbranch_scc0 .LOTHER;"),
        )
    )  # fmt: skip
    side = [dice.choice((mixing(dice), _lanes(dice))) for _ in range(4)]
    slots: list[Slot] = [
        ("v_mov_b32_e32 v30, v13;",),
        tests,
        *side[:2],
        ("s_branch .LDONE; .LOTHER:",),
        *side[2:],
        (".LDONE:",),
        mixing(dice),
        _lanes(dice),
    ]
    return Shape(slots, dice.choice((64, 128)), fixed=(1, 2))


def _early_blocks(dice: random.Random) -> Shape:
    """Blocks that leave a loop after different numbers of iterations, with exchanges, masks and matrix steps inside."""
    shared = tuple(
        f"v_xor_b32_e32 v31, {lane}, v1; ds_write_b32 v1, {one}; s_waitcnt lgkmcnt(0); s_barrier; ds_read_b32 v30, v31; s_waitcnt lgkmcnt(0); s_barrier; v_add_f32_e32 v22, v22, v30;"
        for lane, one in ((16, "v20"), (16, "v21"), (32, "v20"), (0, "v20"))
    )
    masks = pick(
        dice, "v_cmp_gt_u32_e64 s[28:29], 9, v3; v_cndmask_b32_e64 v21, v21, v22, s[28:29];", "v_cmp_lt_f32_e64 s[28:29], v20, v21; v_cndmask_b32_e64 v21, v21, v22, s[28:29];",
        "s_cmp_gt_u32 s30, s2; s_cselect_b64 s[28:29], -1, 0; v_cndmask_b32_e64 v14, v14, v20, s[28:29];", "v_cndmask_b32_e64 v14, v14, v21, s[28:29];", "v_mov_b32_e32 v40, v20;", "v_mov_b32_e32 v22, v40;",
    )  # fmt: skip
    steps = tuple(
        f"v_mfma_f32_16x16x16_f16 v[20:23], {a}, {b}, v[20:23];"
        for a, b in (
            ("v[10:11]", "v[12:13]"),
            ("v[12:13]", "v[10:11]"),
            ("v[14:15]", "v[12:13]"),
            ("v[10:11]", "v[14:15]"),
        )
    )
    kinds = (mixing(dice), _lanes(dice), shared, masks, steps)
    ends = tuple(
        f"s_add_u32 s30, s30, 1; {count} s_cmp_lt_u32 s30, s31; s_cbranch_scc1 .LAGAIN;"
        for count in ("s_add_u32 s31, s2, 1;", "s_sub_u32 s31, 4, s2;", "s_xor_b32 s31, s2, 2; s_add_u32 s31, s31, 1;")
    )
    begin = "s_mov_b32 s30, 0; s_mov_b64 s[28:29], 0; v_mov_b32_e32 v40, v13; v_mov_b32_e32 v30, v13; v_mov_b32_e32 v14, v10; v_mov_b32_e32 v15, v11;"
    slots: list[Slot] = [(begin,), (".LAGAIN:",), *(dice.choice(kinds) for _ in range(3)), ends, dice.choice(kinds[:3])]
    return Shape(slots, dice.choice((64, 128)), fixed=(2, 2))


def _buffers(dice: random.Random) -> Shape:
    """Loads through descriptors at offsets of which some are out of bounds, for numbers or data."""
    size = dice.choice((0x100, 0x208, 0x400))
    begin = f"s_mov_b32 s16, s12; s_mov_b32 s17, s13; s_mov_b32 s18, {size}; s_mov_b32 s19, 0x27000; v_bfrev_b32_e32 v32, 1; s_mov_b32 s31, 4;"
    tests = (
        "v_cmp_gt_u32_e32 vcc, 40, v0;",
        "v_cmp_gt_u32_e32 vcc, 8, v3;",
        "v_cmp_lt_f32_e32 vcc, v10, v11;",
        "v_cmp_gt_i32_e32 vcc, 41, v0;",
        "v_cmp_gt_f32_e32 vcc, v11, v10;",
    )
    test = tuple(dice.sample(tests, 2))

    def load() -> Slot:
        to = dice.choice(("v20", "v22"))
        pair = {"v20": "v[20:21]", "v22": "v[22:23]"}[to]
        offset = dice.choice(("v_cndmask_b32_e32 v31, v32, v1, vcc;", "v_cndmask_b32_e32 v31, v1, v32, vcc;"))
        return pick(
            dice, f"{offset} buffer_load_dword {to}, v31, s[16:19], 0 offen; s_waitcnt vmcnt(0);", f"{offset} buffer_load_dwordx2 {pair}, v31, s[16:19], 0 offen; s_waitcnt vmcnt(0);",
            f"{offset} buffer_load_dword {to}, v31, s[16:19], 0 offen offset:4; s_waitcnt vmcnt(0);", f"{offset} buffer_load_dword {to}, v31, s[16:19], s31 offen; s_waitcnt vmcnt(0);",
            f"{offset} buffer_load_ushort {to}, v31, s[16:19], 0 offen; s_waitcnt vmcnt(0);", f"buffer_load_dword {to}, v1, s[16:19], 0 offen; s_waitcnt vmcnt(0);",
            f"{offset} buffer_load_short_d16_hi {to}, v31, s[16:19], 0 offen; s_waitcnt vmcnt(0);", f"{offset} v_add_u32_e32 v31, 4, v31; buffer_load_dword {to}, v31, s[16:19], 0 offen; s_waitcnt vmcnt(0);",
        )  # fmt: skip

    before, after = _masked(dice, 0)
    masked: list[Slot] = [before, load(), after] if dice.random() < 0.4 else [load()]
    return Shape([(begin,), test, load(), *masked, mixing(dice)], 64, fixed=(1, 0))


_ROUNDED = "v_bfe_u32 v31, {x}, 16, 1; v_add3_u32 v31, {x}, v31, s31;{between} v_lshrrev_b32_e32 v31, 16, v31; v_cmp_o_f32_e32 vcc, {x}, {x}; v_cndmask_b32_e32 {to}, v32, v31, vcc;"


def _roundings(dice: random.Random) -> Shape:
    """Conversions to bf16 by integers, whole or changed in one place, under masks."""

    def rounded() -> Slot:
        x, to = dice.choice(_NAMES), dice.choice(_NAMES)
        whole = _ROUNDED.format(x=x, to=to, between="")
        return pick(
            dice, whole, whole.replace(f"v_add3_u32 v31, {x}, v31, s31", f"v_add3_u32 v31, s31, v31, {x}"), whole.replace(f"v_cmp_o_f32_e32 vcc, {x}, {x}; v_cndmask_b32_e32 {to}, v32, v31", f"v_cmp_u_f32_e32 vcc, {x}, {x}; v_cndmask_b32_e32 {to}, v31, v32"),
            whole.replace(", 16, 1;", ", 15, 1;"), whole.replace("v_cmp_o", "v_cmp_u"), _ROUNDED.format(x=x, to=to, between=" v_mov_b32_e32 v32, v31;"), _ROUNDED.format(x=x, to=to, between=f" v_add_f32_e32 {x}, 1.0, {x};"),
            whole.replace("vcc", "s[28:29]").replace("v_cmp_o_f32_e32", "v_cmp_o_f32_e64").replace("v_cndmask_b32_e32", "v_cndmask_b32_e64"), f"{whole} v_lshlrev_b32_e32 {to}, 16, {to};", whole.replace("s31;", "v33;"), _ROUNDED.format(x=x, to="v31", between="") + f" v_and_b32_e32 {to}, 0xffff, v31;",
        )  # fmt: skip

    before, after = _masked(dice, 0)
    filler = "".join(f"v_mov_b32_e32 v{each}, v{each + 1};" for each in range(40, 52))
    begin = (
        "".join(f"v_mov_b32_e32 v{each}, v10;" for each in range(40, 54))
        + "s_movk_i32 s31, 0x7fff; v_mov_b32_e32 v32, 0x7fff; v_mov_b32_e32 v33, 0x7fff; v_mov_b32_e32 v31, v13;"
    )
    masked: list[Slot] = [before, rounded(), after] if dice.random() < 0.6 else [rounded()]
    return Shape([(begin,), (filler,), rounded(), *masked, mixing(dice), rounded()], 64, fixed=(2, 0))


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        name: Family(FRAME, make)
        for name, make in (
            ("lanes of waves", _lanes_of_waves), ("shared memory of waves", _shared), ("matrix chains of waves", _matrix_chain),
            ("long loops of waves", _long_loop), ("blocks of waves that leave early", _early_blocks), ("branches of waves", _branches), ("buffers of waves", _buffers), ("roundings of waves", _roundings),
        )
    }
)  # fmt: skip
"""The families by name."""
