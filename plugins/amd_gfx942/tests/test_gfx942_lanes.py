"""Lane exchanges, execution masks, waits, and memory out of bounds, on bit patterns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from bitwise_amd_gfx942.architecture import GFX942
from bitwise_amd_gfx942.opcodes.scalar import scalar_steps
from bitwise_core.execution.concrete import LANES_PER_BATCH, prepare_launch
from gfx942_kernels import launch_of, reading, run, text_of

LANES = list(range(64))
VALUES = [100 + lane for lane in LANES]

DPP: dict[str, Callable[[int], int | None]] = {
    "quad_perm:[1,0,3,2]": lambda lane: lane ^ 1,
    "quad_perm:[3,3,0,1]": lambda lane: (lane & ~3) + (3, 3, 0, 1)[lane & 3],
    "row_shl:3": lambda lane: lane + 3 if lane % 16 < 13 else None,
    "row_shr:1": lambda lane: lane - 1 if lane % 16 else None,
    "row_shr:8": lambda lane: lane - 8 if lane % 16 >= 8 else None,
    "row_ror:4": lambda lane: lane // 16 * 16 + (lane - 4) % 16,
    "wave_shl:1": lambda lane: lane + 1 if lane < 63 else None,
    "wave_shr:1": lambda lane: lane - 1 if lane else None,
    "wave_rol:1": lambda lane: (lane + 1) % 64,
    "wave_ror:1": lambda lane: (lane - 1) % 64,
    "row_mirror": lambda lane: lane ^ 15,
    "row_half_mirror": lambda lane: lane ^ 7,
    "row_bcast:15": lambda lane: lane // 16 * 16 - 1 if lane >= 16 else None,
    "row_bcast:31": lambda lane: 31 if lane >= 32 else None,
    "row_newbcast:5": lambda lane: lane // 16 * 16 + 5,
}


@pytest.mark.parametrize("control", DPP)
def test_dpp_controls(control: str) -> None:
    """A lane without a source keeps its old value, or gets 0 with bound_ctrl; masked lanes are unchanged."""
    source = [DPP[control](lane) for lane in LANES]
    body = f"v_mov_b32_e32 v5, 7\nv_mov_b32_dpp v5, v2 {control} row_mask:{{}} bank_mask:{{}}{{}}"
    kept = run(body.format("0xf", "0xf", ""), VALUES)
    assert kept.tolist() == [7 if each is None else VALUES[each] for each in source]
    zeros = run(body.format("0xf", "0xf", " bound_ctrl:1"), VALUES)
    assert zeros.tolist() == [0 if each is None else VALUES[each] for each in source]
    some = run(body.format("0xa", "0xc", " bound_ctrl:1"), VALUES)
    chosen = [0xA >> lane // 16 & 1 and 0xC >> lane // 4 % 4 & 1 for lane in LANES]
    assert some.tolist() == [int(z) if each else 7 for z, each in zip(zeros, chosen, strict=True)]


def test_inactive_lane_is_not_a_dpp_source() -> None:
    body = """v_mov_b32_e32 v5, 7
