"""Zeros that threads add to an element beside large known numbers have no effect on its content, in any order."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from bitwise_core.checker.comparison import compare
from bitwise_core.checker.determinism import Determinism, determinism
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.memory.atomic_contributions import kept_contributions
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.numerics import FLOAT_FORMATS, operation, storage
from ptx_programs import ARCH

OPTIONS = Options(audit_contraction=False)
HEAD = """.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 .ptr .global .align 16 a, .param .u64 .ptr .global .align 16 b)
.reqntid 64
{
.reg .pred %p<4>; .reg .b64 %d<9>; .reg .b32 %r<9>; .reg .f32 %f<9>;
ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0;
and.b32 %r3, %r1, 7; mul.wide.u32 %d3, %r3, 4; add.s64 %d4, %d2, %d3; mul.wide.u32 %d5, %r1, 4; add.s64 %d6, %d1, %d5;
and.b32 %r4, %r1, 16; setp.eq.u32 %p2, %r4, 0; mov.f32 %f3, 0f00000000; ld.global.f32 %f4, [%d6];
"""


def source(one: str, other: str, name: str = "k", guard: str = "") -> Source:
    """Half of the threads that meet at an element add one number, and half add another one."""
    arguments = tuple(Argument(kind="buffer", buffer=each, dtype="fp32") for each in "ab")
    launch = Launch(file="k.ptx", entry="k", grid=(1, 1, 1), block=(64, 1, 1), args=arguments)
    body = f"selp.f32 %f1, {one}, {other}, %p2; {guard} red.global.add.f32 [%d4], %f1;\nret;\n}}\n"
    return Source(name, HEAD + body, launch)


@pytest.mark.parametrize(
    ("one", "other", "determined"),
    [
        ("0f3F800000", "0f00000000", True),
        ("0f3F800000", "0f80000000", True),
        ("0fC0400000", "0f00000000", True),
        ("0f00000000", "0f80000000", False),
        ("0f3F800000", "0f40000000", False),
        ("0f0B800000", "0f00000000", False),
        ("0f00000001", "0f00000000", False),
        ("0f7F800000", "0f00000000", False),
        ("%f4", "0f00000000", False),
    ],
)
def test_known_zeros(one: str, other: str, determined: bool) -> None:
    kernel = source(one, other)
    (found,) = determinism([kernel], ARCH.name, OPTIONS, workers=1).kernels
    assert (found.outcome is Determinism.DETERMINISTIC) == determined
    if determined:
        # Half of the threads add nothing.
        assert compare(kernel, source(one, one, "half", "@%p2"), ARCH, OPTIONS).verdict.outcome is Outcome.EQUAL
        assert compare(kernel, source(one, one, "all"), ARCH, OPTIONS).verdict.outcome is not Outcome.EQUAL


ADDED = ["add.rn.ftz.atomic.fp32", "add.rn.fp16", "add.rn.bf16", "add.rn.fp64"]


@pytest.mark.parametrize("name", ADDED)
def test_every_order_of_edge_values(name: str) -> None:
    """What is left out changes no sum, in any order, from any of the values at the edges of a format."""
    added = operation(name)
    form = FLOAT_FORMATS[added.result.name]
    sign = 1 << form.bits - 1
    below = storage(form.bits).type(sign - 1)
    steps = [0, 1, 2, (1 << form.mantissa_bits) - 1, 1 << form.mantissa_bits, (1 << form.mantissa_bits) + 1]
    ends = [
        (e << form.mantissa_bits) + m
        for e in range(1, form.mantissa_bits + 6)
        for m in (0, 1, (1 << form.mantissa_bits) - 1)
    ]
    large = [form.infinity, form.infinity - 1, form.bias << form.mantissa_bits, form.infinity + 1]
    magnitudes = sorted({*steps, *ends, *large})
    values = np.array([each | s for each in magnitudes for s in (0, sign)], dtype=storage(form.bits))
    assert added.function is not None
    tried = 0
    for number, zeros in product(values.tolist(), ((0,), (sign,), (0, sign))):
        words = np.zeros((2, 2 + len(zeros)), np.uint64)
        words[0] = [number, number, *zeros]
        flags = np.full(words.shape[1], L.CONST, np.uint32)
        kept = kept_contributions(added, np.zeros(words.shape[1], np.uint64), words, flags)
        if kept.all():
            continue
        tried += 1
        assert kept.tolist() == [True, True, *(False for _ in zeros)]
        results = []
        for order in {*permutations([number, number, *zeros]), (number, number)}:
            total = values
            for each in order:
                total = added.function(total, np.full_like(values, each))
            results.append(np.asarray(total))
        magnitude = results[0] & below
        nan = magnitude > form.infinity
        for each in results[1:]:
            assert ((each == results[0]) | (nan & (each & below > form.infinity))).all()
    assert tried > 6


def test_a_smaller_number_would_be_wrong() -> None:
    """A sum that is flushed to -0 becomes +0 by a zero that is added after it, and not by one before it."""
    added = operation("add.rn.ftz.atomic.fp32")
    start, number, zero = (np.array([each], np.uint32) for each in (0x80800001, 0x00800000, 0))
    assert added.function is not None
    after = added.function(added.function(start, number), zero)
    before = added.function(added.function(start, zero), number)
    assert after.tolist() != before.tolist()
    words = np.array([[number[0], 0], [0, 0]], np.uint64)
    assert kept_contributions(added, np.zeros(2, np.uint64), words, np.zeros(2, np.uint32)).all()
