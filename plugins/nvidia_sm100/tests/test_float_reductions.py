"""redux.sync of floats: extrema over a warp, of magnitudes too."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.determined_runs import simulate_determined
from bitwise_core.execution.launch import Argument, Launch
from bitwise_nvidia_sm100.architecture import SM100

TEXT = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b)
.reqntid 64
{{
.reg .b64 %d<9>; .reg .b32 %r<9>;
ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; mov.u32 %r1, %tid.x; mul.wide.u32 %d3, %r1, 4;
add.s64 %d4, %d1, %d3; add.s64 %d5, %d2, %d3; ld.global.b32 %r2, [%d4];
{body}
st.global.b32 [%d5], %r3; ret; }}
"""
EDGES = np.array(
    [0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFF800001, 1, 0x80000001, 0x3F800000, 0xBF800000],
    dtype=np.uint32,
)


def source(body: str) -> Source:
    arguments = tuple(Argument(kind="buffer", buffer=each, dtype="fp32") for each in "ab")
    launch = Launch(file="k.ptx", entry="k", grid=(1, 1, 1), block=(64, 1, 1), args=arguments)
    return Source("k.ptx", TEXT.format(body=body), launch)


def extremum(patterns: list[int], verb: str, magnitudes: bool, sticky: bool) -> int:
    """Return the result for the lanes of a warp: PTX ISA, "redux.sync"."""
    if magnitudes:
        patterns = [each & 0x7FFFFFFF for each in patterns]
    numbers = [each for each in patterns if each & 0x7FFFFFFF <= 0x7F800000]
    if not numbers or (sticky and len(numbers) < len(patterns)):
        return 0x7FFFFFFF
    # In this order, -0 comes before +0.
    ranked = sorted(numbers, key=lambda each: each if each < 1 << 31 else -1 - (each & 0x7FFFFFFF))
    return ranked[-1] if verb == "max" else ranked[0]


@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("magnitudes", [False, True])
@pytest.mark.parametrize("verb", ["min", "max"])
def test_extrema_of_a_warp(verb: str, magnitudes: bool, sticky: bool) -> None:
    opcode = f"redux.sync.{verb}{'.abs' * magnitudes}{'.NaN' * sticky}.f32"
    ready = prepare(source(f"{opcode} %r3, %r2, -1;"), SM100, Options())
    generator = np.random.default_rng(11)
    seen = set()
    for chosen in (0, 0, 1, 2, 3, 10, 10):
        given = generator.integers(0, 1 << 32, 64, dtype=np.uint32)
        if chosen:
            given = np.where(np.arange(64) % chosen == 9, given, generator.choice(EDGES[:chosen], 64))
        after = simulate_determined(ready, {"a": given.view(np.uint8), "b": np.zeros(256, dtype=np.uint8)}).after["b"]
        found = after.view(np.uint32)
        for first in (0, 32):
            expected = extremum(given[first : first + 32].tolist(), verb, magnitudes, sticky)
            assert set(found[first : first + 32].tolist()) == {expected}
            seen.add(expected)
    assert len(seen) > 2


def test_an_extremum_of_magnitudes_is_that_of_their_magnitudes() -> None:
    one, other = (source(f"redux.sync.max.abs{nan}.f32 %r3, %r2, -1;") for nan in ("", ".NaN"))
    apart = source("and.b32 %r4, %r2, 0x7fffffff; redux.sync.max.f32 %r3, %r4, -1;")
    plain = source("redux.sync.max.f32 %r3, %r2, -1;")
    late = source("redux.sync.max.f32 %r4, %r2, -1; and.b32 %r3, %r4, 0x7fffffff;")
    assert compare(one, apart, SM100, Options()).verdict.outcome is Outcome.EQUAL
    for each in (other, plain, late):
        assert compare(one, each, SM100, Options()).verdict.outcome is not Outcome.EQUAL


def test_integers_have_no_magnitudes() -> None:
    wrong = source("redux.sync.max.abs.s32 %r3, %r2, -1;")
    assert compare(wrong, wrong, SM100, Options()).verdict.outcome is Outcome.UNKNOWN