v_cmp_ne_u32_e32 vcc, 4, v0
s_and_saveexec_b64 s[20:21], vcc
v_mov_b32_dpp v5, v2 row_shr:1 row_mask:0xf bank_mask:0xf{}
s_or_b64 exec, exec, s[20:21]"""
    kept = run(body.format(""), VALUES)
    assert kept[:7].tolist() == [7, 100, 101, 102, 7, 7, 105]
    zeros = run(body.format(" bound_ctrl:1"), VALUES)
    assert zeros[:7].tolist() == [0, 100, 101, 102, 7, 0, 105]


def test_ds_permute() -> None:
    order = np.random.default_rng(1).permutation(64)
    back = run("v_lshlrev_b32_e32 v6, 2, v3\nds_bpermute_b32 v5, v6, v2", VALUES, order)
    assert back.tolist() == [VALUES[each] for each in order]
    forward = run("v_lshlrev_b32_e32 v6, 2, v3\nds_permute_b32 v5, v6, v2", VALUES, order)
    assert [forward[each] for each in order] == VALUES


@pytest.mark.parametrize(
    ("offset", "source"),
    [
        ("swizzle(SWAP,16)", lambda lane: lane ^ 16),
        ("swizzle(REVERSE,8)", lambda lane: lane ^ 7),
        ("swizzle(BROADCAST,4,2)", lambda lane: (lane & ~3) + 2),
        ("swizzle(QUAD_PERM,2,1,0,3)", lambda lane: (lane & ~3) + (2, 1, 0, 3)[lane & 3]),
        ('swizzle(BITMASK_PERM,"01pip")', lambda lane: lane & 32 | 8 | lane & 5 | ~lane & 2),
    ],
)
def test_swizzles(offset: str, source: Callable[[int], int]) -> None:
    assert run(f"ds_swizzle_b32 v5, v2 offset:{offset}", VALUES).tolist() == [VALUES[source(each)] for each in LANES]


def test_readlane_writelane_and_readfirstlane() -> None:
    assert run("v_readlane_b32 s20, v2, 63\nv_mov_b32_e32 v5, s20", VALUES).tolist() == [163] * 64
    written = run("v_mov_b32_e32 v5, v2\ns_movk_i32 s20, 0x7\nv_writelane_b32 v5, s20, 9", VALUES).tolist()
    assert written == [7 if lane == 9 else 100 + lane for lane in LANES]
    first = """v_cmp_lt_u32_e32 vcc, 10, v0
s_and_saveexec_b64 s[20:21], vcc
v_readfirstlane_b32 s22, v2
s_or_b64 exec, exec, s[20:21]
v_mov_b32_e32 v5, s22"""
    assert run(first, VALUES).tolist() == [111] * 64


def test_bit_counts_of_a_lane_mask() -> None:
    """v_mbcnt counts the set bits below a lane, s_bcnt1 all set bits; a mask is readable as a number."""
    body = """v_cmp_lt_u32_e32 vcc, v2, v3
v_mbcnt_lo_u32_b32 v5, vcc_lo, 0
v_mbcnt_hi_u32_b32 v5, vcc_hi, v5
s_bcnt1_i32_b64 s20, vcc
s_lshl_b32 s20, s20, 8
v_or_b32_e32 v5, s20, v5"""
    members = [lane % 3 == 1 for lane in LANES]
    expected = [sum(members[:lane]) | sum(members) << 8 for lane in LANES]
    assert run(body, [0 if each else 9 for each in members], [5]).tolist() == expected


def test_nested_execution_masks() -> None:
    """Lanes diverge twice and reconverge."""
    body = """v_mov_b32_e32 v5, 0
v_cmp_gt_u32_e32 vcc, 32, v0
s_and_saveexec_b64 s[20:21], vcc
s_xor_b64 s[20:21], exec, s[20:21]
s_cbranch_execz .LSKIP
v_cmp_gt_u32_e32 vcc, 8, v0
v_mov_b32_e32 v5, 1
s_and_saveexec_b64 s[22:23], vcc
v_mov_b32_e32 v5, 2
s_or_b64 exec, exec, s[22:23]
.LSKIP:
s_andn2_saveexec_b64 s[24:25], s[20:21]
s_or_saveexec_b64 s[26:27], s[20:21]
s_xor_b64 exec, exec, s[26:27]
s_mov_b64 exec, s[20:21]
v_mov_b32_e32 v5, 3
s_mov_b64 exec, -1"""
    assert run(body).tolist() == [2] * 8 + [1] * 24 + [3] * 32


def test_waves_diverge_at_a_scalar_branch() -> None:
    """Each wave has its own scalar registers."""
    body = """v_readfirstlane_b32 s20, v0
