# ruff: noqa: E501 - PTX is easier to check without line breaks
"""argmin and argmax in a total order of all numbers: equal canonical forms are equal functions, NaNs included."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest

from bitwise_core.execution.concrete import checked_outputs
from bitwise_core.execution.launch import POINTER_SHIFT
from bitwise_core.execution.values.sets import first_extrema
from covering import drawn_params
from ptx_programs import run

ELEMENTS, SAMPLES = 5, 400
NUMBERS = np.array([0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan], dtype=np.float32)
Bits = npt.NDArray[np.uint32]


def wide(body: str) -> str:
    """Return a program with places of 64 bits, of which it stores the low half."""
    body = re.sub(r"st\.global\.b32 (\S+), %r(\d+);", r"cvt.u32.u64 %s\2, %r\2; st.global.b32 \1, %s\2;", body)
    body = re.sub(r"(mov|selp)\.b32 %r", r"\1.b64 %r", body).replace(".s32 ", ".s64 ")
    body = re.sub(r"%r(\d+)", lambda found: f"%d{int(found[1]) + 10}", body)
    return body.replace("%s", "%r")


WIDTHS = {"32": lambda body: body, "64": wide}


def forms(body: str) -> dict[int, tuple[tuple[int, ...], ...]]:
    """Return, by the offset of each 32-bit word in the first buffer, the offsets in it and the hashes of the stores."""
    found = checked_outputs(*run(body, threads=1, loaded="fp32"))[1]
    parts: dict[int, list[tuple[int, ...]]] = {}
    for where, low, high in zip(found.address, *found.words, strict=True):
        offset = int(where) & ((1 << POINTER_SHIFT) - 1)
        parts.setdefault(offset & ~3, []).append((offset & 3, int(low), int(high)))
    return {offset: tuple(sorted(each)) for offset, each in parts.items()}


@dataclass(frozen=True)
class Pair:
    """The registers of a number and its place, and what they hold in each sample."""

    value: str
    place: str
    numbers: npt.NDArray[np.float32]
    places: npt.NDArray[np.int32]


def better(p: int, left: Pair, right: Pair, relation: str, ties: str = "lt") -> str:
    """Return the code of the predicate %p<p> that the left pair is better."""
    (a, i), (b, j) = (left.value, left.place), (right.value, right.place)
    return (
        f"setp.{relation}.f32 %p{p}, {a}, {b}; setp.nan.f32 %p2, {a}, {a}; setp.num.f32 %p3, {b}, {b}; and.pred %p4, %p2, %p3; or.pred %p{p}, %p{p}, %p4;"
        f"setp.eq.f32 %p3, {a}, {b}; setp.nan.f32 %p4, {b}, {b}; and.pred %p4, %p2, %p4; or.pred %p3, %p3, %p4; setp.{ties}.s32 %p4, {i}, {j};"
        f"and.pred %p3, %p3, %p4; or.pred %p{p}, %p{p}, %p3;"
    )


def steps(to: str, left: Pair, right: Pair, other: str, relation: str, ties: str = "lt") -> str:
    """Return the code that selects the place of the better pair by one test after another; `other` is the worse one's.

    A compiler makes this of the tests where nothing else needs their conjunction.
    """
    (a, i), (b, j) = (left.value, left.place), (right.value, right.place)
    return (
        f"setp.nan.f32 %p2, {a}, {a}; setp.nan.f32 %p3, {b}, {b}; setp.num.f32 %p4, {b}, {b}; setp.eq.f32 %p5, {a}, {b};"
        f"setp.{ties}.s32 %p6, {i}, {j}; setp.{relation}.f32 %p7, {a}, {b};"
        f"selp.b32 %r60, {i}, {other}, %p2; selp.b32 %r60, %r60, {other}, %p3; selp.b32 %r60, {i}, %r60, %p5; selp.b32 %r60, %r60, {other}, %p6;"
        f"selp.b32 %r61, {i}, %r60, %p4; selp.b32 %r60, %r61, %r60, %p2; selp.b32 {to}, {i}, %r60, %p7;"
    )


def above_a_base(to: str, left: str, other: str, base: int) -> str:
    """Return the code that selects one of two places as its difference to a base, to which that is added."""
    return (
        f"add.s32 %r62, {left}, -{base}; add.s32 %r63, {other}, -{base}; selp.b32 %r64, %r62, %r63, %p5;"
        f"add.s32 {to}, %r64, {base};"
    )


@dataclass
class Program:
    """A random program under construction: the pairs that its selections may use."""

    generator: np.random.Generator
    in_steps: bool = False
    lines: list[str] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)

    def element(self, place: int, padding: bool) -> None:
        value, index = f"%f{place + 1}", f"%r{place + 1}"
        drawn = self.generator.choice(NUMBERS, SAMPLES)
        worst = np.full(SAMPLES, -np.inf, dtype=np.float32)
        self.lines.append(f"mov.b32 {value}, 0fFF800000;" if padding else f"ld.global.f32 {value}, [%d1+{4 * place}];")
        self.lines.append(f"mov.b32 {index}, {10 + place};")
        self.pairs.append(Pair(value, index, worst if padding else drawn, np.full(SAMPLES, 10 + place, dtype=np.int32)))

    def combine(self) -> None:
        """Add the selection between two pairs: mostly a correct one."""
        pick = self.generator.integers
        left, right, wrong = (self.pairs[int(each)] for each in pick(0, len(self.pairs), 3))
        number = len(self.pairs) + 10
        relation = "lt" if pick(0, 5) == 0 else "gt"
        ties = "le" if pick(0, 8) == 0 else "lt"
        other = wrong if pick(0, 8) == 0 else right
        taken = Pair(f"%f{number}", f"%r{number}", *self.results(left, right, other, relation, ties))
        self.lines.append(better(5, left, right, relation, ties))
        self.lines.append(f"selp.f32 {taken.value}, {left.value}, {right.value}, %p5;")
        if self.in_steps and pick(0, 2) == 0:
            self.lines.append(steps(taken.place, left, right, other.place, relation, ties))
        elif pick(0, 3) == 0:
            self.lines.append(above_a_base(taken.place, left.place, other.place, int(pick(1, 9))))
        else:
            self.lines.append(f"selp.b32 {taken.place}, {left.place}, {other.place}, %p5;")
        self.pairs.append(taken)

    @staticmethod
    def results(
        left: Pair, right: Pair, other: Pair, relation: str, ties: str
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
        a, b = left.numbers, right.numbers
        ahead = (a > b) if relation == "gt" else (a < b)
        level = (a == b) | (np.isnan(a) & np.isnan(b))
        lower = left.places < right.places if ties == "lt" else left.places <= right.places
        truth = ahead | (np.isnan(a) & ~np.isnan(b)) | (level & lower)
        return np.where(truth, a, b), np.where(truth, left.places, other.places)


@pytest.mark.parametrize("seed", drawn_params(range(60), lambda seed: seed % 30 < 8))
def test_equal_places_are_equal_functions(seed: int) -> None:
    bits = ("32", "64")[seed // 2 % 2]
    program = Program(np.random.default_rng(seed), in_steps=seed >= 30)
    for place in range(ELEMENTS):
        program.element(place, padding=bool(seed % 2) and place in (2, ELEMENTS - 1))
    for _ in range(25):
        program.combine()
    for place, pair in enumerate(program.pairs):
        program.lines.append(f"st.global.b32 [%d0+{4 * place}], {pair.place};")
    seen: dict[object, npt.NDArray[np.int32]] = {}
    for offset, form in forms(WIDTHS[bits]("\n".join(program.lines))).items():
        places = program.pairs[offset // 4].places
        assert np.array_equal(seen.setdefault(form, places), places)


LOADS = "".join(f"ld.global.f32 %f{n}, [%d1+{4 * n}]; mov.b32 %r{n}, {n};" for n in range(1, 6))


def chosen(to: int, left: int, right: int, relation: str = "gt", ties: str = "lt") -> str:
    """Return the code that selects the better of two pairs by the numbers of their registers."""
    none = np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int32)
    pairs = [Pair(f"%f{each}", f"%r{each}", *none) for each in (left, right)]
    return (
        better(5, *pairs, relation, ties)
        + f"selp.f32 %f{to}, %f{left}, %f{right}, %p5; selp.b32 %r{to}, %r{left}, %r{right}, %p5;"
    )


def in_steps(to: int, left: int, right: int) -> str:
    """Return the code of `chosen`, with the place by `steps`."""
    none = np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int32)
    pairs = [Pair(f"%f{each}", f"%r{each}", *none) for each in (left, right)]
    return chosen(to, left, right) + steps(f"%r{to}", *pairs, f"%r{right}", "gt")


STORE = "st.global.b32 [%d0], %r40;"
TREE = chosen(11, 1, 2) + chosen(12, 3, 4) + chosen(40, 11, 12)
EQUAL = {
    "a chain": chosen(11, 4, 2) + chosen(12, 11, 1) + chosen(40, 3, 12),
    "a pair twice": chosen(13, 1, 2) + chosen(11, 13, 13) + chosen(12, 3, 4) + chosen(40, 12, 11),
    "padding at the end": "mov.b32 %f5, 0fFF800000;"
    + chosen(13, 5, 2)
    + chosen(11, 1, 13)
    + chosen(12, 3, 4)
    + chosen(40, 11, 12),
}
PADDED = chosen(13, 3, 4) + chosen(14, 5, 13) + chosen(11, 1, 2)
"""Padding, the fifth pair, beside a place that is known to be one of two."""
EQUAL |= {
    "the last place in steps": chosen(11, 1, 2) + chosen(12, 3, 4) + in_steps(40, 11, 12),
    "places in steps": in_steps(11, 4, 2) + in_steps(12, 11, 1) + in_steps(40, 3, 12),
    "padding before selected places": "mov.b32 %f5, 0fFF800000;" + PADDED + chosen(40, 14, 11),
    "padding in steps": "mov.b32 %f5, 0fFF800000;"
    + PADDED.replace(chosen(14, 5, 13), in_steps(14, 5, 13))
    + chosen(40, 11, 14),
}
LOWEST_BIT = chosen(11, 2, 3).replace(
    "selp.b32 %r11, %r2, %r3, %p5;", "selp.b32 %r50, 0, 1, %p5; add.s32 %r11, %r50, 2;"
)
NESTED = (
    chosen(11, 1, 2).replace("selp.b32 %r11, %r1, %r2, %p5;", "selp.b32 %r51, 0, 1, %p5; add.s32 %r11, %r51, 1;")
    + chosen(12, 11, 3).replace("selp.b32 %r12, %r11, %r3, %p5;", "selp.b32 %r52, %r51, 2, %p5; add.s32 %r12, %r52, 1;")
)  # fmt: skip
"""Places as LLVM computes them: a base plus what the comparisons select."""
EQUAL |= {
    "a place of which a bit is selected": LOWEST_BIT + chosen(12, 4, 11) + chosen(40, 12, 1),
    "selected differences of places": NESTED + chosen(40, 4, 12),
    "padding, twice": "mov.b32 %f5, 0fFF800000; mov.b32 %f6, 0fFF800000; mov.b32 %r6, 6;"
    + chosen(13, 4, 5) + chosen(14, 13, 6) + chosen(15, 1, 14) + chosen(16, 3, 15) + chosen(40, 2, 16),
    "padding, twice before places": "mov.b32 %f5, 0fFF800000; mov.b32 %f6, 0fFF800000; mov.b32 %r6, 6;"
    + chosen(10, 3, 4) + chosen(13, 5, 10) + chosen(14, 6, 13) + chosen(11, 1, 2) + chosen(40, 14, 11),
}  # fmt: skip
DIFFERENT = {
    "another bit of a place": LOWEST_BIT.replace(" 2;", " 4;") + chosen(12, 4, 11) + chosen(40, 12, 1),
    "another base": NESTED.replace("add.s32 %r12, %r52, 1;", "add.s32 %r12, %r52, 2;") + chosen(40, 4, 12),
    "padding with a lower place than selected ones": "mov.b32 %f5, 0fFF800000; mov.b32 %r5, 0;"
    + PADDED
    + chosen(40, 14, 11),
    "other padding before selected places": "mov.b32 %f5, 0f7F800000;" + PADDED + chosen(40, 14, 11),
    "steps with another place": TREE.replace(chosen(11, 1, 2), in_steps(11, 1, 2).replace("%r61, %r1", "%r61, %r2")),
    "steps for the lesser number": TREE.replace(
        chosen(11, 1, 2), in_steps(11, 1, 2).replace("gt.f32 %p7", "lt.f32 %p7")
    ),
    "another element": TREE.replace("%f4", "%f5"),
    "a minimum": chosen(11, 1, 2, "lt") + chosen(12, 3, 4, "lt") + chosen(40, 11, 12, "lt"),
    "a minimum of two maxima": chosen(11, 1, 2) + chosen(12, 3, 4) + chosen(40, 11, 12, "lt"),
    "padding with another infinity": "mov.b32 %f5, 0f7F800000;"
    + chosen(13, 5, 2)
    + chosen(11, 1, 13)
    + chosen(12, 3, 4)
    + chosen(40, 11, 12),
    "padding before the row": "mov.b32 %f5, 0fFF800000; mov.b32 %r5, 0;"
    + chosen(13, 5, 2)
    + chosen(11, 1, 13)
    + chosen(12, 3, 4)
    + chosen(40, 11, 12),
    "the place of another number": TREE.replace("selp.b32 %r11, %r1", "selp.b32 %r11, %r3"),
    "exchanged places": "mov.b32 %r1, 2; mov.b32 %r2, 1;" + TREE,
}


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("name", EQUAL)
def test_the_order_of_selections_does_not_matter(name: str, bits: str) -> None:
    assert forms(WIDTHS[bits](LOADS + EQUAL[name] + STORE)) == forms(WIDTHS[bits](LOADS + TREE + STORE))


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("name", DIFFERENT)
def test_different_sets_differ(name: str, bits: str) -> None:
    assert forms(WIDTHS[bits](LOADS + DIFFERENT[name] + STORE)) != forms(WIDTHS[bits](LOADS + TREE + STORE))


def test_the_selected_number_keeps_the_sign_of_its_zero() -> None:
    """Two numbers of one place may be zeros of different signs, so their order matters."""
    one, other = ("mov.b32 %r2, 1;" + chosen(40, *order) + "st.global.f32 [%d0], %f40;" for order in ((1, 2), (2, 1)))
    assert forms(LOADS + one) != forms(LOADS + other)


def tried(body: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how often a select is compared with that of an arg-extremum."""
    count = 0
    compared = first_extrema._is_not_better

    def counted(*arguments: object) -> object:
        nonlocal count
        count += 1
        return compared(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(first_extrema, "_is_not_better", counted)
        forms(body)
    return count


@pytest.mark.parametrize(
    ("predicates", "is_tried"),
    [
        pytest.param(
            ("le.f32 %p1, %f1, %f2", "eq.f32 %p2, %f1, %f2", "lt.s32 %p3, %r1, %r2"), True, id="numbers and places"
        ),
        pytest.param(("le.f32 %p1, %f1, %f2", "lt.s32 %p2, %r1, %r2"), False, id="no test for equality"),
        pytest.param(("le.f32 %p1, %f0, %f3", "lt.f32 %p2, %f2, %f1"), False, id="different numbers"),
        pytest.param(("le.f32 %p1, %f1, %f2", "lt.f32 %p2, %f2, %f1"), False, id="no places"),
        pytest.param(("lt.f32 %p1, %f1, %f2", "lt.s32 %p2, %r1, %r2"), False, id="no test for NaN"),
    ],
)
def test_only_what_may_be_an_arg_extremum_is_tried(
    predicates: tuple[str, ...], is_tried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library function selects between its ranges by several comparisons."""
    loads = "".join(f"ld.global.f32 %f{each}, [%d1+{4 * each}];" for each in range(4))
    compared = "".join(f"setp.{each};" for each in predicates)
    joined = "".join(f"and.pred %p1, %p1, %p{each};" for each in range(2, len(predicates) + 1))
    body = (
        f"{loads} mov.b32 %r1, %f2; mov.b32 %r2, %f3; {compared} {joined}"
        "selp.b32 %r3, %r1, %r2, %p1; st.global.b32 [%d0], %r3;"
    )
    assert (tried(body, monkeypatch) > 0) == is_tried
