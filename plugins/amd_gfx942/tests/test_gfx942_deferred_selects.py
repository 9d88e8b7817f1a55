"""Writes under a mask that depends on data are selects, which are computed only when something reads them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from bitwise_amd_gfx942.opcodes.operands import execution_mask
from bitwise_amd_gfx942.opcodes.vector import comparisons
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values.symbolic_vector import Value, width
from gfx942_kernels import NestedRegions, reading, run

REGISTERS = [f"v{number}" for number in range(5, 12)]
INSTRUCTIONS = (
    "v_add_f32_e32 {0}, {1}, {2}",
    "v_mul_f32_e32 {0}, {1}, {2}",
    "v_fmac_f32_e32 {0}, {1}, {2}",
    "v_max_f32_e32 {0}, {1}, {1}",
    "v_mov_b32_e32 {0}, {1}",
    "v_mov_b32_e32 {0}, 0x3f800000",
    "v_add_u32_e32 {0}, {1}, {2}",
    "v_lshlrev_b32_e32 {0}, 16, {1}",
    "v_pack_b32_f16 {0}, {1}, {2}",
    "v_cvt_f16_f32_e32 {0}, {1}",
    "v_cndmask_b32_e64 {0}, {1}, {2}, s[20:21]",
)
ON_HALVES = (*INSTRUCTIONS, "v_bfe_i32 {0}, {1}, 0, 16", "v_add_f16_e32 {0}, {1}, {2}", INSTRUCTIONS[-1])
EXCHANGE = "v_mov_b32_dpp {0}, {1} quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf"
"""Lanes exchange values where all of them are active."""


def program(seed: int, instructions: tuple[str, ...] = INSTRUCTIONS) -> str:
    """Return instructions in nested regions under masks, with an else part or without."""
    random = Random(seed)

    def instruction() -> str:
        operands = [random.choice(REGISTERS), *(random.choice([*REGISTERS, "v2", "v3", "v4"]) for _ in "12")]
        return random.choice(instructions).format(*operands)

    def comparison(condition: str) -> str:
        left, right = random.sample([*REGISTERS, "v2", "v3", "v4"], 2)
        return f"v_cmp_lt_f32_e64 {condition}, {left}, {right}"

    regions = NestedRegions(random, instruction, comparison, (24, 32, 40), most=5, share=0.4)
    first = [f"v_mov_b32_e32 {register}, {random.choice(['v2', 'v3', 'v4', '0'])}" for register in REGISTERS]
    lines = [*first, "v_cmp_gt_f32_e64 s[20:21], v2, v4"]
    for _ in range(3):
        lines += [*regions.region(0), EXCHANGE.format(*random.sample(REGISTERS, 2)), *regions.several(3)]
    return "\n".join([*lines, "v_add_u32_e32 v5, v5, v6"])


def selected_at_once(machine: Machine, predicate: Value, if_true: Value, if_false: Value) -> Value:
    return machine.domain.select(predicate, if_true, if_false)


def read_at_once(body: str, monkeypatch: pytest.MonkeyPatch) -> AnalysisResult:
    """Return the reading in which every select is computed where it is written."""
    with monkeypatch.context() as patch:
        patch.setattr(execution_mask, "deferred_select", selected_at_once)
        return reading(body)


@pytest.mark.parametrize("seed", range(24))
def test_the_reading_is_that_of_selects_that_are_computed_at_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    body = program(seed)
    found, expected = reading(body), read_at_once(body, monkeypatch)
    assert (found.signature, found.unknown) == (expected.signature, expected.unknown)
    assert found.signature is not None, found.unknown


def read_as_wholes(body: str, monkeypatch: pytest.MonkeyPatch) -> AnalysisResult:
    """Return the reading in which no select is computed part by part."""
    with monkeypatch.context() as patch:
        patch.setattr(comparisons, "selected_by_parts", selected_at_once)
        return reading(body)


@pytest.mark.parametrize("seed", range(16))
def test_the_reading_is_that_of_whole_selects(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    body = program(seed, ON_HALVES)
    found, expected = reading(body), read_as_wholes(body, monkeypatch)
    assert (found.signature, found.unknown) == (expected.signature, expected.unknown)
    assert found.signature is not None, found.unknown


TEMPORARY = """v_cmp_lt_f32_e32 vcc, v2, v3
s_and_saveexec_b64 s[22:23], vcc
v_mul_f32_e32 v6, v2, v2
v_add_f32_e32 v6, v6, v3
v_mul_f32_e32 v7, v6, v4
v_sub_f32_e32 v4, v7, v6
s_or_b64 exec, exec, s[22:23]
v_mov_b32_e32 v5, v4"""


def test_registers_that_nothing_reads_later_take_no_select(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four writes under the mask, only that of v4 is read in other lanes."""
    widths: list[int] = []
    select = TermDomain.select

    def counted(self: TermDomain, predicate: Value, if_true: Value, if_false: Value) -> Value:
        if not isinstance(predicate, np.ndarray):
            widths.append(getattr(if_true, "bits", 0))
        return select(self, predicate, if_true, if_false)

    monkeypatch.setattr(TermDomain, "select", counted)
    assert reading(TEMPORARY).signature is not None
    assert widths == [32]
    widths.clear()
    assert read_at_once(TEMPORARY, monkeypatch).signature == reading(TEMPORARY).signature
    assert len(widths) == 5


NARROW = """v_cvt_f16_f32_e32 v5, v2
v_cvt_f16_f32_e32 v6, v3
v_bfe_i32 v6, v6, 0, 16
v_cmp_gt_f16_e32 vcc, v5, v6
v_cndmask_b32_e32 v5, v6, v5, vcc
v_bfe_i32 v6, v5, 0, 16
v_cndmask_b32_e32 v6, v6, v5, vcc
v_cvt_f32_f16_e32 v5, v6"""
"""The greater one of two fp16, as Triton exchanges them: sign-extended, so that their registers have a high half."""


def test_the_high_half_of_a_select_that_nothing_reads_takes_no_select(monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[int] = []
    select = TermDomain.select

    def counted(self: TermDomain, predicate: Value, if_true: Value, if_false: Value) -> Value:
        widths.append(width(if_true))
        return select(self, predicate, if_true, if_false)

    monkeypatch.setattr(TermDomain, "select", counted)
    found = reading(NARROW)
    assert widths == [16, 16]
    widths.clear()
    assert read_as_wholes(NARROW, monkeypatch).signature == found.signature is not None
    assert 32 in widths


def test_the_bits_are_those_of_the_active_lanes() -> None:
    a = np.array([1.0, 5.0], dtype=np.float32).view(np.uint32)
    b = np.full(2, 2.0, dtype=np.float32).view(np.uint32)
    found = run(TEMPORARY, a, b, b)[:2].view(np.float32)
    assert found.tolist() == [3.0 * 2.0 - 3.0, 2.0]
