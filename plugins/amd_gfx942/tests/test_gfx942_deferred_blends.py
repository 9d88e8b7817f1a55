"""Writes under a known mask are blends, which are computed only when something reads other lanes."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from bitwise_amd_gfx942.opcodes.operands import operand_access
from bitwise_amd_gfx942.opcodes.vector import add64
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.execution import byte_functions, deferred_blends
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values.packing import blend_values
from bitwise_core.execution.values.symbolic_vector import Array, Value
from gfx942_kernels import NestedRegions, reading, run

REGISTERS = [f"v{number}" for number in range(5, 13)]
INSTRUCTIONS = (
    "v_add_f32_e32 {0}, {1}, {2}",
    "v_fmac_f32_e32 {0}, {1}, {2}",
    "v_mov_b32_e32 {0}, {1}",
    "v_mov_b32_e32 {0}, 7",
    "v_add_u32_e32 {0}, {1}, {2}",
    "v_max_f32_e32 {0}, {1}, {1}",
    "v_cndmask_b32_e64 {0}, {1}, {2}, s[20:21]",
    "v_pk_add_f32 v[8:9], v[6:7], v[10:11]",
)
"""None joins words or their parts: the form of a joined value may follow from other lanes than its own."""
EXCHANGES = (
    "v_mov_b32_dpp {0}, {1} quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
    "v_add_f32_dpp {0}, {1}, {2} row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1",
    "v_readlane_b32 s30, {1}, 40\nv_mov_b32_e32 {0}, s30",
    "v_readfirstlane_b32 s30, {1}\nv_add_u32_e32 {0}, s30, {2}",
    "ds_bpermute_b32 {0}, v1, {1}\ns_waitcnt lgkmcnt(0)",
)
"""Lanes read others, also such that the mask has switched off."""


def program(seed: int) -> str:
    """Return instructions in nested regions under masks of the number of the lane."""
    random = Random(seed)

    def instruction() -> str:
        operands = [random.choice(REGISTERS), *(random.choice([*REGISTERS, "v2", "v3", "v4"]) for _ in "12")]
        return random.choice(EXCHANGES if random.random() < 0.15 else INSTRUCTIONS).format(*operands)

    def comparison(condition: str) -> str:
        return f"v_cmp_{random.choice(['lt', 'gt'])}_u32_e64 {condition}, {random.choice([8, 17, 33, 50])}, v0"

    regions = NestedRegions(random, instruction, comparison, (32, 40, 48), most=6, share=0.3)
    first = [f"v_mov_b32_e32 {register}, {random.choice(['v2', 'v3', 'v4', '0'])}" for register in REGISTERS]
    lines = [*first, "v_cmp_gt_u32_e64 s[20:21], 30, v0"]
    for _ in range(4):
        lines += [*regions.region(0), *regions.several(3)]
    for register in REGISTERS[1:]:
        lines.append(f"v_add_u32_e32 v5, v5, {register}")
    return "\n".join(lines)


def blended_at_once(machine: Machine, lanes: Array, new: Value, old: Value) -> Value:
    return blend_values(lanes, new, old)


def read_at_once(body: str, monkeypatch: pytest.MonkeyPatch) -> AnalysisResult:
    """Return the reading in which every blend is computed where it is written."""
    with monkeypatch.context() as patch:
        for module in (add64, operand_access, byte_functions):
            patch.setattr(module, "deferred_blend", blended_at_once)
        return reading(body)


@pytest.mark.parametrize("seed", range(24))
def test_the_reading_is_that_of_blends_that_are_computed_at_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    body = program(seed)
    found, expected = reading(body), read_at_once(body, monkeypatch)
    assert (found.signature, found.unknown) == (expected.signature, expected.unknown)
    assert found.signature is not None, found.unknown


TEMPORARY = """v_cmp_gt_u32_e32 vcc, 8, v0
s_and_saveexec_b64 s[22:23], vcc
v_mul_f32_e32 v6, v2, v2
v_add_f32_e32 v6, v6, v3
v_mul_f32_e32 v7, v6, v4
v_sub_f32_e32 v4, v7, v6
s_or_b64 exec, exec, s[22:23]
v_mov_b32_e32 v5, v4"""


def test_registers_that_nothing_reads_in_other_lanes_take_no_blend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four writes under the mask, only that of v4 is read in other lanes."""
    blends: list[Value] = []

    def counted(mask: Array, new: Value, old: Value) -> Value:
        blends.append(new)
        return blend_values(mask, new, old)

    monkeypatch.setattr(deferred_blends, "blend_values", counted)
    assert reading(TEMPORARY).signature is not None
    assert len(blends) == 1


def test_the_bits_of_inactive_lanes_are_the_old_ones() -> None:
    a = np.arange(64, dtype=np.float32).view(np.uint32)
    b = np.full(64, 2.0, dtype=np.float32).view(np.uint32)
    lane = np.arange(64, dtype=np.float32)
    expected = np.where(lane < 8, (lane * lane + 2) * 2 - (lane * lane + 2), 2.0)
    assert run(TEMPORARY, a, b, b).view(np.float32).tolist() == expected.tolist()


def test_a_write_in_fewer_lanes_keeps_what_the_others_wrote() -> None:
    """The second write leaves a lane of the first mask as the first one wrote it."""
    body = TEMPORARY.replace(
        "v_sub_f32_e32 v4, v7, v6",
        "v_sub_f32_e32 v4, v7, v6\nv_cmp_gt_u32_e32 vcc, 4, v0\ns_and_saveexec_b64 s[24:25], vcc\n"
        "v_mul_f32_e32 v4, v4, v4\ns_or_b64 exec, exec, s[24:25]",
    )
    wrong = body.replace(
        "v_mul_f32_e32 v4, v4, v4\ns_or_b64 exec, exec, s[24:25]",
        "s_or_b64 exec, exec, s[24:25]\nv_mul_f32_e32 v4, v4, v4",
    )
    assert reading(body).signature not in (None, reading(TEMPORARY).signature, reading(wrong).signature)
