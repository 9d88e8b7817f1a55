"""Divergent waves and lanes: their analysis is independent of the values in inactive waves and lanes."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.execution.data_loops import loop_systems
from gfx942_kernels import reading, run

_FIRST_WAVE = """v_mov_b32_e32 v5, 0
v_mov_b32_e32 v6, 0
v_cmp_gt_u32_e32 vcc, 64, v0
s_and_saveexec_b64 s[20:21], vcc
s_cbranch_execz .LOUT
v_readfirstlane_b32 s22, v2
s_and_b32 s22, s22, 15
s_mov_b32 s23, 0
s_lshl_b64 s[22:23], s[22:23], {shift}
s_add_u32 s24, s12, s22
s_addc_u32 s25, s13, s23
{load}
.LOUT:
s_or_b64 exec, exec, s[20:21]"""
_SCALAR_LOAD = "s_load_dword s26, s[24:25], 0x0\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v5, s26"
_VECTOR_LOAD = "global_load_dword v5, v6, s[24:25]\ns_waitcnt vmcnt(0)"


def test_load_at_data_dependent_address_in_one_wave() -> None:
    """The address is computed in halves from a known buffer; a scalar load equals a vector load."""
    for load in (_SCALAR_LOAD, _VECTOR_LOAD):
        body = _FIRST_WAVE.format(shift=2, load=load)
        left = run(body, [0x10007], [100 + each for each in range(128)], threads=128)
        assert left.tolist() == [107] * 64 + [0] * 64
    read = [reading(_FIRST_WAVE.format(shift=2, load=each), threads=128) for each in (_SCALAR_LOAD, _VECTOR_LOAD)]
    assert read[0].unknown is None
    assert read[0].signature == read[1].signature is not None


def test_scalar_load_needs_an_address_known_to_be_aligned() -> None:
    body = _FIRST_WAVE.format(shift=1, load=_SCALAR_LOAD)
    found = reading(body, threads=128)
    assert found.signature is None
    assert "for a whole wave at an address that depends on data" in str(found.unknown)
    per_lane = _FIRST_WAVE.format(shift=1, load=_VECTOR_LOAD)
    assert reading(per_lane, threads=128).unknown is None


def test_register_pair_holds_numbers_in_one_wave_and_a_lane_mask_in_another() -> None:
    """Also where only some waves hold the numbers."""
    body = """v_mov_b32_e32 v5, 0
v_cmp_gt_u32_e32 vcc, 64, v0
s_cbranch_vccz .LONE
s_mov_b32 s30, 7
s_mov_b32 s31, 9
s_branch .LTWO
.LONE:
v_cmp_lt_u32_e64 s[30:31], v2, v3
v_cndmask_b32_e64 v5, v2, v3, s[30:31]
.LTWO:
v_cmp_gt_u32_e32 vcc, 64, v0
s_cbranch_vccz .LTHREE
v_mov_b32_e32 v5, s31
.LTHREE:
s_nop 0"""
    left = run(body, list(range(128)), [100], threads=128)
    assert left.tolist() == [9] * 64 + [max(each, 100) for each in range(64, 128)]
    assert reading(body, threads=128).unknown is None


def test_scalar_that_differs_in_inactive_waves_is_uniform() -> None:
    """v_perm by the scalar selects halves, as if all waves held the same selector."""
    body = """{divergent}v_perm_b32 v5, v2, v3, s30
{join}s_nop 0"""
    divergent = """v_mov_b32_e32 v5, 0
s_mov_b32 s30, 0x03020706
v_cmp_gt_u32_e32 vcc, 64, v0
s_cbranch_vccz .LONE
s_mov_b32 s30, 0x05040100
"""
    split = reading(body.format(divergent=divergent, join=".LONE:\n"), threads=128)
    plain = "v_mov_b32_e32 v5, 0\ns_mov_b32 s30, 0x05040100\nv_cmp_gt_u32_e32 vcc, 64, v0\ns_cbranch_vccz .LONE\n"
    whole = reading(body.format(divergent=plain, join=".LONE:\n"), threads=128)
    assert split.signature == whole.signature is not None
    left = run(body.format(divergent=divergent, join=".LONE:\n"), [0x11112222], [0x33334444], threads=128)
    assert left.tolist() == [0x22224444] * 64 + [0] * 64


def test_bf16_rounding_in_active_lanes() -> None:
    rounding = """v_bfe_u32 v6, v2, 16, 1
