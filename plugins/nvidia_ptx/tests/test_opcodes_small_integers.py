"""Small integers: the low half of a sum is the sum, and averages have one form; those of greater numbers have not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest

from bitwise_core.execution.domains import term_arithmetic as terms
from bitwise_core.execution.values.integers import predicate_bits
from bitwise_core.execution.values.rewriting import rule_matching
from ptx_programs import hashes, store
from random_programs import integers
from random_programs.forms import MAKERS, Clash, build, clashes

LOADS = "ld.global.b64 %d5, [%d1]; ld.global.b64 %d6, [%d1+8];"
WIDENED = "cvt.u32.u64 %r1, %d9; cvt.u64.u32 %d9, %r1;"
OTHER_LANE = "shfl.sync.bfly.b32 %r1, %r1, 1, 31, -1;"


def body(*lines: str) -> str:
    return " ".join((LOADS, *lines, store("%d9", 64)))


SMALL = {
    "a field": "and.b64 %d9, %d5, 4095;",
    "all of the low half": "and.b64 %d9, %d5, 4294967295;",
    "a sum that fills the low half": "and.b64 %d7, %d5, 4294967294; and.b64 %d8, %d6, 1; add.s64 %d9, %d7, %d8;",
    "a sum of bytes": "and.b64 %d7, %d5, 255; shr.u64 %d8, %d6, 56; add.s64 %d9, %d7, %d8;",
    "a product": "and.b64 %d7, %d5, 65535; and.b64 %d8, %d6, 65535; mul.lo.s64 %d9, %d7, %d8;",
    "a count": "popc.b64 %r1, %d5; cvt.u64.u32 %d7, %r1; and.b64 %d8, %d6, 255; add.s64 %d9, %d7, %d8;",
}
GREAT = {
    "a loaded number": "mov.b64 %d9, %d5;",
    "one more bit": "and.b64 %d9, %d5, 8589934591;",
    "a sum that may not fit": "and.b64 %d7, %d5, 4294967295; and.b64 %d8, %d6, 1; add.s64 %d9, %d7, %d8;",
    "a product that may not fit": "and.b64 %d7, %d5, 65535; and.b64 %d8, %d6, 131071; mul.lo.s64 %d9, %d7, %d8;",
    "a difference": "and.b64 %d7, %d5, 255; and.b64 %d8, %d6, 255; sub.s64 %d9, %d7, %d8;",
    "a sum with a negative number": "and.b64 %d7, %d5, 255; add.s64 %d9, %d7, -1;",
}


@pytest.mark.parametrize("made", SMALL.values(), ids=SMALL)
def test_the_low_half_of_a_small_number_is_the_number(made: str) -> None:
    assert hashes(body(made, WIDENED)) == hashes(body(made))


@pytest.mark.parametrize("made", GREAT.values(), ids=GREAT)
def test_the_low_half_of_another_number_is_not(made: str) -> None:
    assert hashes(body(made, WIDENED)) != hashes(body(made))


@pytest.mark.parametrize(("mask", "alike"), [(255, True), (0x1FFFFFFFF, False)])
def test_a_sum_over_lanes_of_small_numbers_is_the_same_in_both(mask: int, alike: bool) -> None:
    each = "mad.wide.u32 %d5, %r0, 8, %d1; ld.global.b64 %d5, [%d5];"
    total = f"and.b64 %d7, %d5, {mask}; cvt.u32.u64 %r1, %d7; {OTHER_LANE} cvt.u64.u32 %d8, %r1; add.s64 %d9, %d7, %d8;"
    found = hashes(" ".join((each, total, store("%d9", 64))), threads=2)
    assert (found[0] == found[8]) is alike


COUNTS = "popc.b64 %r1, %d5; popc.b64 %r2, %d6;"
NUMBERS = "cvt.u32.u64 %r1, %d5; cvt.u32.u64 %r2, %d6;"
IN_WORDS = {"add": "add.s32 %r3, %r1, %r2;", "or": "or.b32 %r3, %r1, %r2;", "xor": "xor.b32 %r3, %r1, %r2;"}


@pytest.mark.parametrize("verb", IN_WORDS)
def test_counts_have_one_form_in_words_and_double_words(verb: str) -> None:
    kind = "s64" if verb == "add" else "b64"
    double = f"cvt.u64.u32 %d7, %r1; cvt.u64.u32 %d8, %r2; {verb}.{kind} %d9, %d7, %d8;"
    words = f"{IN_WORDS[verb]} cvt.u64.u32 %d9, %r3;"
    assert hashes(body(COUNTS, double)) == hashes(body(COUNTS, words))
    if verb == "add":  # a sum of other numbers may not fit a word
        assert hashes(body(NUMBERS, double)) != hashes(body(NUMBERS, words))


PAIR = "ld.global.b32 %r1, [%d1]; ld.global.b32 %r2, [%d1+4]; and.b32 %r3, %r1, {mask}; and.b32 %r4, %r2, {mask};"
AVERAGE = "add.s32 %r5, %r3, %r4; shr.u32 %r6, %r5, 1;"
OTHER_AVERAGES = {
    "common and other bits": (
        "xor.b32 %r5, %r4, %r3; shr.u32 %r5, %r5, 1; and.b32 %r7, %r3, %r4; add.s32 %r6, %r7, %r5;", 31,
    ),
    "a signed shift": ("add.s32 %r5, %r3, %r4; shr.s32 %r6, %r5, 1;", 30),
    "a signed division by 2": (
        "add.s32 %r5, %r4, %r3; shr.u32 %r7, %r5, 31; add.s32 %r5, %r5, %r7; shr.s32 %r6, %r5, 1;", 30,
    ),
    "16 bits": (
        "cvt.u16.u32 %h1, %r3; cvt.u16.u32 %h2, %r4; add.s16 %h3, %h1, %h2; shr.u16 %h3, %h3, 1; cvt.u32.u16 %r6, %h3;",
        15,
    ),
    "16 bits in a pair": (
        "prmt.b32 %r7, %r3, %r1, 0x5410; prmt.b32 %r8, %r4, %r2, 0x5410; add.s16x2 %r7, %r7, %r8;"
        "mov.b32 {%h1, %h2}, %r7; shr.u16 %h1, %h1, 1; cvt.u32.u16 %r6, %h1;", 15,
    ),
}  # fmt: skip
"""Averages of %r3 and %r4, and how many bits these may have for which they are that of `AVERAGE`."""


@pytest.mark.parametrize(("other", "bits"), OTHER_AVERAGES.values(), ids=OTHER_AVERAGES)
def test_averages_of_small_numbers_have_one_form(other: str, bits: int) -> None:
    for within in (True, False):
        pair = PAIR.format(mask=(1 << bits + (not within)) - 1)
        end = store("%r6", 32)
        assert (hashes(" ".join((pair, AVERAGE, end))) == hashes(" ".join((pair, other, end)))) is within


PRODUCTS = {
    "an unsigned product": "mul.wide.u32 %d9, %r3, 4;",
    "a signed product": "mul.wide.s32 %d9, %r3, 4;",
    "an extension and a shift": "cvt.u64.u32 %d9, %r3; shl.b64 %d9, %d9, 2;",
    "a signed extension and a product": "cvt.s64.s32 %d9, %r3; mul.lo.s64 %d9, %d9, 4;",
}


@pytest.mark.parametrize("bits", [31, 32])
def test_products_in_twice_the_width_have_one_form_for_each_sign(bits: int) -> None:
    pair = PAIR.format(mask=(1 << bits) - 1)
    found = [str(hashes(" ".join((pair, each, store("%d9", 64))))) for each in PRODUCTS.values()]
    if bits == 31:
        assert len(set(found)) == 1
    else:
        assert (found[0] == found[2], found[1] == found[3], found[0] == found[1]) == (True, True, False)


CODES = "ld.global.b32 %r9, [%d1]; ld.global.b32 %r8, [%d1+4]; setp.gt.s32 %p1, %r9, 7; setp.lt.s32 %p2, %r8, 2;"
HALVES = "cvt.u16.u32 %h1, %r1; cvt.u16.u32 %h2, %r2;"
MADE = {
    "terms": "mul.hi.u32 %r1, %r9, %r8; mul.hi.s32 %r2, %r8, %r8;",
    "a term and a number": "mul.hi.u32 %r1, %r9, %r8; mov.b32 %r2, 5;",
    "selects": "selp.b32 %r1, 3, 70000, %p1; selp.b32 %r2, 9, 2, %p2; selp.b32 %r1, %r1, 1, %p2;",
    "a term and a select": "mul.hi.u32 %r1, %r9, %r8; selp.b32 %r2, 9, 2, %p2;",
}
"""%r1 and %r2, of whose low halves a kernel makes a code."""
OPERATIONS = {
    **{name: (f"{name} %h3, %h1, %h2;", f"{name.split('.')[0]}.b32 %r3, %r1, %r2;") for name in
       ("and.b16", "or.b16", "xor.b16")},
    "add.s16": ("add.s16 %h3, %h1, %h2;", "add.s32 %r3, %r1, %r2;"),
    "sub.s16": ("sub.s16 %h3, %h1, %h2;", "sub.s32 %r3, %r1, %r2;"),
    "shl.b16": ("shl.b16 %h3, %h1, 4;", "shl.b32 %r3, %r1, 4;"),
    "selp.b16": ("selp.b16 %h3, %h1, %h2, %p1;", "selp.b32 %r3, %r1, %r2, %p1;"),
}  # fmt: skip


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_codes_have_one_form_in_every_width(operation: str, made: str) -> None:
    half, word = OPERATIONS[operation]
    whole = "cvt.u16.u32 %h3, %r3;"
    for end in (store("%h3", 16), "cvt.u32.u16 %r4, %h3;" + store("%r4", 32)):
        assert hashes(" ".join((CODES, made, HALVES, half, end))) == hashes(" ".join((CODES, made, word, whole, end)))
    other = word.replace("%r2", "%r9") if "%r2" in word else word.replace("%r1", "%r9")
    end = store("%h3", 16)
    assert hashes(" ".join((CODES, made, HALVES, half, end))) != hashes(" ".join((CODES, made, other, whole, end)))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_codes_have_one_form_beside_threads_with_numbers(operation: str) -> None:
    made = "mov.b32 %r2, 5; {} mul.hi.u32 %r1, %r9, %r8;"
    known = "mov.b32 %r1, 9; setp.ne.u32 %p5, %r0, 0;" + made.format("@%p5")
    code = f"{HALVES} {OPERATIONS[operation][0]} add.s16 %h3, %h3, %h1; {store('%h3', 16)}"
    beside = hashes(" ".join((CODES, known, code)), threads=2)
    alone = hashes(" ".join((CODES, made.format(""), code)))
    assert beside[2] == alone[0]
    assert beside[0] != alone[0]


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name != "and.b16"])
@pytest.mark.parametrize("bits", [15, 32])
def test_halves_that_are_extended_are_the_words_only_if_these_fit(operation: str, bits: int) -> None:
    made = f"{MADE['terms']} and.b32 %r1, %r1, {(1 << bits) - 1}; and.b32 %r2, %r2, {(1 << bits) - 1};"
    extended = f"{HALVES} cvt.u32.u16 %r1, %h1; cvt.u32.u16 %r2, %h2;"
    word, end = OPERATIONS[operation][1], store("%r3", 32)
    same = hashes(" ".join((CODES, made, word, end))) == hashes(" ".join((CODES, made, extended, word, end)))
    assert same is (bits == 15)


@pytest.mark.parametrize("compared", ["lt.u", "le.u", "eq.b"])
@pytest.mark.parametrize(("bits", "alike"), [(15, True), (17, False)])
def test_halves_are_compared_as_words_that_fit_them(compared: str, bits: int, alike: bool) -> None:
    made = f"{MADE['terms']} and.b32 %r1, %r1, {(1 << bits) - 1}; and.b32 %r2, %r2, 4095;"
    end = "selp.b32 %r3, %r9, %r8, %p3;" + store("%r3", 32)
    half = f"{HALVES} setp.{compared}16 %p3, %h1, %h2;"
    found = hashes(" ".join((CODES, made, half, end)))
    assert (found == hashes(" ".join((CODES, made, f"setp.{compared}32 %p3, %r1, %r2;", end)))) is alike


FIELDS = {
    "a byte": ("bfe.u32 %r3, %r9, 23, 8;", "shr.u32 %r3, %r9, 23; and.b32 %r3, %r3, 255;"),
    "the highest bits": ("bfe.u32 %r3, %r9, 20, 12;", "shr.u32 %r3, %r9, 20;"),
    "the lowest bits": ("bfe.u32 %r3, %r9, 0, 5;", "and.b32 %r3, %r9, 31;"),
    "all bits": ("bfe.u32 %r3, %r9, 0, 32;", "mov.b32 %r3, %r9;"),
}


@pytest.mark.parametrize(("field", "moved"), FIELDS.values(), ids=FIELDS)
def test_fields_at_known_bits_are_shifted_and_masked(field: str, moved: str) -> None:
    assert hashes(" ".join((CODES, field, store("%r3", 32)))) == hashes(" ".join((CODES, moved, store("%r3", 32))))


CHOSEN = "ld.global.b32 %f1, [%d1]; setp.gt.f32 %p1, %f1, 0f00000000; ld.global.b32 %r9, [%d1+4];"
SELECTED = {
    "a sum": ("selp.b32 %r1, 255, 127, %p1; selp.b32 %r2, 127, 0, %p1; add.s32 %r3, %r1, %r2;", (382, 127)),
    "an average": (
        "selp.b32 %r1, 255, 127, %p1; selp.b32 %r2, 127, 0, %p1; add.s32 %r3, %r1, %r2; shr.u32 %r3, %r3, 1;",
        (191, 63),
    ),
    "a product with a number": ("selp.b32 %r1, -3, 5, %p1; mul.lo.s32 %r3, %r1, 7;", (-21, 35)),
    "a minimum": ("selp.b32 %r1, -3, 5, %p1; min.s32 %r3, %r1, 2;", (-3, 2)),
    "the low half of a wide one": ("selp.b64 %d9, 191, 63, %p1; cvt.u32.u64 %r3, %d9;", (191, 63)),
    "a narrowed and extended one": ("selp.b32 %r1, 65791, 63, %p1; cvt.u16.u32 %h1, %r1; cvt.u32.u16 %r3, %h1;",
                                    (255, 63)),
}  # fmt: skip


@pytest.mark.parametrize(("computed", "pair"), SELECTED.values(), ids=SELECTED)
def test_operations_on_selected_numbers_select_their_results(computed: str, pair: tuple[int, int]) -> None:
    end = store("%r3", 32)
    high, low = pair
    found = hashes(" ".join((CHOSEN, computed, end)))
    assert found == hashes(" ".join((CHOSEN, f"selp.b32 %r3, {high}, {low}, %p1;", end)))
    assert found != hashes(" ".join((CHOSEN, f"selp.b32 %r3, {low}, {high}, %p1;", end)))
    negated = f"not.pred %p2, %p1; selp.b32 %r3, {low}, {high}, %p2;"
    assert found == hashes(" ".join((CHOSEN, negated, end)))


@pytest.mark.parametrize("order", ["%r1 %r2 %r9", "%r9 %r1 %r2", "%r2 %r9 %r1"])
def test_sums_of_selected_numbers_have_one_form_in_every_order(order: str) -> None:
    one, other, third = order.split()
    selected = "not.pred %p2, %p1; selp.b32 %r1, 255, 127, %p1; selp.b32 %r2, 5, 9, %p2;"
    total = f"add.s32 %r3, {one}, {other}; add.s32 %r3, %r3, {third};"
    whole = "selp.b32 %r4, 264, 132, %p1; add.s32 %r3, %r4, %r9;"
    end = store("%r3", 32)
    assert hashes(" ".join((CHOSEN, selected, total, end))) == hashes(" ".join((CHOSEN, whole, end)))


@pytest.mark.parametrize("scaled", ["shl.b32 %r2, %r1, {};", "mul.lo.s32 %r2, %r1, {};"])
def test_a_product_with_the_number_of_each_thread_is_the_one_with_this_number(scaled: str) -> None:
    load = "ld.global.b32 %r1, [%d1]; add.u32 %r3, %r0, 3;"
    found = hashes(" ".join((load, scaled.format("%r3"), "add.s32 %r2, %r2, %r1;", store("%r2", 32))), threads=3)
    for thread in range(3):
        alone = hashes(" ".join((load, scaled.format(3 + thread), "add.s32 %r2, %r2, %r1;", store("%r2", 32))))
        assert found[4 * thread] == alone[0]
    assert len(set(found.values())) == 3


def test_a_sum_has_one_form_beside_threads_in_which_the_predicate_is_known() -> None:
    each = "mov.b32 %r1, 5; setp.eq.u32 %p5, %r0, 0; @%p5 ld.global.b32 %r1, [%d1]; and.b32 %r2, %r1, 8388607;"
    total = "setp.ne.b32 %p1, %r2, 0; selp.b32 %r3, 1, 0, %p1; bfe.u32 %r4, %r1, 23, 8; add.s32 %r3, %r3, %r4;"
    alone, beside = (hashes(" ".join((each, total, store("%r3", 32))), threads=threads) for threads in (1, 2))
    assert beside[0] == alone[0]
    assert beside[4] != alone[0]


def _everything_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_matching, "maximum_of", lambda value: 0)


def _any_predicate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicate_bits, "_same_predicate", lambda one, other: True)


def _sums_are_bounded_by_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    found = terms.maximum_of_result

    def of_a_part(operation: terms.Operation, operands: terms.Sequence[terms.Value]) -> int | None:
        result = found(operation, operands)
        return result >> 1 if result is not None and operation.verb == "add" else result

    monkeypatch.setattr(terms, "maximum_of_result", of_a_part)


def _programs() -> Iterator[list[Clash]]:
    """Yield values of one form that differ, of each of some random programs of averages and comparisons."""
    makers = [
        place for place, maker in enumerate(MAKERS) if maker in (integers.averages, integers.compare, integers.codes)
    ]
    draw = Random(11)
    for seed in range(30):
        program = [
            (draw.choice(makers), draw.randrange(8), draw.randrange(8), draw.randrange(200), draw.randrange(200))
            for _ in range(30)
        ]
        yield clashes(build(program, seed=seed))


def test_values_of_one_form_are_equal_in_programs_of_averages() -> None:
    assert not any(_programs())


@pytest.mark.parametrize("mutate", [_everything_is_small, _any_predicate, _sums_are_bounded_by_a_part])
def test_wrong_bounds_and_choices_are_found(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    assert any(_programs())


PLACES = """
    ld.global.f32 %f1, [%d1]; ld.global.f32 %f2, [%d1+4]; ld.global.f32 %f3, [%d1+8];
    setp.lt.f32 %p1, %f1, %f2; setp.lt.f32 %p2, %f2, %f3;
    selp.b16 %h1, 1, 0, %p1; selp.b16 %h1, %h1, {number}, %p2; selp.b16 %h2, 3, 0, %p2; selp.b16 %h2, %h2, 2, %p1;
