"""Selects that take bits of a NaN, which an assembler may move, only where the value is a number.

The oracle evaluates both values of the select for NaN patterns of every kind: the result is determined exactly if it is
the same for all of them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest

from ptx_programs import hashes, store

LOAD = "mul.wide.u32 %d2, %r0, 8; add.s64 %d2, %d1, %d2; ld.global.b32 %r1, [%d2]; ld.global.b32 %r2, [%d2+4]; "
NANS = (0x7F800001, 0x7F800002, 0x7FBFFFFF, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFC00000, 0xFFFFFFFF)
NUMBERS = (0, 1, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7F800002, 0x7FFFFFFF, 0x80000000, 0xFF800000,
           0xFF800001, 0xFFFFFFFF)  # fmt: skip
INTEGERS: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
FLOATS = {"lt": False, "le": False, "eq": False, "num": False, "nan": True, "ltu": True, "geu": True, "neu": True}
"""Comparisons of floating-point numbers and their results for a NaN."""


def is_determined(body: str) -> bool:
    """Return whether two texts with this body, whose result is in %r3, are equal in a buffer of integers."""
    first, second = (hashes(LOAD + more + body + store("%r3", 32), dtype="u32") for more in ("", "mov.b32 %r9, 1; "))
    return first == second


def as_signed(number: int) -> int:
    """Return the signed number of 32 bits."""
    return number - (1 << 32) if number >> 31 else number


def selects(condition: str, *, inverted: bool) -> str:
    """Return a select of |x| + 3 where a condition on |x|, in %r4, holds, or where it does not, and of 7 elsewhere."""
    arms = "7, %r5" if inverted else "%r5, 7"
    return f"abs.f32 %r4, %r1; {condition} add.s32 %r5, %r4, 3; selp.b32 %r3, {arms}, %p1;"


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("kind", ["u32", "s32", "swapped u32"])
@pytest.mark.parametrize("comparison", sorted(INTEGERS))
def test_comparisons_of_bits(comparison: str, kind: str, *, inverted: bool) -> None:
    found = {}
    for number in NUMBERS:
        order = f"{number:#x}, %r4" if kind.startswith("swapped") else f"%r4, {number:#x}"
        condition = f"mov.b32 %r6, {number:#x}; setp.{comparison}.{kind.split()[-1]} %p1, {order};"
        found[number] = is_determined(selects(condition, inverted=inverted))
    for number, determined in found.items():
        known = (as_signed(number), *map(as_signed, NANS)) if kind == "s32" else (number, *NANS)
        holds = [
            INTEGERS[comparison](*((known[0], nan) if kind.startswith("swapped") else (nan, known[0])))
            for nan in known[1:]
        ]
        one_result = set(holds) == {inverted}
        assert one_result or not determined, hex(number)
        greatest = 0x7FFFFFFF if kind == "s32" else 0xFFFFFFFF
        if number not in (greatest, 0x80000000):  # no number is greater, or less: such a comparison has one result
            assert determined == one_result, hex(number)


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("operand", ["0f3f800000", "0f7f800000", "0f7f7fffff"])
@pytest.mark.parametrize("comparison", sorted(FLOATS))
def test_comparisons_of_numbers(comparison: str, operand: str, *, inverted: bool) -> None:
    if comparison in ("num", "nan"):
        operand = "%r4"
    condition = f"setp.{comparison}.f32 %p1, %r4, {operand};"
    assert is_determined(selects(condition, inverted=inverted)) == (FLOATS[comparison] == inverted)


@pytest.mark.parametrize(
    ("body", "determined"),
    [
        # The exponent, the conversion and a sum of two values depend on one NaN.
        ("and.b32 %r5, %r4, 0xff800000; sub.s32 %r5, %r4, %r5; cvt.rn.f32.s32 %r5, %r5;", True),
        ("shr.u32 %r5, %r4, 23; cvt.rn.f32.s32 %r5, %r5; fma.rn.f32 %r5, %r5, %r5, %r2;", True),
        # The value depends on another NaN.
        ("abs.f32 %r5, %r2; add.s32 %r5, %r5, 3;", False),
        ("abs.f32 %r5, %r2; add.s32 %r5, %r5, %r4;", False),
        ("abs.f32 %r5, %r2; xor.b32 %r5, %r5, %r4; cvt.rn.f32.s32 %r5, %r5;", False),
        # It depends on the same NaN after another operation that an assembler may drop.
        ("neg.f32 %r5, %r1; add.s32 %r5, %r5, 3;", False),
    ],
)
def test_the_value_depends_on_the_nan_that_is_tested(body: str, *, determined: bool) -> None:
    condition = "setp.lt.u32 %p1, %r4, 0x7f800000;"
    selected = f"abs.f32 %r4, %r1; {condition} {body} selp.b32 %r3, %r5, 7, %p1;"
    assert is_determined(selected) == determined
    assert not is_determined(f"abs.f32 %r4, %r1; {body} mov.b32 %r3, %r5;")


def test_both_values_are_selected_somewhere() -> None:
    tested = "abs.f32 %r4, %r1; setp.lt.u32 %p1, %r4, 0x7f800000; add.s32 %r5, %r4, 3;"
    assert not is_determined(f"{tested} add.s32 %r6, %r4, 9; selp.b32 %r3, %r5, %r6, %p1;")
    assert is_determined(f"{tested} add.s32 %r6, %r1, 9; selp.b32 %r3, %r5, %r6, %p1;")


def test_a_test_for_a_nan_of_moved_bits_is_determined() -> None:
    assert is_determined("abs.f32 %r4, %r1; setp.gt.u32 %p1, %r4, 0x7f800000; selp.b32 %r3, 5, 6, %p1;")
    assert not is_determined("abs.f32 %r4, %r1; setp.gt.u32 %p1, %r4, 0x7fc00000; selp.b32 %r3, 5, 6, %p1;")


@pytest.mark.parametrize("to", ["u16", "s16", "u32"])
def test_a_conversion_to_integers_of_moved_bits_that_are_selected_for_a_number(to: str) -> None:
    register = "%h1" if to.endswith("16") else "%r6"
    converted = f"cvt.rzi.{to}.f32 {register}, %r5;" + (" mov.b32 %r6, {%h1, %h1};" if to.endswith("16") else "")
    body = f"abs.f32 %r4, %r1; add.s32 %r5, %r4, 3; {converted}"
    assert not is_determined(f"{body} mov.b32 %r3, %r6;")
    assert is_determined(f"{body} setp.lt.u32 %p1, %r4, 0x7f800000; selp.b32 %r3, %r6, 7, %p1;")


def test_a_branch_around_the_special_values() -> None:
    body = """abs.f32 %r4, %r1; shr.u32 %r5, %r4, 23; cvt.rn.f32.s32 %r3, %r5; setp.lt.u32 %p1, %r4, 0x7f800000;
