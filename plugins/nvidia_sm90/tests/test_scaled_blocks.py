"""The kernel of products with scales of blocks, compiled here and simulated: the bytes of the description."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bitwise_core.descriptors import Cut, Epilogue, GEMMDesc, Instruction, Step
from bitwise_core.descriptors.evaluation import evaluate_finished
from bitwise_core.descriptors.problem import FinishedGEMM
from bitwise_core.plugins import registry
from bitwise_nvidia_sm90.gemm.launch import KernelCall
from bitwise_nvidia_sm90.gemm.plan import UnsupportedGEMM
from bitwise_nvidia_sm90.gemm.scaled_blocks import check, constants, scaled_sums, span_of, tile_of
from gemm_products import Matrix, random_patterns, run, source


def described(k: int, family: str = "wgmma", scaling: Any = "product_first", span: int | None = None) -> FinishedGEMM:
    cuts = (*((Cut(span=span),) if span else ()), Cut(span=128))
    product = GEMMDesc(
        k=k, left_dtype="e4m3", right_dtype="e4m3", output_dtype="fp32", path="matrix", instruction_k=32,
        k_cuts=cuts, instruction=Instruction(architecture="sm_90", family=family, k=32),
    )  # fmt: skip
    steps = Epilogue.of(Step(name="convert", dtype="bf16"))
    return FinishedGEMM(product=product, steps=steps, block_scaling=scaling)


@pytest.mark.parametrize(("m", "n", "k", "scaling", "span"), [
    (3, 5, 384, "product_first", None), (70, 130, 144, "left_first", None), (5, 16, 656, "left_first", 256),
    (66, 8, 512, "product_first", 128),
])  # fmt: skip
def test_the_kernel_has_the_bytes_of_the_description(m: int, n: int, k: int, scaling: Any, span: int | None) -> None:
    pytest.importorskip("triton")
    from bitwise_nvidia_sm90.gemm.kernels import scaled_blocks as kernels

    dice = np.random.default_rng(m)
    a, b = random_patterns((m, k), "e4m3", dice), random_patterns((n, k), "e4m3", dice)
    blocks = -(-k // 128)
    scales_a, scales_b = (dice.uniform(0.01, 3, (each, blocks)).astype(np.float32) for each in (m, n))
    tile, options = tile_of(m, n)
    desc = described(k, scaling=scaling, span=span)
    assert span_of(desc) == span
    numbers = {
        "M": m, "N": n, "K": k, "SPAN": span or k, "stride_am": k, "stride_ak": 1, "stride_bk": 1, "stride_bn": k,
        "stride_cm": n, "stride_cn": 1, "stride_sam": blocks, "stride_sak": 1, "stride_sbk": 1, "stride_sbn": blocks,
    }  # fmt: skip
    buffers = {"A": (a, "e4m3"), "B": (b, "e4m3"), "SA": (scales_a, "fp32"), "SB": (scales_b, "fp32")}
    given: dict[str, Any] = {name: Matrix(name, bits.shape, (), kind) for name, (bits, kind) in buffers.items()}
    given["C"] = Matrix("C", (m, n), (), "bf16")
    state = {name: np.ascontiguousarray(bits).view(np.uint8).ravel() for name, (bits, _) in buffers.items()}
    state["C"] = np.full(2 * m * n, 0xA5, np.uint8)
    grid = (-(-m // tile["BLOCK_M"]) * -(-n // tile["BLOCK_N"]),)
    run(source(KernelCall(
        kernels.scaled_blocks, grid, given | numbers, {**tile, **constants(desc)}, options
    )), state)  # fmt: skip
    wanted = evaluate_finished(
        desc, a, np.ascontiguousarray(b.T), [scales_a, np.ascontiguousarray(scales_b.T)],
        hardware=registry.default().hardware,
    )  # fmt: skip
    assert (state["C"].view(np.uint16).reshape(m, n) == wanted).all()


def test_other_sums_are_refused() -> None:
    check(described(256))
    with pytest.raises(UnsupportedGEMM, match="multiply fp8 operands by wgmma"):
        check(described(256, "mma.sync"))
    plain = FinishedGEMM(product=described(256).product, steps=described(256).steps)
    with pytest.raises(UnsupportedGEMM, match="multiply fp8 operands by wgmma"):
        scaled_sums(plain, None, None, None, None, None)
    with pytest.raises(ValueError, match="the product has a cut of span 128"):
        FinishedGEMM(
            product=described(256).product.model_copy(update={"k_cuts": ()}),
            steps=plain.steps,
            block_scaling="left_first",
        )
    with pytest.raises(ValueError, match="in slices of whole blocks"):
        described(512, span=192)
