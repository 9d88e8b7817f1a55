"""gfx950: its instructions on bit patterns, products of Triton's kernels, and what is not published."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bitwise_amd_gfx942.architecture import GFX942, GFX950
from bitwise_amd_gfx942.matrix_units import MODELS
from bitwise_amd_gfx942.opcodes.matrices.gfx950_matrix import UNPUBLISHED
from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.architecture import Arch, BitSupport
from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.simulation import simulate
from bitwise_core.numerics import operation
from bitwise_core.numerics.mma import Arithmetic, FlooredSum, MmaSpec, SequentialMultiplyAdd
from bitwise_core.plugins import registry
from gfx942_kernels import reading, run

LANES = np.arange(64)
SEEDS = (2654435761, 40503, 77777777)
A, B, C = ((np.arange(64, dtype=np.uint64) * seed % (1 << 32)).astype(np.uint32) for seed in SEEDS)


@pytest.mark.parametrize("table", [0x00, 0x01, 0x78, 0x6C, 0xDE, 0xEC, 0xF8, 0x96, 0xE8, 0xFF])
def test_a_function_of_three_bits_is_its_truth_table(table: int) -> None:
    found = run(f"v_bitop3_b32 v5, v2, v3, v4 bitop3:{table:#x}", A, B, C, arch=GFX950)
    for one, two, three, result in zip(A.tolist(), B.tolist(), C.tolist(), found.tolist(), strict=True):
        for bit in range(32):
            place = 4 * (one >> bit & 1) + 2 * (two >> bit & 1) + (three >> bit & 1)
            assert result >> bit & 1 == table >> place & 1


EDGES = np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFF800001, 1, 0xBF800000], dtype=np.uint32)


@pytest.mark.parametrize("verb", ["minimum", "maximum"])
def test_extrema_of_three_numbers_are_nan_where_one_is(verb: str) -> None:
    """IEEE 754-2019, minimum and maximum, against an order of the patterns in which -0 comes before +0."""
    generator = np.random.default_rng(3)
    given = [np.where(LANES % 8 < 5, generator.choice(EDGES, 64), each).astype(np.uint32) for each in (A, B, C)]

    def expected(patterns: list[int], infinity: int, sign: int) -> int | None:
        if any(each & (sign - 1) > infinity for each in patterns):
            return None
        ranked = sorted(patterns, key=lambda each: each if each < sign else -1 - (each - sign))
        return ranked[-1] if verb == "maximum" else ranked[0]

    found = run(f"v_{verb}3_f32 v5, v2, v3, v4", *given, arch=GFX950).tolist()
    for *patterns, result in zip(*(each.tolist() for each in given), found, strict=True):
        number = expected(patterns, 0x7F800000, 1 << 31)
        assert result == number if number is not None else result & 0x7FFFFFFF > 0x7F800000
    pairs = run(f"v_pk_{verb}3_f16 v5, v2, v3, v4", *given, arch=GFX950).tolist()
    for *patterns, result in zip(*(each.tolist() for each in given), pairs, strict=True):
        for low in (0, 16):
            number = expected([each >> low & 0xFFFF for each in patterns], 0x7C00, 1 << 15)
            half = result >> low & 0xFFFF
            assert half == number if number is not None else half & 0x7FFF > 0x7C00


def test_the_high_half_of_a_function_of_16_bits_is_not_determined() -> None:
    body = "v_bitop3_b16 v6, v2, v3, v4 bitop3:0xe8\n"
    low = run(body + "v_and_b32_e32 v5, 0xffff, v6", A, B, C, arch=GFX950)
    assert (low == ((A & B | A & C | B & C) & 0xFFFF)).all()
    assert "nothing wrote" in (reading(body + "v_mov_b32_e32 v5, v6", arch=GFX950).unknown or "")


@pytest.mark.parametrize("size", [16, 32])
def test_a_swap_exchanges_odd_rows_of_one_register_with_even_rows_of_the_other(size: int) -> None:
    body = f"v_permlane{size}_swap_b32_e32 v2, v3\nv_mov_b32_e32 v5, v"
    first, second = (run(f"{body}{register}", A, B, arch=GFX950) for register in (2, 3))
    rows = [(A[start : start + size], B[start : start + size]) for start in range(0, 64, size)]
    for index in range(0, 64 // size, 2):
        (a_even, b_even), (a_odd, b_odd) = rows[index : index + 2]
        place, after = slice(index * size, (index + 1) * size), slice((index + 1) * size, (index + 2) * size)
        assert (first[place] == a_even).all()
        assert (first[after] == b_even).all()
        assert (second[place] == a_odd).all()
        assert (second[after] == b_odd).all()


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_pairs_are_rounded_to_nearest_even(kind: str) -> None:
    found = run(f"v_cvt_pk_{kind}_f32 v5, v2, v3", A, B, arch=GFX950)
    narrow = operation(f"convert.rn.{kind.replace('f16', 'fp16') if kind == 'f16' else kind}.fp32")
    expected = narrow.evaluate(A).astype(np.uint32) | narrow.evaluate(B).astype(np.uint32) << 16
    assert (found == expected).all()


@pytest.mark.parametrize(("kind", "form"), [("fp8", "e4m3"), ("bf8", "e5m2")])
@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("byte", [0, 1])
def test_bytes_are_widened(kind: str, form: str, half: int, byte: int) -> None:
    body = f"v_cvt_scalef32_pk_f32_{kind} v[6:7], v2, 1.0 op_sel:[{half},0,0]\nv_mov_b32_e32 v5, v{6 + byte}"
    expected = operation(f"convert.fp32.{form}").evaluate((A >> np.uint32(16 * half + 8 * byte)).astype(np.uint8))
    assert (run(body, A, arch=GFX950) == expected).all()


@pytest.mark.parametrize("kind", ["fp8", "bf8"])
def test_numbers_are_narrowed_into_one_half_of_a_register(kind: str) -> None:
    def signature(first: str, second: str, half: int, *, other: str = "v3", kind: str = kind) -> object:
        narrow = f"v_cvt_scalef32_pk_{kind}_f32 v5, {first}, {second}, 1.0 op_sel:[0,0,0,{half}]"
        found = reading(f"v_mov_b32_e32 v5, {other}\n{narrow}", arch=GFX950)
        assert found.signature is not None, found.unknown
        return found.signature

    first = signature("v2", "v4", 0)
    others = [
        signature("v4", "v2", 0), signature("v2", "v4", 1), signature("v2", "v4", 0, other="v4"),
        signature("v2", "v4", 0, kind={"fp8": "bf8", "bf8": "fp8"}[kind]),
    ]  # fmt: skip
    assert first not in others
    high = f"v_cvt_scalef32_pk_{kind}_f32 v6, v2, v4, 1.0\nv_lshlrev_b32_e32 v6, 16, v6\n"
    placed = reading(f"v_mov_b32_e32 v6, 0\n{high}v_and_b32_e32 v5, 0xffff, v3\nv_or_b32_e32 v5, v5, v6", arch=GFX950)
    assert placed.signature == signature("v2", "v4", 1)


def test_a_transposed_read_gives_each_lane_one_row_of_its_columns() -> None:
    body = "ds_write_b32 v1, v2\ns_waitcnt lgkmcnt(0)\nv_lshlrev_b32_e32 v6, 3, v0\nv_and_b32_e32 v6, 0xff, v6\n"
    body += "ds_read_b64_tr_b16 v[8:9], v6\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v5, v"
    low, high = (run(f"{body}{register}", A, arch=GFX950) for register in (8, 9))
    halves = A.view(np.uint16)  # a lane's address is that of its 4 halves, the same for both pairs of rows
    found = np.stack([low & 0xFFFF, low >> 16, high & 0xFFFF, high >> 16], axis=1)
    for lane in LANES.tolist():
        row, column = lane // 16 % 2, lane % 16
        columns = halves[64 * row : 64 * (row + 1)].reshape(4, 16)  # 4 values of k, 16 rows each
        assert found[lane].tolist() == columns[:, column].tolist()


UNITS = {
    "fp16": (FlooredSum(8, 24, 31, 24), "fp16"), "bf16": (FlooredSum(8, 24, 31, 24), "bf16"),
    "fp8e4nv": (FlooredSum(16, 24, 31, 24), "e4m3"), "fp8e5": (FlooredSum(16, 24, 31, 24), "e5m2"),
    "fp32": (SequentialMultiplyAdd(), "fp32"), "fp64": (SequentialMultiplyAdd(), "fp64"),
}  # fmt: skip


def with_some_arithmetic(dtype: str, side: int, k: int) -> Arch:
    """gfx950 with a row for one instruction: sums of small integers are exact whatever the row says."""
    rows = GFX950.bits.matrix_units if GFX950.bits else ()
    if dtype in UNITS:
        rule: Arithmetic
        rule, kind = UNITS[dtype]
        result = kind if kind in ("fp32", "fp64") else "fp32"
        family = f"mfma-{side}x{side}"
        rows = (MmaSpec("gfx950", family, kind, kind, result, result, k, rule, "published only", MODELS),)
    return replace(GFX950, bits=BitSupport(matrix_units=rows))


@pytest.mark.usefixtures("without_machine_code")
@pytest.mark.parametrize(
    ("dtype", "side", "k"),
    [
        ("fp16", 32, 16), ("fp16", 16, 32), ("bf16", 32, 16), ("bf16", 16, 32), ("i8", 32, 32), ("i8", 16, 64),
        ("fp8e4nv", 32, 64), ("fp8e5", 16, 128), ("fp8e4nv", 16, 32), ("fp8e5", 32, 16), ("fp32", 32, 2),
        ("fp32", 16, 4),
    ],
)  # fmt: skip
def test_a_product_of_small_integers_is_that_of_numpy(dtype: str, side: int, k: int) -> None:
    from tile_product import assembly

    inner = max(2 * k, 32)
    text = assembly((dtype, dtype), (side, side, inner), "ieee", side, "gfx950")
    assert f"_{side}x{side}x{k}_" in text
    rng = np.random.default_rng(k)
    left, right = rng.integers(-4, 5, (side, inner)), rng.integers(-4, 5, (inner, side))
    small = {"i8": np.int8, "fp16": np.float16, "fp32": np.float32}

    def patterns(numbers: Any) -> Any:
        if dtype in small:
            return numbers.astype(small[dtype])
        kind = {"fp8e4nv": "e4m3", "fp8e5": "e5m2"}.get(dtype, dtype)
        return operation(f"convert.rn.{kind}.fp32").evaluate(numbers.astype(np.float32).view(np.uint32))

    contents = {
        name: np.ascontiguousarray(patterns(numbers)).reshape(-1).view(np.uint8)
        for name, numbers in (("a", left), ("b", right))
    }
    contents["c"] = np.zeros(4 * side * side, np.uint8)
    arch = with_some_arithmetic(dtype, side, k)
    buffers = [{"buffer": name} for name in "abc"]
    launch = Launch.model_validate({"file": "k.amdgcn", "grid": [1], "block": [64], "args": buffers})
    after = simulate(prepare_launch(arch.parse(text, "k.amdgcn"), arch, launch), contents).after["c"]
    found = after.view(np.int32 if dtype == "i8" else np.float32).reshape(side, side)
    assert (found == left @ right).all()


def test_what_is_not_published_has_no_row_and_is_named_in_the_notes() -> None:
    rows = [row for row in registry.load(["gfx942"]).matrix_units.values() if row.architecture == "gfx950"]
    assert {(row.left, row.result) for row in rows} == {("s8", "s32")}
    body = "v_mfma_f32_32x32x16_f16 v[16:31], v[2:5], v[2:5], 0\nv_mov_b32_e32 v5, v16"
    found = reading(body.replace("v[2:5]", "v[8:11]").replace("v_mfma", FILLED + "v_mfma", 1), arch=GFX950)
    assert found.unknown is None
    assert any(UNPUBLISHED in note for note in found.notes)


FILLED = "".join(f"v_mov_b32_e32 v{each}, v2\n" for each in range(8, 16))


def signature(body: str) -> bytes:
    found = reading(FILLED + body + "\nv_mov_b32_e32 v5, v16", arch=GFX950)
    assert found.unknown is None
    assert found.signature is not None
    return found.signature


def test_a_step_of_zeros_is_a_step_like_any_other() -> None:
    zeros = "".join(f"v_mov_b32_e32 v{each}, 0\n" for each in range(8, 12))
    once = "v_mfma_f32_16x16x32_f16 v[16:19], v[12:15], v[12:15], 0"
    again = f"{once}\n{zeros}v_mfma_f32_16x16x32_f16 v[16:19], v[8:11], v[8:11], v[16:19]"
    assert signature(once) == signature(once)
    assert signature(once) != signature(again)


def test_the_sign_of_a_zero_operand_counts() -> None:
    from test_gfx942_zero_signs import FUSED, PRODUCT, STEP  # they differ in the sign of a zero only

    of = {
        arch.name: [reading(STEP.format(each), arch=arch).signature for each in (PRODUCT, FUSED)]
        for arch in (GFX942, GFX950)
    }
    assert of["gfx942"][0] == of["gfx942"][1]
    assert of["gfx950"][0] != of["gfx950"][1]
    assert all(each is not None for pair in of.values() for each in pair)


def test_instructions_with_one_k_and_other_rows_are_different_functions() -> None:
    wide = "v_mfma_f32_32x32x16_f16 v[16:31], v[12:15], v[12:15], 0"
    narrow = "v_mfma_f32_16x16x16_f16 v[16:19], v[12:13], v[12:13], 0"
    assert signature(wide) != signature(narrow)
    assert signature(wide) != signature(wide.replace("_f16", "_bf16"))
    mixed = "v_mfma_f32_16x16x32_fp8_bf8 v[16:19], v[12:13], v[12:13], 0"
    kinds = [signature(mixed.replace("fp8_bf8", each)) for each in ("fp8_fp8", "fp8_bf8", "bf8_fp8", "bf8_bf8")]
    assert len(set(kinds)) == 4


@pytest.mark.parametrize(
    ("instruction", "why"),
    [
        ("v_mfma_f32_16x16x8_xf32 v[16:19], v[8:9], v[10:11], 0", "v_mfma_f32_16x16x8_xf32 is not modelled"),
        ("v_mfma_f32_16x16x128_f8f6f4 v[16:19], v[8:15], v[8:15], 0 cbsz:4 blgp:4", "operands of 4 or 6 bits"),
        (
            "v_mfma_scale_f32_16x16x128_f8f6f4 v[16:19], v[8:15], v[8:15], 0, v2, v3 op_sel_hi:[0,0,0]",
            "v_mfma_scale_f32_16x16x128_f8f6f4",
        ),
        ("v_cvt_scalef32_pk_f32_fp8 v[16:17], v2, v3", "only 1.0 is modelled"),
        ("v_cvt_scalef32_pk_f32_fp8 v[16:17], v2, 2.0", "only 1.0 is modelled"),
        ("v_cvt_scalef32_pk_fp8_f32 v16, v2, v3, v4", "only 1.0 is modelled"),
        ("v_cvt_scalef32_pk_fp8_f32 v16, v2, v3, 1.0 op_sel:[1,0,0,0]", "half of a source"),
        ("v_cvt_scalef32_pk_f32_fp4 v[16:17], v2, 1.0", "v_cvt_scalef32_pk_f32_fp4 is not modelled"),
        ("v_cvt_pk_fp8_f32 v16, v2, v3", "v_cvt_pk_fp8_f32 is not modelled"),
        ("ds_read_b64_tr_b4 v[16:17], v1\ns_waitcnt lgkmcnt(0)", "ds_read_b64_tr_b4 is not modelled"),
        ("ds_read_b96_tr_b6 v[16:18], v1\ns_waitcnt lgkmcnt(0)", "ds_read_b96_tr_b6 is not modelled"),
        ("v_prng_b32_e32 v16, v2", "v_prng_b32_e32 is not modelled"),
    ],
)
def test_other_instructions_are_unknown_by_name_and_line(instruction: str, why: str) -> None:
    found = reading(f"{FILLED}{instruction}\nv_mov_b32_e32 v5, v16", arch=GFX950).unknown or ""
    assert why in found
    assert "line 23" in found


@pytest.mark.parametrize(
    "instruction",
    [
        "v_bitop3_b32 v5, v2, v3, v4 bitop3:0x78", "v_cvt_pk_bf16_f32 v5, v2, v3", "v_maximum3_f32 v5, v2, v3, v4",
        "v_pk_minimum3_f16 v5, v2, v3, v4",
    ],
)  # fmt: skip
def test_gfx942_has_none_of_the_added_instructions(instruction: str) -> None:
    assert "is not modelled" in (reading(instruction, arch=GFX942).unknown or "")


def test_approximations_of_the_two_architectures_differ() -> None:
    left, right = (reading("v_rcp_f32_e32 v5, v2", arch=arch).signature for arch in (GFX942, GFX950))
    assert left != right


def test_a_mutant_of_a_swap_or_of_a_transposed_read_is_not_equal() -> None:
    swap = "v_permlane32_swap_b32_e32 v2, v3\nv_mov_b32_e32 v5, v2"
    read = "ds_write_b32 v1, v2\ns_waitcnt lgkmcnt(0)\nds_read_b64{} v[8:9], v1 offset:{}\ns_waitcnt lgkmcnt(0)\n"
    read += "v_mov_b32_e32 v5, v8"
    pairs = [(swap, swap.replace("32_swap", "16_swap")), (swap, swap.replace("v5, v2", "v5, v3"))]
    pairs += [(read.format("_tr_b16", 0), read.format(*other)) for other in (("", 0), ("_tr_b16", 8))]
    for left, right in pairs:
        found = [analysed.signature for analysed in (reading(left, arch=GFX950), reading(right, arch=GFX950))]
        assert found[0] != found[1]


def test_analysis_needs_the_architecture_of_the_text() -> None:
    source = Source("k.amdgcn", "", Launch.model_validate({"file": "k.amdgcn", "grid": [1], "args": []}))
    assert analyse(source, GFX950, {}, Options()).unknown is not None
