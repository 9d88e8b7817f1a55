"""Instructions and kernels that look like equivalent ones and are not: distinguished, or Unknown."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_amd_gfx942.architecture import GFX942
from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.launch import Argument, Launch
from gfx942_kernels import HEAD, TAIL, launch_of, reading, run, text_of

LANES = list(range(64))
UNDEFINED = "a stored value depends on a register or on memory that nothing wrote"


def unknown(body: str, *, threads: int = 64) -> str:
    """The reason why the analysis of a body is Unknown; "" where it succeeds."""
    return reading(body, threads=threads).unknown or ""


def test_encoding_is_inferred_from_modifiers() -> None:
    moved = run("v_mov_b32_e32 v5, 7\nv_mov_b32 v5, v2 row_shr:1 row_mask:0xf bank_mask:0xf", LANES)
    assert moved.tolist() == [lane - 1 if lane % 16 else 7 for lane in LANES]
    assert run("v_add_u32 v5, v2, v2 dst_sel:DWORD src0_sel:BYTE_1 src1_sel:DWORD", [0x305])[0] == 0x308
    compared = "v_cmp_eq_u32 vcc, v2, v3 src0_sel:BYTE_1 src1_sel:DWORD\nv_cndmask_b32_e64 v5, 0, 1, vcc"
    assert run(compared, [0x305], [3])[0] == 1


@pytest.mark.parametrize(
    "line",
    [
        "v_mov_b32_e32 v5, v2 row_shr:1 row_mask:0xf bank_mask:0xf",
        "v_mov_b32_e64 v5, v2 quad_perm:[1,0,3,2]",
        "v_add_u32_e32 v5, v2, v2 src0_sel:BYTE_1",
        "v_add_u32_dpp v5, v2, v2 row_shr:1 src0_sel:BYTE_1",
        "v_add_u32_sdwa v5, v2, v2 src0_sel:BYTE_1 row_shr:1",
        "v_cmp_eq_u32_e32 vcc, v2, v3 src0_sel:BYTE_1",
    ],
)
def test_modifiers_of_another_encoding_are_unknown(line: str) -> None:
    assert "which its encoding does not have" in unknown(f"v_mov_b32_e32 v5, 1\n{line}")


@pytest.mark.parametrize(
    "modifiers", ["row_shr:1 bound_ctrl", "row_shr:1 bound_ctrl:2", "row_shr:1 row_mask:0x1f", "row_shr:1 bank_mask:-1"]
)
def test_invalid_dpp_masks_are_unknown(modifiers: str) -> None:
    assert "has a mask or bound_ctrl that no encoding has" in unknown(f"v_mov_b32_dpp v5, v2 {modifiers}")


@pytest.mark.parametrize("line", ["s_mov_b32 exec_lo, 0", "v_readlane_b32 exec_hi, v2, 3", "s_lshl_b64 exec, exec, 1"])
def test_write_of_half_the_execution_mask_is_unknown(line: str) -> None:
    assert "writes a part of the execution mask" in unknown(f"v_mov_b32_e32 v5, 1\n{line}\nv_mov_b32_e32 v5, 2")


def test_other_half_after_a_16_bit_load_is_undefined() -> None:
    body = "v_mov_b32_e32 v5, 7\n{}global_load_short_d16_hi v5, v1, s[10:11]\ns_waitcnt vmcnt(0)\n"
    assert unknown(body.format("")).startswith(UNDEFINED)
    assert run(body.format("") + "v_lshrrev_b32_e32 v5, 16, v5", [0x12345])[0] == 0x2345


def test_buffer_descriptor_that_is_not_raw_is_unknown() -> None:
    body = (
        "s_mov_b32 s20, s10\ns_and_b32 s21, s11, 0xffff\ns_mov_b32 s22, 0x100\ns_mov_b32 s23, {}\n"
        "buffer_load_dword v5, v1, s[20:23], 0 offen"
    )
    assert unknown(body.format("0x27000")) == ""
    assert "not of the raw kind" in unknown(body.format("0x827000"))


GATHER = """s_mov_b32 s20, s10
s_and_b32 s21, s11, 0xffff
s_mov_b32 s22, 0x100
s_mov_b32 s23, 0x27000
{}s_waitcnt vmcnt(0)
v_mov_b32_e32 v5, v6
"""


def test_wrapped_offset_differs_from_offset_out_of_bounds() -> None:
    """An offset of -4 plus 4 wraps to 0 in a vector add; in the address of the access it is out of bounds."""
    added = GATHER.format("v_add_u32_e32 v7, 4, v3\nbuffer_load_dword v6, v7, s[20:23], 0 offen\n")
    fixed = GATHER.format("buffer_load_dword v6, v3, s[20:23], 0 offen offset:4\n")
    assert run(added, [5], [0xFFFFFFFC])[0] == 5
    assert run(fixed, [5], [0xFFFFFFFC])[0] == 0
    left, right = reading(added), reading(fixed)
    assert left.signature is not None
    assert right.signature is not None
    assert left.signature != right.signature


def test_atomic_at_data_dependent_offset_checks_the_descriptor_bounds() -> None:
    body = GATHER.format("v_mov_b32_e32 v6, 1\nbuffer_atomic_add v6, v3, s[20:23], 0 offen\n")
    assert "may lie out of bounds" in unknown(body)


def test_waves_on_several_compute_units_are_unknown() -> None:
    """Their caches are not coherent: a barrier does not make stores of one wave visible to another."""
    store = "global_store_dword v1, v2, s[8:9]\ns_waitcnt vmcnt(0)\ns_barrier"
    load = "v_xor_b32_e32 v6, 0x100, v1\nglobal_load_dword v5, v6, s[8:9]\ns_waitcnt vmcnt(0)\ns_barrier"
    text = text_of(f"{store}\n{load}")
    assert reading("", text=text, threads=128).unknown is None
    split = text.replace(".amdhsa_ieee_mode 1", ".amdhsa_ieee_mode 1\n\t\t.amdhsa_tg_split 1")
    assert "tg_split" in (reading("", text=split, threads=128).unknown or "")


def test_coordinates_that_the_descriptor_does_not_ask_for_are_unknown() -> None:
    text = text_of("v_mov_b32_e32 v5, v0")
    asked = text.replace(".amdhsa_ieee_mode 1", ".amdhsa_ieee_mode 1\n\t\t.amdhsa_system_vgpr_workitem_id 1")
    launch = launch_of().model_copy(update={"block": (32, 2, 1)})
    results = [
        analyse(Source("kernel.amdgcn", each, launch), GFX942, {"out": 1, "a": 2, "b": 3, "c": 4}, Options())
        for each in (text, asked)
    ]
    assert "more axes" in (results[0].unknown or "")
    assert "more axes" not in (results[1].unknown or "")


def test_disabled_ieee_mode_is_unknown() -> None:
    text = text_of("v_max_f32_e32 v5, v2, v3")
    assert reading("", text=text).unknown is None
    changed = text.replace(".amdhsa_ieee_mode 1", ".amdhsa_ieee_mode 0")
    assert "disables the IEEE mode or DX10_CLAMP" in (reading("", text=changed).unknown or "")


def test_pack_may_quiet_signalling_nans() -> None:
    """The bits of a signalling NaN may change; those of a rounded number do not."""
    assert reading("v_pack_b32_f16 v5, v2, v3").signature != reading("v_perm_b32 v5, v3, v2, v4").signature
    packed = run("v_pack_b32_f16 v5, v2, v3", [0x7C01], [0x3C00])[0]
    assert packed == 0x3C007FFF
    rounded = "v_cvt_f16_f32_e32 v6, v2\nv_cvt_f16_f32_e32 v7, v3\n{}"
    sides = [rounded.format(each) for each in ("v_pack_b32_f16 v5, v6, v7", "v_lshl_or_b32 v5, v7, 16, v6")]
    left, right = (reading(each).signature for each in sides)
    assert left == right is not None


def test_pack_keeps_the_payload_of_a_quiet_nan() -> None:
    # An arithmetic NaN is the canonical one, a packed one need not be.
    packed = "v_pack_b32_f16 v5, v2, v3"
    extremum = f"{packed}\nv_lshrrev_b32_e32 v6, 16, v5\nv_max_f16_e32 v7, v5, v5\nv_lshl_or_b32 v5, v6, 16, v7"
    payload, canonical = (run(body, [0x7E01], [0x3C00])[0] & 0xFFFF for body in (packed, extremum))
    assert (payload, canonical) == (0x7E01, 0x7FFF)
    assert reading(packed).signature != reading(extremum).signature


def test_barrier_during_pending_global_writes_does_not_order_them() -> None:
    body = """v_xor_b32_e32 v6, 64, v0
