"""The sequences that LLVM emits for a division, carried out instruction by instruction in rational arithmetic.

An oracle of its own: nothing here is taken from the plugin but the text of the sequences, which it must know as
divisions.  Reciprocals are any that the ISA allows: less than one unit in the last place off in fp32, up to 2^29 in
fp64.  Whatever they are, the quotient is the exact one, rounded once, unless the denominator's digits are all ones.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from fractions import Fraction
from random import Random

import pytest

from bitwise_amd_gfx942.architecture import GFX942
from bitwise_amd_gfx942.division_sequences import division_sequences
from bitwise_core.checker.analysis import Options, Source
from bitwise_core.cli.tree_command import tree_of
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.ir.text import write
from gfx942_kernels import DIVISION, launch_of, run, text_of


@dataclass(frozen=True)
class Form:
    """Bits of the significand, least exponent of a normal number, greatest; what v_div_scale goes by."""

    precision: int
    least: int
    most: int
    far: int
    scale: int
    tiny: int
    slack: int


F32 = Form(24, -126, 127, 96, 64, 23, 0)
F64 = Form(53, -1022, 1023, 768, 128, 53, 29)


def exponent(number: Fraction) -> int:
    """The power of two of a number's first digit."""
    size = abs(number)
    found = size.numerator.bit_length() - size.denominator.bit_length()
    return found if Fraction(2) ** found <= size else found - 1


def rounded(number: Fraction, form: Form) -> Fraction | None:
    """The nearest number of a format, ties to even; None where it overflows."""
    if not number:
        return number
    unit = Fraction(2) ** (max(exponent(number), form.least) - form.precision + 1)
    result = round(number / unit) * unit
    return None if result and exponent(result) > form.most else result


def field(number: Fraction, form: Form) -> int:
    """The exponent as it stands in the pattern."""
    return max(exponent(number), form.least - 1) + form.most


def subnormal(number: Fraction, form: Form) -> bool:
    return bool(number) and exponent(number) < form.least


def scaled(value: Fraction, below: Fraction, above: Fraction, form: Form) -> tuple[Fraction, bool]:
    """v_div_scale of `value`, which is the denominator or the numerator: the ISA's cases in their order.

    A denominator whose reciprocal and quotient are subnormal is scaled down, as only that makes sense.
    """
    up, down = Fraction(2) ** form.scale, Fraction(2) ** -form.scale
    apart = field(above, form) - field(below, form)
    if apart >= form.far:
        return (value * up if value == below else value), True
    if subnormal(below, form):
        return value * up, False
    reciprocal, quotient = subnormal(1 / below, form), subnormal(above / below, form)
    if reciprocal and quotient:
        return (value * down if value == below else value), True
    if reciprocal:
        return value * down, False
    if quotient:
        return (value * up if value == above else value), True
    return (value * up if field(above, form) <= form.tiny else value), False


def divided(text: str, above: Fraction, below: Fraction, form: Form, random: Random) -> Fraction | None:
    """What the instructions of a sequence leave in the last one's destination."""
    held: dict[str, Fraction] = {"v2": above, "v3": below, "1.0": Fraction(1)}
    flag = False
    result: Fraction | None = None
    for line in text.splitlines():
        mnemonic, _, rest = line.partition(" ")
        names = [each.strip() for each in rest.split(", ")]
        given = [-held[each[1:]] if each.startswith("-") else held.get(each, Fraction(0)) for each in names]
        if mnemonic.startswith("v_div_scale"):
            made, flag_of = scaled(given[2], given[3], given[4], form)
            flag = flag_of if names[1] == "vcc" else flag
        elif mnemonic.startswith("v_rcp"):
            exact = 1 / given[1]
            unit = Fraction(2) ** (max(exponent(exact), form.least) - form.precision + 1)
            off = random.randint(-(1 << form.slack), 1 << form.slack)
            made = (math.floor(exact / unit) + (off if form.slack else random.randint(0, 1))) * unit
        elif mnemonic.startswith("v_mul"):
            made = near(given[1] * given[2], form)
        elif mnemonic.startswith("v_fmac"):
            made = near(given[1] * given[2] + given[0], form)
        elif mnemonic.startswith("v_fma_"):
            made = near(given[1] * given[2] + given[3], form)
        elif mnemonic.startswith("v_div_fmas"):
            power = form.scale if field(given[3], form) > form.most else -form.scale
            exact = given[1] * given[2] + given[3]
            fused = rounded(exact * Fraction(2) ** power if flag else exact, form)
            if fused is None:
                return None
            made = fused
        else:
            assert mnemonic.startswith("v_div_fixup")
            result = abs(given[1]) if (above < 0) == (below < 0) else -abs(given[1])
            continue
        held[names[0]] = made
    return result


def near(number: Fraction, form: Form) -> Fraction:
    result = rounded(number, form)
    assert result is not None
    return result


DOUBLE = """v_div_scale_f64 v6, s[20:21], v3, v3, v2
v_rcp_f64_e32 v7, v6
v_div_scale_f64 v8, vcc, v2, v3, v2
v_fma_f64 v9, -v6, v7, 1.0
v_fmac_f64_e32 v7, v7, v9
v_fma_f64 v9, -v6, v7, 1.0
v_fmac_f64_e32 v7, v7, v9
v_mul_f64 v9, v8, v7
v_fma_f64 v6, -v6, v9, v8
v_div_fmas_f64 v6, v6, v7, v9
v_div_fixup_f64 v5, v6, v3, v2"""


