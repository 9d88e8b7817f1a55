"""Exchanges of lanes, and operations on them, are computed in the lanes that something reads."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from bitwise_amd_gfx942.opcodes.operands import deferred_lanes, dpp
from bitwise_amd_gfx942.opcodes.vector import lanewise
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values.symbolic_vector import Value
from gfx942_kernels import reading, run

REGISTERS = [f"v{number}" for number in range(5, 12)]
PLAIN = (
    "v_add_f32_e32 {0}, {1}, {2}",
    "v_sub_f32_e32 {0}, {1}, {2}",
    "v_mul_f32_e32 {0}, {1}, 2.0",
    "v_max_f32_e32 {0}, {1}, {1}",
    "v_max_f32_e32 {0}, {1}, {2}",
    "v_min_f32_e32 {0}, {1}, {2}",
    "v_mov_b32_e32 {0}, {1}",
    "v_add_u32_e32 {0}, {1}, {2}",
    "v_add_f16_e32 {0}, {1}, {2}",
    "v_mul_f32_e64 {0}, -{1}, |{2}|",
)
PAIRS = ("v[6:7]", "v[8:9]", "v[10:11]")
WIDE = (
    "v_add_f64 {0}, {1}, {2}",
    "v_mul_f64 {0}, {1}, {2}",
    "v_max_f64 {0}, {1}, {2}",
    "v_add_f64 {0}, {1}, -{2}",
    "v_add_f64 {0}, {1}, 1.0",
    "v_mov_b64_e32 {0}, {1}",
    "v_lshlrev_b64 {0}, 3, {1}",
)
EXCHANGES = (
    "v_mov_b32_dpp {0}, {1}",
    "v_add_f16_dpp {0}, {1}, {2}",
    "v_add_f32_dpp {0}, {1}, {2}",
    "v_max_f32_dpp {0}, {1}, {2}",
)
CONTROLS = (
    "row_shr:8", "row_shr:4", "row_shr:1", "row_shl:3", "row_bcast:15", "row_bcast:31", "quad_perm:[1,0,3,2]",
    "row_ror:4",
)  # fmt: skip
MASKS = ("row_mask:0xf bank_mask:0xf", "row_mask:0xa bank_mask:0xf", "row_mask:0xf bank_mask:0x5")


def program(seed: int, wide: bool = False) -> str:
    """Return exchanges and operations, reads of single lanes, and regions under masks that are known.

    `wide`: some of them on two registers that hold a value of 64 bits.
    """
    random = Random(seed)

    def one() -> list[str]:
        registers = [random.choice(REGISTERS), *(random.choice([*REGISTERS, "v2", "v3"]) for _ in "12")]
        kind = random.random()
        if wide and kind < 0.2:
            return [random.choice(WIDE).format(*(random.choice(PAIRS) for _ in "123"))]
        if wide and kind < 0.4:
            source, result = (int(random.choice(PAIRS)[2:].split(":")[0]) for _ in "12")
            controls = f"{random.choice(CONTROLS)} {random.choice(MASKS)}{random.choice(['', ' bound_ctrl:1'])}"
            return [f"v_mov_b32_dpp v{result + half}, v{source + half} {controls}" for half in (0, 1)]
        if kind < 0.45:
            text = random.choice(EXCHANGES).format(*registers)
            bound = random.choice(["", " bound_ctrl:1"])
            return [f"{text} {random.choice(CONTROLS)} {random.choice(MASKS)}{bound}"]
        if kind < 0.9:
            return [random.choice(PLAIN).format(*registers)]
        lane = random.randrange(64)
        return [f"v_readlane_b32 s30, {registers[0]}, {lane}", "s_nop 0", f"v_add_f32_e32 {registers[1]}, s30, v2"]

    lines = [f"v_mov_b32_e32 {register}, {random.choice(['v2', 'v3', 'v4', '0'])}" for register in REGISTERS]
    for _ in range(3):
        lines += [line for _ in range(8) for line in one()]
        lines += [f"v_cmp_gt_u32_e32 vcc, {random.choice((2, 8, 32, 63))}, v0", "s_and_saveexec_b64 s[22:23], vcc"]
        lines += [line for _ in range(3) for line in one()]
        lines += ["s_or_b64 exec, exec, s[22:23]", f"v_readlane_b32 s{random.choice((34, 35))}, v6, 63"]
    return "\n".join(
        ["s_mov_b32 s34, 0", "s_mov_b32 s35, 0", *lines, "v_add_f32_e32 v5, v5, v6", "v_add_f32_e32 v5, s34, v5"]
    )


def read_at_once(body: str, monkeypatch: pytest.MonkeyPatch, threads: int = 64) -> AnalysisResult:
    """Return the reading in which every lane is computed where it is written."""
    with monkeypatch.context() as patch:
        for module in (dpp, lanewise):
            patch.setattr(module, "may_defer", lambda machine: False)
        return reading(body, threads=threads)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_the_reading_is_that_of_lanes_that_are_computed_at_once(
    seed: int, wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, threads = program(seed, wide), 64 if seed % 2 else 128
    found, expected = reading(body, threads=threads), read_at_once(body, monkeypatch, threads)
    assert (found.signature, found.unknown) == (expected.signature, expected.unknown)
    assert found.signature is not None, found.unknown


def reduction(operation: str, first: str = "row_shr:8", lane: int = 63) -> str:
    """Return the reduction of a wave, as compilers emit it, whose result is added to v3."""
    rows = "".join(
        f"v_mov_b32_dpp v7, v6 {control} row_mask:0xf bank_mask:0xf bound_ctrl:1\n{operation} v6, v6, v7\n"
        for control in (first, "row_shr:4", "row_shr:2", "row_shr:1")
    )
    return f"""v_mov_b32_e32 v6, v2
{rows}v_mov_b32_e32 v7, v6
v_mov_b32_dpp v7, v7 row_bcast:15 row_mask:0xa bank_mask:0xf bound_ctrl:1
{operation} v6, v6, v7
v_mov_b32_dpp v7, v6 row_bcast:31 row_mask:0xf bank_mask:0xf bound_ctrl:1
{operation} v6, v6, v7
v_readlane_b32 s20, v6, {lane}
s_nop 0
v_add_f32_e32 v5, s20, v3"""


def test_another_lane_or_another_exchange_is_another_result() -> None:
    bodies = [
        reduction(operation, first, lane)
        for operation in ("v_add_f32_e32", "v_max_f32_e32")
        for first, lane in (("row_shr:8", 63), ("row_shr:8", 62), ("row_shr:7", 63), ("row_ror:8", 63))
    ]
    found = [reading(body).signature for body in bodies]
    # A rotation gives lane 15 of each row what a shift does; a shift by 7 leaves an element out and has one twice.
    assert found[0] == found[3]
    assert found[4] == found[7]
    assert len({*found}) == len(bodies) - 2
    assert None not in found


def test_a_reduction_computes_the_lanes_that_its_result_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a wave: 32 sums of two lanes, and so on; at once, each of the six operations computes 64 lanes."""
    lanes: list[int] = []
    mix = hashing.mix

    def counted(words: hashing.Words) -> hashing.Words:
        lanes.append(words.shape[-1])
        return mix(words)

    monkeypatch.setattr(hashing, "mix", counted)
    body = reduction("v_add_f32_e32")
    found, some = reading(body), sum(lanes)
    lanes.clear()
    expected, every = read_at_once(body, monkeypatch), sum(lanes)
    assert found.signature == expected.signature
    assert 2 * some < every


