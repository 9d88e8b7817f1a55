"""Rules of maxima and minima, also where they are written as selects."""

from __future__ import annotations

from bitwise_core.ir.rules.rule import IEEE, Rule, over, pairs

_PLAIN = pairs("op", "neutral", ("max", "-inf"), ("min", "+inf"), f=IEEE)
_PROPAGATING = pairs("op", "neutral", ("max.nan", "-inf"), ("min.nan", "+inf"), f=IEEE)
_EVERY = over(op=("max", "min", "max.nan", "min.nan"), f=IEEE)

EXTREMA = (
    Rule(
        "extremum_idempotent",
        "{op}.{f}(x, x)",
        "x",
        _EVERY,
        "The result is one of its operands.",
        keeps="number",
        refuted=over(op=("max.ftz", "min.ftz"), f="fp32"),
        execution="set",
    ),
    Rule(
        "extremum_neutral",
        "{op}.{f}(x, {neutral})",
        "x",
        _PROPAGATING,
        "The infinity is on the far side of every number, and a NaN stays.",
        keeps="number",
        refuted=_PLAIN,
        execution="set",
    ),
    Rule(
        "extremum_neutral_number",
        "{op}.{f}(x, {neutral})",
        "x",
        _PLAIN,
        "The infinity is never selected over a number, but would replace a NaN.",
        where={"x": ("not_nan",)},
        execution="set",
    ),
    Rule(
        "extremum_neutral_finite",
        "{op}.{f}(x, {neutral})",
        "x",
        _PLAIN,
        "The infinity is never selected over a number.",
        assumes="finite",
        execution="set",
    ),
    Rule(
        "extremum_neutral_absorbed",
        "{op}.{f}({op}.{f}(x, y), {neutral})",
        "{op}.{f}(x, y)",
        _PLAIN,
        "Where one operand is not NaN, the infinity is never the result.",
        where={"y": ("not_nan",)},
        execution="set",
    ),
    Rule(
        "extremum_of_widened",
        "{op}.fp32(convert.fp32.{n}(x), convert.fp32.{n}(y))",
        "convert.fp32.{n}({op}.{n}(x, y))",
        over(op=("max", "min", "max.nan", "min.nan"), n=("fp16", "bf16")),
        "Widening keeps the order of numbers, zeros too, and NaN.",
    ),
)

