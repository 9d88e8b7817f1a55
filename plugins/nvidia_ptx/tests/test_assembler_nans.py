"""Bits that depend on the assembler: NaNs that it may pass on, and registers whose type it takes from a writer.

The bytes of every pair below differ on an H100 (ptxas 12.8), or follow from a rule that also covers such a pair.
"""

from __future__ import annotations

import pytest

from bitwise_core.checker.comparison import compare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Argument, Launch
from bitwise_nvidia_sm90.architecture import SM90
from ptx_programs import hashes, run, store, text

LOAD = "mul.wide.u32 %d2, %r0, 8; add.s64 %d2, %d1, %d2; ld.global.b32 %r1, [%d2]; ld.global.b32 %r2, [%d2+4]; "
ALL = {None, "u32", "fp32", "bf16", "fp16"}
ONE, BF16_ONES = "0f3f800000", "0x3f803f80"


def equal(left: str, right: str, dtype: str | None) -> bool:
    """Return whether two bodies, which leave a number in %r3, have one canonical form in a buffer of a type."""
    first, second = (hashes(LOAD + body + store("%r3", 32), dtype=dtype) for body in (left, right))
    return first == second


def types_of_equality(left: str, right: str) -> set[str | None]:
    """Return the types of the buffer in which two bodies are equal."""
    return {dtype for dtype in ALL if equal(left, right, dtype)}


def constant(opcode: str, *numbers: str) -> str:
    """Return an instruction on numbers, in registers of 32 bits, with its result in %r3."""
    moves = " ".join(f"mov.b32 %r{10 + place}, {number};" for place, number in enumerate(numbers))
    return f"{moves} {opcode} %r3, {', '.join(f'%r{10 + place}' for place in range(len(numbers)))};"


def test_a_select_of_halves_that_are_marked_is_not_one_of_the_words() -> None:
    choose = "setp.le.s32 %p1, %r1, 0; mov.b32 %r3, {}; @%p1 mov.b32 %r3, %r2;"
    plain = choose.format("%r1")
    for marked in ("max.bf16x2 %r4, %r1, %r1; ", f"mov.b32 %r5, {BF16_ONES}; mul.rn.bf16x2 %r4, %r1, %r5; "):
        assert types_of_equality(plain, marked + choose.format("%r4")) <= {"bf16"}
    assert types_of_equality(plain, "mov.b32 %r4, %r1; " + choose.format("%r4")) == {
        None,
        "u32",
        "fp32",
        "bf16",
        "fp16",
    }


def test_rounding_to_tf32_reads_the_bits_of_a_nan() -> None:
    rounded = " cvt.rna.tf32.f32 %r3, %r4;"
    identities = ["max.NaN.f32 %r4, %r1, 0fff800000;", "min.f32 %r4, %r1, %r1;", "neg.f32 %r4, %r1; neg.f32 %r4, %r4;"]
    for first in identities:
        for second in identities:
            assert equal(first + rounded, second + rounded, "fp32") == (first == second)
    sum_of = "add.rn.f32 %r4, %r1, %r2;"
    assert equal(sum_of + rounded, "add.rn.f32 %r4, %r2, %r1;" + rounded, "fp32")


def test_a_quotient_by_one_may_be_the_dividend() -> None:
    quotient = " div.full.f32 %r3, %r4, {};"
    plain, other = "mov.b32 %r4, %r1;", "max.NaN.f32 %r4, %r1, %r1;"
    for divisor in (ONE, "0fbf800000"):
        assert types_of_equality(plain + quotient.format(divisor), other + quotient.format(divisor)) == {"fp32"}
    by_two = quotient.format("0f40000000")
    assert types_of_equality(plain + by_two, other + by_two) == ALL


def test_a_quotient_by_one_in_another_thread_moves_no_nan() -> None:
    divisor = "setp.eq.u32 %p1, %r0, 1; selp.f32 %r5, {}, %r2, %p1; "
    loads = "ld.global.b32 %r1, [%d1]; ld.global.b32 %r2, [%d1+4]; "
    chosen = "div.full.f32 %r4, %r1, %r5; setp.gt.f32 %p2, %r1, 0f00000000; selp.f32 %r3, %r4, %r2, %p2;"
    found = [
        hashes(loads + divisor.format(number) + chosen + store("%r3", 32), threads=2, dtype="fp32")
        for number in (ONE, "0f40000000")
    ]
    assert found[0][0] == found[1][0]
    assert found[0][4] != found[1][4]


