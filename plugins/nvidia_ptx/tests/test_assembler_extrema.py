# ruff: noqa: E501 - a line of PTX or of a table is read as one
"""Selections that ptxas makes extrema: the bits of their NaNs are open, and their numbers stay what they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from bitwise_core.checker.comparison import compare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.simulation import simulate
from bitwise_nvidia_sm90.architecture import SM90
from ptx_programs import ARCH, hashes, store, text
from sass_listings import mnemonics

LOAD = (
    "mul.wide.u32 %d2, %r0, 16; add.s64 %d2, %d1, %d2; ld.global.v4.b32 {%r1, %r2, %r5, %r6}, [%d2];"
    "mov.b32 %f1, %r1; mov.b32 %f2, %r2; "
)
ONE, ZERO, SIX = "0f3F800000", "0f00000000", "0f40C00000"
HIDE = "mov.b32 %r20, {0}; shfl.sync.bfly.b32 %r20, %r20, 0, 31, -1; mov.b32 {0}, %r20; "
"""What hides a register from the assembler."""


def form(body: str, dtype: str) -> object:
    return hashes(LOAD + body + store("%r9", 32), dtype=dtype)


def is_open(body: str, dtype: str = "u32") -> bool:
    """Return whether a body, which leaves a number in %r9, is equal only to its own text."""
    return form(body, dtype) != form(f"mov.u32 %r30, 7; {body}", dtype)


def selection(verb: str, literal: str, *, swapped: bool, chosen: bool, guard: str) -> str:
    """Return a selection between %f1 and a literal by their comparison, in %r9.

    `swapped`: the literal is compared with %f1.  `chosen`: %f1 is the result where the comparison is false.
    """
    compared = f"{literal}, %f1" if swapped else f"%f1, {literal}"
    first, second = (literal, "%f1") if chosen else ("%f1", literal)
    end = {
        "selp": f"selp.f32 %f9, {first}, {second}, %p1; mov.b32 %r9, %f9;",
        "if": f"mov.f32 %f9, {second}; @%p1 mov.f32 %f9, {first}; mov.b32 %r9, %f9;",
        "unless": f"mov.f32 %f9, {first}; @!%p1 mov.f32 %f9, {second}; mov.b32 %r9, %f9;",
    }[guard]
    return f"setp.{verb}.f32 %p1, {compared}; {end}"


def selections() -> Iterator[str]:
    """Yield selections by comparisons with some literals, with and without flushed subnormals."""
    verbs = ("lt", "ge", "leu", "gtu", "eq")
    literals = (ONE, ZERO, "0f80000000", "0f7FC00000", "0f00000001")
    for verb, end, literal, swapped, chosen in product(verbs, ("", ".ftz"), literals, (False, True), (False, True)):
        yield selection(verb + end, literal, swapped=swapped, chosen=chosen, guard="selp")


def test_whatever_the_installed_assembler_makes_an_extremum_is_open(tmp_path: Path) -> None:
    """FMNMX.NAN returns the canonical NaN, and none of both flushes what a comparison flushes."""
    bodies = list(selections())
    kernels = [text(LOAD + body + store("%r9", 32)) for body in bodies]
    canonical = flushed = 0
    for body, code in zip(bodies, mnemonics(kernels, tmp_path), strict=True):
        found = [each for each in code if each.startswith("FMNMX")]
        if found and ".ftz" in body and (ZERO in body or "0f00000001" in body):
            flushed += 1
            assert is_open(body, "fp32")
        elif any(".NAN" in each for each in found):
            canonical += 1
            assert is_open(body)
    assert canonical > 15
    assert flushed > 15


def hidden_after_comparison(body: str) -> str:
    """Return a body in which the assembler does not see that the number selected is the one that was compared."""
    comparison, rest = re.match(r"(setp[^;]*;)(.*)", body).groups()  # type: ignore[union-attr]
    return f"{comparison} {HIDE.format('%f1')} {rest}"


@pytest.mark.parametrize("guard", ["selp", "if", "unless"])
@pytest.mark.parametrize(("verb", "chosen"), [("geu", False), ("lt", True), ("gtu", False), ("le", True)])
@pytest.mark.parametrize("literal", [ONE, SIX, "0f7F800000", "0fFF800000"])
def test_only_the_bits_of_a_nan_are_open(verb: str, chosen: bool, literal: str, guard: str) -> None:
    body = selection(verb, literal, swapped=False, chosen=chosen, guard=guard)
    assert is_open(body)
    assert not is_open(body, "fp32")
    assert form(body, "fp32") == form(hidden_after_comparison(body), "fp32")
    assert form(body, "u32") != form(hidden_after_comparison(body), "u32")


@pytest.mark.parametrize("guard", ["selp", "if", "unless"])
@pytest.mark.parametrize(("verb", "chosen"), [("gt", False), ("ltu", True)])
@pytest.mark.parametrize("literal", [ZERO, ONE])
def test_a_number_that_is_selected_only_where_it_is_no_nan_is_known(
    verb: str, chosen: bool, literal: str, guard: str
) -> None:
    """The extremum returns the literal for a NaN, as the selection does."""
    body = selection(verb, literal, swapped=False, chosen=chosen, guard=guard)
    assert not is_open(body)
    assert form(body, "u32") == form(hidden_after_comparison(body), "u32")


WRITTEN = {
    "bits": f"setp.geu.f32 %p1, %f1, {ONE}; mov.b32 %r9, 0x3f800000; selp.b32 %r9, %r1, %r9, %p1;",
    "bits under a guard": f"setp.geu.f32 %p1, %f1, {ONE}; mov.b32 %r9, 0x3f800000; @%p1 mov.b32 %r9, %r1;",
    "a negated predicate": f"setp.lt.f32 %p2, %f1, {ONE}; not.pred %p1, %p2; selp.f32 %f9, %f1, {ONE}, %p1; mov.b32 %r9, %f9;",
    "a predicate and a literal": f"setp.lt.f32 %p2, %f1, {ONE}; setp.eq.u32 %p3, 0, 0; xor.pred %p1, %p2, %p3; selp.f32 %f9, %f1, {ONE}, %p1; mov.b32 %r9, %f9;",
    "a comparison that returns a number": f"set.geu.u32.f32 %r8, %f1, {ONE}; setp.ne.u32 %p1, %r8, 0; selp.f32 %f9, %f1, {ONE}, %p1; mov.b32 %r9, %f9;",
    "a literal that is computed": "mov.f32 %f3, 0f3F000000; add.f32 %f3, %f3, %f3; setp.geu.f32 %p1, %f1, %f3; selp.f32 %f9, %f1, %f3, %p1; mov.b32 %r9, %f9;",
    "a literal of an approximation": "ex2.approx.f32 %f3, 0f3F000000; setp.geu.f32 %p1, %f1, %f3; selp.f32 %f9, %f1, %f3, %p1; mov.b32 %r9, %f9;",
    "a magnitude": f"abs.f32 %f3, %f1; setp.geu.f32 %p1, %f3, {ONE}; selp.f32 %f9, %f3, {ONE}, %p1; mov.b32 %r9, %f9;",
    "an integer that undoes another": f"setp.geu.f32 %p1, %f1, {ONE}; add.s32 %r8, %r1, %r2; sub.s32 %r8, %r8, %r2; mov.b32 %f3, %r8; selp.f32 %f9, %f3, {ONE}, %p1; mov.b32 %r9, %f9;",
    "a product that another one takes back": f"setp.geu.f32 %p1, %f1, {ONE}; mul.lo.s32 %r8, %r1, 3; mul.lo.s32 %r8, %r8, 0xaaaaaaab; mov.b32 %f3, %r8; selp.f32 %f9, %f3, {ONE}, %p1; mov.b32 %r9, %f9;",
    "a product with 1": f"mul.f32 %f3, %f1, {ONE}; setp.geu.f32 %p1, %f1, {ONE}; selp.f32 %f9, %f3, {ONE}, %p1; mov.b32 %r9, %f9;",
    "a quotient by 1": f"div.full.f32 %f3, %f1, {ONE}; setp.geu.f32 %p1, %f1, {ONE}; selp.f32 %f9, %f3, {ONE}, %p1; mov.b32 %r9, %f9;",
    "a maximum with itself": f"max.f32 %f3, %f1, %f1; setp.geu.f32 %p1, %f1, {ONE}; selp.f32 %f9, %f3, {ONE}, %p1; mov.b32 %r9, %f9;",
}  # fmt: skip
"""Selections for which ptxas 12.8 emits FMNMX.NAN."""


@pytest.mark.parametrize("name", WRITTEN)
def test_the_ways_to_write_a_selection(name: str) -> None:
    assert is_open(WRITTEN[name])
    assert form(WRITTEN[name], "u32") == form(WRITTEN[name], "u32")


KNOWN = {
    "two registers": "setp.geu.f32 %p1, %f1, %f2; selp.f32 %f9, %f1, %f2, %p1; mov.b32 %r9, %f9;",
    "another literal": f"setp.geu.f32 %p1, %f1, {ONE}; selp.f32 %f9, %f1, {SIX}, %p1; mov.b32 %r9, %f9;",
    "another number": f"setp.geu.f32 %p1, %f1, {ONE}; selp.f32 %f9, %f2, {ONE}, %p1; mov.b32 %r9, %f9; xor.b32 %r9, %r9, %r6;",
    "an index": "setp.gtu.f32 %p1, %f1, 0f00000000; selp.b32 %r9, %r0, 0, %p1; add.u32 %r9, %r9, %r2;",
    "a comparison of integers": f"setp.ge.s32 %p1, %r1, {0x3F800000}; selp.f32 %f9, %f1, {ONE}, %p1; mov.b32 %r9, %f9;",
    "a test for NaNs": "setp.nan.f32 %p1, %f1, %f1; selp.f32 %f9, %f1, 0f00000000, %p1; mov.b32 %r9, %f9;",
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_selections_that_are_none_of_a_number_and_its_bound_are_known(name: str) -> None:
    """ptxas 12.8, 12.9 and 13.0 emit a comparison and a selection for each of them."""
    assert not is_open(KNOWN[name])


def test_a_selection_that_flushes_is_one_of_its_text() -> None:
    """FMNMX returns a positive subnormal number, which the comparison takes for 0."""
    for verb, chosen, guard in product(("gt", "leu"), (False, True), ("selp", "if", "unless")):
        assert is_open(selection(f"{verb}.ftz", ZERO, swapped=False, chosen=chosen, guard=guard), "fp32")
    assert not is_open(selection("gt.ftz", ONE, swapped=False, chosen=False, guard="selp"), "fp32")


def test_nans_that_the_launch_knows_are_open_too() -> None:
    """The assembler does not know the numbers of threads, nor that no thread executes the move."""
    numbers = "add.u32 %r8, %r0, 0x7f800001; mov.b32 %f1, %r8; "
    for guard in ("selp", "if", "unless"):
        for verb, chosen in (("geu", False), ("lt", True)):
            assert is_open(numbers + selection(verb, ONE, swapped=False, chosen=chosen, guard=guard))
    assert not is_open(numbers + selection("gt", ONE, swapped=False, chosen=False, guard="unless"))


def verdict(left: str, right: str, dtype: str, *, every_launch: bool = False) -> Outcome:
    """Return the outcome of the comparison of two bodies, which leave a number in %r9."""
    arguments = (Argument(kind="buffer", buffer="out", dtype=dtype), Argument(kind="buffer", buffer="in", dtype="fp32"))
    launch = Launch(file="k.ptx", entry="k", grid=(1, 1, 1), block=(32, 1, 1), args=arguments)
    pointers = ".param .u64 .ptr .global .align 16 "
    texts = (text(LOAD + each + store("%r9", 32)).replace(".param .u64 ", pointers) for each in (left, right))
    options = Options(every_launch=every_launch, audit_contraction=False)
    return compare(*(Source("k", each, launch) for each in texts), SM90, options).verdict.outcome


RECTIFIERS = [
    "max.f32 %f9, %f1, 0f00000000; mov.b32 %r9, %f9;",
    selection("gt", ZERO, swapped=False, chosen=False, guard="selp"),
    selection("lt", ZERO, swapped=True, chosen=False, guard="if"),
    selection("leu", ZERO, swapped=False, chosen=True, guard="selp"),
]


def test_rectifiers_keep_their_class() -> None:
    for other in RECTIFIERS[1:]:
        assert verdict(RECTIFIERS[0], other, "fp32") is Outcome.EQUAL


@pytest.mark.parametrize("every_launch", [False, True])
def test_rectifiers_that_keep_nans_are_equal_in_buffers_of_numbers_only(every_launch: bool) -> None:
    body = selection("gtu", ZERO, swapped=False, chosen=False, guard="selp")
    other = f"mov.u32 %r30, 7; {selection('le', ZERO, swapped=False, chosen=True, guard='if')}"
    same = f"mov.u32 %r30, 7; {body}"
    assert verdict(body, same, "fp32", every_launch=every_launch) is Outcome.EQUAL
    assert verdict(body, same, "u32", every_launch=every_launch) is not Outcome.EQUAL
    assert verdict(body, other, "u32", every_launch=every_launch) is not Outcome.EQUAL
    if not every_launch:
        assert verdict(body, other, "fp32") is Outcome.EQUAL
        assert verdict(body, body, "u32") is Outcome.EQUAL


def test_an_execution_on_bit_patterns_says_that_a_nan_may_be_the_canonical_one() -> None:
    body = selection("geu", ONE, swapped=False, chosen=False, guard="if")

    def notes(number: int) -> str:
        arguments = (Argument(kind="buffer", buffer="out"), Argument(kind="buffer", buffer="in"))
        launch = Launch(file="k.ptx", entry="k", grid=(1, 1, 1), block=(32, 1, 1), args=arguments)
        prepared = prepare_launch(ARCH.parse(text(LOAD + body + store("%r9", 32)), "k.ptx"), ARCH, launch)
        given = np.full(128, number, dtype=np.uint32).view(np.uint8)
        return " ".join(simulate(prepared, {"in": given, "out": np.zeros(128, dtype=np.uint8)}).notes)

    assert "a NaN may be the canonical one" in notes(0x7F800001)
    assert "canonical" not in notes(0x7FFFFFFF)
    assert "canonical" not in notes(0x40000000)
