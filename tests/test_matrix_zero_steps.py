"""Matrix steps whose operands are zeros: what the analysis concludes from them, for the row of every architecture."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from bitwise_core.checker.comparison import compare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.numerics import FLOAT_FORMATS, nan_of, storage
from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.numerics.mma.evaluation import multiply_accumulate
from bitwise_core.plugins import registry

SIDE = 16
ROWS = {each.name: each for each in registry.default().matrix_units.values() if each.accumulator in FLOAT_FORMATS}


def after_zeros(row: MmaSpec, accumulators: Any) -> Any:
    """Return the accumulators after a step of +0."""
    left, right = (storage(FLOAT_FORMATS[each].bits) for each in (row.left, row.right))
    return multiply_accumulate(row, np.zeros((SIDE, row.k), left), np.zeros((row.k, SIDE), right), accumulators)


def random_accumulators(row: MmaSpec) -> Any:
    form = FLOAT_FORMATS[row.accumulator]
    draw = np.random.default_rng(3)
    found = draw.integers(0, 1 << min(form.bits, 63), size=(SIDE, SIDE), dtype=np.uint64)
    found[0] = draw.integers(0, 1 << form.mantissa_bits, size=SIDE)  # subnormal numbers
    found[1, :2] = 0, 1 << form.bits - 1
    return found.astype(storage(form.bits))


@pytest.mark.parametrize("name", ROWS)
def test_a_step_of_zeros_keeps_or_cuts_the_accumulator_as_the_row_says(name: str) -> None:
    row = ROWS[name]
    form, before = FLOAT_FORMATS[row.accumulator], random_accumulators(row)
    after = after_zeros(row, before)
    kept = np.where(before == 1 << form.bits - 1, 0, before)
    same = (after == kept) | nan_of(before, form)
    assert same.all() if row.keeps_accumulator else not same[0].any()
    # What a step has cut, no other step of such a unit cuts.
    for other in ROWS.values():
        if other.architecture == row.architecture and not (row.keeps_accumulator or other.keeps_accumulator):
            assert np.array_equal(after_zeros(other, after), after)


HEAD = """.version 8.7
.target {target}
.address_size 64
.visible .entry k(.param .u64 .ptr .global out, .param .u64 .ptr .global in)
.reqntid 32
{{
.reg .pred %p<9>; .reg .b32 %r<40>; .reg .f32 %f<20>; .reg .b64 %d<20>; .reg .f64 %g<20>;
ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; mov.u32 %r0, %tid.x; mul.wide.u32 %d2, %r0, 8;
add.s64 %d3, %d0, %d2; add.s64 %d4, %d1, %d2; mov.b32 %r1, 0; mov.b64 %g1, 0d0000000000000000;
ld.global.b32 %r2, [%d4]; ld.global.b32 %r3, [%d4+4]; ld.global.f64 %g2, [%d4]; mov.b32 %r20, 0; mov.b32 %r21, 0;
{body}
ret;
}}
"""
OF_LOAD, OF_RESULT, OF_ZERO = ", ".join(["%r2"] * 4), "%r4, %r5, %r6, %r7", ", ".join(["%r1"] * 4)


def step(a: str, b: str, accumulator: str, types: str = "e4m3.e4m3") -> str:
    """Return a step whose operands are this register alone."""
    operands = f"{{{', '.join([a] * 4)}}}, {{{b}, {b}}}, {{{accumulator}}}"
    return f"mma.sync.aligned.m16n8k32.row.col.f32.{types}.f32 {{{OF_RESULT}}}, {operands};"


STORED = "st.global.b32 [%d3], %r4;"


def equal(first: str, second: str, target: str, dtype: str, assume: frozenset[str] = frozenset()) -> bool:
    buffers = tuple(Argument(kind="buffer", buffer=each, dtype=dtype) for each in ("out", "in"))
    one, other = (
        Source(name, HEAD.format(target=target, body=body), Launch(file=name, entry="k", grid=(1, 1, 1), args=buffers))
        for name, body in (("a.ptx", first), ("b.ptx", second))
    )
    options = Options(audit_contraction=False, assume=assume)
    return compare(one, other, registry.default().arch(target), options).verdict.outcome is Outcome.EQUAL


@pytest.mark.parametrize("types", ["e4m3.e4m3", "e4m3.e5m2"])
def test_a_step_of_zeros_cuts_an_accumulator_of_sm_89(types: str) -> None:
    of_load, of_result, of_zero = (step("%r1", "%r1", each, types) for each in (OF_LOAD, OF_RESULT, OF_ZERO))
    before, added = step("%r3", "%r2", OF_LOAD), "add.rn.f32 %r4, %r4, %r2;"
    pairs = (
        (of_load, "add.rn.f32 %r4, %r2, 0f00000000;", False),
        (before + of_result, before, True),
        (of_zero, "mov.b32 %r4, %r1;", True),
        (before + added + of_result, before + added, False),
    )
    for first, second, expected in pairs:
        assert equal(first + STORED, second + STORED, "sm_89", "fp32") == expected, (first, second)


@pytest.mark.parametrize(("a", "b"), list(product(["%g1", "%g2"], repeat=2)))
def test_zeros_times_finite_numbers_of_fp64_have_signs(a: str, b: str) -> None:
    """0 * -1 + -0 is -0, and -0 + +0 is +0."""
    multiplied = f"mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {{%g3, %g4}}, {{{a}}}, {{{b}}}, {{%g2, %g2}};"
    stored = "st.global.f64 [%d3], %g3;"
    both_zero = (a, b) == ("%g1", "%g1")
    found = equal(multiplied + stored, "add.rn.f64 %g3, %g2, %g1;" + stored, "sm_90", "fp64", frozenset({"finite"}))
    assert found == both_zero
