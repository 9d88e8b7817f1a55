"""The sentence of `bitwise diff` on why two trees differ: sums compared as records, and kernels end to end."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bitwise_core.checker.trees.sum_orders import Summation, Term, WrittenOrder, compared_sums, different_terms
from bitwise_core.cli import app

Nested: TypeAlias = "int | tuple[Nested, ...]"
NAMES = ("left", "right")


def sum_of(nested: Nested, operation: str = "add.rn.fp32", conversions: tuple[str, ...] = ()) -> Summation:
    """Return the sum of nested terms; term n is X[n], and a tuple of more than two is added in one step."""
    terms: list[Term] = []
    additions: list[tuple[int, ...]] = []

    def add(part: Nested) -> int:
        if isinstance(part, int):
            terms.append(Term(part, f"X[{part}]", (part,)))
            return len(terms) - 1
        children = tuple(add(each) for each in part)
        additions.append(children)
        return ~(len(additions) - 1)

    add(nested)
    return Summation(tuple(terms), tuple(additions), (operation,) * len(additions), conversions)


def test_short_orders_are_written() -> None:
    left, right = sum_of(((0, 1), (2, 3))), sum_of((((0, 1), 2), 3))
    assert compared_sums(left, right, NAMES) == (
        "left sums the terms as (0+1)+(2+3), right as 0+1+2+3, where 0 is X[0] and 3 is X[3]".replace("the", "the 4", 1)
    )


def test_one_order_is_no_difference() -> None:
    assert compared_sums(sum_of((0, (1, 2))), sum_of(((2, 1), 0)), NAMES) is None


def test_additions_of_other_types_and_roundings() -> None:
    left, right = sum_of((0, 1)), sum_of((0, 1), "add.rz.fp16")
    assert compared_sums(left, right, NAMES) == "left adds in fp32, right adds in fp16 with rounding toward zero"


def test_rounded_partial_sums() -> None:
    left, right = sum_of((0, (1, 2))), sum_of((0, (1, 2)), conversions=("convert.rn.fp16.fp32",))
    found = compared_sums(left, right, NAMES)
    assert found == "left rounds no partial sum to another type, right rounds 1 partial sum to fp16"


def test_steps_of_another_length() -> None:
    left = sum_of(((0, 1, 2, 3), 4, 5, 6, 7), "fused k4 fp32 fp16 fp16 fp32 a_1")
    right = sum_of((0, 1, 2, 3, 4, 5, 6, 7), "fused k8 fp32 fp16 fp16 fp32 a_1")
    found = compared_sums(left, right, NAMES)
    assert found is not None
    assert "left uses fused (4 products in a step; fp32 fp16 fp16 fp32 a_1), right uses fused (8 products" in found
    assert "as [0..3]+[4..7], right as [0..7]" in found


def test_terms_that_one_sum_lacks() -> None:
    assert compared_sums(sum_of((0, 1)), sum_of((0, 2)), NAMES) is None
    assert different_terms(sum_of((0, (1, 2))), sum_of((3, (1, 2))), NAMES) == "left adds X[0] where right adds X[3]"
    assert different_terms(sum_of((0, 1)), sum_of((2, 1)), NAMES) == (
        "the sum of left starts from X[0], that of right from X[2]"
    )
    assert different_terms(sum_of((0, (1, 2))), sum_of((1, 2)), NAMES) == (
        "2 terms are in both sums; left also adds X[0]"
    )


@st.composite
def orders(draw: st.DrawFn, most: int = 9) -> list[Nested]:
    """Draw two ways to add up the same terms."""
    count = draw(st.integers(2, most))
    found: list[Nested] = []
    for _ in range(2):
        parts: list[Nested] = list(draw(st.permutations(range(count))))
        while len(parts) > 1:
            width = draw(st.sampled_from([2, 2, 3]))
            parts = (
                [*parts[width:], tuple(parts[:width])]
                if draw(st.booleans())
                else [tuple(parts[:width]), *parts[width:]]
            )
        found.append(parts[0])
    return found


def clusters(nested: Nested) -> frozenset[frozenset[int]]:
    """Return the terms of each partial sum."""
    found = set()

    def below(part: Nested) -> frozenset[int]:
        if isinstance(part, int):
            return frozenset([part])
        own = frozenset().union(*map(below, part))
        found.add(own)
        return own

    below(nested)
    return frozenset(found)


def read(text: str) -> Nested:
    """Read a written order: parentheses first, from left to right, brackets in one step with what is left of them."""
    tokens = re.findall(r"\d+\.\.\d+|\d+|[()\[\]+,]", text)
    place = 0

    def operand() -> Nested | list[Nested]:
        nonlocal place
        token = tokens[place]
        place += 1
        if token == "(":
            inner = summed()
            place += 1
            return inner
        if token == "[":
            items: list[Nested] = []
            while tokens[place] != "]":
                if tokens[place] == ",":
                    place += 1
                    continue
                if ".." in tokens[place]:
                    first, last = map(int, tokens[place].split(".."))
                    items += range(first, last + 1)
                    place += 1
                else:
                    one = operand()
                    assert not isinstance(one, list)
                    items.append(one)
            place += 1
            return items
        return int(token)

    def summed() -> Nested:
        nonlocal place
        first = operand()
        total: Nested = tuple(first) if isinstance(first, list) else first
        while place < len(tokens) and tokens[place] == "+":
            place += 1
            following = operand()
            total = (total, *following) if isinstance(following, list) else (total, following)
        return total

    return summed()


@given(orders())
def test_a_written_order_is_the_order(both: list[Nested]) -> None:
    from bitwise_core.probing.summation_tree import from_nested

    for nested in both:
        order = WrittenOrder(from_nested(nested).nodes)
        text = order.text(order.root)
        if "..." not in text:
            assert clusters(read(text)) == clusters(nested)


@given(orders(40))
def test_different_orders_have_a_sentence_and_equal_ones_have_none(both: list[Nested]) -> None:
    found = compared_sums(sum_of(both[0]), sum_of(both[1]), NAMES)
    assert (found is None) == (clusters(both[0]) == clusters(both[1]))
    assert compared_sums(sum_of(both[0]), sum_of(both[0]), NAMES) is None


KERNEL = """.version 8.3
.target sm_90
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y)
.reqntid 1
{
.reg .f32 %f<40>;
.reg .b16 %h<9>;
.reg .b64 %rd<9>;
ld.param.u64 %rd1, [x];
ld.param.u64 %rd2, [y];
ld.global.f32 %f1, [%rd1];
ld.global.f32 %f2, [%rd1+4];
ld.global.f32 %f3, [%rd1+8];
ld.global.f32 %f4, [%rd1+12];
BODY
st.global.f32 [%rd2], %f9;
ret;
}
"""
DOT = "mul.rn.f32 %f5, %f1, %f2; fma.rn.f32 %f9, %f3, %f4, %f5;"
CASES = {
    "order": (
        "add.f32 %f5, %f1, %f2; add.f32 %f6, %f3, %f4; add.f32 %f9, %f5, %f6;",
        "add.f32 %f5, %f1, %f2; add.f32 %f6, %f5, %f3; add.f32 %f9, %f6, %f4;",
        "a.ptx sums the 4 terms as (0+1)+(2+3), b.ptx as 0+1+2+3, where 0 is X[0] and 3 is X[3]",
    ),
    "not fused": (
        DOT,
        "mul.rn.f32 %f5, %f1, %f2; mul.rn.f32 %f6, %f3, %f4; add.rn.f32 %f9, %f6, %f5;",
        "a.ptx rounds 1 product before adding and fuses 1 product with addition (fma), b.ptx rounds each product "
        "before it is added",
    ),
    "the other one fused": (
        DOT,
        "mul.rn.f32 %f5, %f3, %f4; fma.rn.f32 %f9, %f1, %f2, %f5;",
        "a.ptx fuses X[2] * X[3] with its addition, b.ptx fuses X[0] * X[1]",
    ),
    "rounding": (
        "add.rn.f32 %f9, %f1, %f2;",
        "add.rz.f32 %f9, %f1, %f2;",
        "a.ptx adds in fp32, b.ptx adds in fp32 with rounding toward zero",
    ),
    "type of partial sums": (
        "add.f32 %f5, %f1, %f2; add.f32 %f9, %f5, %f3;",
        "add.f32 %f5, %f1, %f2; cvt.rn.f16.f32 %h1, %f5; cvt.f32.f16 %f6, %h1; add.f32 %f9, %f6, %f3;",
        "a.ptx rounds no partial sum to another type, b.ptx rounds 1 partial sum to fp16",
    ),
    "starting value": (
        "add.f32 %f5, %f1, 0f3F800000; add.f32 %f9, %f5, %f2;",
        "add.f32 %f5, %f1, 0f40000000; add.f32 %f9, %f5, %f2;",
        "the sum of a.ptx starts from 1.0, that of b.ptx from 2.0",
    ),
    "constant": (
        "mul.f32 %f9, %f1, 0f3F800001;",
        "mul.f32 %f9, %f1, 0f40400000;",
        "both compute mul.rn.fp32; a.ptx takes the constant 1.0000001192092896 where b.ptx takes the constant 3.0",
    ),
    "another operation": (
        "max.f32 %f9, %f1, %f2;",
        "min.f32 %f9, %f1, %f2;",
        "a.ptx computes max.fp32, b.ptx computes min.fp32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_sentence_on_two_kernels(case: str, tmp_path: Path) -> None:
    pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")
    left, right, expected = CASES[case]
    for name, body in (("a", left), ("b", right)):
        (tmp_path / f"{name}.ptx").write_text(KERNEL.replace("BODY", body.replace("; ", ";\n")))
    args = [{"buffer": "X", "dtype": "fp32"}, {"buffer": "Y", "dtype": "fp32"}]
    kernels = [{"file": f"{name}.ptx", "entry": "k", "grid": [1], "block": [1], "args": args} for name in "ab"]
    (tmp_path / "manifest.json").write_text(json.dumps({"kernels": kernels}))
    files = [str(tmp_path / f"{name}.ptx") for name in "ab"]
    done = CliRunner().invoke(app, ["diff", *files, "--json", "--no-search", "--no-contraction-audit", "--no-cache"])
    assert json.loads(done.stdout)["divergence"]["meaning"] == expected


def test_an_element_of_a_packed_store_is_named_by_its_own_index(tmp_path: Path) -> None:
    pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")
    packed = "cvt.rn.f16.f32 %h1, %f1;\ncvt.rn.f16.f32 %h2, {high};\nmov.b32 %f9, {{%h1, %h2}};"
    for name, high in (("a", "%f2"), ("b", "%f3")):
        (tmp_path / f"{name}.ptx").write_text(KERNEL.replace("BODY", packed.format(high=high)))
    args = [{"buffer": "X", "dtype": "fp32"}, {"buffer": "Y", "dtype": "fp16"}]
    kernels = [{"file": f"{name}.ptx", "entry": "k", "grid": [1], "block": [1], "args": args} for name in "ab"]
    (tmp_path / "manifest.json").write_text(json.dumps({"kernels": kernels}))
    files = [str(tmp_path / f"{name}.ptx") for name in "ab"]
    done = CliRunner().invoke(app, ["diff", *files, "--json", "--no-search", "--no-cache"])
    found = json.loads(done.stdout)["divergence"]
    assert (found["element"], found["offset"], found["size"]) == ("Y[1]", 2, 2)
    assert found["right"]["node"] == "convert.rn.fp16.fp32(X[2])"
    done = CliRunner().invoke(app, ["tree", files[1], "--element", "Y[1]"])
    assert done.stdout == "convert.rn.fp16.fp32\n  X[2]\n"