s_movk_i32 s30, 0x7fff
v_add3_u32 v6, v2, v6, s30
v_cmp_o_f32_e32 vcc, v2, v2
v_mov_b32_e32 v7, 0x7fff
v_cndmask_b32_sdwa v5, v7, v6, vcc dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:WORD_1
"""
    some = (
        "{}v_mov_b32_e32 v5, 0\nv_cmp_gt_u32_e32 vcc, 20, v0\ns_and_saveexec_b64 s[20:21], vcc\n{}"
        "v_lshlrev_b32_e32 v5, 16, v5\ns_or_b64 exec, exec, s[20:21]"
    )
    divergent = reading(some.format("", rounding))
    before = reading(some.format(rounding + "v_mov_b32_e32 v8, v5\n", "v_mov_b32_e32 v5, v8\n"))
    assert divergent.signature == before.signature is not None


def test_register_content_of_active_waves() -> None:
    """Halves packed in one wave stay halves there, although the other wave has an fp32 in the register."""
    text = """v_mov_b32_e32 v5, 0
v_add_f16_e32 v6, v2, v3
v_add_f16_e32 v7, v3, v4
v_add_f32_e32 v9, v2, v3
v_mov_b32_e32 v8, {other}
v_cmp_gt_u32_e32 vcc, 64, v0
s_cbranch_vccz .LONE
v_pack_b32_f16 v8, v6, v7
v_lshlrev_b32_e32 v5, 16, v8
.LONE:
s_nop 0"""
    first, second = (reading(text.format(other=each), threads=128) for each in ("v9", "0"))
    assert first.signature == second.signature is not None


def test_maximum_of_widened_bf16_in_some_lanes() -> None:
    """Inactive lanes hold numbers whose low halves are not zero."""
    widened = "v_lshlrev_b32_e32 v6, 16, v2\nv_max_f32_e32 v6, v6, v6\nv_lshlrev_b32_e32 v7, 16, v3\n"
    some = (
        "v_mov_b32_e32 v5, v0\nv_cmp_gt_u32_e32 vcc, 20, v0\n{}"
        "s_and_saveexec_b64 s[20:21], vcc\n{}v_max_f32_e32 v5, v6, v8\ns_or_b64 exec, exec, s[20:21]"
    )
    inside = widened + "v_mov_b32_e32 v8, v0\n", "v_max_f32_e32 v8, v7, v7\n"
    before = widened + "v_max_f32_e32 v8, v7, v7\n", ""
    forms = [reading(some.format(*each)).signature for each in (inside, before)]
    assert forms[0] == forms[1] is not None
    left = run(some.format(*inside), [0x3F80], [0x4000])
    assert left.tolist() == [0x40000000] * 20 + list(range(20, 64))


_UNTIL_NO_LANE = """v_mov_b32_e32 v5, v4
v_mov_b32_e32 v7, v2
v_mov_b32_e32 v8, v3
v_mov_b32_e32 v10, {step}
v_cmp_eq_u32_e32 vcc, 0, v0
v_cndmask_b32_e32 v9, v10, v3, vcc
.LAGAIN:
v_cmp_lt_f32_e32 vcc, v7, v4
v_add_f32_e32 v7, v7, v8
v_mov_b32_e32 v8, v9
v_add_f32_e32 v5, v5, v3
{branch}
v_cmp_eq_u32_e32 vcc, 0, v0
v_cndmask_b32_e32 v5, 0, v5, vcc"""
"""Lane 0 stores a sum, and other lanes decide by their `step` how often it is repeated."""


@pytest.mark.parametrize("branch", ["s_cbranch_vccnz .LAGAIN", "s_and_b64 s[20:21], vcc, exec\ns_cbranch_scc1 .LAGAIN"])
@pytest.mark.parametrize("declared", [True, False])
def test_lanes_that_other_lanes_repeat_differ_with_these(
    branch: str, declared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instruction that does not declare that it reads other lanes makes no two loops one function."""
    if not declared:
        monkeypatch.setattr(loop_systems, "threads_together", lambda *loop: (1, False))
    texts = [_UNTIL_NO_LANE.format(branch=branch, step=step) for step in ("1.0", "2.0")]
    limits = np.where(np.arange(64) == 5, np.float32(100), np.float32(0)).view(np.uint32)
    ones = np.ones(64, dtype=np.float32).view(np.uint32)
    results = [run(each, [0], ones, limits) for each in texts]
    assert results[0][0] != results[1][0]
    forms = [reading(each, dtype="fp32").signature for each in texts]
    assert None not in forms if declared else forms == [None, None]
    assert not declared or forms[0] != forms[1]


def test_half_of_a_pair_that_a_waiting_wave_reads() -> None:
    """A write of the other half of the pair does not end its life."""
    body = """s_mov_b32 s31, 5
v_cmp_gt_u32_e32 vcc, 64, v0
s_and_saveexec_b64 s[20:21], vcc
s_cbranch_execz .LOUT
s_mov_b32 s31, 9
.LOUT:
s_or_b64 exec, exec, s[20:21]
s_mov_b32 s30, 0
v_mov_b32_e32 v5, s31"""
    assert run(body, [0], threads=128).tolist() == [9] * 64 + [5] * 64
