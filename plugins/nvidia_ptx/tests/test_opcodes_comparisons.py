"""Comparisons that state one condition in several ways have one form; near misses have another."""

from __future__ import annotations

import itertools

import pytest

from ptx_programs import hashes, store

LOADS = (
    "ld.global.b32 %f1, [%d1]; ld.global.b32 %f2, [%d1+4]; ld.global.b32 %r8, [%d1+8]; ld.global.b32 %r9, [%d1+12];"
    "ld.global.b32 %r1, [%d1+16]; ld.global.b32 %r2, [%d1+20]; abs.f32 %f3, %f1;"
)
INFINITY = "0f7F800000"


def either(one: str, other: str, verb: str = "or") -> str:
    """Return two comparisons that are joined."""
    return f"setp.{one.replace('P', '%p2')}; setp.{other.replace('P', '%p3')}; {verb}.pred %p1, %p2, %p3;"


def opposite(one: str) -> str:
    """Return the negation of a comparison."""
    return f"{one} not.pred %p1, %p1;"


SAME = {
    "a NaN": (
        "setp.nan.f32 %p1, %f1, %f1;", "setp.neu.f32 %p1, %f1, %f1;", opposite("setp.eq.f32 %p1, %f1, %f1;"),
        "setp.nan.f32 %p1, %f3, %f3;", f"setp.gtu.f32 %p1, %f1, {INFINITY};", "setp.nan.f32 %p1, %f1, 0f00000000;",
    ),
    "one of two is a NaN": (
        "setp.nan.f32 %p1, %f1, %f2;", "setp.nan.f32 %p1, %f2, %f1;", opposite("setp.num.f32 %p1, %f1, %f2;"),
        either("nan.f32 P, %f1, %f1", "nan.f32 P, %f2, %f2"), either("neu.f32 P, %f2, %f2", "neu.f32 P, %f1, %f1"),
    ),
    "an infinity or a NaN": (
        f"setp.equ.f32 %p1, %f3, {INFINITY};", f"setp.geu.f32 %p1, %f3, {INFINITY};",
        opposite(f"setp.lt.f32 %p1, %f3, {INFINITY};"),
        either(f"eq.f32 P, %f3, {INFINITY}", "nan.f32 P, %f1, %f1"),
        either(f"eq.f32 P, %f1, {INFINITY}", "eq.f32 P, %f1, 0fFF800000")
        + "setp.nan.f32 %p2, %f1, %f1; or.pred %p1, %p1, %p2;",
    ),
    "an infinity": (
        f"setp.eq.f32 %p1, %f3, {INFINITY};", either(f"eq.f32 P, %f1, {INFINITY}", "eq.f32 P, %f1, 0fFF800000"),
    ),
    "at most": (
        "setp.le.f32 %p1, %f1, %f2;", "setp.ge.f32 %p1, %f2, %f1;", opposite("setp.gtu.f32 %p1, %f1, %f2;"),
        either("lt.f32 P, %f1, %f2", "eq.f32 P, %f2, %f1"),
    ),
    "unequal numbers": ("setp.ne.f32 %p1, %f1, %f2;", either("neu.f32 P, %f1, %f2", "num.f32 P, %f2, %f1", "and")),
    "less, of integers": ("setp.lt.u32 %p1, %r1, %r2;", "setp.u32.lt %p1, %r1, %r2;", "setp.gt.u32 %p1, %r2, %r1;"),
    "less, of signed integers": ("setp.lt.s32 %p1, %r1, %r2;", "setp.s32.lt %p1, %r1, %r2;"),
    "less, of flushed numbers": ("setp.lt.ftz.f32 %p1, %f1, %f2;", "setp.f32.lt.ftz %p1, %f1, %f2;"),
    "unequal": ("setp.neu.f32 %p1, %f1, %f2;", opposite("setp.eq.f32 %p1, %f1, %f2;")),
    "at most or unordered": ("setp.leu.f32 %p1, %f1, %f2;", opposite("setp.gt.f32 %p1, %f1, %f2;")),
    "a bit of either word": (
        "or.b32 %r3, %r1, %r2; setp.ne.b32 %p1, %r3, 0;", either("ne.b32 P, %r1, 0", "ne.b32 P, %r2, 0"),
    ),
    "a bit of both words": ("and.b32 %r3, %r1, %r2; setp.ne.b32 %p1, %r3, 0;",),
    "a bit of each word": (either("ne.b32 P, %r1, 0", "ne.b32 P, %r2, 0", "and"),),
    "other bits of either word": ("or.b32 %r3, %r1, %r2; setp.ne.b32 %p1, %r3, 1;",),
}  # fmt: skip


def form(condition: str) -> str:
    return str(hashes(LOADS + condition + "selp.b32 %r3, %r8, %r9, %p1;" + store("%r3", 32)))


@pytest.mark.parametrize("conditions", SAME.values(), ids=SAME)
def test_one_condition_has_one_form(conditions: tuple[str, ...]) -> None:
    assert len({form(each) for each in conditions}) == 1


def test_different_conditions_have_different_forms() -> None:
    forms = {name: form(conditions[0]) for name, conditions in SAME.items()}
    for one, other in itertools.combinations(forms, 2):
        assert forms[one] != forms[other], (one, other)