v_lshlrev_b32_e32 v6, 2, v6
global_store_dword v1, v2, s[8:9]
{}s_barrier
global_load_dword v5, v6, s[8:9]
s_waitcnt vmcnt(0)
s_barrier"""
    values = list(range(128))
    assert run(body.format("s_waitcnt vmcnt(0)\n"), values, threads=128).tolist() == [each ^ 64 for each in values]
    assert "a race" in unknown(body.format(""), threads=128)
    assert "a race" in unknown(body.format("s_waitcnt vmcnt(1)\n"), threads=128)


def test_barrier_of_one_block_during_pending_global_writes_orders_nothing_in_another_block() -> None:
    """Each thread of the first block loads what a thread of the other wave stores; the second block has a barrier."""
    body = """s_cmp_eq_u32 s2, 0
s_cselect_b32 s5, {}, 0
v_xor_b32_e32 v6, s5, v0
v_lshlrev_b32_e32 v6, 2, v6
s_lshl_b32 s4, s2, 9
v_add_u32_e32 v1, s4, v1
v_add_u32_e32 v6, s4, v6
global_load_dword v5, v6, s[8:9]
s_waitcnt vmcnt(0)
s_cbranch_scc1 .Lfirst
global_store_dword v1, v2, s[14:15]
s_barrier
.Lfirst:"""
    launch, buffers = launch_of(128).model_copy(update={"grid": (2, 1, 1)}), {"out": 1, "a": 2, "b": 3, "c": 4}
    reasons = [
        analyse(Source("kernel.amdgcn", text_of(body.format(lanes)), launch), GFX942, buffers, Options()).unknown
        for lanes in (64, 0)
    ]
    assert reasons[0] is not None
    assert "a race" in reasons[0]
    assert reasons[1] is None


def test_barrier_during_pending_shared_reads_is_unknown() -> None:
    body = "ds_write_b32 v1, v2\ns_waitcnt lgkmcnt(0)\nds_read_b32 v5, v1\n{}s_barrier\nds_write_b32 v1, v3"
    assert unknown(body.format("s_waitcnt lgkmcnt(0)\n")) == ""
    assert "passes a barrier while a read of shared memory is pending" in unknown(body.format(""))


def test_branch_waits_for_its_mask() -> None:
    body = "v_mov_b32_e32 v5, 1\ns_load_dwordx2 vcc, s[10:11], 0x0\n{}s_cbranch_vccz .LEND\nv_mov_b32_e32 v5, 2\n.LEND:"
    assert "uses vcc_" in unknown(body.format(""))


def test_float_constants_of_16_bit_integer_operations_are_unknown() -> None:
    assert "has a floating-point constant" in unknown("v_add_u16_e32 v5, 1.0, v2")


def test_matrix_steps_with_flushing_are_distinguished() -> None:
    body = (
        "v_mov_b32_e32 v8, 0\nv_mov_b32_e32 v9, 0\nv_mfma_f32_4x4x1_16b_f32 v[12:15], v2, v3, 0\nv_mov_b32_e32 v5, v12"
    )
    kept, flushed = reading(body), reading(body, denormals=0)
    assert kept.signature is not None
    assert flushed.signature is not None
    assert kept.signature != flushed.signature


def test_constant_half_is_signalling_as_part_of_fp32() -> None:
    """0x7f81 is a quiet NaN in fp16, and the high half of a signalling NaN in fp32."""
    body = """v_lshrrev_b32_e32 v6, 16, v2
