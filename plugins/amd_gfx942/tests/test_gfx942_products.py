"""Matrix products compiled for gfx942 and simulated on bit patterns, compared with the evaluation of their descriptors.

This checks the register layout of every MFMA that the compiler selects.  The operands have full significands and the
sums round at every step, so a misplaced element or another order of k gives different bytes.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from bitwise_amd_gfx942 import matrix_units
from bitwise_amd_gfx942.architecture import GFX942
from bitwise_amd_gfx942.products.plan import compile_kernel, plan_product
from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.descriptors import GEMMDesc, read
from bitwise_core.descriptors.evaluation import evaluate
from bitwise_core.descriptors.hardware import Hardware
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.simulation import simulate
from bitwise_core.numerics import FLOAT_FORMATS, storage
from bitwise_core.numerics.mma import multiply_accumulate

pytest.importorskip("triton", reason="the kernels are compiled here")
pytestmark = pytest.mark.usefixtures("without_machine_code")

UNITS = {row.name: row for row in matrix_units.ROWS}
HEAD = "gemm(k={k} left_dtype={kind} right_dtype={kind}"
UNIT = " path=matrix instruction=instruction(architecture=gfx942 family=mfma k={unit}) instruction_k={unit})"


def text(kind: str, unit: int, k: int, out: str = "fp32") -> str:
    """The text of a descriptor."""
    wide = " accumulator_dtype=fp64 output_dtype=fp64" if kind == "fp64" else f" output_dtype={out}"
    return HEAD.format(k=k, kind=kind) + wide + UNIT.format(unit=unit)


def random_patterns(dtype: str, shape: tuple[int, int], seed: int) -> np.ndarray:
    """Random patterns of both signs over nine binades, with full significands."""
    form = FLOAT_FORMATS[dtype]
    generator = np.random.default_rng(seed)
    width = storage(form.bits)
    fraction = generator.integers(0, 1 << form.mantissa_bits, shape, dtype=np.uint64)
    bias = (1 << (form.bits - 2 - form.mantissa_bits)) - 1
    exponent = generator.integers(bias - 4, bias + 5, shape, dtype=np.uint64)
    sign = generator.integers(0, 2, shape, dtype=np.uint64)
    bits = sign << np.uint64(form.bits - 1) | exponent << np.uint64(form.mantissa_bits) | fraction
    return bits.astype(width)


def run(desc: GEMMDesc, a: np.ndarray, b: np.ndarray) -> tuple[bytes, str]:
    """Compile and simulate a product; return the bytes of C and the assembly."""
    plan = plan_product(desc)
    assembly = compile_kernel(plan, desc).asm["amdgcn"]
    m, n = a.shape[0], b.shape[1]
    arguments: list[dict[str, object]] = [{"buffer": name} for name in "abc"]
    arguments += [{"i32": each} for each in (m, n, desc.k, desc.k - desc.k_dropped)]
    grid = [-(-m // plan.block[0]), -(-n // plan.block[1])]
    launch = Launch.model_validate({"file": "k.amdgcn", "grid": grid, "block": [256], "args": arguments})
    prepared = prepare(Source("k.amdgcn", assembly, launch), GFX942, Options())
    size = m * n * FLOAT_FORMATS[desc.output_dtype].bits // 8
    contents = {name: np.ascontiguousarray(each).reshape(-1).view(np.uint8) for name, each in (("a", a), ("b", b))}
    return simulate(prepared, {**contents, "c": np.zeros(size, np.uint8)}).after["c"].tobytes(), assembly


@pytest.mark.parametrize(
    ("line", "m", "n", "instruction"),
    [
        (text("fp16", 16, 72), 40, 24, "v_mfma_f32_16x16x16_f16"),
        (text("fp16", 8, 72), 40, 70, "v_mfma_f32_32x32x8_f16"),
        (text("bf16", 16, 40, "bf16"), 20, 24, "v_mfma_f32_16x16x16_bf16"),
        (text("bf16", 8, 40), 33, 65, "v_mfma_f32_32x32x8_bf16"),
        (text("fp32", 4, 64), 20, 24, "v_mfma_f32_16x16x4_f32"),
        (text("fp32", 2, 64), 36, 40, "v_mfma_f32_32x32x2_f32"),
        (text("fp64", 4, 48), 20, 40, "v_mfma_f64_16x16x4_f64"),
    ],
)
def test_product_has_the_bytes_of_its_descriptor(line: str, m: int, n: int, instruction: str) -> None:
    desc = read(line)
    assert isinstance(desc, GEMMDesc)
    a, b = random_patterns(desc.left_dtype, (m, desc.k), 1), random_patterns(desc.right_dtype, (desc.k, n), 2)
    found, assembly = run(desc, a, b)
    assert set(re.findall(r"v_mfma_\w+", assembly)) == {instruction}
    assert found == evaluate(desc, a, b, hardware=Hardware(UNITS)).tobytes()


TILES = [
    # types, M, N, K, precision, matrix_instr_nonkdim, the instruction, its matrix-unit row
    (("fp32", "fp32"), 32, 16, 32, "tf32", 16, "v_mfma_f32_16x16x8_xf32", "mfma_k8_fp32_tf32_tf32_fp32_gfx942"),
    (("fp32", "fp32"), 32, 32, 16, "tf32", 32, "v_mfma_f32_32x32x4_xf32", "mfma_k4_fp32_tf32_tf32_fp32_gfx942"),
    (("i8", "i8"), 16, 32, 64, "ieee", 16, "v_mfma_i32_16x16x32_i8", "mfma_k32_s32_s8_s8_s32_gfx942"),
    (("i8", "i8"), 32, 32, 64, "ieee", 32, "v_mfma_i32_32x32x16_i8", "mfma_k16_s32_s8_s8_s32_gfx942"),
    (("fp8e4b8", "fp8e4b8"), 16, 32, 64, "ieee", 16, "v_mfma_f32_16x16x32_fp8_fp8",
     "mfma_k32_fp32_e4m3fnuz_e4m3fnuz_fp32_gfx942"),
    (("fp8e5b16", "fp8e5b16"), 32, 32, 32, "ieee", 32, "v_mfma_f32_32x32x16_bf8_bf8",
     "mfma_k16_fp32_e5m2fnuz_e5m2fnuz_fp32_gfx942"),
    (("fp16", "fp16"), 4, 64, 64, "ieee", 0, "v_mfma_f32_4x4x4_16b_f16", "mfma_k4_fp32_fp16_fp16_fp32_gfx942"),
    (("fp32", "fp32"), 4, 64, 64, "ieee", 0, "v_mfma_f32_4x4x1_16b_f32", "mfma_k1_fp32_fp32_fp32_fp32_gfx942"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("dtypes", "m", "n", "k", "precision", "side", "instruction", "row"), TILES, ids=lambda each: str(each)
)
def test_tile_has_the_bytes_of_its_matrix_unit_row(
    dtypes: tuple[str, str], m: int, n: int, k: int, precision: str, side: int, instruction: str, row: str
) -> None:
    from tile_product import assembly

    text = assembly(dtypes, (m, n, k), precision, side)
    assert set(re.findall(r"v_mfma_\w+", text)) == {instruction}
    unit = UNITS[row]
    generator = np.random.default_rng(7)

    def operand(form: object, shape: tuple[int, int], seed: int) -> np.ndarray:
        name = {"tf32": "fp32"}.get(str(form), str(form))
        if name in ("fp32", "fp16"):
            return random_patterns(name, shape, seed)
        bits = generator.integers(0, 256, shape, dtype=np.uint64).astype(np.uint8)
        return np.where(bits == 0x80, np.uint8(0x31), bits)  # 0x80 is the NaN of the fnuz formats

    a, b = operand(unit.left, (m, k), 1), operand(unit.right, (k, n), 2)
    arguments: list[dict[str, object]] = [{"buffer": name} for name in "abc"]
    launch = Launch.model_validate({"file": "k.amdgcn", "grid": [1], "block": [64], "args": arguments})
    prepared = prepare(Source("k.amdgcn", text, launch), GFX942, Options())
    contents = {name: np.ascontiguousarray(each).reshape(-1).view(np.uint8) for name, each in (("a", a), ("b", b))}
    found = simulate(prepared, {**contents, "c": np.zeros(m * n * 4, np.uint8)}).after["c"]
    assert found.tobytes() == multiply_accumulate(unit, a, b, np.zeros((m, n), np.uint32)).tobytes()
