"""Rules of conversions between formats."""

from __future__ import annotations

from bitwise_core.ir.rules.rule import NEAREST_OR_ZERO, Rule, over, pairs

_WIDENINGS = (("fp16", "fp32"), ("fp32", "fp64"))
_NARROW_INTEGERS = (("s8", "s32"), ("s16", "s32"), ("u8", "u32"), ("u16", "u32"))

_CARRYING = "add.b32(x, concat(and.b16(slice.16.16(x), 0x0001), 0x0000))"
"""The number x as an integer, plus the lowest bit of its high half."""

CONVERSIONS = (
    Rule(
        "narrow_of_widened",
        "convert.{r}.{n}.{w}(convert.{w}.{n}(x))",
        "x",
        pairs("n", "w", *_WIDENINGS, ("bf16", "fp32"), r=NEAREST_OR_ZERO),
        "Widening is exact, and a number that the narrow format holds is not rounded.",
        keeps="number",
    ),
    Rule(
        "widened_bf16_is_its_bits",
        "convert.fp32.bf16(x)",
        "concat(0x0000, x)",
        over(),
        "bf16 is the upper half of fp32: subnormal numbers and infinities too.",
        keeps="number",
        execution="representation",
    ),
    Rule(
        "widened_neg",
        "convert.{w}.{n}(neg.{n}(x))",
        "neg.{w}(convert.{w}.{n}(x))",
        pairs("n", "w", *_WIDENINGS),
        "Widening keeps signs and magnitudes.",
    ),
    Rule(
        "comparison_of_widened",
        "{relation}.fp32(convert.fp32.{n}(x), convert.fp32.{n}(y))",
        "{relation}.{n}(x, y)",
        over(relation=("lt", "le", "eq", "ne", "ord"), n=("fp16", "bf16")),
        "Widening keeps the order of numbers, zeros too, and NaN.",
    ),
    Rule(
        "select_of_widened",
        "select(p, convert.fp32.fp16(x), convert.fp32.fp16(y))",
        "convert.fp32.fp16(select(p, x, y))",
        over(),
        "A select of widened numbers widens the selected one.",
    ),
    Rule(
        "sign_of_widened",
        "{op}.fp32(convert.fp32.{n}(x))",
        "convert.fp32.{n}({op}.{n}(x))",
        over(op="abs", n="fp16") + over(op=("abs", "neg"), n="bf16"),
        "Widening keeps signs and magnitudes.",
    ),
    Rule(
        "narrow_integer_is_widened_first",
        "convert.{r}{t}.{s}(x)",
        "convert.{r}{t}.{w}(convert.b32.{s}(x))",
        pairs("s", "w", *_NARROW_INTEGERS, t=("fp32", "fp64"), r="rn.")
        + pairs("s", "w", *_NARROW_INTEGERS, t=("fp16", "bf16"), r=("rn.", "rz.", "rd.", "ru.")),
        "An integer with its sign or zeros in front is the same number.",
    ),
    Rule(
        "narrow_number_is_widened_before_it_is_an_integer",
        "convert.{r}.{t}.{n}(x)",
        "convert.{r}.{t}.fp32(convert.fp32.{n}(x))",
        over(
            r=("rni", "rzi", "rmi", "rpi"),
            t=("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"),
            n=("fp16", "bf16"),
        ),
        "Widening is exact, infinities are clamped as large numbers are, and NaN gives one integer for both.",
    ),
    Rule(
        "zero_extension_is_its_bits",
        "convert.b{w}.u{n}(x)",
        "concat(x, {zeros})",
        tuple(
            {"w": str(wide), "n": str(narrow), "zeros": zeros}
            for narrow, wide, zeros in (
                (8, 16, "0x00"),
                (8, 32, "0x00, 0x0000"),
                (8, 64, "0x00, 0x0000, 0x00000000"),
                (16, 32, "0x0000"),
                (16, 64, "0x0000, 0x00000000"),
                (32, 64, "0x00000000"),
            )
        ),
        "An unsigned integer has zeros in front.",
    ),
    Rule(
        "sign_extension_twice",
        "convert.{w}.{m}(convert.{mb}.{s}(x))",
        "convert.{w}.{s}(x)",
        tuple(
            {**each, "mb": each["m"].replace("s", "b")}
            for each in pairs("s", "m", ("s8", "s16"), ("s8", "s32"), ("s16", "s32"), w="b64")
            + pairs("s", "m", ("s8", "s16"), w="b32")
        ),
        "The sign bit is copied in one step or in two.",
    ),
    Rule(
        "bf16_rounded_by_integers",
        f"add.b32({_CARRYING}, 0x7fff)",
        f"concat(slice.0.16(add.b32({_CARRYING}, 0x7fff)), convert.rn.bf16.fp32(x))",
        over(),
        "The sum carries into the high half exactly where rounding to nearest even rounds up, and the pattern after "
        "the largest number is that of infinity.",
        where={"x": ("not_nan",)},
        formats={"x": "fp32"},
    ),
    Rule(
        "bf16_rounded_by_integers_with_selected_nan",
        f"select(ord.fp32(x, x), slice.16.16(add.b32({_CARRYING}, 0x7fff)), 0x7fff)",
        "convert.rn.bf16.fp32(x)",
        over(),
        "The sum carries into the high half exactly where rounding to nearest even rounds up; NaN is selected.",
    ),
    Rule(
        "bf16_rounded_with_selected_nan",
        "select(ord.fp32(x, x), convert.rn.bf16.fp32(x), 0x7fff)",
        "convert.rn.bf16.fp32(x)",
        over(),
        "A NaN is rounded to the NaN that is selected.",
    ),
)