@%p1 bra DONE;
fma.rn.f32 %r3, %r4, 0f7f800000, 0f7f800000;
DONE:
"""
    assert is_determined(body)
    assert not is_determined(body.replace("setp.lt", "setp.gt"))


@pytest.mark.parametrize(
    ("constants", "determined"),
    [
        (("0f40000000", "0f40C00000"), True),
        (("0f00000000", "0f7F800000"), True),
        (("0f3F800000", "0f7F800001"), False),
        (("0f7FC00001", "0f3F800000"), False),
        (("%r2", "0f3F800000"), False),
    ],
)
def test_the_sign_of_what_is_no_nan_is_flipped_exactly(constants: tuple[str, str], *, determined: bool) -> None:
    chosen = f"setp.gt.f32 %p1, %r1, 0f3F800000; selp.f32 %r5, {constants[0]}, {constants[1]}, %p1;"
    signed = "neg.f32 %r6, %r5; setp.gt.f32 %p1, %r1, 0f00000000;"
    assert is_determined(f"{chosen} {signed} selp.f32 %r3, %r5, %r6, %p1;") == determined
    assert is_determined(f"{chosen} {signed} mov.b32 %r3, %r6;") == determined


@pytest.mark.parametrize("order", ["%r4, %r2", "%r2, %r4"])
def test_a_number_that_is_selected_beside_one_with_open_nans(order: str) -> None:
    """Comparisons do not tell NaNs apart; integer operations do."""
    chosen = f"max.f32 %r4, %r1, %r1; setp.gt.f32 %p1, %r1, %r2; selp.f32 %r5, {order}, %p1;"
    assert is_determined(f"{chosen} setp.gt.f32 %p1, %r5, %r2; selp.b32 %r3, 1, 2, %p1;")
    assert is_determined(f"{chosen} setp.nan.f32 %p1, %r5, %r5; selp.b32 %r3, 1, 2, %p1;")
    assert not is_determined(f"{chosen} mov.b32 %r3, %r5;")
    assert not is_determined(f"{chosen} add.s32 %r3, %r5, 1;")