def wide_reduction() -> str:
    """Return the sum of a wave in fp64, of which lane 63 is read in two halves; v5 is one or the other."""
    rows = "".join(
        f"v_mov_b32_dpp v8, v6 {control}\nv_mov_b32_dpp v9, v7 {control}\nv_add_f64 v[6:7], v[6:7], v[8:9]\n"
        for control in (
            *(f"row_shr:{count} row_mask:0xf bank_mask:0xf bound_ctrl:1" for count in (8, 4, 2, 1)),
            "row_bcast:15 row_mask:0xa bank_mask:0xf bound_ctrl:1",
            "row_bcast:31 row_mask:0xf bank_mask:0xf bound_ctrl:1",
        )
    )
    return f"""v_cvt_f64_f32_e32 v[6:7], v2
v_mov_b32_e32 v8, v6
v_mov_b32_e32 v9, v7
{rows}v_readlane_b32 s20, v6, 63
v_readlane_b32 s21, v7, 63
v_and_b32_e32 v10, 1, v0
v_cmp_eq_u32_e32 vcc, 1, v10
v_mov_b32_e32 v11, s20
v_mov_b32_e32 v12, s21
v_cndmask_b32_e32 v5, v11, v12, vcc"""


def test_a_reduction_in_two_registers_computes_the_lanes_that_its_result_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes: list[int] = []
    mix = hashing.mix

    def counted(words: hashing.Words) -> hashing.Words:
        lanes.append(words.shape[-1])
        return mix(words)

    monkeypatch.setattr(hashing, "mix", counted)
    found, some = reading(wide_reduction()), sum(lanes)
    lanes.clear()
    expected, every = read_at_once(wide_reduction(), monkeypatch), sum(lanes)
    assert found.signature == expected.signature is not None
    assert 3 * some < every