v_mov_b32_e32 v7, {}
v_cmp_eq_u32_e32 vcc, 3, v0
v_cndmask_b32_e32 v6, v6, v7, vcc
v_lshlrev_b32_e32 v6, 16, v6
v_max_f32_e32 v5, 1.0, v6"""
    ways = [body.format(half) for half in ("0x7f81", "0x7fc1")]
    assert [run(each, [0x3F800000])[3] for each in ways] == [0x7FFFFFFF, 0x3F800000]
    left, right = (reading(each).signature for each in ways)
    assert None not in (left, right)
    assert left != right


def test_byte_of_fp16_that_is_constant_in_one_lane() -> None:
    """In lane 3 the half is 0x7d00, a signalling NaN."""
    body = """v_bfe_u32 v6, v2, 8, 8
v_mov_b32_e32 v7, 0x7d
v_cmp_eq_u32_e32 vcc, 3, v0
v_cndmask_b32_e32 v6, v6, v7, vcc
v_lshlrev_b32_e32 v6, 8, v6
v_max_f16_e32 v5, v6, v3"""
    assert unknown(body) == ""
    assert run(body, [0x1200], [0x3C00])[2:5].tolist() == [0x3C00, 0x7FFF, 0x3C00]


def test_select_by_the_execution_mask_terminates() -> None:
    """A select by the mask that is also the execution mask."""
    body = """v_cmp_lt_f32_e64 s[20:21], v2, v3
