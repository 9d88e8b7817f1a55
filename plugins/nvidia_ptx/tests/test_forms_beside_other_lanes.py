# ruff: noqa: E501 - a line of PTX or of a table is read as one
"""The form of a bf16 that is computed in fp32 does not depend on what other lanes hold, such as padding."""

from __future__ import annotations

import pytest

from ptx_programs import hashes

LOAD = "setp.lt.u32 %p1, %r0, {}; mul.wide.u32 %d2, %r0, 4; add.s64 %d3, %d1, %d2; mov.b32 %r1, 0; @%p1 ld.global.b32 %r1, [%d3];"
WIDEN = "mov.b32 {%h1, %h2}, %r1; cvt.f32.bf16 %f1, %h1; cvt.f32.bf16 %f2, %h2;"
STORE = "mul.wide.u32 %d2, %r0, 2; add.s64 %d3, %d0, %d2; st.global.b16 [%d3], %h5;"
COMPARE = "selp.b16 %h5, 1, 0, %p2;"

SAME = {
    "a product with one, rounded": ("mul.f32 %f3, %f1, 0f3F800000; cvt.rn.bf16.f32 %h5, %f3;", "mov.b16 %h5, %h1;"),
    "a magnitude": ("abs.f32 %f3, %f1; cvt.rn.bf16.f32 %h5, %f3;", "abs.bf16 %h5, %h1;"),
    "a comparison": ("mul.f32 %f3, %f1, 0f3F800000; setp.lt.f32 %p2, %f3, %f2;" + COMPARE, "setp.lt.bf16 %p2, %h1, %h2;" + COMPARE),
}  # fmt: skip
OTHER = {
    "a product with two, rounded": ("mul.f32 %f3, %f1, 0f40000000; cvt.rn.bf16.f32 %h5, %f3;", "mov.b16 %h5, %h1;"),
    "another half": ("mul.f32 %f3, %f2, 0f3F800000; cvt.rn.bf16.f32 %h5, %f3;", "mov.b16 %h5, %h1;"),
    "a comparison that equal numbers fulfil": ("mul.f32 %f3, %f1, 0f3F800000; setp.le.f32 %p2, %f3, %f2;" + COMPARE, "setp.lt.bf16 %p2, %h1, %h2;" + COMPARE),
}  # fmt: skip


def forms(body: str, loading: int) -> dict[int, tuple[int, int, int]]:
    """Return the forms of what the lanes below `loading` store; the others compute from zeros."""
    found = hashes(LOAD.format(loading) + WIDEN + body + STORE, dtype="bf16" if "setp" not in body else "u16")
    return {place: form for place, form in found.items() if place < 2 * loading}


@pytest.mark.parametrize("case", SAME)
def test_a_form_is_the_same_beside_padding(case: str) -> None:
    computed, plain = SAME[case]
    beside, alone = forms(computed, 16), forms(computed, 32)
    assert beside == forms(plain, 16)
    assert all(alone[place] == form for place, form in beside.items())


@pytest.mark.parametrize("case", OTHER)
def test_other_forms_stay_apart(case: str) -> None:
    computed, plain = OTHER[case]
    left, right = forms(computed, 16), forms(plain, 16)
    assert all(left[place] != right[place] for place in left)
