"""Epilogues in kernels: simulated bytes against the evaluation of the product's descriptor and of the epilogue."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from bitwise_core.descriptors import DescriptorError, Epilogue, GEMMDesc, Step
from bitwise_core.descriptors.epilogue import OPERANDS
from bitwise_core.descriptors.evaluation import evaluate_epilogue
from bitwise_core.numerics import FLOAT_FORMATS, Bits, storage
from bitwise_core.plugins import registry
from bitwise_core.plugins.installed import evaluate
from bitwise_nvidia_sm90.activations import FORMULAS, SHORT_FORMULAS
from bitwise_nvidia_sm90.gemm.fusions import Fusion
from bitwise_nvidia_sm90.gemm.kernels.finish import finished
from bitwise_nvidia_sm90.gemm.kernels.text_kernel import TextKernel
from bitwise_nvidia_sm90.gemm.launch import kernel_calls
from bitwise_nvidia_sm90.gemm.plan import UnsupportedGEMM, plan
from bitwise_nvidia_sm90.gemm.schedule import Schedule
from gemm_products import MMA_K8, WGMMA, Matrix, matrix, random_patterns, run, source

SLICED = "k_cuts=[cut(span=128)]"
ROUNDED = "k_cuts=[cut(span=128 merge_dtype=bf16)]"
LANES = GEMMDesc(k=40, left_dtype="bf16", right_dtype="bf16", output_dtype="bf16", path="fma")
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")


@dataclass(frozen=True)
class Sized(Matrix):
    """A matrix with what an epilogue asks of its operands."""

    def element_size(self) -> int:
        return FLOAT_FORMATS[self.dtype].bits // 8


def consumers(block_m: int, block_n: int, number: int = 1, **fields: Any) -> Schedule:
    given = {"block_k": 64, "programs": 2, "stages": 3, **fields}
    return Schedule(block_m, block_n, warps=4 * (number + 1), tma=True, consumers=number, **given)


def evaluated(epilogue: Epilogue, dtype: str, product: Bits, operands: list[Bits]) -> Bits:
    hardware = registry.default().hardware
    return evaluate_epilogue(epilogue, dtype, product, operands, formulas=FORMULAS, hardware=hardware)


def stored(values: Bits, strides: tuple[int, ...]) -> Any:
    """Return the bytes of a matrix with these strides; the memory between its elements holds other values."""
    size = values.dtype.itemsize
    places = sum(np.arange(length).reshape(-1, *[1] * (values.ndim - 1 - axis)) * strides[axis]
                 for axis, length in enumerate(values.shape))  # fmt: skip
    found = np.full(int(np.max(places)) + 1, 0x3F, dtype=f"u{size}")
    found[places] = values
    return found.view(np.uint8)


def run_fused(
    desc: GEMMDesc, m: int, n: int, chosen: Schedule, epilogue: Epilogue, out: tuple[int, int] | None = None,
    strides: dict[int, tuple[int, ...]] | None = None, address: int = 0, columns_of_b: bool = False,
) -> tuple[Bits, Bits, list[Any]]:  # fmt: skip
    """Return the simulated bytes, the evaluated ones, and the kernels; `columns_of_b`: those of B are contiguous."""
    k, dtype = desc.k, desc.output_dtype
    random = np.random.default_rng(k + m)
    a, b = random_patterns((m, k), desc.left_dtype, random), random_patterns((k, n), desc.right_dtype, random)
    kind = epilogue.output_dtype(dtype)
    size = FLOAT_FORMATS[kind].bits // 8
    laid = out or (n, 1)
    columns_of_b = columns_of_b or desc.left_dtype == "e4m3"  # tensor maps of 8 bits need neighbours in k
    state = {
        "A": np.ascontiguousarray(a).view(np.uint8).ravel(),
        "B": np.ascontiguousarray(b.T if columns_of_b else b).view(np.uint8).ravel(),
        "C": np.full(((m - 1) * laid[0] + (n - 1) * laid[1] + 1) * size, 0xA5, dtype=np.uint8),
    }  # fmt: skip
    operands, values = [], []
    for index, (name, each) in enumerate(zip(epilogue.operands, epilogue.operand_types(dtype), strict=True)):
        shape = (m, n)[2 - OPERANDS[name] :]
        found = (
            random_patterns((m, n), each, random)[:1].ravel()
            if len(shape) == 1
            else random_patterns((m, n), each, random)
        )
        given = (strides or {}).get(index, (n, 1)[2 - len(shape) :])
        # A stride of 0 repeats the first row or column.
        found = np.broadcast_to(found[tuple(slice(0, None if step else 1) for step in given)], found.shape)
        operands.append(Sized(f"O{index}", shape, given, each, address))
        values.append(found)
        state[f"O{index}"] = np.pad(stored(found, given), (address, 0))

    def workspace(shape: tuple[int, ...], dtype: str) -> Matrix:
        state["W"] = np.full(int(np.prod(shape)) * FLOAT_FORMATS[dtype].bits // 8, 0x5A, dtype=np.uint8)
        return Matrix("W", shape, (shape[1] * shape[2], shape[2], 1), dtype)

    fusion = Fusion(epilogue, dtype, tuple(operands))
    fusion.check()
    calls = kernel_calls(
        plan(desc), chosen, Matrix("A", (m, k), (k, 1), desc.left_dtype),
        Matrix("B", (k, n), (1, k) if columns_of_b else (n, 1), desc.right_dtype), Matrix("C", (m, n), laid, kind),
        workspace, fusion,
    )  # fmt: skip
    for each in calls:
        run(source(each), state)
    words = state["C"].view(storage(8 * size))
    places = np.arange(m)[:, None] * laid[0] + np.arange(n)[None] * laid[1]
    return words[places], evaluated(epilogue, dtype, evaluate(desc, a, b), values), [each.kernel for each in calls]


GATHERED = Schedule(64, 64, 64, stages=2, warps=8, consumers=1, gathering=1, resident=2)
CONVERT = Step(name="convert", dtype="e4m3")
BF16 = {"dtype": "bf16"}


def axpby_of_fp16(fused: Any) -> tuple[Step, Step]:
    step = Step(
        name="axpby", value=1.2998046875, operand_value=-0.7001953125, fused=fused, operand_dtype="fp16",
        arithmetic="fp16",
    )  # fmt: skip
    return step, Step(name="convert", dtype="fp16")


def axpby(fused: Any, dtype: str) -> tuple[Step, Step]:
    step = Step(name="axpby", value=1.3, operand_value=-0.7, fused=fused, operand_dtype=dtype)
    return step, Step(name="convert", dtype=dtype)


SCALES = Epilogue.of("multiply", "multiply", Step(name="add", operand_dtype="bf16"), Step(name="convert", dtype="bf16"))
ROWS_AND_COLUMNS = {0: (0, 1), 1: (1, 0), 2: (0, 1)}
FP8 = matrix(256, "family=wgmma k=32", "", "e4m3", "fp32")
PRODUCTS: dict[str, tuple[Any, ...]] = {
    "an addend of another type": (
        matrix(72, WGMMA, out="fp32", **BF16), 72, 40, consumers(64, 32), Epilogue.of(*axpby("x", "bf16"))
    ),
    "an addend where both products are rounded": (
        matrix(72, WGMMA, out="fp32", **BF16), 72, 40, consumers(64, 32), Epilogue.of(*axpby("none", "bf16"))
    ),
    "an addend whose product is rounded last": (
        matrix(72, WGMMA, "", "fp16", "fp32"), 24, 24, Schedule(16, 32, 64), Epilogue.of(*axpby("operand", "fp16"))
    ),
    "an addend in fp16": (
        matrix(72, WGMMA, "", "fp16", "fp32"), 24, 24, Schedule(16, 32, 64), Epilogue.of(*axpby_of_fp16("operand"))
    ),
    "an addend in fp16, whose product is rounded first": (
        matrix(72, WGMMA, "", "fp16", "fp32"), 72, 40, consumers(64, 32), Epilogue.of(*axpby_of_fp16("x"))
    ),
    "an addend of slices": (
        matrix(272, WGMMA, SLICED, "fp16", "fp32"), 24, 24, Schedule(16, 32, 64), Epilogue.of(*axpby("x", "fp16"))
    ),
    "scales of rows and columns": (
        FP8, 72, 48, consumers(64, 32, block_k=128), SCALES, None, ROWS_AND_COLUMNS
    ),
    "scales of rows and columns, by pointers": (
        FP8, 20, 24, Schedule(64, 32, 128), SCALES, None, ROWS_AND_COLUMNS
    ),
    "one scale": (
        FP8, 20, 24, Schedule(64, 32, 128),
        Epilogue.of("multiply", Step(name="convert", dtype="fp16")), None, {0: (0, 0)},
    ),
    "nothing but a conversion to the type of the sums": (
        matrix(72, WGMMA, "", "fp16", "fp32"), 24, 24, Schedule(16, 32, 64),
        Epilogue.of(Step(name="convert", dtype="fp32")),
    ),
    "bias and residual": (matrix(136, WGMMA, **BF16), 72, 72, consumers(64, 48), Epilogue.of("bias", "add")),
    "rows of C that no map has": (
        matrix(72, WGMMA), 66, 40, consumers(64, 32), Epilogue.of("bias", "multiply", "relu"), (41, 1)
    ),
    "operands of other strides": (
        matrix(72, WGMMA, **BF16), 72, 40, consumers(64, 32), Epilogue.of("bias", "add"), None, {0: (2,), 1: (1, 72)}
    ),
    "an unaligned operand": (matrix(72, WGMMA), 72, 40, consumers(64, 32), Epilogue.of("add"), None, None, 2),
    "transposed": (
        matrix(72, WGMMA, **BF16), 24, 136, consumers(64, 32, transposed=True), Epilogue.of("bias", "add", "silu")
    ),
    "three operands": (matrix(72, WGMMA), 72, 40, consumers(64, 32), Epilogue.of("bias", "swiglu", "add")),
    "many columns of two consumers": (
        matrix(72, WGMMA, **BF16), 136, 272, consumers(128, 144, 2), Epilogue.of("add", "bias")
    ),
    "mapped": (matrix(72, WGMMA, **BF16), 200, 264, consumers(128, 256, 2, programs=1), Epilogue.of("swiglu", "bias")),
    "mapped by columns": (
        matrix(72, WGMMA, **BF16), 264, 200, consumers(128, 256, 2, transposed=True, programs=1),
        Epilogue.of("swiglu", "bias"),
    ),
    "mapped by columns, with an odd number of 8 of them": (
        matrix(72, WGMMA), 40, 264, consumers(256, 40, 2, transposed=True, programs=1),
        Epilogue.of("add", "multiply", "swiglu"),
    ),
    "mapped by columns in ping-pong, with a part that is stored twice": (
        matrix(72, WGMMA, **BF16), 152, 200,
        consumers(64, 152, 2, ping_pong=True, transposed=True, programs=1), Epilogue.of("bias", "add", "swiglu"),
    ),
    "mapped, with a part that is stored twice": (
        matrix(72, WGMMA), 136, 208, consumers(64, 208, programs=2), Epilogue.of("add", "multiply")
    ),
    "mapped, with parts of an odd number of 8 columns": (
        matrix(72, WGMMA), 72, 144, consumers(64, 136, programs=2), Epilogue.of("add", "multiply"), None, None, 0, True
    ),
    "mapped, with one buffer": (
        matrix(72, WGMMA, **BF16), 200, 200, consumers(192, 192, 3, stages=4, programs=1), Epilogue.of("add", "bias")
    ),
    "parts of 16 of 24 columns": (
        matrix(72, WGMMA), 72, 48, consumers(64, 24, programs=2), Epilogue.of("bias", "add"), None, None, 0, True
    ),
    "gathered": (
        matrix(75, MMA_K8, "k_loop_step=32 short_iteration=first", **BF16), 66, 41, GATHERED, Epilogue.of("bias", "add")
    ),
    "gathered and transposed": (
        matrix(75, WGMMA), 20, 72, replace(GATHERED, transposed=True), Epilogue.of("swiglu", "add")
    ),
    "mapped in ping-pong and clusters": (
        matrix(72, WGMMA, **BF16), 264, 272, consumers(64, 160, 2, ping_pong=True, cluster_m=2), Epilogue.of("add")
    ),
    "one part to each buffer": (
        matrix(72, WGMMA), 264, 200, consumers(128, 64, 1, stages=2, programs=3), Epilogue.of("bias", "add", "add")
    ),
    "ping-pong": (
        matrix(136, WGMMA, **BF16), 200, 72, consumers(64, 32, 2, ping_pong=True), Epilogue.of("bias", "gelu_tanh")
    ),
    "fp32": (matrix(72, WGMMA, out="fp32"), 72, 40, consumers(64, 32), Epilogue.of("bias", "add", "relu")),
    "to e4m3": (
        matrix(72, WGMMA, **BF16), 72, 160, consumers(64, 160), Epilogue.of(Step(name="scale", value=0.5), CONVERT)
    ),
    "to e4m3, with a part that is stored twice": (
        matrix(72, WGMMA), 72, 304, consumers(64, 144), Epilogue.of("add", CONVERT)
    ),
    "to e4m3 by elements": (matrix(72, WGMMA), 72, 40, consumers(64, 16), Epilogue.of("bias", CONVERT)),
    "saturated": (
        matrix(72, WGMMA), 40, 72, consumers(64, 64),
        Epilogue.of(Step(name="scale", value=300.0), Step(name="convert", dtype="e4m3", saturate=True)),
    ),
    "to e5m2 and transposed": (
        matrix(72, WGMMA), 40, 72, consumers(64, 32, transposed=True), Epilogue.of(Step(name="convert", dtype="e5m2"))
    ),
    "through fp32": (
        matrix(72, WGMMA, **BF16), 72, 64, consumers(64, 32),
        Epilogue.of("silu", Step(name="convert", dtype="fp32"), Step(name="scale", value=3.5),
                    Step(name="clamp", low=-448.0, high=448.0), CONVERT),
    ),
    "slices": (matrix(264, WGMMA, SLICED, **BF16), 40, 40, consumers(64, 32), Epilogue.of("bias", "add", "gelu")),
    "rounded slices": (matrix(264, WGMMA, ROUNDED, **BF16), 40, 40, consumers(64, 32), Epilogue.of("bias", CONVERT)),
    "Triton with tensor maps": (
        matrix(72, WGMMA, **BF16), 72, 64, Schedule(64, 64, 64, stages=2, tma=True), Epilogue.of("bias", "add", "silu")
    ),
    "Triton, transposed": (
        matrix(72, WGMMA), 24, 72, Schedule(64, 32, 64, stages=2, tma=True, transposed=True), Epilogue.of("bias", "add")
    ),
    "Triton by pointers": (matrix(72, WGMMA), 40, 37, Schedule(64, 64, 64, stages=2), Epilogue.of("bias", "gelu")),
    "lanes": (LANES, 3, 20, Schedule(64, block_k=8), Epilogue.of("bias", "swiglu", CONVERT)),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_bytes_are_those_of_the_epilogue_of_the_product(name: str) -> None:
    chosen = PRODUCTS[name][3]
    if not chosen.consumers or "slices" in name:
        pytest.importorskip("triton")
    found, wanted, kernels = run_fused(*PRODUCTS[name])
    assert isinstance(kernels[0], TextKernel) == bool(chosen.consumers)
    assert (found == wanted).all()
    if name.startswith("mapped"):
        assert ("ldmatrix.sync.aligned.m8n8.x4.trans" if chosen.transposed else "x4.shared") in kernels[0].text


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_activations_are_those_of_their_formulas(name: str, dtype: str) -> None:
    found, wanted, _ = run_fused(matrix(72, WGMMA, dtype=dtype), 64, 64, consumers(64, 64), Epilogue.of(name))
    assert (found == wanted).all()


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_short_formulas_have_the_same_bits_for_every_number(name: str, dtype: str) -> None:
    given = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    hardware = registry.default().hardware
    wanted, found = (
        evaluate_epilogue(Epilogue.of(name), dtype, given, formulas=each, hardware=hardware)
        for each in (FORMULAS, SHORT_FORMULAS)
    )
    assert (found == wanted).all()


def test_the_values_of_activations() -> None:
    """Values of PyTorch's CUDA operators at 1, 2 and -2, and of special operands, in bf16."""
    given = np.array([[0x3F80, 0x4000, 0xC000, 0x7F80, 0xFF80, 0x7FFF, 0x8000, 0x0001]], dtype=np.uint16)
    wanted = {
        "relu": [0x3F80, 0x4000, 0, 0x7F80, 0, 0x7FFF, 0, 1],
        "gelu": [0x3F57, 0x3FFA, 0xBD3A, 0x7F80, 0x7FFF, 0x7FFF, 0x8000, 0],
        "gelu_tanh": [0x3F57, 0x3FFA, 0xBD3A, 0x7F80, 0x7FFF, 0x7FFF, 0x8000, 0],
        "silu": [0x3F3B, 0x3FE1, 0xBE74, 0x7F80, 0x7FFF, 0x7FFF, 0x8000, 0],
    }
    for name, values in wanted.items():
        assert evaluated(Epilogue.of(name), "bf16", given, []).tolist() == [values], name


def test_unsupported_epilogues_are_refused() -> None:
    four = Epilogue.of("bias", "add", "multiply", "swiglu")
    operand = Sized("O", (8, 8), (8, 1), "fp16")
    with pytest.raises(UnsupportedGEMM, match="4 operands of an epilogue: these kernels take 3"):
        Fusion(four, "fp16", (operand,) * 4).check()
    with pytest.raises(UnsupportedGEMM, match=r"an epilogue with convert\.fp32\.e4m3"):
        finished(Epilogue.of(CONVERT, "relu"), "fp16", "")
    with pytest.raises(DescriptorError, match="silu has no formula"):
        evaluate_epilogue(Epilogue.of("silu"), "fp16", np.zeros((1, 1), dtype=np.uint16))
