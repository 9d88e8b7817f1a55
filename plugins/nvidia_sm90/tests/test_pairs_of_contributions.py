"""Two blocks that add to an element with a known zero leave one sum in both orders; three blocks do not."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from bitwise_core.checker.comparison import compare
from bitwise_core.checker.counterexamples.search import search_verdict
from bitwise_core.checker.determinism import Determinism, determinism
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.tensor_contents import TensorContents
from bitwise_core.numerics import FloatFormat, nan_of, operation
from bitwise_nvidia_sm90.architecture import SM90

THREADS = 32
HEAD = f""".version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b)
.reqntid {THREADS}
{{
.reg .pred %p<3>; .reg .b64 %d<9>; .reg .b32 %r<9>; .reg .f32 %f<9>;
ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
mad.lo.u32 %r3, %r2, {THREADS}, %r1; mul.wide.u32 %d3, %r3, 4; mul.wide.u32 %d4, %r1, 4;
add.s64 %d5, %d1, %d3; add.s64 %d6, %d1, %d4; add.s64 %d7, %d2, %d4; ld.global.f32 %f1, [%d5]; ld.global.f32 %f2, [%d6];
ld.global.f32 %f3, [%d6+{4 * THREADS}]; setp.eq.u32 %p1, %r2, 0;
"""
"""%f1: the element of a of this thread and block; %f2 and %f3: those of blocks 0 and 1."""
ADD = "red.global.add.f32 [%d7], %f1;"
SWAPPED = "selp.f32 %f4, %f3, %f2, %p1; red.global.add.f32 [%d7], %f4;"
ONE_TWICE = "red.global.add.f32 [%d7], %f2;"
DOUBLED = "add.f32 %f4, %f1, %f1; red.global.add.f32 [%d7], %f4;"
OPTIONS = Options(audit_contraction=False)


def kernel(body: str, blocks: int, first: float | None, name: str = "k") -> Source:
    content = None if first is None else TensorContents(np.full(THREADS, first, "<f4").tobytes(), "fp32")
    arguments = (
        Argument(kind="buffer", buffer="a", dtype="fp32"),
        Argument(kind="buffer", buffer="b", dtype="fp32", values=content),
    )
    launch = Launch(file="k.ptx", entry="k", grid=(blocks, 1, 1), block=(THREADS, 1, 1), args=arguments)
    return Source(name, HEAD + body + "\nret;\n}\n", launch)


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_two_contributions_to_a_zero_have_one_sum(zero: float) -> None:
    (found,) = determinism([kernel(ADD, 2, zero)], "sm_90", OPTIONS, workers=1).kernels
    assert found.outcome is Determinism.DETERMINISTIC


@pytest.mark.parametrize(("blocks", "first"), [(2, None), (2, 1.0), (3, 0.0), (3, None)])
def test_more_numbers_have_not(blocks: int, first: float | None) -> None:
    (found,) = determinism([kernel(ADD, blocks, first)], "sm_90", OPTIONS, workers=1).kernels
    assert found.outcome is not Determinism.DETERMINISTIC


def test_the_order_of_both_has_no_effect() -> None:
    added, swapped, *others = (kernel(each, 2, 0.0, each) for each in (ADD, SWAPPED, ONE_TWICE, DOUBLED))
    assert compare(added, swapped, SM90, OPTIONS).verdict.outcome is Outcome.EQUAL
    for other in others:
        found = search_verdict(added, other, SM90, OPTIONS, compare(added, other, SM90, OPTIONS), 5)
        assert found.outcome is Outcome.DIFFERENT


@pytest.mark.parametrize(
    "name", ["add.rn.fp16", "add.rn.bf16", "add.rn.fp32", "add.rn.ftz.fp32", "add.rn.ftz.atomic.fp32", "add.rn.fp64"]
)
def test_both_orders_are_one_sum_of_bit_patterns(name: str) -> None:
    """(z + x) + y, (z + y) + x and (x + y) + z agree for zeros z, on special patterns and random ones."""
    added = operation(name)
    form, add = added.result, added.function
    assert add is not None
    assert isinstance(form, FloatFormat)
    assert form.infinity is not None
    kind = np.dtype(f"u{form.bits // 8}")
    sign, one = 1 << form.bits - 1, form.bias << form.mantissa_bits
    largest, infinity = form.largest_magnitude, form.infinity
    magnitudes = [0, 1, 2, (1 << form.mantissa_bits) - 1, 1 << form.mantissa_bits, one, one + 1, largest, infinity]
    special = np.array([each | side for each in magnitudes for side in (0, sign)], dtype=kind)
    random = np.random.default_rng(1).integers(0, 1 << min(63, form.bits), 4000, dtype=np.uint64).astype(kind)
    pairs = np.array(list(product(special, special)), dtype=kind).T
    x, y = np.concatenate([pairs[0], random[:2000]]), np.concatenate([pairs[1], random[2000:]])
    for number in (0, sign):
        zero = np.full_like(x, number)
        sums = [add(add(zero, x), y), add(add(zero, y), x), add(add(x, y), zero)]
        for each in sums[1:]:
            assert ((each == sums[0]) | (nan_of(each, form) & nan_of(sums[0], form))).all()
