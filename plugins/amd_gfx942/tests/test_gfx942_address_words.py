# ruff: noqa: E501 - lines of a kernel are read as one
"""What a kernel computes from words of addresses of buffers: places and distances from zero are known, numbers are not.

s[8:9] is the address of the output, s[10:11], s[12:13] and s[14:15] those of three inputs, s[0:1] that of the arguments.
v0 is the lane, v1 its byte offset, v2 and v3 are loaded words; the kernel stores v5.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bitwise_amd_gfx942.addresses import address_flow
from bitwise_amd_gfx942.architecture import GFX942
from bitwise_amd_gfx942.opcodes.scalar import scalar_memory
from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Launch
from gfx942_kernels import PROLOGUE, launch_of, reading, run, text_of

HALF = "s_mov_b64 exec, 0xffff"
ALL = "s_mov_b64 exec, -1"
ODD = "v_and_b32_e32 v9, 1, v2\nv_cmp_eq_u32_e32 vcc, 1, v9\ns_and_saveexec_b64 s[20:21], vcc"
JOIN = "s_or_b64 exec, exec, s[20:21]"
OWN = "v_mov_b32_e32 v6, s10\nv_mov_b32_e32 v7, s11\nv_lshl_add_u64 v[6:7], v[6:7], 0, v[20:21]"
"""v[6:7]: the address of the first input, plus v[20:21]."""
OFFSET = "v_mov_b32_e32 v20, v1\nv_mov_b32_e32 v21, 0"
LOAD = "global_load_dword v5, v[6:7], off\ns_waitcnt vmcnt(0)"
PLAIN = "v_mov_b32_e32 v5, v2"
HALF_WRITTEN = "v_mov_b32_e32 v6, s10\nv_fma_mixlo_f16 v6, v2, v3, 0\n"
"""v6: the upper half of a word of an address, over a number."""
STORED_HALF = "ds_write_b16 v1, v6\ns_waitcnt lgkmcnt(0)\nds_read_u16 v5, v1\ns_waitcnt lgkmcnt(0)"
"""v5: the lower half of v6."""
OPEN = {
    "an upper word": "v_mov_b32_e32 v5, s11",
    "a lower word": "v_mov_b32_e32 v5, s10",
    "a lower word of a place": f"{OFFSET}\n{OWN}\nv_mov_b32_e32 v5, v6",
    "an address of arguments": "v_mov_b32_e32 v5, s0",
    "an order of buffers": "v_mov_b32_e32 v5, 1\ns_cmp_lt_u32 s11, s13\ns_cselect_b32 s20, 1, 0\nv_mov_b32_e32 v5, s20",
    "an order of addresses": "v_mov_b32_e32 v6, s12\nv_mov_b32_e32 v7, s13\nv_cmp_lt_u64_e32 vcc, s[10:11], v[6:7]\n"
    "v_cndmask_b32_e64 v5, 0, 1, vcc",
    "a branch on an order": "v_mov_b32_e32 v5, 1\ns_cmp_lt_u32 s11, s13\ns_cbranch_scc1 .LBB0_1\nv_mov_b32_e32 v5, 2\n.LBB0_1:",
    "a distance": "s_sub_u32 s20, s12, s10\ns_subb_u32 s21, s13, s11\nv_mov_b32_e32 v5, s21",
    "a sum of addresses": "s_add_u32 s20, s12, s10\ns_addc_u32 s21, s13, s11\nv_mov_b32_e32 v5, s21",
    "a carry": "s_add_u32 s20, s10, 0xffffff00\ns_cselect_b32 s20, 1, 0\nv_mov_b32_e32 v5, s20",
    "a carry that is added": "s_add_u32 s20, s10, 0xffffff00\ns_addc_u32 s21, 0, 0\nv_mov_b32_e32 v5, s21",
    "a carry of lanes": "v_add_co_u32_e32 v6, vcc, s10, v2\nv_cndmask_b32_e64 v5, 0, 1, vcc",
    "a carry of lanes that is added": "v_mov_b32_e32 v7, 0\nv_add_co_u32_e32 v6, vcc, s10, v2\nv_addc_co_u32_e32 v5, vcc, 0, v7, vcc",
    "high bits": "s_lshr_b64 s[20:21], s[10:11], 40\nv_mov_b32_e32 v5, s20",
    "many low bits": "s_and_b32 s20, s10, 0xfff\nv_mov_b32_e32 v5, s20",
    "a bit": "s_bfe_u32 s20, s11, 0x10008\nv_mov_b32_e32 v5, s20",
    "a float": "v_cvt_f32_u32_e32 v5, s11",
    "a multiple": "v_mul_lo_u32 v5, s11, v0",
    "a byte": "v_mov_b32_e32 v6, s11\nv_mov_b32_sdwa v5, v6 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1",
    "a word of another lane": "v_mov_b32_e32 v6, s11\nv_mov_b32_dpp v5, v6 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:0",
    "a word of any lane": "v_mov_b32_e32 v6, s11\nds_bpermute_b32 v5, v1, v6\ns_waitcnt lgkmcnt(0)",
    "a word of the first lane": "v_mov_b32_e32 v6, s11\nv_readfirstlane_b32 s20, v6\nv_mov_b32_e32 v5, s20",
    "a word of a lane": "v_mov_b32_e32 v6, s11\nv_readlane_b32 s20, v6, 3\nv_mov_b32_e32 v5, s20",
    "a spilled word": "v_mov_b32_e32 v9, 0\nv_writelane_b32 v9, s11, 3\nv_readlane_b32 s20, v9, 3\nv_mov_b32_e32 v5, s20",
    "a register with a spilled word": "v_mov_b32_e32 v5, 0\nv_writelane_b32 v5, s11, 3",
    "a word that private memory keeps": "v_mov_b32_e32 v6, s11\nscratch_store_dword off, v6, off offset:8\ns_waitcnt vmcnt(0)\n"
    "scratch_load_dword v5, off, off offset:8\ns_waitcnt vmcnt(0)",
    "a word that shared memory keeps": "v_mov_b32_e32 v6, s11\nds_write_b32 v1, v6\ns_waitcnt lgkmcnt(0)\nds_read_b32 v5, v1\n"
    "s_waitcnt lgkmcnt(0)",
    "a selected word": "v_cmp_gt_u32_e32 vcc, 7, v0\nv_mov_b32_e32 v6, s11\nv_cndmask_b32_e32 v5, v0, v6, vcc",
    "a word in some lanes": f"v_mov_b32_e32 v5, s11\n{HALF}\nv_mov_b32_e32 v5, 7\n{ALL}",
    "a word in other lanes": f"v_mov_b32_e32 v5, 7\n{HALF}\nv_mov_b32_e32 v5, s11\n{ALL}",
    "a word where data says so": f"v_mov_b32_e32 v5, s11\n{ODD}\nv_mov_b32_e32 v5, 7\n{JOIN}",
    "a word on the other side": f"v_mov_b32_e32 v5, s11\n{ODD}\nv_mov_b32_e32 v5, 7\ns_xor_b64 s[20:21], exec, s[20:21]\n"
    "s_mov_b64 exec, s[20:21]\nv_mov_b32_e32 v6, v5\ns_mov_b64 exec, -1\nv_mov_b32_e32 v5, v6",
    "a word of the round before": "s_mov_b32 s22, 0\nv_mov_b32_e32 v6, 0\nv_mov_b32_e32 v5, 0\n.LBB0_1:\nv_mov_b32_e32 v5, v6\n"
    "v_mov_b32_e32 v6, s11\ns_add_i32 s22, s22, 1\ns_cmp_lt_u32 s22, 2\ns_cbranch_scc1 .LBB0_1",
    "a word of lanes that have left a loop": "s_mov_b32 s22, 8\nv_mov_b32_e32 v5, 0\n.LBB0_1:\nv_mov_b32_e32 v5, s11\n"
    "v_cmp_gt_u32_e32 vcc, s22, v0\ns_and_b64 exec, exec, vcc\nv_mov_b32_e32 v5, 3\ns_sub_i32 s22, s22, 4\ns_cmp_lg_u32 s22, 0\n"
    "s_cbranch_scc1 .LBB0_1\ns_mov_b64 exec, -1",
    "an upper word of the arguments": "s_load_dword s20, s[0:1], 0xc\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v5, s20",
    "a word at a place of the arguments": "s_add_u32 s20, s0, 8\ns_addc_u32 s21, s1, 0\ns_load_dword s22, s[20:21], 0x4\n"
    "s_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v5, s22",
    "an upper half": f"{HALF_WRITTEN}v_mov_b32_e32 v5, v6",
    "an upper half that is rotated": f"{HALF_WRITTEN}v_alignbit_b32 v5, v6, v6, 16",
    "an upper half that is added": f"{HALF_WRITTEN}v_add_u32_e32 v5, 4, v6",
    "an upper half that is spilled": f"{HALF_WRITTEN}v_readlane_b32 s20, v6, 3\nv_mov_b32_e32 v5, s20",
    "an upper half of which a sum is a factor": f"{HALF_WRITTEN}v_fma_mix_f32 v5, v6, v2, 0 op_sel:[1,0,0] op_sel_hi:[1,0,0]",
    "a lower half in some lanes": f"v_mov_b32_e32 v6, s10\n{HALF}\nv_fma_mixlo_f16 v6, v2, v3, 0\n{ALL}\n{STORED_HALF}",
    "a lower half where data says so": f"v_mov_b32_e32 v6, s10\n{ODD}\nv_fma_mixlo_f16 v6, v2, v3, 0\n{JOIN}\n{STORED_HALF}",
    "a lower half under another upper one": f"v_mov_b32_e32 v6, s10\nv_fma_mixhi_f16 v6, v2, v3, 0\n{STORED_HALF}",
    "an upper half in some lanes": f"{HALF_WRITTEN}{HALF}\nv_fma_mixhi_f16 v6, v2, v3, 0\n{ALL}\nv_mov_b32_e32 v5, v6",
    "a number with the half of an address": f"{HALF_WRITTEN}v_mov_b32_e32 v7, 0\nv_cmp_eq_u64_e32 vcc, 0, v[6:7]\n"
    "v_cndmask_b32_e64 v5, 0, 1, vcc",
    "a half of another place": "v_mov_b32_e32 v6, s10\nv_fma_mixlo_f16 v6, v2, v3, 0\nds_write_b16_d16_hi v1, v6\n"
    "s_waitcnt lgkmcnt(0)\nds_read_u16 v5, v1\ns_waitcnt lgkmcnt(0)",
    "a factor of a matrix": "v_mov_b32_e32 v6, s11\nv_mov_b32_e32 v16, 0\nv_mov_b32_e32 v17, 0\nv_mov_b32_e32 v18, 0\nv_mov_b32_e32 v19, 0\n"
    "v_mfma_f32_16x16x4_f32 v[16:19], v6, v6, v[16:19]\ns_nop 7\ns_nop 7\nv_mov_b32_e32 v5, v16",
    "an offset in a buffer": "v_mov_b32_e32 v6, s12\nglobal_load_dword v5, v6, s[10:11]\ns_waitcnt vmcnt(0)",
    "a rounded word": "v_mov_b32_e32 v6, s11\nv_bfe_u32 v7, v6, 16, 1\ns_movk_i32 s20, 0x7fff\nv_add3_u32 v7, v6, v7, s20\n"
    "v_cmp_o_f32_e32 vcc, v6, v6\nv_lshrrev_b32_e32 v7, 16, v7\nv_mov_b32_e32 v8, 0x7fff\nv_cndmask_b32_e32 v5, v8, v7, vcc",
    "a part of a mask": "s_mov_b32 s21, 0x7fff\ns_mov_b32 s20, -1\ns_and_b64 s[22:23], s[10:11], s[20:21]\nv_mov_b32_e32 v5, s23",
    "a masked word": "s_mov_b32 s21, 0xffff\ns_mov_b32 s20, -1\ns_and_b64 s[22:23], s[10:11], s[20:21]\nv_mov_b32_e32 v5, s23",
}  # fmt: skip
KNOWN = {
    "a place": f"{OFFSET}\n{OWN}\n{LOAD}",
    "a carried sum": f"v_add_co_u32_e32 v6, vcc, s10, v1\nv_mov_b32_e32 v7, s11\nv_addc_co_u32_e32 v7, vcc, 0, v7, vcc\n{LOAD}",
    "a scalar sum": "s_add_u32 s20, s10, 16\ns_addc_u32 s21, s11, 0\ns_sub_u32 s20, s20, 16\ns_subb_u32 s21, s21, 0\n"
    "global_load_dword v5, v1, s[20:21]\ns_waitcnt vmcnt(0)",
    "a descriptor": "s_mov_b32 s20, s10\ns_and_b32 s21, s11, 0xffff\ns_movk_i32 s22, 0x100\ns_mov_b32 s23, 0x27000\n"
    "buffer_load_dword v5, v1, s[20:23], 0 offen\ns_waitcnt vmcnt(0)",
    "spilled words": "v_writelane_b32 v9, s10, 1\nv_writelane_b32 v9, s11, 2\nv_readlane_b32 s20, v9, 1\nv_readlane_b32 s21, v9, 2\n"
    "global_load_dword v5, v1, s[20:21]\ns_waitcnt vmcnt(0)",
    "words that private memory keeps": f"{OFFSET}\n{OWN}\nscratch_store_dwordx2 off, v[6:7], off offset:8\ns_waitcnt vmcnt(0)\n"
    f"v_mov_b32_e32 v6, 0\nscratch_load_dwordx2 v[6:7], off, off offset:8\ns_waitcnt vmcnt(0)\n{LOAD}",
    "a register that held a word": "v_mov_b32_e32 v5, s11\nv_mov_b32_e32 v5, v2",
    "a register that held a word of a side": f"{PLAIN}\n{ODD}\nv_mov_b32_e32 v6, s10\nv_mov_b32_e32 v6, v2\nv_mov_b32_e32 v5, v6\n{JOIN}",
    "a register of two sides": f"{PLAIN}\n{ODD}\nv_mov_b32_e32 v6, s10\nv_mov_b32_e32 v7, s11\nglobal_load_dword v8, v[6:7], off\ns_waitcnt vmcnt(0)\n"
    f"{JOIN}\n{HALF}\nv_mov_b32_e32 v6, v2\nv_mov_b32_e32 v5, v6\n{ALL}",
    "a buffer that is there": "s_cmp_lg_u64 s[10:11], 0\ns_cselect_b32 s20, 0, 1\nv_add_u32_e32 v5, s20, v2",
    "low bits": "s_and_b32 s20, s10, 0xfc\nv_add_u32_e32 v5, s20, v2",
    "a number that nothing uses": f"v_xor_b32_e32 v9, s11, v2\n{PLAIN}",
    "an equality with a neighbour's address, or with zero": f"{OFFSET}\n{OWN}\nv_mov_b32_e32 v8, 0\nv_mov_b32_e32 v9, 0\n"
    "v_mov_b32_dpp v8, v6 wave_shl:1 row_mask:0xf bank_mask:0xf\nv_mov_b32_dpp v9, v7 wave_shl:1 row_mask:0xf bank_mask:0xf\n"
    "v_lshl_add_u64 v[6:7], v[6:7], 0, 4\nv_cmp_eq_u64_e32 vcc, v[6:7], v[8:9]\nv_cndmask_b32_e64 v9, 0, 1, vcc\n"
    "v_cmp_gt_u32_e32 vcc, 63, v0\nv_cndmask_b32_e64 v8, 0, 1, vcc\nv_sub_u32_e32 v9, v9, v8\nv_add_u32_e32 v5, v9, v2",
    "an order in one buffer": "s_add_u32 s20, s10, 16\ns_addc_u32 s21, s11, 0\nv_mov_b32_e32 v6, s10\nv_mov_b32_e32 v7, s11\n"
    "v_cmp_gt_u64_e32 vcc, s[20:21], v[6:7]\nv_cndmask_b32_e64 v9, 1, 0, vcc\nv_add_u32_e32 v5, v9, v2",
}  # fmt: skip


@pytest.mark.parametrize("name", OPEN)
def test_what_the_place_of_a_buffer_decides_is_not_determined(name: str) -> None:
    found = reading(OPEN[name]).unknown or ""
    assert "the address of a buffer, which the launch does not give, is read as a number" in found


@pytest.mark.parametrize("name", KNOWN)
def test_what_no_place_of_a_buffer_decides_is_known(name: str) -> None:
    found = reading(KNOWN[name])
    assert found.unknown is None
    assert found.signature == reading(PLAIN).signature


WRITTEN = "v_mov_b32_e32 v6, 7\nv_fma_mixlo_f16 v6, v2, v3, 0\n"
HALVES = {
    "a lower half over a word": (f"{HALF_WRITTEN}{STORED_HALF}", f"{WRITTEN}{STORED_HALF}"),
    "a lower half in some lanes": (
        f"v_mov_b32_e32 v5, 0\n{HALF}\n{HALF_WRITTEN}{STORED_HALF}\n{ALL}",
        f"v_mov_b32_e32 v5, 0\n{HALF}\n{WRITTEN}{STORED_HALF}\n{ALL}",
    ),
    "both halves": (
        f"{HALF_WRITTEN}v_fma_mixhi_f16 v6, v2, v4, 0\nv_mov_b32_e32 v5, v6",
        f"{WRITTEN}v_fma_mixhi_f16 v6, v2, v4, 0\nv_mov_b32_e32 v5, v6",
    ),
    "a lower half that is stored": (
        f"{HALF_WRITTEN}global_store_short v1, v6, s[14:15]\n{PLAIN}",
        f"{WRITTEN}global_store_short v1, v6, s[14:15]\n{PLAIN}",
    ),
    "a register that is overwritten": (f"{HALF_WRITTEN}v_mov_b32_e32 v6, v2\nv_mov_b32_e32 v5, v6", PLAIN),
}


@pytest.mark.parametrize("name", HALVES)
def test_what_replaces_the_lower_half_of_a_word_is_known(name: str) -> None:
    one, other = map(reading, HALVES[name])
    assert one.unknown is None
    assert one.signature == other.signature


@pytest.mark.parametrize(
    "body",
    [
        f"{OFFSET}\n{OWN}\nv_fma_mixlo_f16 v6, v2, v3, 0\n{LOAD}",
        f"{OFFSET}\n{OWN}\nv_fma_mixlo_f16 v6, 1.0, 1.0, 1.0\n{LOAD}",
        f"{HALF_WRITTEN}ds_write_b16 v6, v6\ns_waitcnt lgkmcnt(0)",
    ],
)
def test_an_address_with_another_half_is_no_place(body: str) -> None:
    assert reading(body).signature is None


def test_an_address_of_code_is_no_number() -> None:
    call = "s_getpc_b64 s[20:21]\ns_add_u32 s20, s20, f@rel32@lo+4\ns_addc_u32 s21, s21, f@rel32@hi+12\n"
    function = "\t.type\tf,@function\nf:\n\ts_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)\n\ts_setpc_b64 s[30:31]\n.Lf:\n\t.size\tf, .Lf-f\n"
    for number in ("s20", "s21", "s30", "s31"):
        text = text_of(f"{call}s_swappc_b64 s[30:31], s[20:21]\nv_mov_b32_e32 v5, {number}")
        found = reading("", text=text.replace("\t.text\n\t.globl", f"\t.text\n{function}\t.globl", 1)).unknown or ""
        assert "is read as a number" in found


def test_no_number_is_equal_to_an_address() -> None:
    """256 is the upper word that the analysis takes for the second buffer, and 512 that of the first input."""
    launch = launch_of()
    for number in (256, 512):
        address, constant = (
            Source("k.amdgcn", text_of(f"v_mov_b32_e32 v5, {each}"), launch) for each in ("s11", hex(number))
        )
        assert compare(address, constant, GFX942, Options()).verdict.outcome is not Outcome.EQUAL
    assert compare(address, address, GFX942, Options()).verdict.outcome is not Outcome.EQUAL


LOOP = "a loop begins here"


def program(dice: random.Random) -> str:
    """Random moves of a word WORD between lanes and registers, under changing lanes; v5 is left in all lanes."""
    lines = [f"v_mov_b32_e32 v{each}, {dice.randrange(60)}" for each in (5, 6, 7, 8)]
    saved: list[int] = []

    def some() -> str:
        return f"v{dice.choice((5, 6, 7, 8))}"

    for _ in range(dice.randrange(6, 22)):
        lane, pair = dice.choice((0, 5, 40)), 22 + 2 * (len(saved) % 3)
        compared = f"{dice.choice((3, 9, 33, 50))}, v0"
        kind = dice.choice(
            [
                "word",
                "word",
                "number",
                "move",
                "lanes",
                "part",
                "join",
                "rest",
                "select",
                "read",
                "write",
                "dpp",
                "keep",
                "first",
                "lower half",
                "upper half",
                "half",
                LOOP,
            ]
        )
        if kind == "part":
            saved.append(pair)
        lines += {
            "word": [f"v_mov_b32_e32 {some()}, WORD"],
            "number": [f"v_mov_b32_e32 {some()}, {dice.randrange(64)}"],
            "move": [f"v_mov_b32_e32 {some()}, {some()}"],
            "lanes": [f"s_mov_b64 exec, {dice.choice(('0xff', '0xff00', '-1', '0xf0f0f0f0', 's[40:41]'))}"],
            "part": [f"v_cmp_gt_u32_e64 s[20:21], {compared}", f"s_and_saveexec_b64 s[{pair}:{pair + 1}], s[20:21]"],
            "join": [f"s_or_b64 exec, exec, s[{saved[-1]}:{saved[-1] + 1}]"] if saved else [],
            "rest": [f"s_xor_b64 s[{saved[-1]}:{saved[-1] + 1}], exec, s[{saved[-1]}:{saved[-1] + 1}]", f"s_mov_b64 exec, s[{saved[-1]}:{saved[-1] + 1}]"] if saved else [],
            "select": [f"v_cmp_gt_u32_e32 vcc, {compared}", f"v_cndmask_b32_e32 {some()}, {some()}, {some()}, vcc"],
            "read": [f"v_readlane_b32 s30, {some()}, {lane}", f"v_mov_b32_e32 {some()}, s30"],
            "write": [f"v_writelane_b32 {some()}, {dice.choice(('WORD', 's28'))}, {lane}"],
            "dpp": [f"v_mov_b32_dpp {some()}, {some()} row_shr:1 row_mask:0xf bank_mask:0xf{dice.choice(('', ' bound_ctrl:0'))}"],
            "keep": [f"scratch_store_dword off, {some()}, off offset:8", "s_waitcnt vmcnt(0)", f"scratch_load_dword {some()}, off, off offset:8", "s_waitcnt vmcnt(0)"],
            "first": [f"v_readfirstlane_b32 s30, {some()}", f"v_mov_b32_e32 {some()}, s30"],
            "lower half": [f"v_fma_mixlo_f16 {some()}, v3, v3, 1.0"],
            "upper half": [f"v_fma_mixhi_f16 {some()}, v3, v3, 1.0"],
            "half": [f"ds_write_b16 v1, {some()}", "s_waitcnt lgkmcnt(0)", f"ds_read_u16 {some()}, v1", "s_waitcnt lgkmcnt(0)"],
            LOOP: [] if LOOP in lines else [LOOP],
        }[kind]  # fmt: skip
        if kind == "join" and saved:
            saved.pop()
    if LOOP in lines:
        place = lines.index(LOOP)
        lines[place : place + 1] = ["s_mov_b32 s33, 0", ".LBB0_1:"]
        lines += ["s_add_i32 s33, s33, 1", f"s_cmp_lt_u32 s33, {dice.choice((2, 3))}", "s_cbranch_scc1 .LBB0_1"]
    sums = ["v_add_u32_e32 v5, v5, v6"] if dice.random() < 0.4 else []
    return "\n".join(["s_mov_b32 s28, 3", "s_mov_b64 s[40:41], exec", *lines, "s_mov_b64 exec, -1", *sums])


def test_no_word_reaches_an_output_on_any_way() -> None:
    """The bytes that two numbers in place of a word leave tell whether it does."""
    reached = 0
    for seed in range(60):
        body = program(random.Random(seed))
        try:
            numbers = [
                run(f"s_mov_b32 s29, {each}\n{body.replace('WORD', 's29')}", range(64))
                for each in (0x11111111, 0x22222222)
            ]
        except Unsupported:
            continue
        if (numbers[0] != numbers[1]).any():
            reached += 1
            assert "is read as a number" in (reading(body.replace("WORD", "s11")).unknown or ""), body
    assert reached > 15


TABLE = {
    "scalar": "s_load_dwordx2 s[20:21], s[10:11], 0x8\ns_waitcnt lgkmcnt(0)",
    "vector": "v_mov_b32_e32 v6, 8\nglobal_load_dwordx2 v[6:7], v6, s[10:11]\ns_waitcnt vmcnt(0)\n"
    "v_readfirstlane_b32 s20, v6\nv_readfirstlane_b32 s21, v7",
}  # fmt: skip


def with_table(body: str) -> str | None:
    """The reason why the analysis of a kernel is Unknown whose first input holds a number and a pointer to the second."""
    table = {"buffer": "a", "dtype": "i64", "values": [3, {"buffer": "b", "offset": 0, "dtype": "i32"}]}
    arguments = [
        {"buffer": "out", "dtype": "i32"},
        table,
        {"buffer": "b", "dtype": "i32"},
        {"buffer": "c", "dtype": "i32"},
    ]
    launch = Launch.model_validate(
        {"file": "kernel.amdgcn", "entry": "kernel", "grid": [1], "block": [64], "args": arguments}
    )
    text = text_of(body).replace("global_load_dword v2, v1, s[10:11]", "v_mov_b32_e32 v2, 0")
    return analyse(Source("k", text, launch), GFX942, {"out": 1, "a": 2, "b": 3, "c": 4}, Options()).unknown


@pytest.mark.parametrize("loaded", TABLE)
def test_pointers_of_a_table_are_followed(loaded: str) -> None:
    place = "global_load_dword v5, v1, s[20:21]\ns_waitcnt vmcnt(0)"
    assert with_table(f"{TABLE[loaded]}\n{place}") is None
    for word in ("s20", "s21"):
        assert "is read as a number" in (with_table(f"{TABLE[loaded]}\nv_mov_b32_e32 v5, {word}") or "")
    number = "s_load_dwordx2 s[20:21], s[10:11], 0x0\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v5, s20"
    assert with_table(number) is None


@pytest.mark.parametrize(
    "load",
    [
        "s_load_dword s20, s[10:11], 0xc\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v5, s20",
        "v_mov_b32_e32 v6, 12\nglobal_load_dword v5, v6, s[10:11]\ns_waitcnt vmcnt(0)",
        "v_mov_b32_e32 v6, 13\nglobal_load_ubyte v5, v6, s[10:11]\ns_waitcnt vmcnt(0)",
        "s_mov_b32 s20, s10\ns_and_b32 s21, s11, 0xffff\ns_movk_i32 s22, 0x10\ns_mov_b32 s23, 0x27000\nv_mov_b32_e32 v6, 8\n"
        "buffer_load_dwordx2 v[6:7], v6, s[20:23], 0 offen\ns_waitcnt vmcnt(0)\nv_mov_b32_e32 v5, v7",
        "v_mov_b32_e32 v6, 8\nv_mov_b32_e32 v8, 0\nv_mov_b32_e32 v9, 0\nglobal_atomic_swap_x2 v[6:7], v6, v[8:9], s[10:11] sc0\n"
        "s_waitcnt vmcnt(0)\nv_mov_b32_e32 v5, v7",
        "s_mov_b32 s20, s10\ns_and_b32 s21, s11, 0xffff\ns_movk_i32 s22, 0x10\ns_mov_b32 s23, 0x27000\nv_mov_b32_e32 v6, 12\n"
        "s_mov_b32 m0, 0\nbuffer_load_dword v6, s[20:23], 0 offen lds\ns_waitcnt vmcnt(0)\nds_read_b32 v5, v1\ns_waitcnt lgkmcnt(0)",
    ],
)  # fmt: skip
def test_parts_of_a_pointer_are_no_numbers(load: str) -> None:
    found = with_table(load) or ""
    assert "is read in parts or as a number" in found or "is read as a number" in found


@pytest.mark.parametrize("body", [*OPEN.values(), PLAIN], ids=[*OPEN, "plain"])
def test_instructions_that_touch_no_word_are_passed(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flow finds what it finds where it executes every instruction."""
    found = reading(body)
    with monkeypatch.context() as patch:
        made = address_flow._text_of
        patch.setattr(address_flow, "_text_of", lambda *arguments: replace(made(*arguments), acts=True))
        whole = reading(body)
    assert (found.signature, found.unknown, found.places) == (whole.signature, whole.unknown, whole.places)


