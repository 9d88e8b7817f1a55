"""Kernels of many products, compiled here and simulated: each product has the bytes of the sequential descriptor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bitwise_core.descriptors import Cut, GEMMDesc
from bitwise_core.numerics import FLOAT_FORMATS, Bits, storage
from bitwise_core.plugins.installed import evaluate
from bitwise_nvidia_sm90.gemm import many_products
from bitwise_nvidia_sm90.gemm.launch import KernelCall
from bitwise_nvidia_sm90.gemm.many_products import batched_call, grouped_call, sequential_descriptor
from bitwise_nvidia_sm90.gemm.plan import UnsupportedGEMM, plan
from gemm_products import WGMMA, Matrix, matrix, random_patterns, run, source


def patterns(shape: tuple[int, ...], dtype: str, seed: int) -> Bits:
    found = random_patterns((int(np.prod(shape[:-1])), shape[-1]), dtype, np.random.default_rng(seed))
    return found.reshape(shape)


def tensor(name: str, shape: tuple[int, ...], dtype: str, strides: tuple[int, ...] | None = None) -> Matrix:
    """Return a tensor, by default a contiguous one."""
    steps = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    return Matrix(name, shape, strides or steps, dtype)


def simulated(call: KernelCall, **buffers: Any) -> Bits:
    """Simulate a launch; `buffers` are the bits of its operands.  The output is filled with other bytes before."""
    from bitwise_triton.arguments import Buffer

    out = call.arguments["C"]
    size = FLOAT_FORMATS[out.dtype].bits // 8
    state = {each: np.ascontiguousarray(bits).view(np.uint8).ravel() for each, bits in buffers.items()}
    state["C"] = np.full(int(np.prod(out.shape)) * size, 0xA5, dtype=np.uint8)
    if "ends" in buffers:
        call = replace(call, arguments={**call.arguments, "ends": Buffer("ends", "i32")})
    run(source(call), state)
    return state["C"].view(storage(8 * size)).reshape(out.shape)


@pytest.mark.parametrize(("tile", "dtype", "k"), [
    ("small", "bf16", 80), ("wide", "bf16", 128), ("small", "fp16", 13), ("large", "bf16", 72), ("fma", "fp32", 1),
    ("fma", "fp32", 21),
])  # fmt: skip
def test_a_batch_has_the_bytes_of_the_descriptor(tile: str, dtype: str, k: int) -> None:
    pytest.importorskip("triton")
    m, n, matrices = 3, 70, 2
    desc = sequential_descriptor(k, dtype, dtype, dtype)
    a, b = patterns((matrices, m, k), dtype, 1), patterns((matrices, n, k), dtype, 2)
    call = batched_call(
        tensor("A", (matrices, m, k), dtype), tensor("B", (matrices, k, n), dtype, (n * k, 1, k)),
        tensor("C", (matrices, m, n), dtype), tile == "fma",
    )  # fmt: skip
    if tile in ("wide", "large"):
        constants = call.constants | (many_products._WIDE if tile == "wide" else many_products._LARGE)
        call = replace(call, grid=(1, matrices), constants=constants, options=many_products._options(constants))
    for x, y, z in zip(a, b, simulated(call, A=a, B=b), strict=True):
        assert z.tobytes() == evaluate(desc, x, np.ascontiguousarray(y.T)).tobytes()


@pytest.mark.parametrize(("ends", "k"), [([70, 70, 75], 24), ([0, 3, 80], 24), ([1, 65, 66], 64)])
def test_groups_of_rows_have_the_bytes_of_the_descriptor(ends: list[int], k: int) -> None:
    pytest.importorskip("triton")
    m, n, groups = 80, 16, 3
    desc = sequential_descriptor(k, "bf16", "bf16", "bf16")
    a, b = patterns((m, k), "bf16", 3), patterns((groups, k, n), "bf16", 4)
    call = grouped_call(
        tensor("A", (m, k), "bf16"), tensor("B", (groups, k, n), "bf16"), tensor("ends", (groups,), "i32"),
        tensor("C", (m, n), "bf16"), False,
    )  # fmt: skip
    found = simulated(call, A=a, B=b, ends=np.array(ends, np.int32))
    begin = 0
    for group, end in enumerate(ends):
        if end > begin:
            assert found[begin:end].tobytes() == evaluate(desc, a[begin:end], b[group]).tobytes()
        begin = end
    assert not found[begin:].any()


def test_groups_of_k_have_the_bytes_of_the_descriptor() -> None:
    pytest.importorskip("triton")
    m, n, k, ends = 20, 24, 100, [17, 17, 90]
    a, b = patterns((m, k), "fp16", 5), patterns((k, n), "fp16", 6)
    call = grouped_call(
        tensor("A", (m, k), "fp16"), tensor("B", (k, n), "fp16"), tensor("ends", (3,), "i32"),
        tensor("C", (3, m, n), "fp16"), False,
    )  # fmt: skip
    found = simulated(call, A=a, B=b, ends=np.array(ends, np.int32))
    begin = 0
    for group, end in enumerate(ends):
        part = slice(begin, end)
        if end == begin:
            assert not found[group].any()
        else:
            desc = sequential_descriptor(end - begin, "fp16", "fp16", "fp16")
            assert found[group].tobytes() == evaluate(desc, np.ascontiguousarray(a[:, part]), b[part]).tobytes()
        begin = end


@pytest.mark.parametrize("types", [
    ("bf16", "bf16", "bf16"), ("fp16", "fp16", "fp32"), ("fp32", "fp32", "fp32"), ("e4m3", "e5m2", "bf16"),
])  # fmt: skip
@pytest.mark.parametrize("k", [1, 127, 4096])
@pytest.mark.parametrize("one_accumulator", [False, True])
def test_the_kernels_of_single_products_run_every_sequential_descriptor(
    types: tuple[str, str, str], k: int, one_accumulator: bool
) -> None:
    desc = sequential_descriptor(k, *types, one_accumulator=one_accumulator)
    assert plan(desc).k == k
    assert [each for each in desc.k_cuts if each != Cut(span=128)] == []


def test_types_that_are_not_multiplied_have_no_descriptor() -> None:
    with pytest.raises(UnsupportedGEMM, match="operands of bf16 and fp16"):
        sequential_descriptor(64, "bf16", "fp16", "bf16")


@pytest.mark.parametrize("desc", [
    matrix(64, WGMMA, "k_cuts=[cut(count=2)]"), matrix(64, "family=mma.sync k=8"),
    sequential_descriptor(256, "e4m3", "e4m3", "fp32", one_accumulator=False),
])  # fmt: skip
def test_other_orders_are_refused(desc: GEMMDesc) -> None:
    with pytest.raises(UnsupportedGEMM, match="take one sum over k"):
        many_products.batched_product(desc, None, None, None)