def test_halves_of_which_one_was_read_are_joined_under_a_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high half is computed in all lanes, and then both halves are read in few lanes."""
    body = """v_mov_b32_e32 v7, v2
v_add_f32_e32 v6, v3, v2
v_mov_b32_dpp v7, v7 row_ror:4 row_mask:0xa bank_mask:0xf
v_mul_f64 v[8:9], v[6:7], v[6:7]
v_mul_f32_e64 v5, -v9, |v3|
v_cmp_gt_u32_e32 vcc, 8, v0
s_and_saveexec_b64 s[22:23], vcc
v_add_f64 v[8:9], v[8:9], -v[6:7]
v_mov_b32_e32 v5, v9"""
    found = reading(body).signature
    assert found == read_at_once(body, monkeypatch).signature is not None


def test_the_bits_are_those_of_the_reduction() -> None:
    values = np.arange(1, 65, dtype=np.float32)
    found = run(reduction("v_add_f32_e32"), values.view(np.uint32), np.zeros(64)).view(np.float32)
    assert found.tolist() == [float(values.sum())] * 64
    halves = np.full(1, values.astype(np.float64).sum()).view(np.uint32).tolist()
    assert run(wide_reduction(), values.view(np.uint32), np.zeros(64)).tolist() == halves * 32


def test_a_register_is_read_in_few_active_lanes_and_then_in_all() -> None:
    """Under a mask that one lane passes, only that lane is computed; the others keep what they had."""
    body = """v_mov_b32_dpp v6, v2 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1
v_add_f32_e32 v6, v6, v2
v_cmp_eq_u32_e32 vcc, {lane}, v0
s_and_saveexec_b64 s[22:23], vcc
v_mul_f32_e32 v7, v6, v3
v_mov_b32_e32 v6, v7
s_or_b64 exec, exec, s[22:23]
v_mov_b32_e32 v5, v6"""
    found = run(body.format(lane=17), np.arange(64, dtype=np.float32).view(np.uint32), np.full(64, 0x40000000))
    expected = [(lane - 1 if lane % 16 else 0) + lane for lane in range(64)]
    expected[17] *= 2
    assert found.view(np.float32).tolist() == expected
    signatures = [reading(body.format(lane=lane)).signature for lane in (17, 18)]
    assert None not in signatures
    assert len({*signatures}) == 2


CARRIED = """v_mov_b32_e32 v20, v3
v_mov_b32_e32 v21, v4
v_lshlrev_b32_e32 v9, 1, v1
v_mov_b32_dpp v6, v2 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1
v_add_f32_e32 v6, v6, v2
v_mov_b32_dpp v10, v3 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1
v_cmp_gt_u32_e64 s[20:21], 64, v0
s_and_saveexec_b64 s[22:23], s[20:21]
s_cbranch_execz .LBB0_1
v_readlane_b32 s24, v2, 3
v_readlane_b32 s25, v3, 5
s_nop 0
s_add_u32 s26, s24, 7
v_mov_b32_e32 {copy}, s26
s_addc_u32 s27, s25, 0
v_mov_b32_e32 v21, s27
v_mov_b32_e32 v20, {copy}
.LBB0_1:
s_or_b64 exec, exec, s[22:23]
ds_write_b64 v9, v[20:21]
s_waitcnt lgkmcnt(0)
ds_read_b32 v8, v9
v_readlane_b32 s28, v6, 63
s_waitcnt lgkmcnt(0)
v_add_u32_e32 v5, s28, v8"""
"""A scalar sum in two halves in one of two waves, beside a register that is deferred; one lane of that is read."""


@pytest.mark.parametrize("copy", ["v20", "v10"])
def test_a_sum_in_two_halves_leaves_deferred_registers_alone(copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for registers with the low half computes no deferred value, and changes no result."""
    body = CARRIED.format(copy=copy)
    whole: list[object] = []
    compute = deferred_lanes.DeferredLanes.compute

    def noted(value: deferred_lanes.DeferredLanes) -> Value:
        whole.append(value)
        return compute(value)

    with monkeypatch.context() as patch:
        patch.setattr(deferred_lanes.DeferredLanes, "compute", noted)
        found = reading(body, threads=128)
    assert found.signature is not None, found.unknown
    assert found.signature == read_at_once(body, monkeypatch, threads=128).signature
    assert not whole