s_cmp_lt_u32 s20, 0x80
s_cbranch_scc1 .LLOW
s_mov_b32 s21, 5
s_branch .LMEET
.LLOW:
s_add_u32 s21, s20, 1
.LMEET:
v_mov_b32_e32 v5, s21"""
    assert run(body, threads=256).tolist() == [1] * 64 + [65] * 64 + [5] * 128


def test_loop_with_a_trip_count_per_lane() -> None:
    body = """v_mov_b32_e32 v5, 0
s_mov_b64 s[20:21], 0
.LLOOP:
v_add_u32_e32 v5, 3, v5
v_subrev_u32_e32 v2, 1, v2
v_cmp_eq_u32_e32 vcc, 0, v2
s_or_b64 s[20:21], vcc, s[20:21]
s_andn2_b64 exec, exec, s[20:21]
s_cbranch_execnz .LLOOP
s_mov_b64 exec, -1"""
    counts = [1 + lane % 7 for lane in LANES]
    assert run(body, counts).tolist() == [3 * each for each in counts]


DESCRIPTOR = """s_mov_b32 s20, s10
s_and_b32 s21, s11, 0xffff
s_mov_b32 s22, 0x80
s_mov_b32 s23, 0x27000
"""


def test_loads_out_of_bounds_return_zero_and_stores_are_dropped() -> None:
    """The descriptor's size is 0x80 bytes: 32 lanes are in bounds."""
    body = DESCRIPTOR + "buffer_load_dword v5, v1, s[20:23], 0 offen"
    assert run(body, VALUES).tolist() == VALUES[:32] + [0] * 32
    moved = DESCRIPTOR + "s_mov_b32 s24, 64\nbuffer_load_dword v5, v1, s[20:23], s24 offen offset:4"
    assert run(moved, VALUES).tolist() == VALUES[17:32] + [0] * 49
    store = (
        DESCRIPTOR.replace("s10", "s8").replace("s11", "s9")
        + """v_mov_b32_e32 v5, 1
buffer_store_dword v2, v1, s[20:23], 0 offen
s_waitcnt vmcnt(0)
buffer_load_dword v5, v1, s[20:23], 0 offen
s_waitcnt vmcnt(0)"""
    )
    assert run(store, VALUES).tolist() == VALUES[:32] + [0] * 32


def test_access_across_the_bounds_is_unknown() -> None:
    body = DESCRIPTOR.replace("0x80", "0x82") + "buffer_load_dword v5, v1, s[20:23], 0 offen"
    assert (reading(body).unknown or "").startswith("an access is partly inside the bounds of a buffer's descriptor")


def test_shared_memory_widths() -> None:
    """Words written one at a time are read as pairs, quadruples, halves and bytes."""
    write = "v_lshlrev_b32_e32 v6, 4, v0\nds_write2_b32 v6, v2, v3 offset1:1\nds_write_b64 v6, v[2:3] offset:8\n"
    sums = [(a ^ b) & 0xFFFFFFFF for a, b in zip(VALUES, [5 * each for each in VALUES], strict=True)]
    b = [5 * each for each in VALUES]
    assert (
        run(write + "ds_read_b128 v[8:11], v6\ns_waitcnt lgkmcnt(0)\nv_xor_b32_e32 v5, v10, v9", VALUES, b).tolist()
        == sums
    )
    assert (
        run(
            write + "ds_read2_b64 v[8:11], v6 offset1:1\ns_waitcnt lgkmcnt(0)\nv_xor_b32_e32 v5, v8, v11", VALUES, b
        ).tolist()
        == sums
    )
    assert run(write + "ds_read_u16 v5, v6 offset:4", VALUES, b).tolist() == [each & 0xFFFF for each in b]
    assert run(write + "ds_read_i8 v5, v6", [0x80], b)[0] == 0xFFFFFF80
    assert (
        run(write + "ds_read_u16_d16_hi v5, v6\ns_waitcnt lgkmcnt(0)\nv_lshrrev_b32_e32 v5, 16, v5", [0x1234], b)[0]
        == 0x1234
    )
    assert run(write + "ds_write_b8 v6, v3 offset:1\nds_read_b32 v5, v6", [0x11223344], [0xEE])[0] == 0x1122EE44


