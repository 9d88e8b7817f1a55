"""Equal instructions on different registers are computed together, with the results of single ones."""

from __future__ import annotations

from random import Random

import pytest

from bitwise_amd_gfx942.opcodes.vector import equal_operations
from bitwise_core.checker.results import AnalysisResult
from gfx942_kernels import reading

REGISTERS = [f"v{number}" for number in range(5, 21)]
OPERATIONS = (
    "v_add_f32_e32 {0}, {1}, {2}",
    "v_sub_f32_e32 {0}, {1}, {2}",
    "v_subrev_f32_e32 {0}, {1}, {2}",
    "v_mul_f32_e32 {0}, 0.5, {1}",
    "v_mul_f32_e64 {0}, -{1}, |{2}|",
    "v_mul_f32_e64 {0}, {1}, {2} clamp",
    "v_fma_f32 {0}, {1}, {2}, {3}",
    "v_fma_f32 {0}, {1}, -{2}, 0",
    "v_fma_f32 {0}, {1}, {1}, {2}",
    "v_exp_f32_e32 {0}, {1}",
    "v_cvt_f16_f32_e32 {0}, {1}",
    "v_cvt_f32_f16_e32 {0}, {1}",
    "v_fma_mixlo_f16 {0}, {1}, {2}, 0",
    "v_fma_mixhi_f16 {0}, {1}, {2}, {3} op_sel_hi:[0,1,0]",
    "v_fma_mix_f32 {0}, {1}, {2}, {3} op_sel_hi:[1,0,0]",
)
PAIRS = (
    "v_pk_mul_f32 {0}, {1}, {2}",
    "v_pk_add_f32 {0}, {1}, {2} neg_lo:[0,1] neg_hi:[0,1]",
    "v_pk_fma_f32 {0}, {1}, {2}, {3}",
)
OTHERS = (
    "v_xor_b32_e32 {0}, 0x80000000, {1}",
    "v_max_f32_e32 {0}, {1}, {2}",
    "v_mov_b32_e32 {0}, {1}",
    "v_mov_b32_e32 {0}, 0",
    "v_cndmask_b32_e64 {0}, 0, {1}, s[20:21]",
    "v_mov_b32_dpp {0}, {1} row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1",
)


def program(seed: int) -> str:
    """Return runs of equal operations on few registers, of which some depend on others, and regions under masks."""
    random = Random(seed)

    def registers(pairs: bool) -> list[str]:
        if not pairs:
            return [random.choice(REGISTERS), *random.choices([*REGISTERS, "v2", "v3", "v4"], k=3)]
        return [f"v[{first}:{first + 1}]" for first in random.choices(range(6, 20, 2), k=4)]

    lines = [f"v_mov_b32_e32 {each}, {random.choice(['v2', 'v3', 'v4', '1.0'])}" for each in REGISTERS]
    lines.append("v_cmp_gt_u32_e64 s[20:21], 32, v0")
    for _ in range(8):
        pairs = random.random() < 0.25
        operation = random.choice(PAIRS if pairs else OPERATIONS)
        for _ in range(random.randrange(2, 6)):
            lines.append(operation.format(*registers(pairs)))
            if random.random() < 0.3:
                lines.append(random.choice(OTHERS).format(*registers(False)))
        if random.random() < 0.3:
            lines += [f"v_cmp_gt_u32_e32 vcc, {random.choice((8, 64))}, v0", "s_and_saveexec_b64 s[22:23], vcc"]
            lines += [operation.format(*registers(pairs)) for _ in range(3)]
            lines.append("s_or_b64 exec, exec, s[22:23]")
    # Every register is a part of the result.
    return "\n".join([*lines, *(f"v_add_f32_e32 v5, v5, {each}" for each in REGISTERS[1:])])


def read_one_by_one(body: str, monkeypatch: pytest.MonkeyPatch, threads: int = 64) -> AnalysisResult:
    """Return the reading in which each instruction computes its own result."""
    with monkeypatch.context() as patch:
        patch.setattr(equal_operations, "_may_be_computed_together", lambda machine: False)
        return reading(body, threads=threads)


def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of how many results of one form are computed together, each time."""
    found: list[int] = []
    stack = equal_operations.stacked

    def counted(values: list[object], blocks: int, threads: int) -> object:
        found.append(len(values))
        return stack(values, blocks, threads)  # type: ignore[arg-type]

    monkeypatch.setattr(equal_operations, "stacked", counted)
    return found


@pytest.mark.parametrize("seed", range(24))
def test_the_reading_is_that_of_single_instructions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    body, threads = program(seed), 64 if seed % 2 else 128
    found = reading(body, threads=threads)
    expected = read_one_by_one(body, monkeypatch, threads)
    assert (found.signature, found.unknown, found.notes) == (expected.signature, expected.unknown, expected.notes)
    assert found.signature is not None, found.unknown


RUN = "v_add_f32_e32 v5, v2, v3\n{between}v_add_f32_e32 v6, v4, {operand}\nv_mul_f32_e32 v5, v5, v6"


@pytest.mark.parametrize(
    ("between", "operand", "made"),
    [
        pytest.param("", "v2", [2, 2], id="equal ones"),
        pytest.param("v_mov_b32_e32 v7, v3\n", "v2", [2, 2], id="another register"),
        pytest.param("", "v5", [], id="the result of the first one"),
        pytest.param("", "v4", [], id="an operand twice"),
        pytest.param("v_mov_b32_e32 v4, v3\n", "v2", [], id="another operand"),
        pytest.param("s_mov_b64 s[20:21], exec\ns_mov_b64 exec, s[20:21]\n", "v2", [], id="the execution mask"),
        pytest.param("s_cbranch_scc1 .LBB0_1\n.LBB0_1:\n", "v2", [], id="a label"),
    ],
)
def test_what_is_computed_together(
    between: str, operand: str, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = taken(monkeypatch)
    body = "s_cmp_eq_u32 s0, s0\n" + RUN.format(between=between, operand=operand)
    signature = reading(body).signature
    assert signature is not None
    assert found == made
    assert read_one_by_one(body, monkeypatch).signature == signature


def test_a_word_of_an_address_is_no_number_in_any_instruction() -> None:
    """v8 holds the lower word of the address of a buffer."""
    for operand in ("v2", "v8"):
        unknown = reading("v_mov_b32_e32 v8, s10\n" + RUN.format(between="", operand=operand)).unknown
        assert unknown is None if operand == "v2" else "address of a buffer" in (unknown or "")
