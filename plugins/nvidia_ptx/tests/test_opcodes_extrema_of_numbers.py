# ruff: noqa: E501 - PTX is easier to check without line breaks
"""argmin and argmax of numbers, without tests for NaN: equal canonical forms are equal functions, NaNs included."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest

from bitwise_core.execution.concrete import checked_outputs
from bitwise_core.execution.launch import POINTER_SHIFT
from covering import drawn_params
from ptx_programs import hashes, run

ELEMENTS, SAMPLES = 5, 500
NUMBERS = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -3.0, np.inf, -np.inf, np.nan], dtype=np.float32)
Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int32]
RELATIONS = {"gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal}
COMPARISONS = ("lt.s32", "lt.u32", "le.s32")


def forms(body: str) -> dict[int, tuple[tuple[int, ...], ...]]:
    """Return, by the offset of each 32-bit word in the first buffer, the offsets in it and the hashes of the stores."""
    found = checked_outputs(*run(body, threads=1, loaded="fp32"))[1]
    parts: dict[int, list[tuple[int, ...]]] = {}
    for where, low, high in zip(found.address, *found.words, strict=True):
        offset = int(where) & ((1 << POINTER_SHIFT) - 1)
        parts.setdefault(offset & ~3, []).append((offset & 3, int(low), int(high)))
    return {offset: tuple(sorted(each)) for offset, each in parts.items()}


def clamped(value: str, bound: str) -> str:
    return f"max.f32 {value}, {value}, {bound};"


@dataclass(frozen=True)
class Pair:
    """The registers of a number and its place, and what they hold in each sample."""

    value: str
    place: str
    numbers: Floats
    places: Places


@dataclass
class Program:
    """A random program under construction: the pairs that its selections may use."""

    generator: np.random.Generator
    lines: list[str] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)

    def element(self, place: int) -> None:
        """Add a loaded number, of which NaN and numbers below -1 mostly become -1."""
        value, index = f"%f{place + 1}", f"%r{place + 1}"
        drawn = self.generator.choice(NUMBERS, SAMPLES)
        number = place - 2
        self.lines.append(f"ld.global.f32 {value}, [%d1+{4 * place}]; mov.b32 {index}, {number};")
        if self.generator.integers(0, 6):
            self.lines.append(clamped(value, "0fBF800000"))
            drawn = np.where(drawn > -1, drawn, np.float32(-1)).astype(np.float32)
        self.pairs.append(Pair(value, index, drawn, np.full(SAMPLES, number, dtype=np.int32)))

    def combine(self) -> None:
        """Add a selection between two pairs, in one of several forms, most of them correct."""
        pick = self.generator.integers
        left, right, wrong = (self.pairs[int(each)] for each in pick(0, len(self.pairs), 3))
        number = len(self.pairs) + 10
        relation = ("gt", "lt", "ge", "le")[int(pick(0, 4))]
        ties = COMPARISONS[int(pick(0, 3))]
        other = wrong if pick(0, 8) == 0 else right
        a, b, i, j = left.numbers, right.numbers, left.places, right.places
        ahead, level = RELATIONS[relation](a, b), a == b
        lower = {"lt.s32": i < j, "lt.u32": i.view(np.uint32) < j.view(np.uint32), "le.s32": i <= j}[ties]
        compare = f"setp.{relation}.f32 %p1, {left.value}, {right.value}; "
        tests = (
            compare + f"setp.eq.f32 %p2, {left.value}, {right.value}; setp.{ties} %p3, {left.place}, {right.place}; "
        )
        truth = ahead | level & lower
        form = int(pick(0, 3))
        if form == 0:
            code = compare + f"selp.b32 %r{number}, {left.place}, {other.place}, %p1; "
            truth = ahead
        elif form == 1:
            code = (
                tests
                + f"and.pred %p2, %p2, %p3; or.pred %p1, %p1, %p2; selp.b32 %r{number}, {left.place}, {other.place}, %p1; "
            )
        else:
            code = (
                tests
                + f"selp.b32 %r70, {left.place}, {other.place}, %p3; selp.b32 %r71, %r70, {other.place}, %p2; selp.b32 %r{number}, {left.place}, %r71, %p1; and.pred %p2, %p2, %p3; or.pred %p1, %p1, %p2; "
            )
        self.lines.append(code + f"selp.f32 %f{number}, {left.value}, {right.value}, %p1;")
        taken = np.where(truth, a, b), np.where(truth, i, other.places)
        self.pairs.append(Pair(f"%f{number}", f"%r{number}", *taken))


@pytest.mark.parametrize("seed", drawn_params(range(60), lambda seed: seed < 16))
def test_equal_places_are_equal_functions(seed: int) -> None:
    program = Program(np.random.default_rng(seed))
    for place in range(ELEMENTS):
        program.element(place)
    for _ in range(30):
        program.combine()
    for place, pair in enumerate(program.pairs):
        program.lines.append(f"st.global.b32 [%d0+{4 * place}], {pair.place};")
    seen: dict[object, Places] = {}
    for offset, form in forms("\n".join(program.lines)).items():
        places = program.pairs[offset // 4].places
        assert np.array_equal(seen.setdefault(form, places), places)


LOAD = "mul.wide.u32 %d4, %r0, 4; add.s64 %d5, %d1, %d4; ld.global.f32 %f1, [%d5]; mov.b32 %r1, %r0; "
NOT_NAN = clamped("%f1", "0fFF7FFFFF")
STORE = "add.s64 %d6, %d0, %d4; st.global.b32 [%d6], %r1;"


def exchange(distance: int) -> str:
    return f"shfl.sync.bfly.b32 %f2, %f1, {distance}, 31, -1; shfl.sync.bfly.b32 %r2, %r1, {distance}, 31, -1; "


def step(distance: int, relation: str = "gt", ties: str = "lt.s32") -> str:
    """Return one step of a reduction over lanes, in the order of the greatest number and the lowest lane."""
    return (
        exchange(distance)
        + f"setp.eq.f32 %p1, %f1, %f2; setp.{ties} %p2, %r1, %r2; and.pred %p3, %p1, %p2; setp.{relation}.f32 %p4, %f1, %f2; "
        + "or.pred %p5, %p4, %p3; selp.f32 %f1, %f1, %f2, %p5; selp.b32 %r1, %r1, %r2, %p5; "
    )


LAST = exchange(1) + (
    "setp.eq.f32 %p1, %f1, %f2; setp.lt.s32 %p2, %r1, %r2; setp.gt.f32 %p4, %f1, %f2; "
    "selp.b32 %r3, %r1, %r2, %p2; selp.b32 %r4, %r3, %r2, %p1; selp.b32 %r1, %r1, %r4, %p4; "
)
SAME_IN_ALL_LANES = {
    "a maximum": NOT_NAN + step(2) + step(1),
    "a minimum": NOT_NAN + step(2, "lt") + step(1, "lt"),
    "the last place alone": NOT_NAN + step(2) + LAST,
    "places without signs": NOT_NAN + step(2, ties="lt.u32") + step(1, ties="lt.u32"),
    "three steps": NOT_NAN + step(4) + step(2) + step(1),
}
NOT_THE_SAME = {
    "numbers that may be NaN": step(2) + step(1),
    "no order of ties": NOT_NAN + step(2) + step(1).replace("%p2, %r1, %r2", "%p2, %r1, %r1"),
    "another order of ties in one step": NOT_NAN + step(2, ties="gt.s32") + step(1),
    "another order of numbers in one step": NOT_NAN + step(2, "lt") + step(1),
    "a lane without a partner": NOT_NAN + step(2),
}


def different_lanes(body: str) -> int:
    """Return how many different values the first four of eight threads store."""
    found = hashes(LOAD + body + STORE, threads=8)
    return len({found[4 * thread] for thread in range(4)})


@pytest.mark.parametrize("name", SAME_IN_ALL_LANES)
def test_all_lanes_of_a_reduction_have_one_place(name: str) -> None:
    assert different_lanes(SAME_IN_ALL_LANES[name]) == 1


@pytest.mark.parametrize("name", NOT_THE_SAME)
def test_lanes_of_other_reductions_differ(name: str) -> None:
    assert different_lanes(NOT_THE_SAME[name]) > 1


def test_chains_and_trees_have_one_place() -> None:
    """In a chain of ascending places, one comparison decides: a later element wins only if it is greater."""
    loads = "".join(
        f"ld.global.f32 %f{n}, [%d1+{4 * n}]; mov.b32 %r{n}, {n};" + clamped(f"%f{n}", "0f00000000")
        for n in (1, 2, 3, 4)
    )

    def chosen(to: int, left: int, right: int, relation: str) -> str:
        return f"setp.{relation}.f32 %p1, %f{left}, %f{right}; selp.f32 %f{to}, %f{left}, %f{right}, %p1; selp.b32 %r{to}, %r{left}, %r{right}, %p1; "

    store = "st.global.b32 [%d0], %r40;"
    chain = chosen(11, 1, 2, "ge") + chosen(12, 11, 3, "ge") + chosen(40, 12, 4, "ge")
    equal = [
        chosen(11, 1, 2, "ge") + chosen(12, 3, 4, "ge") + chosen(40, 11, 12, "ge"),
        chosen(11, 4, 3, "gt") + chosen(12, 2, 1, "gt") + chosen(40, 11, 12, "gt"),
    ]
    different = [chain.replace("ge.f32 %p1, %f12", "gt.f32 %p1, %f12"), chain.replace("ge", "le"), chain.replace("ge", "gt"),
                 chain.replace("selp.b32 %r12, %r11", "selp.b32 %r12, %r1")]  # fmt: skip
    expected = forms(loads + chain + store)
    assert all(forms(loads + each + store) == expected for each in equal)
    assert all(forms(loads + each + store) != expected for each in different)
    with_nans = loads.replace("max.f32", "add.rn.f32")
    assert all(forms(with_nans + each + store) != forms(with_nans + chain + store) for each in equal)


def test_a_set_with_a_possible_nan_is_no_set_of_numbers() -> None:
    """NaN wins against the first number; whether it wins against the second one depends on the side."""
    loads = "".join(f"ld.global.f32 %f{n}, [%d1+{4 * n}]; mov.b32 %r{n}, {n};" for n in (1, 2, 3))
    loads += clamped("%f1", "0f00000000") + clamped("%f3", "0f00000000")
    first = (
        "setp.gt.f32 %p5, %f1, %f2; setp.nan.f32 %p2, %f1, %f1; setp.num.f32 %p3, %f2, %f2; and.pred %p4, %p2, %p3; or.pred %p5, %p5, %p4;"
        "setp.eq.f32 %p3, %f1, %f2; setp.nan.f32 %p4, %f2, %f2; and.pred %p4, %p2, %p4; or.pred %p3, %p3, %p4; setp.lt.s32 %p4, %r1, %r2;"
        "and.pred %p3, %p3, %p4; or.pred %p5, %p5, %p3; selp.f32 %f4, %f1, %f2, %p5; selp.b32 %r4, %r1, %r2, %p5; "
    )

    def second(left: int, right: int) -> str:
        return (
            f"setp.gt.f32 %p1, %f{left}, %f{right}; setp.eq.f32 %p2, %f{left}, %f{right}; setp.lt.s32 %p3, %r{left}, %r{right}; "
            f"and.pred %p2, %p2, %p3; or.pred %p1, %p1, %p2; selp.b32 %r5, %r{left}, %r{right}, %p1; st.global.b32 [%d0], %r5;"
        )

    without_nan = clamped("%f2", "0f00000000")
    assert forms(loads + without_nan + first + second(4, 3)) == forms(loads + without_nan + first + second(3, 4))
    assert forms(loads + first + second(4, 3)) != forms(loads + first + second(3, 4))


def test_the_format_of_a_comparison_is_part_of_a_set() -> None:
    """The same patterns of 16 bits are ordered otherwise as fp16 and as bf16, where NaN is another pattern."""
    loads = "ld.global.b16 %h1, [%d1]; ld.global.b16 %h2, [%d1+2]; mov.b32 %r1, 1; mov.b32 %r2, 2; "

    def chosen(kind: str, threads: int = 1) -> object:
        body = (
            f"setp.gt.{kind} %p5, %h1, %h2; setp.nan.{kind} %p2, %h1, %h1; setp.num.{kind} %p3, %h2, %h2; and.pred %p4, %p2, %p3; or.pred %p5, %p5, %p4;"
            f"setp.eq.{kind} %p3, %h1, %h2; setp.nan.{kind} %p4, %h2, %h2; and.pred %p4, %p2, %p4; or.pred %p3, %p3, %p4; setp.lt.s32 %p4, %r1, %r2;"
            "and.pred %p3, %p3, %p4; or.pred %p5, %p5, %p3; selp.b32 %r4, %r1, %r2, %p5; st.global.b32 [%d0], %r4; "
        )
        return hashes(loads + body, threads=threads)

    assert chosen("f16") != chosen("bf16")
