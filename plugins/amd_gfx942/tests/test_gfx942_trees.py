"""Expressions evaluate to the simulated bits: byte moves, masks, shifts, halves, selects by data."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_amd_gfx942.architecture import GFX942
from bitwise_conformance.suite.tree_evaluation import value_of
from bitwise_core.checker.sources import Options, Source
from bitwise_core.cli.tree_command import tree_of
from bitwise_core.errors import InputError
from gfx942_kernels import Array, launch_of, run, text_of

BODIES = [
    "v_perm_b32 v5, v2, v3, v6",
    "v_mov_b32_e32 v6, 0x06050403\nv_perm_b32 v5, v2, v3, v6",
    "v_mov_b32_e32 v6, 0x05040100\nv_perm_b32 v5, v2, v3, v6",
    "v_mov_b32_e32 v6, 0x070c0c02\nv_perm_b32 v5, v2, v3, v6",
    "s_mov_b32 s20, 0x0c070604\nv_perm_b32 v5, v3, v2, s20",
    "v_alignbit_b32 v5, v2, v3, 16",
    "v_alignbit_b32 v5, v2, v3, 8",
    "v_alignbit_b32 v5, v2, v3, 24",
    "v_alignbit_b32 v5, v2, v3, 0",
    "v_alignbyte_b32 v5, v2, v3, 1",
    "v_alignbyte_b32 v5, v2, v3, 2",
    "v_lshlrev_b32_e32 v5, 16, v2",
    "v_lshrrev_b32_e32 v5, 8, v2",
    "v_and_b32_e32 v5, 0xffff0000, v2",
    "v_and_b32_e32 v6, 0xffff, v2\nv_lshl_or_b32 v5, v3, 16, v6",
    "v_and_b32_e32 v6, 0xff00ff, v2\nv_and_or_b32 v5, v3, 0xff, v6",
    "v_bfe_u32 v5, v2, 16, 16",
    "v_bfe_u32 v5, v2, 8, 8",
    "s_mov_b32 s20, 0xffff\nv_bfi_b32 v5, s20, v2, v3",
    "v_mov_b32_sdwa v5, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1",
    "v_mov_b32_e32 v5, v3\nv_mov_b32_sdwa v5, v2 dst_sel:BYTE_2 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_3",
    "v_mov_b32_e32 v5, v3\nv_mov_b32_sdwa v5, v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_0",
    "v_cvt_f16_f32_e32 v6, v2\nv_cvt_f16_f32_e32 v7, v3\nv_pack_b32_f16 v5, v6, v7",
    "v_pk_add_f16 v6, v2, v3\nv_pack_b32_f16 v5, v6, v6 op_sel:[1,0,0]",
    "v_mov_b32_e32 v6, v3\nv_mov_b32_e32 v7, v2\nv_mov_b64_e32 v[4:5], v[6:7]",
    "v_mov_b32_e32 v6, v2\nv_mov_b32_e32 v7, v3\nv_lshrrev_b64 v[8:9], 16, v[6:7]\nv_mov_b32_e32 v5, v8",
    "v_mov_b32_e32 v6, v2\nv_mov_b32_e32 v7, v3\nv_lshlrev_b64 v[8:9], 8, v[6:7]\nv_mov_b32_e32 v5, v9",
    "ds_write_b32 v1, v2\nds_write_b16 v1, v3 offset:2\ns_waitcnt lgkmcnt(0)\nds_read_b32 v5, v1",
    "ds_write_b32 v1, v2\ns_waitcnt lgkmcnt(0)\nds_read_u16_d16_hi v5, v1 offset:2\n"
    "s_waitcnt lgkmcnt(0)\nv_and_b32_e32 v5, 0xffff0000, v5",
    "ds_write_b32 v1, v2\nds_write_b8_d16_hi v1, v3 offset:1\ns_waitcnt lgkmcnt(0)\nds_read_b32 v5, v1",
    "ds_bpermute_b32 v5, v1, v2",
    "v_mov_b32_e32 v5, v3\nv_mov_b32_dpp v5, v2 row_shr:5 row_mask:0xf bank_mask:0xf",
    "v_mov_b32_dpp v5, v2 row_bcast:15 row_mask:0xf bank_mask:0xf bound_ctrl:1",
    "v_pk_add_f16 v5, v2, v3 op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[1,0] neg_hi:[0,1]",
    "v_fma_mix_f32 v5, v2, v3, v4 op_sel:[0,1,0] op_sel_hi:[1,1,0]",
    "v_cvt_f32_f16_sdwa v5, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1",
    "v_fma_f32 v5, -v2, |v3|, v4",
    "v_max_f32_e32 v6, v2, v2\nv_max_f32_e32 v7, v3, v3\nv_max3_f32 v5, v6, v7, 0",
    "v_cmp_lt_f32_e32 vcc, v2, v3\nv_cndmask_b32_e32 v5, v3, v2, vcc",
    "v_cmp_nlt_f32_e64 s[20:21], v2, |v3|\nv_cndmask_b32_e64 v5, v3, v2, s[20:21]",
    "v_cmp_gt_i32_e32 vcc, v2, v3\nv_cmp_eq_u32_e64 s[20:21], 3, v0\ns_or_b64 vcc, vcc, s[20:21]\n"
    "v_cndmask_b32_e32 v5, v3, v2, vcc",
    "s_movk_i32 s20, 0x7fff\nv_bfe_u32 v6, v2, 16, 1\nv_add3_u32 v6, v2, v6, s20\nv_cmp_o_f32_e32 vcc, v2, v2\n"
    "v_mov_b32_e32 v7, 0x7fff0000\nv_and_b32_e32 v6, 0xffff0000, v6\nv_cndmask_b32_e32 v6, v7, v6, vcc\n"
    "v_add_f32_e32 v5, v6, v3",
    "v_max_f32_e32 v6, v2, v2\nv_max_f32_e32 v7, v3, v3\nv_min_f32_e32 v6, v6, v7\nv_cmp_u_f32_e32 vcc, v2, v3\n"
    "v_mov_b32_e32 v7, 0x7fc00000\nv_cndmask_b32_e32 v5, v6, v7, vcc",
    "v_mov_b32_e32 v6, v2\nv_mov_b32_e32 v7, v3\nv_cvt_u32_f64_e32 v5, v[6:7]",
    "v_cvt_f32_i32_sdwa v5, sext(v2) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1",
    "v_cvt_f32_ubyte2_e32 v5, v2",
    "v_med3_i32 v5, v2, -16, 64",
    "v_mov_b32_e32 v5, v4\nv_cmp_lt_f32_e32 vcc, v2, v3\ns_and_saveexec_b64 s[20:21], vcc\n"
    "s_xor_b64 s[20:21], exec, s[20:21]\nv_add_f32_e32 v6, v2, v3\nv_mul_f32_e32 v5, v6, v6\n"
    "s_andn2_saveexec_b64 s[22:23], s[20:21]\nv_sub_f32_e32 v5, v2, v3\ns_or_b64 exec, exec, s[22:23]",
    "v_mov_b32_e32 v5, v4\nv_cmp_lt_f32_e32 vcc, v2, v3\ns_and_saveexec_b64 s[20:21], vcc\ns_cbranch_execz .LOUT\n"
    "v_cmp_lt_f32_e32 vcc, 0, v2\ns_and_saveexec_b64 s[22:23], vcc\nv_mul_f32_e32 v5, v2, v3\n"
    "s_or_b64 exec, exec, s[22:23]\nv_add_f32_e32 v5, 1.0, v5\n.LOUT:\ns_or_b64 exec, exec, s[20:21]",
    *(
        f"v_mov_b32_e32 v6, v4\nv_mov_b32_e32 v7, v2\n{first}\n{partial}\nv_lshl_add_u64 v[12:13], v[8:9], 0, v[6:7]\n"
        f"v_mov_b32_e32 v5, v{last}"
        for last in (12, 13)
        for first in (
            "v_mov_b32_e32 v8, v3\nv_mov_b32_e32 v9, 5",
            "v_lshl_add_u64 v[8:9], v[6:7], 0, v[2:3]",
            "v_mov_b32_e32 v8, 3\nv_lshl_add_u64 v[10:11], v[6:7], 0, v[2:3]\nv_mov_b32_e32 v9, v11",
        )
        for partial in (
            # Both halves or one of them are written in some lanes; the set of lanes is known or depends on data.
            "v_cmp_gt_u32_e32 vcc, 20, v0\ns_and_saveexec_b64 s[20:21], vcc\n"
            "v_lshl_add_u64 v[8:9], v[2:3], 0, v[2:3]\ns_or_b64 exec, exec, s[20:21]",
            "v_cmp_gt_u32_e32 vcc, 20, v0\nv_lshl_add_u64 v[10:11], v[2:3], 0, v[2:3]\n"
            "v_cndmask_b32_e32 v8, v8, v10, vcc\nv_cndmask_b32_e32 v9, v9, v11, vcc",
            "v_cmp_gt_u32_e32 vcc, 20, v0\nv_lshl_add_u64 v[10:11], v[2:3], 0, v[2:3]\n"
            "v_cndmask_b32_e32 v8, v8, v10, vcc\nv_cmp_gt_u32_e32 vcc, 10, v0\nv_cndmask_b32_e32 v9, v11, v9, vcc",
            "v_cmp_gt_u32_e32 vcc, v2, v3\nv_lshl_add_u64 v[10:11], v[2:3], 0, v[2:3]\n"
            "v_cndmask_b32_e32 v8, v8, v10, vcc\nv_cndmask_b32_e32 v9, v9, v11, vcc",
            "v_lshl_add_u64 v[10:11], v[2:3], 0, v[2:3]\nv_cmp_gt_u32_e32 vcc, 20, v0\n"
            "v_cndmask_b32_e32 v8, v8, v10, vcc\nv_cmp_gt_u32_e32 vcc, 10, v0\nv_cndmask_b32_e32 v9, v9, v11, vcc",
            "v_lshl_add_u64 v[10:11], v[2:3], 0, v[2:3]\nv_cmp_gt_u32_e32 vcc, v2, v3\n"
            "v_cndmask_b32_e32 v8, v8, v10, vcc\nv_cmp_gt_u32_e32 vcc, v2, v4\nv_cndmask_b32_e32 v9, v9, v11, vcc",
            "v_cmp_gt_u32_e32 vcc, v2, v3\nv_lshl_add_u64 v[10:11], v[2:3], 0, v[2:3]\n"
            "v_cndmask_b32_e32 v8, v8, v10, vcc\nv_cndmask_b32_e32 v9, v11, v9, vcc",
            "v_mov_b32_dpp v8, v6 row_shr:3 row_mask:0xf bank_mask:0x5\n"
            "v_mov_b32_dpp v9, v7 row_shr:3 row_mask:0xf bank_mask:0x5",
            "v_lshl_add_u64 v[10:11], v[2:3], 0, v[2:3]\nv_mov_b32_dpp v8, v10 row_shr:3 row_mask:0xf bank_mask:0x5\n"
            "v_mov_b32_dpp v9, v11 row_shr:3 row_mask:0xf bank_mask:0x5",
        )
    ),
]


@pytest.mark.parametrize("body", BODIES)
def test_expression_has_the_simulated_bits(body: str) -> None:
    """The expressions of sampled output elements, evaluated on the inputs of a simulation, give its output."""
    random = np.random.default_rng(len(body))
    words = {
        name: np.where(random.random(64) < 0.5, random.integers(0, 1 << 32, 64), random.integers(0, 1 << 8, 64) << 23)
        .astype(np.uint64)
        .astype(np.uint32)
        for name in ("a", "b", "c")
    }
    if body.startswith("v_perm"):
        body = "v_mov_b32_e32 v6, 0x03020706\n" + body
    left = run(body, words["a"], words["b"], words["c"])
    contents = {name: each.view(np.uint8) for name, each in words.items()}
    source = Source("kernel.amdgcn", text_of(body), launch_of())
    compared = 0
    for lane in (0, 3, 5, 17, 33, 62):
        offset = 4 * lane
        while offset < 4 * lane + 4:
            size, is_compared = _compare_element(source, offset, contents, left.view(np.uint8))
            compared += is_compared
            offset += size
    assert compared >= 5


def _compare_element(source: Source, offset: int, contents: dict[str, Array], left: Array) -> tuple[int, bool]:
    """Compare the element stored at a byte offset; return its size, 1 if there is none, and whether it has these bits.

    Another NaN has not.
    """
    for size in (4, 2, 1):
        if offset % size:
            continue
        try:
            root = tree_of(source, GFX942, Options(), f"out[{offset // size}]", None)[0].root
        except InputError:
            continue
        if root.bits != 8 * size:
            continue
        found, expected = value_of(root, contents, {}), int.from_bytes(left[offset : offset + size].tobytes(), "little")
        if found != expected:
            pair = np.array([found, expected], dtype=np.uint32).view(np.float32)
            assert size == 4, f"byte {offset}: {found:#x} instead of {expected:#x}"
            assert np.isnan(pair).all(), f"byte {offset}: {found:#x} instead of {expected:#x}"
            return size, False
        return size, True
    return 1, False