_GREATER = {"y": ("not_nan", "not_minus_zero")}
SELECTED_EXTREMA = (
    # Rules that keep every bit come first: after them no NaN is taken for another one.
    Rule(
        "infinity_selected_for_itself",
        "select(and.b1(not.b1(lt.{f}({low}, {high})), ord.{f}(x, x)), {infinity}, x)",
        "x",
        pairs("infinity", "low", ("-inf", "-inf"), high="x", f=IEEE) + pairs("infinity", "low", ("+inf", "x"), high="+inf", f=IEEE),
        "A number that is not on the near side of an infinity is that infinity.",
    ),
    Rule(
        "equal_number_selected",
        "select(eq.{f}(x, y), y, x)",
        "x",
        over(f=IEEE),
        "Equal numbers that are not zero have the same bits.",
        where={"y": ("not_zero",)},
    ),
    Rule(
        "maximum_selected",
        "select(lt.{f}(y, x), x, y)",
        "max.{f}(x, y)",
        over(f=IEEE),
        "Where x is NaN or not above y, y is the greater number; two zeros give y, which is then +0.",
        where=_GREATER,
    ),
    Rule(
        "maximum_selected_unless_equal",
        "select(le.{f}(y, x), x, y)",
        "max.{f}(x, y)",
        over(f=IEEE),
        "Where x is NaN or below y, y is the greater number; two zeros give x, which is then +0.",
        where={"x": ("not_minus_zero",), "y": ("not_nan",)},
    ),
    Rule(
        "maximum_selected_with_nan",
        "select(lt.{f}(x, y), y, x)",
        "max.nan.{f}(x, y)",
        over(f=IEEE),
        "Where x is NaN, it is selected; two zeros give x, which is then +0, or y is not a zero.",
        where={"y": ("not_nan",), "x": ("not_minus_zero",)},
        keeps="number",
    ),
    Rule(
        "maximum_with_nonzero_selected_with_nan",
        "select(lt.{f}(x, y), y, x)",
        "max.nan.{f}(x, y)",
        over(f=IEEE),
        "Where x is NaN, it is selected, and there are no two zeros.",
        where={"y": ("not_nan", "not_zero")},
        keeps="number",
    ),
    Rule(
        "maximum_selected_unless_greater",
        "select(le.{f}(x, y), y, x)",
        "max.nan.{f}(x, y)",
        over(f=IEEE),
        "Where x is NaN, it is selected; two zeros give y, which is then +0.",
        where={"y": ("not_nan", "not_minus_zero")},
        keeps="number",
    ),
    Rule(
        "maximum_selected_or_nan",
        "select(and.b1(not.b1(lt.{f}(y, x)), ord.{f}(x, x)), y, x)",
        "max.nan.{f}(x, y)",
        over(f=IEEE),
        "Where x is NaN, it is selected, and so is y; two zeros give y, which is then +0.",
        where={"y": ("not_minus_zero",)},
        keeps="number",
    ),
    Rule(
        "minimum_selected_unless_less",
        "select(le.{f}(y, x), y, x)",
        "min.nan.{f}(x, y)",
        over(f=IEEE),
        "Where x is NaN, it is selected, and there are no two zeros.",
        where={"y": ("not_nan", "not_zero")},
        keeps="number",
    ),
    Rule(
        "minimum_selected_or_nan",
        "select(and.b1(not.b1(lt.{f}(x, y)), ord.{f}(x, x)), y, x)",
        "min.nan.{f}(x, y)",
        over(f=IEEE),
        "Where x is NaN, it is selected, and so is y; two zeros give y, and x is then +0.",
        where={"x": ("not_minus_zero",)},
        keeps="number",
    ),
    Rule(
        "minimum_with_nonzero_selected_or_nan",
        "select(and.b1(not.b1(lt.{f}(x, y)), ord.{f}(x, x)), y, x)",
        "min.nan.{f}(x, y)",
        over(f=IEEE),
        "Where x is NaN, it is selected, and there are no two zeros.",
        where={"y": ("not_zero",)},
        keeps="number",
    ),
    Rule(
        "minimum_selected_unless_equal",
        "select(le.{f}(x, y), x, y)",
        "min.{f}(x, y)",
        over(f=IEEE),
        "Where x is NaN or above y, y is the lesser number; two zeros give x, and y is then +0.",
        where={"y": ("not_nan", "not_minus_zero")},
    ),
    Rule(
        "minimum_selected",
        "select(lt.{f}(x, y), x, y)",
        "min.{f}(x, y)",
        over(f=IEEE),
        "Where x is NaN or not below y, y is the lesser number, and there are no two zeros.",
        where={"y": ("not_nan", "not_zero")},
    ),
    Rule(
        "minimum_selected_with_nan",
        "select(lt.{f}(y, x), y, x)",
        "min.nan.{f}(x, y)",
        over(f=IEEE),
        "Where x is NaN, it is selected; two zeros give x, and y is then +0.",
        where={"y": ("not_nan", "not_minus_zero")},
        keeps="number",
    ),
    Rule(
        "extremum_with_selected_nan",
        "select(ord.{f}(x, y), {op}.{f}(x, y), {nan})",
        "{op}.nan.{f}(x, y)",
        pairs(
            "f", "nan", ("fp32", "0x7fc00000"), ("fp16", "0x7e00"), ("fp64", "0x7ff8000000000000"), op=("max", "min")
        ),
        "Where an operand is NaN, both sides are.",
        keeps="number",
    ),
    Rule(
        "extremum_with_number_or_nan",
        "select(ord.{f}(x, x), {op}.{f}(x, y), x)",
        "{op}.nan.{f}(x, y)",
        over(op=("max", "min"), f=IEEE),
        "Where x is NaN, both sides are; y is none.",
        where={"y": ("not_nan",)},
        keeps="number",
    ),
    Rule(
        "extremum_with_number_and_selected_nan",
        "select(ord.{f}(x, x), {op}.{f}(x, y), {nan})",
        "{op}.nan.{f}(x, y)",
        pairs(
            "f", "nan", ("fp32", "0x7fc00000"), ("fp16", "0x7e00"), ("fp64", "0x7ff8000000000000"), op=("max", "min")
        ),
        "Where x is NaN, both sides are; y is none.",
        where={"y": ("not_nan",)},
        keeps="number",
    ),
)

