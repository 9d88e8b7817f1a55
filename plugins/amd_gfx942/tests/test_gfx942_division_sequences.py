"""The division sequences that LLVM emits, executed instruction by instruction in rational arithmetic.

An independent oracle: it shares only the text of the sequences with the plugin, which must recognise them.  Reciprocals
are drawn from all that the ISA allows: errors below 1 ulp in fp32, up to 2^29 ulp in fp64.  For each of them the result
is the exact quotient rounded once, unless the denominator's significand is all ones.
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
from bitwise_core.checker.sources import Options, Source
from bitwise_core.cli.tree_command import tree_of
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.ir.text import write
from gfx942_kernels import DIVISION, launch_of, run, text_of


@dataclass(frozen=True)
class Form:
    """Precision in bits, exponent range of normal numbers, thresholds of v_div_scale, error of v_rcp (log2 ulp)."""

    precision: int
    min_exponent: int
    max_exponent: int
    quotient_threshold: int
    scale_exponent: int
    numerator_threshold: int
    reciprocal_error_bits: int


F32 = Form(24, -126, 127, 96, 64, 23, 0)
F64 = Form(53, -1022, 1023, 768, 128, 53, 29)


def exponent(number: Fraction) -> int:
    """The exponent of a number's leading digit."""
    size = abs(number)
    found = size.numerator.bit_length() - size.denominator.bit_length()
    return found if Fraction(2) ** found <= size else found - 1


def rounded(number: Fraction, form: Form) -> Fraction | None:
    """Round to a format, to nearest even; None on overflow."""
    if not number:
        return number
    unit = Fraction(2) ** (max(exponent(number), form.min_exponent) - form.precision + 1)
    result = round(number / unit) * unit
    return None if result and exponent(result) > form.max_exponent else result


def field(number: Fraction, form: Form) -> int:
    """The biased exponent field of the bit pattern."""
    return max(exponent(number), form.min_exponent - 1) + form.max_exponent


def subnormal(number: Fraction, form: Form) -> bool:
    return bool(number) and exponent(number) < form.min_exponent


def scaled(value: Fraction, denominator: Fraction, numerator: Fraction, form: Form) -> tuple[Fraction, bool]:
    """v_div_scale of `value`, which is the denominator or the numerator: the ISA's cases in order.

    Return the scaled value and the flag.  A denominator whose reciprocal and quotient are subnormal is scaled down,
    which is the only interpretation that gives a correct quotient.
    """
    up, down = Fraction(2) ** form.scale_exponent, Fraction(2) ** -form.scale_exponent
    exponent_difference = field(numerator, form) - field(denominator, form)
    if exponent_difference >= form.quotient_threshold:
        return (value * up if value == denominator else value), True
    if subnormal(denominator, form):
        return value * up, False
    reciprocal, quotient = subnormal(1 / denominator, form), subnormal(numerator / denominator, form)
    if reciprocal and quotient:
        return (value * down if value == denominator else value), True
    if reciprocal:
        return value * down, False
    if quotient:
        return (value * up if value == numerator else value), True
    return (value * up if field(numerator, form) <= form.numerator_threshold else value), False


def execute_sequence(
    text: str, numerator: Fraction, denominator: Fraction, form: Form, random: Random
) -> Fraction | None:
    """Execute a sequence; return the result of its last instruction, None on overflow."""
    registers: dict[str, Fraction] = {"v2": numerator, "v3": denominator, "1.0": Fraction(1)}
    flag = False
    result: Fraction | None = None
    for line in text.splitlines():
        mnemonic, _, rest = line.partition(" ")
        names = [each.strip() for each in rest.split(", ")]
        given = [-registers[each[1:]] if each.startswith("-") else registers.get(each, Fraction(0)) for each in names]
        if mnemonic.startswith("v_div_scale"):
            result_value, flag_of = scaled(given[2], given[3], given[4], form)
            flag = flag_of if names[1] == "vcc" else flag
        elif mnemonic.startswith("v_rcp"):
            exact = 1 / given[1]
            unit = Fraction(2) ** (max(exponent(exact), form.min_exponent) - form.precision + 1)
            off = random.randint(-(1 << form.reciprocal_error_bits), 1 << form.reciprocal_error_bits)
            result_value = (
                math.floor(exact / unit) + (off if form.reciprocal_error_bits else random.randint(0, 1))
            ) * unit
        elif mnemonic.startswith("v_mul"):
            result_value = nearest(given[1] * given[2], form)
        elif mnemonic.startswith("v_fmac"):
            result_value = nearest(given[1] * given[2] + given[0], form)
        elif mnemonic.startswith("v_fma_"):
            result_value = nearest(given[1] * given[2] + given[3], form)
        elif mnemonic.startswith("v_div_fmas"):
            power = form.scale_exponent if field(given[3], form) > form.max_exponent else -form.scale_exponent
            exact = given[1] * given[2] + given[3]
            fused = rounded(exact * Fraction(2) ** power if flag else exact, form)
            if fused is None:
                return None
            result_value = fused
        else:
            assert mnemonic.startswith("v_div_fixup")
            result = abs(given[1]) if (numerator < 0) == (denominator < 0) else -abs(given[1])
            continue
        registers[names[0]] = result_value
    return result