@pytest.mark.parametrize(
    ("left", "right", "dtype"),
    [
        (constant("neg.f32", "0x7fffffff"), "mov.b32 %r3, 0x7fffffff;", "u32"),
        (constant("max.f32", "0x7fc00000", "0x7fc00000"), "mov.b32 %r3, 0x7fffffff;", "u32"),
        (constant("add.rn.f32", "0xffffffff", "0"), "mov.b32 %r3, 0x7fffffff;", "u32"),
        (constant("add.rn.f16x2", "0xff80ff80", "0"), "mov.b32 %r3, 0x7fff7fff;", "bf16"),
    ],
)
def test_nans_that_the_assembler_computes_are_those_of_the_same_instructions(left: str, right: str, dtype: str) -> None:
    assert not equal(left, right, dtype)
    assert equal(left, left, dtype)


def test_a_nan_of_fp64_that_the_assembler_computes_has_no_known_bits() -> None:
    quotient = "mov.b64 %d3, 0; div.rn.f64 %d4, %d3, %d3; "
    literal = "mov.b64 %d4, 0x7fffffffffffffff; "
    assert hashes(quotient + store("%d4", 64), dtype="u64") != hashes(literal + store("%d4", 64), dtype="u64")


def test_numbers_from_nan_operands_are_known() -> None:
    assert equal(constant("max.f32", "0x7fc00000", "0x3f800000"), f"mov.b32 %r3, {0x3F800000};", "u32")


@pytest.mark.parametrize("writer", ["mul.rn.f32 %r3, %r1, 0f3f000000;", "cvt.rn.f16x2.f32 %r3, %r1, %r2;",
                                    "add.rn.f32 %r4, %r1, %r2; mov.b32 %r3, %r4;"])  # fmt: skip
def test_a_shift_of_64_bits_by_the_result_of_a_float_instruction_is_unknown(writer: str) -> None:
    shift = "ld.global.b64 %d3, [%d2]; shr.u64 %d4, %d3, %r3; "
    with pytest.raises(Unsupported, match="ptxas converts its number"):
        run(LOAD + writer + shift + store("%d4", 64))
    run(LOAD + "add.s32 %r3, %r1, %r2; " + shift + store("%d4", 64))
    run(LOAD + writer + "shr.u32 %r3, %r1, %r3; " + store("%r3", 32))


@pytest.mark.parametrize(
    ("left", "right", "types"),
    [
        ("cvt.f64.f32 %g1, %r1; cvt.rn.f32.f64 %r4, %g1; xor.b32 %r3, %r4, 0x80000000;",
         "add.rn.f32 %r4, %r1, 0f80000000; xor.b32 %r3, %r4, 0x80000000;", {"fp32"}),
        ("cvt.f64.f32 %g1, %r1; cvt.rz.f32.f64 %r4, %g1; and.b32 %r3, %r4, 0x7fffffff;",
         "cvt.f64.f32 %g1, %r1; cvt.rz.f32.f64 %r4, %g1; add.rn.f32 %r4, %r4, 0f80000000; "
         "and.b32 %r3, %r4, 0x7fffffff;", {"fp32"}),
        ("cvt.rna.tf32.f32 %r4, %r1; cvt.f64.f32 %g1, %r4; cvt.rn.f32.f64 %r3, %g1;",
         "cvt.rna.tf32.f32 %r4, %r1; cvt.f64.f32 %g1, %r4; cvt.rn.f32.f64 %r4, %g1; "
         "fma.rn.f32 %r3, %r4, 0f3f800000, 0f80000000;", {"fp32"}),
    ],
)  # fmt: skip
def test_a_sign_change_keeps_what_the_assembler_decides(left: str, right: str, types: set[str | None]) -> None:
    assert types_of_equality(left, right) == types


def verdict(left: str, right: str, dtype: str) -> Outcome:
    """Return the outcome of the comparison of two bodies, with the audit of contraction."""
    arguments = (Argument(kind="buffer", buffer="out", dtype=dtype), Argument(kind="buffer", buffer="in"))
    launch = Launch(file="k.ptx", entry="k", grid=(1, 1, 1), block=(32, 1, 1), args=arguments)
    sources = [Source(name, text(LOAD + body + store("%r3", 32)), launch) for name, body in (("l", left), ("r", right))]
    return compare(*sources, SM90, Options()).verdict.outcome


