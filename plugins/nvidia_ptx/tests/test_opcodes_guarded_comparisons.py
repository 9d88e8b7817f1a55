# ruff: noqa: E501 - PTX is easier to check without line breaks
"""NaN-guarded values: the order of guards, and comparisons, which are decided only where the result has the same guard."""

from __future__ import annotations

import pytest

from ptx_programs import hashes

LOADS = "ld.global.f32 %f1, [%d1]; ld.global.f32 %f2, [%d1+4]; ld.global.f32 %f3, [%d1+8];"
ROW = "max.f32 %f20, %f1, %f2; max.f32 %f21, %f20, 0fFF800000; max.f32 %f22, %f3, 0fFF800000;"
"""The maximum of a row of two, that of the row and padding, and another one that has been padded."""


def form(body: str) -> object:
    """Return the canonical form of %f40 after the body."""
    return hashes(LOADS + body + "st.global.f32 [%d0], %f40;", threads=1)


def exponential(to: int, value: str) -> str:
    """Return the code of a term of a softmax."""
    return f"sub.f32 %f30, {value}, %f21; mul.f32 %f30, %f30, 0f3FB8AA3B; ex2.approx.f32 %f{to}, %f30;"


PADDED = ROW + exponential(31, "%f1") + exponential(32, "%f2") + exponential(33, "0fFF800000")
PADDED_LAST = PADDED + "add.f32 %f34, %f31, %f32; add.f32 %f40, %f34, %f33;"


def scaled(to: int, value: str, peak: int, choice: str) -> str:
    """Return the code of a softmax term that is scaled where a comparison says that it would underflow."""
    return f"sub.f32 %f30, {value}, %f{peak}; mul.f32 %f30, %f30, 0f3FB8AA3B; {choice} add.f32 %f36, %f30, %f35; ex2.approx.f32 %f{to}, %f36;"


BELOW = "setp.lt.f32 %p2, %f30, 0fC2FC0000; selp.f32 %f35, 0f42800000, 0f00000000, %p2;"
NOT_ABOVE = "setp.geu.f32 %p2, %f30, 0fC2FC0000; selp.f32 %f35, 0f00000000, 0f42800000, %p2;"
GUARDED_CHOICE = (
    ROW + "sub.f32 %f30, 0fFF800000, %f21; setp.lt.f32 %p2, %f30, 0f00000000; selp.f32 %f35, %f1, %f2, %p2;"
)

TWO_GUARDS = ROW + "".join(
    f"sub.f32 %f30, 0fFF800000, %f{peak}; ex2.approx.f32 %f{to}, %f30;" for to, peak in ((31, 21), (32, 22))
)
"""%f31 and %f32: zeros that are NaN where one or the other maximum is."""

EQUAL = {
    "guards in two orders": (
        TWO_GUARDS + "add.f32 %f33, %f1, %f31; add.f32 %f40, %f33, %f32;",
        TWO_GUARDS + "add.f32 %f33, %f1, %f32; add.f32 %f40, %f33, %f31;",
    ),
    "guarded sums in two orders": tuple(
        TWO_GUARDS + "fma.rn.f32 %f33, %f31, %f2, %f1; fma.rn.f32 %f34, %f32, %f2, %f3;"
        f"add.f32 %f35, {first}; add.f32 %f36, {second}; add.f32 %f40, %f35, %f36;"
        for first, second in (("%f33, %f34", "%f34, %f32"), ("%f32, %f34", "%f34, %f33"))
    ),
    "padding whose scale depends on a comparison": (
        PADDED + scaled(33, "0fFF800000", 21, BELOW) + "add.f32 %f34, %f33, %f31; add.f32 %f40, %f34, %f32;", PADDED_LAST,
    ),
    "padding whose scale depends on the opposite comparison": (
        PADDED + scaled(33, "0fFF800000", 21, NOT_ABOVE) + "add.f32 %f34, %f33, %f31; add.f32 %f40, %f34, %f32;", PADDED_LAST,
    ),
    "a guarded comparison next to its own guard": (
        GUARDED_CHOICE + "fma.rn.f32 %f40, %f30, %f3, %f35;", GUARDED_CHOICE + "fma.rn.f32 %f40, %f30, %f3, %f1;"
    ),
}  # fmt: skip

DIFFERENT = {
    "two guards and one": (
        TWO_GUARDS + "add.f32 %f33, %f1, %f31; add.f32 %f40, %f33, %f32;",
        TWO_GUARDS + "add.f32 %f33, %f1, %f31; add.f32 %f40, %f33, %f31;",
    ),
    "a guarded comparison without a guarded result": (GUARDED_CHOICE + "mov.f32 %f40, %f35;", GUARDED_CHOICE + "mov.f32 %f40, %f1;"),
    "a guarded comparison next to an unguarded value": (
        GUARDED_CHOICE + "add.f32 %f40, %f35, %f3;", GUARDED_CHOICE + "add.f32 %f40, %f1, %f3;"
    ),
    "a guarded comparison next to another guard": (
        GUARDED_CHOICE + "sub.f32 %f37, 0fFF800000, %f22; add.f32 %f40, %f35, %f37;",
        GUARDED_CHOICE + "sub.f32 %f37, 0fFF800000, %f22; add.f32 %f40, %f1, %f37;",
    ),
    "a guarded comparison and its opposite": (
        GUARDED_CHOICE + "fma.rn.f32 %f40, %f30, %f3, %f35;", GUARDED_CHOICE + "fma.rn.f32 %f40, %f30, %f3, %f2;"
    ),
    "a guarded comparison in a maximum": (
        GUARDED_CHOICE + "max.f32 %f40, %f30, %f35;", GUARDED_CHOICE + "max.f32 %f40, %f30, %f1;"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("left", "right"), EQUAL.values(), ids=EQUAL.keys())
def test_equal_canonical_forms(left: str, right: str) -> None:
    assert form(left) == form(right)


@pytest.mark.parametrize(("left", "right"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_different_canonical_forms(left: str, right: str) -> None:
    assert form(left) != form(right)
