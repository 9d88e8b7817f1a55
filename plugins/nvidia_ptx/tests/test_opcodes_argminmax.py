# ruff: noqa: E501 - PTX and tables are easier to check without line breaks
"""argmin and argmax under the assumption `finite`: equal canonical forms are equal functions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest

from bitwise_core.execution.concrete import checked_outputs
from bitwise_core.execution.launch import POINTER_SHIFT
from covering import drawn_params
from ptx_programs import run

FINITE = frozenset({"finite"})
ELEMENTS, SAMPLES = 6, 300
Bits = npt.NDArray[np.uint32]


def forms(body: str, assume: frozenset[str] = FINITE, loaded: str = "fp32") -> dict[int, tuple[tuple[int, ...], ...]]:
    """Return, by the offset of each 32-bit word in the first buffer, the offsets in it and the hashes of the stores."""
    found = checked_outputs(*run(body, threads=1, assume=assume, loaded=loaded))[1]
    parts: dict[int, list[tuple[int, ...]]] = {}
    for where, low, high in zip(found.address, *found.words, strict=True):
        offset = int(where) & ((1 << POINTER_SHIFT) - 1)
        parts.setdefault(offset & ~3, []).append((offset & 3, int(low), int(high)))
    return {offset: tuple(sorted(each)) for offset, each in parts.items()}


@dataclass
class RandomProgram:
    """A random program under construction: pairs of value and index registers, with their bits by sample."""

    generator: np.random.Generator
    lines: list[str] = field(default_factory=list)
    pairs: list[tuple[str, str, Bits, Bits]] = field(default_factory=list)
    count: int = 0

    def element(self, place: int, number: int) -> None:
        """Add a loaded element, or sometimes an infinity as padding."""
        numbers = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 1e-45, 3.0], dtype=np.float32)
        values = self.generator.choice(numbers, SAMPLES).view(np.uint32)
        value, index = f"%f{place + 1}", f"%r{place + 1}"
        self.lines.append(f"ld.global.f32 {value}, [%d1+{4 * place}];")
        self.lines.append(f"mov.b32 {index}, {number};")
        self.pairs.append((value, index, values, np.full(SAMPLES, number, dtype=np.uint32)))

    def combine(self) -> None:
        """Add the selection between two pairs: mostly a correct one, sometimes with operands exchanged."""
        pick = self.generator.integers
        first, second = (self.pairs[int(each)] for each in pick(0, len(self.pairs), 2))
        wrong = self.pairs[int(pick(0, len(self.pairs)))]
        self.count += 1
        value, index, p = (
            f"%f{20 + self.count}",
            f"%r{20 + self.count}",
            [f"%p{4 * (self.count % 9) + each}" for each in range(4)],
        )
        relation = str(self.generator.choice(["ge", "gt", "le", "lt"]))
        x, y = first[2].view(np.float32), second[2].view(np.float32)
        truth = {"ge": x >= y, "gt": x > y, "le": x <= y, "lt": x < y}[relation]
        self.lines.append(f"setp.{relation}.f32 {p[0]}, {first[0]}, {second[0]};")
        if pick(0, 2):
            tied = wrong if pick(0, 6) == 0 else second
            other = wrong if pick(0, 6) == 0 else first
            self.lines.append(
                f"setp.eq.f32 {p[1]}, {first[0]}, {tied[0]}; setp.lt.s32 {p[2]}, {other[1]}, {second[1]};"
            )
            self.lines.append(f"and.pred {p[1]}, {p[1]}, {p[2]}; or.pred {p[0]}, {p[0]}, {p[1]};")
            truth = truth | ((x == tied[2].view(np.float32)) & (other[3] < second[3]))
        values, places = (first, second), (first, wrong if pick(0, 8) == 0 else second)
        order = slice(None, None, -1 if pick(0, 8) == 0 else 1)
        (a, b), (c, d) = values[order], places
        self.lines.append(f"selp.f32 {value}, {a[0]}, {b[0]}, {p[0]}; selp.b32 {index}, {c[1]}, {d[1]}, {p[0]};")
        self.pairs.append((value, index, np.where(truth, a[2], b[2]), np.where(truth, c[3], d[3])))


def program(seed: int) -> RandomProgram:
    generator = np.random.default_rng(seed)
    drawn = RandomProgram(generator)
    numbers = list(range(ELEMENTS))
    if generator.integers(0, 4) == 0:
        generator.shuffle(numbers)
    for place, number in enumerate(numbers):
        drawn.element(place, 10 + number)
    for _ in range(30):
        drawn.combine()
    return drawn


@pytest.mark.parametrize("seed", drawn_params(range(60), lambda seed: seed < 16))
def test_equal_forms_are_equal_functions(seed: int) -> None:
    drawn = program(seed)
    for place, (value, index, _, _) in enumerate(drawn.pairs):
        drawn.lines.append(f"st.global.f32 [%d0+{8 * place}], {value}; st.global.b32 [%d0+{8 * place + 4}], {index};")
    seen: dict[tuple[tuple[int, ...], ...], Bits] = {}
    for offset, form in forms("\n".join(drawn.lines)).items():
        bits = drawn.pairs[offset // 8][2 + offset % 8 // 4]
        assert np.array_equal(seen.setdefault(form, bits), bits)


LOADS = "".join(f"ld.global.f32 %f{n}, [%d1+{4 * n}]; mov.b32 %r{n}, {n};" for n in range(1, 5))


def first_of(value: str, index: str, left: tuple[str, str], right: tuple[str, str], relation: str = "gt") -> str:
    """Return the code that selects the better of two pairs, on a tie the one with the lower index."""
    (a, i), (b, k) = left, right
    return (
        f"setp.eq.f32 %p1, {a}, {b}; setp.lt.s32 %p2, {i}, {k}; and.pred %p3, %p1, %p2; setp.{relation}.f32 %p4, {a}, {b};"
        f"or.pred %p5, %p4, %p3; selp.f32 {value}, {a}, {b}, %p5; selp.b32 {index}, {i}, {k}, %p5;"
    )


def earlier(value: str, index: str, left: tuple[str, str], right: tuple[str, str], relation: str = "ge") -> str:
    """Return the code that selects the better of two pairs, on a tie the left one."""
    (a, i), (b, k) = left, right
    return f"setp.{relation}.f32 %p1, {a}, {b}; selp.f32 {value}, {a}, {b}, %p1; selp.b32 {index}, {i}, {k}, %p1;"


def pair(number: int) -> tuple[str, str]:
    return f"%f{number}", f"%r{number}"


STORE = "st.global.f32 [%d0], %f40; st.global.b32 [%d0+4], %r40;"
END = ("%f40", "%r40")
CHAIN = (
    earlier(*pair(10), pair(1), pair(2))
    + earlier(*pair(11), pair(10), pair(3))
    + earlier(*END, pair(11), pair(4))
    + STORE
)
PADDING = "mov.b32 %f5, 0fFF800000; mov.b32 %r5, 9;"

EQUAL = {
    "a tree over two halves": first_of(*pair(10), pair(4), pair(1)) + first_of(*pair(11), pair(3), pair(2)) + first_of(*END, pair(11), pair(10)),
    "a chain in another order": earlier(*pair(10), pair(2), pair(4)) + earlier(*pair(11), pair(1), pair(3)) + first_of(*END, pair(10), pair(11)),
    "padding": PADDING + earlier(*pair(10), pair(1), pair(5)) + first_of(*pair(11), pair(5), pair(2)) + first_of(*pair(12), pair(4), pair(11))
    + first_of(*pair(13), pair(10), pair(3)) + first_of(*END, pair(12), pair(13)),
    "the index first": CHAIN.replace("selp.f32 %f40, %f11, %f4, %p1; selp.b32 %r40, %r11, %r4, %p1;", "selp.b32 %r40, %r11, %r4, %p1; selp.f32 %f40, %f11, %f4, %p1;"),
}  # fmt: skip
DIFFERENT = {
    "a different element": CHAIN.replace("%f4,", "%f3,"),
    "a minimum": CHAIN.replace(".ge.", ".le."),
    "ties to the higher index": CHAIN.replace(".ge.", ".gt."),
    "ties in another order": earlier(*pair(10), pair(2), pair(1)) + earlier(*pair(11), pair(10), pair(3)) + earlier(*END, pair(11), pair(4)),
    "the index of another element": earlier(*pair(12), pair(1), pair(3)) + CHAIN.replace("selp.b32 %r40, %r11, %r4", "selp.b32 %r40, %r12, %r4"),
    "exchanged indices": "mov.b32 %r1, 2; mov.b32 %r2, 1;" + CHAIN,
}  # fmt: skip


@pytest.mark.parametrize("name", EQUAL)
def test_the_order_of_comparisons_does_not_matter(name: str) -> None:
    assert forms(LOADS + EQUAL[name] + STORE) == forms(LOADS + CHAIN)
    assert forms(LOADS + EQUAL[name] + STORE, frozenset()) != forms(LOADS + CHAIN, frozenset()) or "index" in name
    integers = [forms(LOADS + each, loaded="i32") for each in (EQUAL[name] + STORE, CHAIN)]
    assert integers[0] != integers[1] or "index" in name, "the bits of an integer may be a NaN"


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_selections_differ(name: str) -> None:
    assert forms(LOADS + DIFFERENT[name] + STORE) != forms(LOADS + CHAIN)


OWN_PART = (
    "mov.u32 %r20, %ctaid.x; mov.u32 %r21, %tid.x; mad.lo.s32 %r22, %r20, 32, %r21; mul.wide.s32 %d10, %r22, 32;"
    "add.s64 %d0, %d0, %d10; add.s64 %d1, %d1, %d10;"
)


def test_batches_of_different_sizes_have_one_form() -> None:
    """Comparisons of one batch must not affect the next one, which has fewer blocks."""
    left, right = (
        checked_outputs(*run(OWN_PART + LOADS + body, blocks=259, assume=FINITE, loaded="fp32"))[1]
        for body in (EQUAL["a tree over two halves"] + STORE, CHAIN)
    )
    assert len(left.address) == 2 * 32 * 259
    assert np.array_equal(left.address, right.address)
    assert np.array_equal(left.words, right.words)