@pytest.mark.parametrize(
    ("product", "one"), [("mul{}.f32", ONE), ("mul{}.bf16x2", BF16_ONES), ("mul{}.f16x2", "0x3c003c00")]
)
def test_a_product_with_one_that_states_no_rounding_is_not_one_that_does(product: str, one: str) -> None:
    """ptxas returns x for `mul.f32 r, x, 1.0`, and the canonical NaN of `mul.rn.f32` for a NaN."""
    body = f"mov.b32 %r5, {one}; {product} %r3, %r1, %r5;"
    for rounding in ("", ".rn"):
        assert verdict(body.format(rounding), body.format(rounding), "u32") is Outcome.EQUAL
    assert verdict(body.format(""), body.format(".rn"), "u32") is Outcome.UNPROVED


def test_a_product_with_one_rounds_for_a_buffer_of_its_type() -> None:
    body = f"mov.b32 %r5, {ONE}; mul{{}}.f32 %r3, %r1, %r5;"
    assert verdict(body.format(""), body.format(".rn"), "fp32") is Outcome.EQUAL


@pytest.mark.parametrize("rounding", ["", ".rn"])
def test_what_the_assembler_knows_depends_on_the_labels(rounding: str) -> None:
    """The branch is not taken, and only the second text leaves no doubt that the factor is 1."""
    body = (
        f"mov.u32 %r6, %ctaid.x; setp.gt.u32 %p1, %r6, 5; mov.b32 %r5, %r2; @%p1 bra L; {{}} mov.b32 %r5, {ONE}; {{}}"
        f"mul{rounding}.f32 %r3, %r1, %r5;"
    )
    assert verdict(body.format("", "L:"), body.format("", "L:"), "u32") is Outcome.EQUAL
    assert verdict(body.format("", "L:"), body.format("L:", ""), "fp32") is Outcome.EQUAL
    assert verdict(body.format("", "L:"), body.format("L:", ""), "u32") is Outcome.UNPROVED


@pytest.mark.parametrize("nan", ["0x7fff", "0xffc1", "0x7f81"])
def test_a_widened_nan_that_the_assembler_knows_has_no_known_bits(nan: str) -> None:
    """ptxas returns 0x7fffffff, and the instruction moves the bits."""
    widened = f"mov.b16 %h1, {nan}; cvt.f32.bf16 %r3, %h1;"
    assert equal(widened, widened, "u32")
    assert not equal(widened, f"mov.b32 %r3, {nan}0000;", "u32")
    assert not equal(widened, "mov.b32 %r3, 0x7fffffff;", "u32")
    assert equal("mov.b16 %h1, 0x3f81; cvt.f32.bf16 %r3, %h1;", "mov.b32 %r3, 0x3f810000;", "u32")


@pytest.mark.parametrize(
    "read",
    [
        "shr.s32 %r3, %r4, 31;",
        "setp.lt.s32 %p1, %r4, 0; selp.b32 %r3, 1, 0, %p1;",
        "mov.b32 %r7, 0x80008000; prmt.b32 %r3, %r7, %r4, 0x1f;",
    ],
)
def test_a_word_of_a_bf16_keeps_what_the_assembler_decides(read: str) -> None:
    """ptxas returns x for min(x, x), and the unit the canonical NaN, whose sign is clear, for the others."""
    widened = "mov.b32 {%h1, %h2}, %r1; mov.b16 %h3, 0; mov.b32 %r6, {%h3, %h2};"
    forms = ["min.f32 %r4, %r6, %r6;", "min.NaN.f32 %r4, %r6, 0f7f800000;", "add.rn.f32 %r4, %r6, 0f80000000;"]
    for one in forms:
        for other in forms:
            assert equal(f"{widened} {one} {read}", f"{widened} {other} {read}", "u32") == (one == other)