def in_pairs(text: str) -> str:
    """The text of fp64 with registers in pairs: v6 becomes v[12:13]."""
    lines = []
    for line in text.splitlines():
        words = []
        for word in line.replace(",", " ,").split():
            sign, name = ("-", word[1:]) if word.startswith("-v") else ("", word)
            if name[0] == "v" and name[1:].isdigit():
                name = f"v[{2 * int(name[1:])}:{2 * int(name[1:]) + 1}]"
            words.append(sign + name)
        lines.append(" ".join(words).replace(" ,", ","))
    return "\n".join(lines)


def test_the_sequences_are_known() -> None:
    for text, kind in ((DIVISION, "f32"), (in_pairs(DOUBLE), "f64")):
        kernel = GFX942.parse(text_of(text), "kernel.amdgcn").kernel(None)
        ends = division_sequences(kernel, GFX942.opcodes).final_lines
        assert [each.opcode for each in kernel.instructions if each.line in ends] == [f"v_div_fixup_{kind}"]


def number(random: Random, form: Form, low: int, high: int) -> Fraction:
    """A number of a format, its significand random or near a power of two, with an exponent of that range."""
    power = random.randint(max(low, form.least - form.precision + 1), min(high, form.most))
    kind = random.randrange(4)
    significand = Fraction(1)
    if kind == 1:
        significand += Fraction(random.choice((1, 2, 3)), 1 << form.precision - 1)
    elif kind == 2:
        significand = 2 - Fraction(random.choice((1, 2, 3)), 1 << form.precision - 1)
    elif kind == 3:
        significand += Fraction(random.getrandbits(form.precision - 1), 1 << form.precision - 1)
    found = rounded(significand * Fraction(2) ** power, form)
    assert found
    return found if random.randrange(2) else -found


RANGES = [(-3, 3), (-2000, 2000), (-2000, -100), (100, 2000)]


def without_a_zero(value: Fraction, form: Form) -> bool:
    """Whether the digits of a number are all ones."""
    return abs(value) == (2 - Fraction(1, 1 << form.precision - 1)) * Fraction(2) ** exponent(value)


@pytest.mark.parametrize(("text", "form"), [(DIVISION, F32), (DOUBLE, F64)])
def test_the_quotient_is_rounded_once(text: str, form: Form) -> None:
    """Any reciprocal will do, but for denominators whose digits are all ones."""
    random = Random(form.precision)
    counted = 0
    for turn in range(3000):
        above, below = (number(random, form, *RANGES[turn // 4**side % 4]) for side in range(2))
        expected = rounded(above / below, form)
        if expected is None or without_a_zero(below, form):
            continue
        counted += 1
        assert divided(text, above, below, form, random) == expected, (above, below)
    assert counted > 2000


class Fixed(Random):
    """A reciprocal that is so many units beside the one rounded down."""

    def __init__(self, units: int) -> None:
        super().__init__(0)
        self.units = units

    def randint(self, a: int, b: int) -> int:
        return self.units


def test_denominators_whose_digits_are_all_ones() -> None:
    """In fp32 the nearer reciprocal leads to the quotient and the other does not; in fp64 hardly any does."""
    random = Random(2)
    below = 2 - Fraction(1, 1 << 23)
    assert divided(DIVISION, Fraction(1), below, F32, Fixed(0)) == Fraction(1, 2) != rounded(1 / below, F32)
    for _ in range(500):
        above, power = number(random, F32, -60, 60), Fraction(2) ** random.randint(-60, 60)
        assert divided(DIVISION, above, below * power, F32, Fixed(1)) == rounded(above / (below * power), F32)
    wide = 2 - Fraction(1, 1 << 52)
    right = [divided(DOUBLE, Fraction(1), wide, F64, Fixed(off)) == rounded(1 / wide, F64) for off in range(-9, 10)]
    assert right.count(True) == 1


def pattern(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")


def quotient(above: float, below: float) -> int:
    """What the reading's own arithmetic gives on bit patterns."""
    body = ""
    for place, value in ((4, above), (6, below)):
        body += f"v_mov_b32_e32 v{place}, {pattern(value) & 0xFFFFFFFF:#x}\n"
        body += f"v_mov_b32_e32 v{place + 1}, {pattern(value) >> 32:#x}\n"
    body += in_pairs(DOUBLE)
    low, high = (int(run(f"{body}\nv_mov_b32_e32 v5, v{place}")[0]) for place in (10, 11))
    return low | high << 32


def test_fp64_divisions_on_bit_patterns() -> None:
    random = Random(1)
    for _ in range(20):
        above, below = (number(random, F64, -500, 500) for _ in range(2))
        if not without_a_zero(below, F64):
            expected = rounded(above / below, F64)
            assert expected is not None
            assert quotient(float(above), float(below)) == pattern(float(expected))
    with pytest.raises(Unsupported, match="whose significand is all ones"):
        quotient(1.0, 1.9999999999999998)


def test_a_division_in_fp64_by_data_is_an_operation_of_its_own() -> None:
    """What rests on no exception is the rounded quotient, whatever its name on another architecture."""

    def operations(low: str, high: str) -> set[str]:
        load = "v_mov_b32_e32 v4, v2\nv_mov_b32_e32 v5, v3\n"
        given = f"v_mov_b32_e32 v6, {low}\nv_mov_b32_e32 v7, {high}\n"
        text = text_of(f"{load}{given}{in_pairs(DOUBLE)}\nv_mov_b32_e32 v5, v11")
        source = Source("kernel.amdgcn", text, launch_of())
        tree = write(tree_of(source, GFX942, Options(), "out[0]", None)[0].root)
        return {name for name in ("div.rn.fp64", "div.sequence.fp64@gfx942") if name in tree}

    assert operations("0", "0x40080000") == {"div.rn.fp64"}
    assert operations("v4", "v4") == {"div.sequence.fp64@gfx942"}
    assert operations("-1", "0x400fffff") == {"div.sequence.fp64@gfx942"}