_SIDES = tuple({"f": form, "zero": zero} for form in IEEE for zero in ("+0", "-0"))
COMPARISONS = (
    Rule(
        "magnitude_is_ordered",
        "ord.{f}(abs.{f}(x), abs.{f}(x))",
        "ord.{f}(x, x)",
        over(f=IEEE),
        "A magnitude is NaN where the number is.",
    ),
    Rule(
        "numbers_are_ordered",
        "ord.{f}(x, y)",
        "0x1",
        over(f=IEEE),
        "Two numbers are ordered.",
        where={"x": ("not_nan",), "y": ("not_nan",)},
    ),
    Rule(
        "ordered_with_a_number",
        "ord.{f}(x, y)",
        "ord.{f}(x, x)",
        over(f=IEEE),
        "Only x may be NaN.",
        where={"y": ("not_nan",)},
    ),
    Rule("nothing_below_minus_infinity", "lt.{f}(x, -inf)", "0x0", over(f=IEEE), "-inf is the least number."),
    Rule("nothing_above_plus_infinity", "lt.{f}(+inf, x)", "0x0", over(f=IEEE), "+inf is the greatest number."),
    Rule(
        "numbers_from_minus_infinity",
        "le.{f}(-inf, x)",
        "ord.{f}(x, x)",
        over(f=IEEE),
        "Every number is at least -inf.",
    ),
    Rule(
        "numbers_to_plus_infinity",
        "le.{f}(x, +inf)",
        "ord.{f}(x, x)",
        over(f=IEEE),
        "Every number is at most +inf.",
    ),
    Rule(
        "no_number_is_neither_above_nor_minus_infinity",
        "and.b1(and.b1(not.b1(lt.{f}(-inf, x)), ord.{f}(x, x)), not.b1(eq.{f}(x, -inf)))",
        "0x0",
        over(f=IEEE),
        "Every number is -inf or above it.",
    ),
    Rule(
        "no_number_is_neither_below_nor_plus_infinity",
        "and.b1(and.b1(not.b1(lt.{f}(x, +inf)), ord.{f}(x, x)), not.b1(eq.{f}(x, +inf)))",
        "0x0",
        over(f=IEEE),
        "Every number is +inf or below it.",
    ),
    Rule(
        "not_negative_is_not_below_zero",
        "lt.{f}(x, {zero})",
        "0x0",
        _SIDES,
        "No number without a sign is below zero.",
        where={"x": ("not_negative",)},
    ),
    Rule(
        "not_negative_is_from_zero",
        "le.{f}({zero}, x)",
        "ord.{f}(x, x)",
        _SIDES,
        "Every number without a sign is at least zero.",
        where={"x": ("not_negative",)},
    ),
)

_LONG_INTEGERS = over(relation=("lt", "le"), t=("s64", "u64"))
INTEGER_EXTREMA = (
    Rule(
        "integer_minimum_selected",
        "select({relation}.{t}(x, y), x, y)",
        "min.{t}(x, y)",
        _LONG_INTEGERS,
        "The lesser integer is selected; equal ones are the same.",
    ),
    Rule(
        "integer_maximum_selected",
        "select({relation}.{t}(x, y), y, x)",
        "max.{t}(x, y)",
        _LONG_INTEGERS,
        "The greater integer is selected; equal ones are the same.",
    ),
    Rule(
        "integer_minimum_selected_in_halves",
        "select({relation}.{t}(x, y), slice.{low}.32(x), slice.{low}.32(y))",
        "slice.{low}.32(min.{t}(x, y))",
        over(relation=("lt", "le"), t=("s64", "u64"), low=("0", "32")),
        "Each half is one of the lesser integer.",
    ),
    Rule(
        "integer_maximum_selected_in_halves",
        "select({relation}.{t}(x, y), slice.{low}.32(y), slice.{low}.32(x))",
        "slice.{low}.32(max.{t}(x, y))",
        over(relation=("lt", "le"), t=("s64", "u64"), low=("0", "32")),
        "Each half is one of the greater integer.",
    ),
)
