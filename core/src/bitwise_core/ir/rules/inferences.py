"""Inferences: facts about results of operations, from facts about their operands."""

from __future__ import annotations

from bitwise_core.ir.rules.rule import IEEE, NEAREST_OR_ZERO, Inference, over, pairs

_ROUNDED = over(f=IEEE, r=NEAREST_OR_ZERO)
_EXTREMA = ("max", "min", "max.nan", "min.nan")


def _both(name: str, term: str, then: str, over_: tuple[dict[str, str], ...], reason: str) -> Inference:
    return Inference(name, term, then, over_, reason, {"x": (then,), "y": (then,)})


INFERENCES = (
    Inference("sum_not_minus_zero", "add.{r}.{f}(x, y)", "not_minus_zero", _ROUNDED,
              "A zero sum is exact, and is -0 only for two operands -0.", {"x": ("not_minus_zero",)}),
    Inference("sum_not_negative", "add.{r}.{f}(x, y)", "not_negative", _ROUNDED,
              "Numbers without sign have a sum without sign.", {"x": ("not_negative",), "y": ("not_negative",)}),
    Inference("square_not_negative", "mul.{r}.{f}(x, x)", "not_negative", _ROUNDED,
              "A square is not negative, even where it underflows."),
    Inference("product_not_negative", "mul.{r}.{f}(x, y)", "not_negative", _ROUNDED,
              "Equal signs make a positive product, even where it underflows.",
              {"x": ("not_negative",), "y": ("not_negative",)}),
    Inference("fused_square_not_negative", "fma.{r}.{f}(x, x, z)", "not_negative", _ROUNDED,
              "A square is not negative, and neither is its sum with such a number.", {"z": ("not_negative",)}),
    Inference("fused_product_not_negative", "fma.{r}.{f}(x, y, z)", "not_negative", _ROUNDED,
              "Equal signs make a positive product, and its sum with such a number is positive.",
              {"x": ("not_negative",), "y": ("not_negative",), "z": ("not_negative",)}),
    Inference("quotient_not_negative", "div.rn.{f}(x, y)", "not_negative", over(f=IEEE),
              "Equal signs make a positive quotient.", {"x": ("not_negative",), "y": ("not_negative",)}),
    Inference("root_not_negative", "sqrt.rn.{f}(x)", "not_negative", over(f=IEEE),
              "The root of a number without sign has no sign.", {"x": ("not_negative",)}),
    Inference("magnitude_not_negative", "abs.{f}(x)", "not_negative", over(f=IEEE), "The sign is cleared."),
    Inference("extremum_not_negative", "{op}.{f}(x, y)", "not_negative", over(op=_EXTREMA, f=IEEE),
              "The result is one of the operands.", {"x": ("not_negative",), "y": ("not_negative",)}),
    Inference("maximum_not_negative", "{op}.{f}(x, y)", "not_negative", over(op=("max", "max.nan"), f=IEEE),
              "The maximum is at least y.", {"y": ("not_negative", "not_nan")}),
    Inference("propagating_maximum_not_negative", "max.nan.{f}(x, y)", "not_negative", over(f=IEEE),
              "The maximum is NaN or at least y.", {"y": ("not_negative",)}),
    Inference("extremum_not_minus_zero", "{op}.{f}(x, y)", "not_minus_zero", over(op=_EXTREMA, f=IEEE),
              "The result is one of the operands.", {"x": ("not_minus_zero",), "y": ("not_minus_zero",)}),
    Inference("maximum_not_nan", "{op}.{f}(x, y)", "not_nan", over(op=("max", "min"), f=IEEE),
              "A number is selected over a NaN.", {"y": ("not_nan",)}),
    Inference("widened_not_negative", "convert.{w}.{n}(x)", "not_negative",
              pairs("n", "w", ("fp16", "fp32"), ("fp32", "fp64"), ("bf16", "fp32")),
              "Widening keeps signs.", {"x": ("not_negative",)}),
    Inference("widened_not_minus_zero", "convert.{w}.{n}(x)", "not_minus_zero",
              pairs("n", "w", ("fp16", "fp32"), ("fp32", "fp64"), ("bf16", "fp32")),
              "Widening keeps numbers.", {"x": ("not_minus_zero",)}),
    Inference("widened_not_nan", "convert.{w}.{n}(x)", "not_nan",
              pairs("n", "w", ("fp16", "fp32"), ("fp32", "fp64"), ("bf16", "fp32")),
              "Widening keeps numbers.", {"x": ("not_nan",)}),
    Inference("widened_fp16", "convert.fp32.fp16(x)", "holds_fp16", over(), "The value was an fp16."),
    Inference("negated_fp16", "neg.fp32(x)", "holds_fp16", over(), "fp16 has both signs.", {"x": ("holds_fp16",)}),
    Inference("sum_at_least_2_to_minus_96", "add.rn.fp32(x, y)", "at_least_2_to_minus_96", over(),
              "Adding a number that is not negative does not make y less, and rounding keeps the order.",
              {"x": ("not_negative",), "y": ("at_least_2_to_minus_96",)}),
    Inference("fused_square_at_least_2_to_minus_96", "fma.rn.fp32(x, x, z)", "at_least_2_to_minus_96", over(),
              "Adding a square does not make z less, and rounding keeps the order.",
              {"z": ("at_least_2_to_minus_96",)}),
    Inference("fused_product_at_least_2_to_minus_96", "fma.rn.fp32(x, y, z)", "at_least_2_to_minus_96", over(),
              "Adding a product that is not negative does not make z less, and rounding keeps the order.",
              {"x": ("not_negative",), "y": ("not_negative",), "z": ("at_least_2_to_minus_96",)}),
    Inference("maximum_at_least_2_to_minus_96", "max.fp32(x, y)", "at_least_2_to_minus_96", over(),
              "The maximum is at least y.", {"y": ("at_least_2_to_minus_96", "not_nan")}),
    Inference("quiet_extremum", "{op}.{f}(x, y)", "quiet", over(op=_EXTREMA, f=IEEE),
              "Operations return no signalling NaN."),
)  # fmt: skip
"""A value that is not negative is not -0 either: `facts` of the same value follow from each other by IMPLIED."""

IMPLIED = {"not_negative": ("not_minus_zero",)}
"""Facts that follow from a fact of the same value."""