def test_race_between_waves_is_detected() -> None:
    body = "v_xor_b32_e32 v6, 64, v0\nv_lshlrev_b32_e32 v6, 2, v6\nds_write_b32 v1, v2\n{}ds_read_b32 v5, v6"
    synchronised = body.format("s_waitcnt lgkmcnt(0)\ns_barrier\n")
    assert run(synchronised, list(range(128)), threads=128).tolist() == [each ^ 64 for each in range(128)]
    assert "a race" in (reading(body.format(""), threads=128).unknown or "")
    assert reading(body.replace("64, v0", "32, v0").format(""), threads=64).unknown is None, (
        "a wave executes in lockstep"
    )


WAITED_READS = """ds_write_b32 v1, v2
s_waitcnt lgkmcnt(0)
s_barrier
ds_read_b32 v6, v1
ds_read_b32 v7, v1
s_waitcnt lgkmcnt(1)
v_add_u32_e32 v5, 1, v6"""


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("lgkmcnt(0)\ns_barrier", "vmcnt(0)\ns_barrier", "passes a barrier while a write of shared memory is pending"),
        ("lgkmcnt(1)", "lgkmcnt(2)", "uses v6 before the memory access to it has completed"),
        ("lgkmcnt(1)", "lgkmcnt(1)\nv_mov_b32_e32 v8, v7", "uses v7 before the memory access to it has completed"),
        ("v5, 1, v6", "v7, 1, v6", "uses v7 before the memory access to it has completed"),
        ("lgkmcnt(1)", "lgkmcnt(1)\ns_load_dword s30, s[8:9], 0x0\nv_mov_b32_e32 v8, s30", "uses s30 before"),
        ("s_waitcnt lgkmcnt(1)", "s_load_dword s30, s[8:9], 0x0\ns_waitcnt lgkmcnt(1)", "uses v6 before"),
    ],
)
def test_missing_waits_are_unknown(before: str, after: str, message: str) -> None:
    """Reads of shared memory complete in order, reads of scalar memory in any order."""
    assert reading(WAITED_READS).unknown is None
    assert WAITED_READS.count(before) == 1
    assert message in (reading(WAITED_READS.replace(before, after)).unknown or "")


def test_full_lgkmcnt_stalls_in_order_reads_only() -> None:
    """Of 16 pending reads one has completed; with a scalar memory read among them it need not be the oldest."""
    others = "".join(f"ds_read_b32 v{number}, v1\n" for number in range(10, 25))
    body = (
        "ds_write_b32 v1, v2\ns_waitcnt lgkmcnt(0)\ns_barrier\n{}ds_read_b32 v6, v1\n" + others + "v_mov_b32_e32 v5, v6"
    )
    assert reading(body.format("")).unknown is None
    assert "uses v6 before" in (reading(body.replace(others, others[:-20]).format("")).unknown or "")
    assert "uses v6 before" in (reading(body.format("s_load_dword s30, s[8:9], 0x0\n")).unknown or "")


def test_wait_on_one_path_only_is_unknown() -> None:
    body = """ds_read_b32 v6, v1
s_cmp_eq_u32 s8, 0
s_cbranch_scc1 .LOTHER
s_waitcnt lgkmcnt(0)
.LOTHER:
v_mov_b32_e32 v5, v6"""
    assert "uses v6 before" in (reading("ds_write_b32 v1, v2\n" + body).unknown or "")