OPEN = "mov.u32 %r9, %ctaid.x; ld.global.b32 %f2, [%d1]; max.f32 %f1, %f2, %f2; "
"""%f1: an element or, for a NaN, what the assembler makes of it; %r9: the index of the block."""
OPEN_BITS = {
    "with the index": "xor.b32 %r3, %f1, %r9;",
    "in a sum with the index": "mad.lo.s32 %r3, %f1, 3, %r9;",
    "compared with the index": "setp.lt.s32 %p1, %f1, %r9; selp.b32 %r3, 3, 4, %p1;",
    "equal to the index": "setp.eq.s32 %p1, %f1, %r9; selp.b32 %r3, 3, 4, %p1;",
    "beside a condition on the index": (
        "and.b32 %r4, %f1, 255; setp.eq.s32 %p1, %r4, 7; setp.lt.u32 %p2, %r9, 3; and.pred %p1, %p1, %p2;"
        "selp.b32 %r3, 3, 4, %p1;"
    ),
    "in a selection of the index": "setp.lt.u32 %p2, %r9, 3; selp.b32 %r3, %f1, %r9, %p2; and.b32 %r3, %r3, 255;",
    "as a condition of a store": "and.b32 %r4, %f1, 255; setp.eq.s32 %p1, %r4, 7; mov.b32 %r3, 1; @%p1 bra END;",
}


@pytest.mark.parametrize("name", OPEN_BITS)
def test_open_bits_are_followed_for_every_launch(name: str) -> None:
    """Another text may have other bits, wherever the symbols of a launch meet them."""
    end = (
        " mad.lo.u32 %r8, %r9, 32, %r0; mul.wide.u32 %d9, %r8, 4; add.s64 %d9, %d0, %d9; st.global.b32 [%d9], %r3; END:"
    )

    def outcome(body: str, every_launch: bool) -> Outcome:
        arguments = tuple(Argument(kind="buffer", buffer=each, dtype="fp32") for each in ("out", "in"))
        launch = Launch(file="k.ptx", entry="k", grid=(8, 1, 1), block=(32, 1, 1), args=arguments)
        pointers = ".param .u64 .ptr .global .align 16 "
        texts = (text(each + end).replace(".param .u64 ", pointers) for each in (body, f"mov.u32 %r20, 1; {body}"))
        options = Options(every_launch=every_launch, audit_contraction=False)
        return compare(*(Source("k", each, launch) for each in texts), SM90, options).verdict.outcome

    for every_launch in (False, True):
        assert outcome(OPEN + OPEN_BITS[name], every_launch) is not Outcome.EQUAL
        plain = OPEN.replace("max.f32 %f1, %f2, %f2", "add.rn.f32 %f1, %f2, 0f3f800000")
        assert outcome(plain + OPEN_BITS[name], every_launch) is Outcome.EQUAL


@pytest.mark.parametrize("dtype", ["u64", "fp64", None])
@pytest.mark.parametrize("first", ["", "min.NaN.f32 %f1, %f1, %f1;", "cvt.f64.f32 %g2, %f1; cvt.rn.f32.f64 %f1, %g2;"])
def test_units_of_fp64_pass_on_bits_of_a_nan_for_every_launch_too(dtype: str | None, first: str) -> None:
    """On an H200, a conversion to fp64 keeps the sign and the payload of a NaN."""
    end = "mul.wide.u32 %d9, %r0, 8; add.s64 %d9, %d0, %d9; st.global.b64 [%d9], %g1;"
    arguments = (Argument(kind="buffer", buffer="out", dtype=dtype), Argument(kind="buffer", buffer="in", dtype="fp32"))
    launch = Launch(file="k.ptx", entry="k", grid=(1, 1, 1), block=(32, 1, 1), args=arguments)

    def outcome(one: str, other: str, every_launch: bool) -> Outcome:
        bodies = (f"{LOAD} mov.b32 %f1, %r1; {each} cvt.f64.f32 %g1, %f1; {end}" for each in (one, other))
        texts = (text(each).replace(".param .u64 ", ".param .u64 .ptr .global .align 16 ") for each in bodies)
        options = Options(every_launch=every_launch, audit_contraction=False)
        return compare(*(Source("k", each, launch) for each in texts), SM90, options).verdict.outcome

    if dtype == "fp64":
        assert outcome("", "", True) is Outcome.EQUAL
    elif first:
        assert outcome("", first, False) is not Outcome.EQUAL
        assert outcome("", first, True) is not Outcome.EQUAL
    else:
        assert outcome("", "", True) is Outcome.UNKNOWN