def nearest(number: Fraction, form: Form) -> Fraction:
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
    """The fp64 sequence with register pairs: v6 becomes v[12:13]."""
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


def test_sequences_are_recognised() -> None:
    for text, kind in ((DIVISION, "f32"), (in_pairs(DOUBLE), "f64")):
        kernel = GFX942.parse(text_of(text), "kernel.amdgcn").kernel(None)
        ends = division_sequences(kernel, GFX942.opcodes).final_lines
        assert [each.opcode for each in kernel.instructions if each.line in ends] == [f"v_div_fixup_{kind}"]


def number(random: Random, form: Form, low: int, high: int) -> Fraction:
    """A random number with an exponent in a range, its significand random or next to a power of two."""
    power = random.randint(max(low, form.min_exponent - form.precision + 1), min(high, form.max_exponent))
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


def all_ones(value: Fraction, form: Form) -> bool:
    """Whether the significand of a number is all ones."""
    return abs(value) == (2 - Fraction(1, 1 << form.precision - 1)) * Fraction(2) ** exponent(value)


@pytest.mark.parametrize(("text", "form"), [(DIVISION, F32), (DOUBLE, F64)])
def test_quotient_is_rounded_once(text: str, form: Form) -> None:
    """For every reciprocal, except for denominators whose significand is all ones."""
    random = Random(form.precision)
    checked = 0
    for iteration in range(3000):
        numerator, denominator = (number(random, form, *RANGES[iteration // 4**side % 4]) for side in range(2))
        expected = rounded(numerator / denominator, form)
        if expected is None or all_ones(denominator, form):
            continue
        checked += 1
        assert execute_sequence(text, numerator, denominator, form, random) == expected, (numerator, denominator)
    assert checked > 2000


class Fixed(Random):
    """Selects a reciprocal at a distance of `units` ulp from the exact one rounded down."""

    def __init__(self, units: int) -> None:
        super().__init__(0)
        self.units = units

    def randint(self, a: int, b: int) -> int:
        return self.units


def test_denominators_with_an_all_ones_significand() -> None:
    """In fp32 only the nearer reciprocal gives the rounded quotient; in fp64 one of 19 does."""
    random = Random(2)
    denominator = 2 - Fraction(1, 1 << 23)
    assert (
        execute_sequence(DIVISION, Fraction(1), denominator, F32, Fixed(0))
        == Fraction(1, 2)
        != rounded(1 / denominator, F32)
    )
    for _ in range(500):
        numerator, power = number(random, F32, -60, 60), Fraction(2) ** random.randint(-60, 60)
        assert execute_sequence(DIVISION, numerator, denominator * power, F32, Fixed(1)) == rounded(
            numerator / (denominator * power), F32
        )
    wide = 2 - Fraction(1, 1 << 52)
    right = [
        execute_sequence(DOUBLE, Fraction(1), wide, F64, Fixed(off)) == rounded(1 / wide, F64) for off in range(-9, 10)
    ]
    assert right.count(True) == 1


def pattern(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")


def quotient(numerator: float, denominator: float) -> int:
    """The quotient computed by the simulation on bit patterns."""
    body = ""
    for place, value in ((4, numerator), (6, denominator)):
        body += f"v_mov_b32_e32 v{place}, {pattern(value) & 0xFFFFFFFF:#x}\n"
        body += f"v_mov_b32_e32 v{place + 1}, {pattern(value) >> 32:#x}\n"
    body += in_pairs(DOUBLE)
    low, high = (int(run(f"{body}\nv_mov_b32_e32 v5, v{place}")[0]) for place in (10, 11))
    return low | high << 32


def test_fp64_division_on_bit_patterns() -> None:
    random = Random(1)
    for _ in range(20):
        numerator, denominator = (number(random, F64, -500, 500) for _ in range(2))
        if not all_ones(denominator, F64):
            expected = rounded(numerator / denominator, F64)
            assert expected is not None
            assert quotient(float(numerator), float(denominator)) == pattern(float(expected))
    with pytest.raises(Unsupported, match="whose significand is all ones"):
        quotient(1.0, 1.9999999999999998)


def test_fp64_division_by_data_is_a_target_operation() -> None:
    """A denominator known not to be all ones gives the vendor-neutral rounded quotient."""

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
