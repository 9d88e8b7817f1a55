# ruff: noqa: E501 - PTX and tables are easier to check without line breaks
"""Integer matrix instructions: sums are exact in any order, as long as no sum can be clamped."""

from __future__ import annotations

import pytest

from ptx_programs import hashes

PLACES = "mul.lo.u32 %r50, %r0, 16; cvt.u64.u32 %d5, %r50; add.s64 %d6, %d1, %d5; add.s64 %d7, %d0, %d5;"
LOADS = PLACES + "".join(f"ld.global.b32 %r{number}, [%d6+{512 * number}];" for number in range(1, 17))
ZERO = "mov.b32 %r20, 0; mov.b32 %r21, 0; mov.b32 %r22, 0; mov.b32 %r23, 0;"
SUM = "{%r20, %r21, %r22, %r23}"
STORE = f"st.global.v4.b32 [%d7], {SUM};"


def step(left: int, right: int, options: str = "", types: str = "s8.s8") -> str:
    """Return an mma of the fragments in four registers starting at `left` and two starting at `right`."""
    a = ", ".join(f"%r{left + each}" for each in range(4))
    return f"mma.sync.aligned.m16n8k32.row.col{options}.s32.{types}.s32 {SUM}, {{{a}}}, {{%r{right}, %r{right + 1}}}, {SUM};"


def form(*parts: str) -> object:
    return hashes(LOADS + "".join(parts) + STORE)


FIRST, SECOND, CLAMPED = step(1, 5), step(7, 11), ".satfinite"


@pytest.mark.parametrize(
    "parts",
    [
        (ZERO, SECOND, FIRST),
        (ZERO, step(1, 5, CLAMPED), step(7, 11, CLAMPED)),
        (ZERO, step(7, 11, CLAMPED), FIRST),
        (ZERO, FIRST, "mov.b32 %r30, 0; mov.b32 %r31, 0;", step(1, 30), SECOND),
    ],
)
def test_integer_sums_from_zero_are_equal_in_any_order(parts: tuple[str, ...]) -> None:
    assert form(*parts) == form(ZERO, FIRST, SECOND)


@pytest.mark.parametrize(
    "parts",
    [
        (ZERO, FIRST),
        (ZERO, FIRST, FIRST, SECOND),
        (ZERO, FIRST, step(7, 13)),
        (ZERO, FIRST, step(7, 11, types="u8.s8")),
        (ZERO, FIRST, step(7, 11, types="s8.u8")),
        ("mov.b32 %r20, 1; mov.b32 %r21, 1; mov.b32 %r22, 1; mov.b32 %r23, 1;", FIRST, SECOND),
    ],
)
def test_different_integer_sums_differ(parts: tuple[str, ...]) -> None:
    assert form(*parts) != form(ZERO, FIRST, SECOND)


def test_sums_that_start_from_loaded_numbers_may_be_clamped() -> None:
    begin = "".join(f"mov.b32 %r{20 + each}, %r{13 + each};" for each in range(4))
    assert form(begin, FIRST) == form(begin, FIRST)
    assert form(begin, step(1, 5, CLAMPED)) != form(begin, FIRST)


@pytest.mark.parametrize(("types", "most"), [("s8.s8", 4095), ("u8.u8", 1023)])
def test_long_sums_may_be_clamped(types: str, most: int) -> None:
    def repeated(count: int, options: str) -> object:
        loop = f"mov.b32 %r40, 0; L: {step(1, 5, options, types)} add.u32 %r40, %r40, 1; setp.lt.u32 %p1, %r40, {count}; @%p1 bra L;"
        return form(ZERO, loop)

    assert repeated(most, CLAMPED) == repeated(most, "")
    assert repeated(most + 1, CLAMPED) != repeated(most + 1, "")