s_and_saveexec_b64 s[22:23], s[20:21]
v_cndmask_b32_e64 v4, v4, v2, s[20:21]
v_cndmask_b32_e64 v5, v4, v2, s[20:21]
v_add_f32_e32 v5, v5, v4
s_or_b64 exec, exec, s[22:23]"""
    assert unknown("v_mov_b32_e32 v5, 0\n" + body) == ""
    words = np.array([1.0, 2.0, 3.0], dtype=np.float32).view(np.uint32)
    left = run("v_mov_b32_e32 v5, 0\n" + body, words[:1], words[1:2], words[2:])
    assert left.view(np.float32)[0] == 2.0


def test_division_fixup_with_flushing_is_distinguished() -> None:
    """A single v_div_fixup, which is not part of a division sequence."""
    body = "v_div_fixup_f32 v5, v2, v3, v4"
    kept, flushed = (reading(body, denormals=mode).signature for mode in (3, 0))
    assert None not in (kept, flushed)
    assert kept != flushed


@pytest.mark.parametrize("line", ["v_readfirstlane_b32 v5, v2", "v_readlane_b32 v5, v2, 3"])
def test_lane_reads_need_a_scalar_destination(line: str) -> None:
    assert "scalar" in unknown(line)


PRELOADED = """s_load_dwordx4 s[2:5], s[0:1], 0x0
s_waitcnt lgkmcnt(0)
s_branch .LSTART
.LSTART:
s_mov_b64 s[8:9], s[2:3]"""


def preloaded(before: str = "", after: str = "", length: int = 4) -> str:
    """The Unknown reason of a kernel with two preloaded pointers, with `before` replaced by `after` in its text."""
    text = text_of("v_mov_b32_e32 v5, v2").replace(
        "s_load_dwordx8 s[8:15], s[0:1], 0x0", PRELOADED.replace("\n", "\n\t")
    )
    text = text.replace("\ts_waitcnt lgkmcnt(0)\n\tv_lshl", "\tv_lshl").replace("s[10:11]", "s[4:5]")
    text = text.replace("\tglobal_load_dword v3, v1, s[12:13]\n\tglobal_load_dword v4, v1, s[14:15]\n", "")
    text = text.replace("\t.LSTART:", ".LSTART:").replace("user_sgpr_count 2", "user_sgpr_count 6")
    fields = f"\t\t.amdhsa_user_sgpr_kernarg_preload_length {length}\n\t\t.amdhsa_user_sgpr_kernarg_preload_offset 0\n"
    text = text.replace("\t\t.amdhsa_next_free_vgpr", fields + "\t\t.amdhsa_next_free_vgpr")
    assert before in text
    return reading("", text=text.replace(before, after, 1)).unknown or ""


def test_prologue_loads_the_preloaded_arguments() -> None:
    """Firmware that preloads arguments skips the prologue, other firmware executes it."""
    reason = "the prologue of a kernel with preloaded arguments does not load the same arguments"
    assert preloaded() == ""
    assert preloaded(length=2).startswith(reason)
    assert preloaded("s[0:1], 0x0", "s[0:1], 0x8").startswith(reason)
    assert preloaded("s_load_dwordx4 s[2:5]", "s_load_dwordx4 s[4:7]").startswith(reason)
    assert preloaded("\ts_branch .LSTART\n", "\ts_nop 0\n").startswith(reason)
    assert preloaded("\ts_branch .LSTART\n", "\ts_mov_b32 s5, 0\n\ts_branch .LSTART\n").startswith(reason)


@pytest.mark.parametrize(("count", "known"), [(250, True), (255, True), (256, False)])
def test_kernels_with_many_buffers(count: int, known: bool) -> None:
    """An element of the last buffer is added to one of the first; the numbers of buffers are bits of addresses."""
    arguments = "".join(
        f"      - .address_space:  global\n        .offset:         {8 * index}\n        .size:           8\n"
        "        .value_kind:     global_buffer\n"
        for index in range(count)
    )
    body = f"""s_load_dwordx2 s[8:9], s[0:1], 0x0