"""
PAIR_OF_PLACES = PLACES + "and.b16 %h3, %h1, 255; shl.b16 %h4, %h2, 8; or.b16 %h5, %h3, %h4; st.global.b16 [%d0], %h5;"
BYTES_OF_PLACES = PLACES + "st.global.b8 [%d0], %h1; st.global.b8 [%d0+1], %h2;"


@pytest.mark.parametrize("number", [2, 255, 256])
def test_places_in_a_pair_of_bytes_have_the_forms_of_stored_bytes(number: int) -> None:
    pair, bytes_ = (each.format(number=number) for each in (PAIR_OF_PLACES, BYTES_OF_PLACES))
    assert hashes(pair, threads=1, dtype="i8") == hashes(bytes_, threads=1, dtype="i8")


def test_the_high_byte_of_a_greater_number_is_kept() -> None:
    whole = PAIR_OF_PLACES.replace("and.b16 %h3, %h1, 255;", "mov.b16 %h3, %h1;")
    for number, alike in ((255, True), (256, False)):
        found = (hashes(each.format(number=number), threads=1, dtype="i8") for each in (whole, BYTES_OF_PLACES))
        assert (next(found) == next(found)) is alike


BOUNDED_BITS = "and.b32 %r5, %r1, {}; and.b32 %r6, %r2, {};"
NUMBERS = "ld.global.b32 %r1, [%d1]; ld.global.b32 %r2, [%d1+4]; ld.global.b32 %r3, [%d1+8];"


@pytest.mark.parametrize("verb", ["min", "max"])
@pytest.mark.parametrize(
    ("masks", "alike"),
    [((255, 4095), True), ((0x7FFFFFFF, 1), True), ((0xFFFFFFFF, 1), False), ((1, 0x80000000), False)],
)
def test_extrema_of_positive_integers_are_those_of_unsigned_ones(
    verb: str, masks: tuple[int, int], *, alike: bool
) -> None:
    start = NUMBERS + BOUNDED_BITS.format(*masks)
    found = [hashes(f"{start} {verb}.{kind}32 %r4, %r5, %r6; {store('%r4', 32)}") for kind in "su"]
    assert (found[0] == found[1]) is alike


def test_extrema_of_extrema_of_positive_integers() -> None:
    start = NUMBERS + BOUNDED_BITS.format(255, 65535) + "and.b32 %r7, %r3, 1023;"
    trees = ("{0} %r4, %r5, %r6; {1} %r4, %r4, %r7;", "{0} %r4, %r6, %r7; {1} %r4, %r5, %r4;")
    kinds = [("min.u32", "min.s32"), ("min.s32", "min.u32"), ("min.u32", "min.u32")]
    found = [hashes(f"{start} {tree.format(*each)} {store('%r4', 32)}") for tree in trees for each in kinds]
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize(
    ("made", "fits"),
    [
        ("min.u32 %r4, %r1, 5;", True),
        ("min.s32 %r4, %r1, 5;", False),
        ("max.u32 %r4, %r5, %r6;", True),
        ("max.u32 %r4, %r5, %r1;", False),
        ("max.s32 %r4, %r5, %r6;", True),
        ("max.s32 %r4, %r1, 5;", False),
        ("min.s32 %r4, %r5, %r6;", True),
        ("min.s32 %r4, %r5, 0xFFFFFFFF;", False),
        ("min.u32 %r4, %r5, 0xFFFFFFFF;", True),
    ],
)
def test_the_bound_of_an_extremum(made: str, *, fits: bool) -> None:
    """The upper half of a number that fits in the lower one is zero."""
    start = NUMBERS + BOUNDED_BITS.format(255, 65535)
    upper = hashes(f"{start} {made} shr.u32 %r4, %r4, 16; {store('%r4', 32)}")
    assert (upper == hashes(f"{NUMBERS} mov.b32 %r4, 0; {store('%r4', 32)}")) is fits