LOADS = "s_load_dwordx2 s[20:21], s[0:1], 0x8\ns_load_dword s22, s[0:1], 0x10\ns_waitcnt lgkmcnt(0)\n"


@pytest.mark.parametrize("body", [*list(OPEN.values())[::4], PLAIN, f"{LOADS}v_mov_b32_e32 v5, s22"])
def test_loads_of_arguments_at_the_start_change_no_reading(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of these loads are known before the first instruction, or after each load: the reading is the same."""
    text = text_of(body)
    found = reading(body, text=text)
    with monkeypatch.context() as patch:
        patch.setattr(scalar_memory, "note_first_loads", lambda *arguments: None)
        after = reading(body, text=text + "; another text\n")
    assert (found.signature, found.unknown, found.places) == (after.signature, after.unknown, after.places)


def test_flow_is_followed_once_for_the_loads_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    follow = address_flow._Flow._run
    monkeypatch.setattr(address_flow._Flow, "_run", lambda self, work: (runs.append(work), follow(self, work))[1])
    assert reading(PLAIN).signature is not None
    assert runs == [{0}]


def test_first_loads_end_where_the_address_of_the_arguments_is_overwritten() -> None:
    body = "s_load_dwordx2 s[4:5], s[0:1], 0x8\ns_waitcnt lgkmcnt(0)\ns_load_dwordx2 s[0:1], s[0:1], 0x0\ns_load_dword s6, s[0:1], 0x4"
    kernel = GFX942.parse(text_of("s_nop 0").replace(PROLOGUE, f"{body}\n{PROLOGUE}"), "kernel.amdgcn").kernel(None)
    assert [(first, count) for _, first, count in scalar_memory._first_loads(kernel, "s0")] == [(2, 2), (0, 2)]