s_load_dwordx2 s[10:11], s[0:1], {hex(8 * count - 8)}
s_waitcnt lgkmcnt(0)
v_lshlrev_b32_e32 v1, 2, v0
global_load_dword v2, v1, s[8:9]
global_load_dword v3, v1, s[10:11]
s_waitcnt vmcnt(0)
v_add_f32_e32 v2, v2, v3
global_store_dword v1, v2, s[8:9]"""
    lines = "".join(f"\t{line}\n" for line in body.splitlines())
    text = HEAD + lines + TAIL.format(size=8 * count, denormals=3, arguments=arguments).lstrip("\n")
    names = [f"p{index}" for index in range(count)]
    buffers = tuple(Argument(kind="buffer", buffer=each, dtype="fp32") for each in names)
    launch = Launch(file="k.amdgcn", grid=(1, 1, 1), block=(64, 1, 1), args=buffers)
    numbers = {name: index + 1 for index, name in enumerate(names)}
    found = analyse(Source("k.amdgcn", text, launch), GFX942, numbers, Options())
    assert (found.signature is not None) == known, found.unknown


def test_a_scalar_load_need_not_see_what_the_kernel_has_stored() -> None:
    stored = "global_store_dword v1, v0, s[10:11]\ns_waitcnt vmcnt(0)\n"
    scalar = "s_load_dword s20, s[{}:{}], 0x0\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v5, s20"
    found = reading(stored + scalar.format(10, 11)).unknown
    assert found is not None
    assert "not determined" in found
    assert reading(stored + scalar.format(12, 13)).signature is not None
    vector = "v_mov_b32_e32 v6, 0\nglobal_load_dword v5, v1, s[10:11]\ns_waitcnt vmcnt(0)"
    assert reading(stored + vector).signature is not None