def test_data_dependent_address_keeps_its_buffer() -> None:
    """A pointer plus a loaded index stays in the pointer's buffer, however the sum is computed."""
    at_once = """v_mov_b32_e32 v3, 0
v_lshl_add_u64 v[6:7], v[2:3], 2, s[12:13]
global_load_dword v5, v[6:7], off"""
    by_halves = """v_lshlrev_b32_e32 v6, 2, v2
v_mov_b32_e32 v7, 0
v_mov_b32_e32 v8, s12
v_mov_b32_e32 v9, s13
v_add_co_u32_e32 v6, vcc, v8, v6
v_addc_co_u32_e32 v7, vcc, v9, v7, vcc
global_load_dword v5, v[6:7], off"""
    index = [lane * 7 % 64 for lane in LANES]
    for body in (at_once, by_halves):
        assert run(body, index, VALUES).tolist() == [VALUES[each] for each in index]
        assert reading(body).unknown is None
        written = body.replace("s[12:13]", "s[8:9]").replace("s12", "s8").replace("s13", "s9")
        assert "memory that the launch writes" in (reading(written).unknown or "")


@pytest.mark.parametrize(("later", "completed"), [(62, False), (63, True)])
def test_full_vmcnt_stalls_the_wave(later: int, completed: bool) -> None:
    """At most 63 loads are pending: a load before the last 63 has completed without a wait."""
    first, last = "global_load_dword v6, v1, s[10:11]\n", "v_mov_b32_e32 v5, v6"
    others = "".join(f"global_load_dword v{each + 8}, v1, s[12:13]\n" for each in range(later))
    unknown = reading(first + others + last).unknown
    assert (unknown is None) == completed


def test_two_values_for_one_place_are_unknown() -> None:
    wait = "s_waitcnt lgkmcnt(0)"
    body = f"v_lshlrev_b32_e32 v6, 2, v0\nds_write2_b32 v6, v2, v3 {{}}\n{wait}\nds_read_b32 v5, v6\n{wait}"
    assert "two values to one place" in (reading(body.format("")).unknown or "")
    assert "two values to one place" in (reading(body.format("offset0:3 offset1:3")).unknown or "")
    assert reading(body.format("offset1:64")).unknown is None


ANY_LANE = """v_cmp_lt_f32_e64 s[20:21], v2, v3
v_cmp_{operator}_u32_e64 s[24:25], {number}, v0
s_and_b64 s[20:21], s[20:21], s[24:25]
s_cselect_b32 s26, 7, 9
v_mov_b32_e32 v5, s26"""
"""Whether the predicate of data holds in some of the lanes that a comparison of their numbers selects."""


def test_the_only_lane_that_is_not_known_decides_whether_any_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [ANY_LANE.format(operator=operator, number=each) for operator in ("eq", "gt") for each in (5, 6)]
    found = [reading(body).signature for body in bodies]
    assert None not in found
    assert len({*found}) == 4
    with monkeypatch.context() as patch:
        patch.setattr(scalar_steps, "_only_unknown_lane", lambda machine, lanes: None)
        assert [reading(body).signature for body in bodies] == found


@pytest.mark.parametrize("below", [[], [0], [4], [5], [0, 3], [6], [63]])
def test_any_lane_of_data(below: list[int]) -> None:
    a = np.array([1.0 if lane in below else 3.0 for lane in LANES], dtype=np.float32).view(np.uint32)
    b = np.full(64, 2.0, dtype=np.float32).view(np.uint32)
    for operator, chosen in (("eq", [5]), ("gt", [0, 1, 2, 3, 4])):
        found = run(ANY_LANE.format(operator=operator, number=5), a, b)
        assert set(found.tolist()) == {7 if set(chosen) & set(below) else 9}


def test_a_small_rest_of_blocks_runs_with_the_batch_before_it() -> None:
    module = GFX942.parse(text_of("v_mov_b32_e32 v5, 0"), "kernel.amdgcn")
    prepared = prepare_launch(module, GFX942, launch_of(64))
    whole = LANES_PER_BATCH // 32  # as many waves as warps of 32 lanes
    for blocks, expected in ((whole, [whole]), (whole + whole // 2, [whole + whole // 2]), (5, [5])):
        assert [len(each) for each in prepared.batches(np.arange(blocks))] == expected
    assert [len(each) for each in prepared.batches(np.arange(2 * whole - 1))] == [whole, whole - 1]
    assert np.concatenate(prepared.batches(np.arange(3 * whole + 7))).tolist() == list(range(3 * whole + 7))
