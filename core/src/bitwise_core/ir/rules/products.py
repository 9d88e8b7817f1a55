"""Rules of floating-point products, fused products and quotients."""

from __future__ import annotations

from bitwise_core.ir.rules.rule import IEEE, NEAREST_OR_ZERO, Rule, over, pairs

_ROUNDED = over(f=IEEE, r=NEAREST_OR_ZERO)
_DIRECTED = over(f=IEEE, r=("ru", "rd"))
_FLUSHED = over(f="fp32", r="rn.ftz")
_FUSED = pairs("op", "opposite", ("fma", "fnma"), ("fnma", "fma"), f=IEEE, r=NEAREST_OR_ZERO)

PRODUCTS = (
    Rule(
        "mul_neg",
        "mul.{r}.{f}(neg.{f}(x), y)",
        "neg.{f}(mul.{r}.{f}(x, y))",
        _ROUNDED,
        "A rounding that is independent of the sign rounds a product and its negative symmetrically.",
        refuted=_DIRECTED,
    ),
    Rule(
        "mul_one",
        "mul.{r}.{f}(x, +1)",
        "x",
        _ROUNDED,
        "The exact product is x, which the format holds.",
        keeps="number",
        refuted=_FLUSHED,
    ),
    Rule(
        "mul_minus_one",
        "mul.{r}.{f}(x, -1)",
        "neg.{f}(x)",
        _ROUNDED,
        "The exact product is -x, which the format holds.",
        refuted=_FLUSHED,
    ),
    Rule(
        "mul_two",
        "mul.{r}.{f}(x, +2)",
        "add.{r}.{f}(x, x)",
        _ROUNDED,
        "Both round the exact number 2 x; the sum of two zeros of one sign has that sign.",
    ),
)

FUSED_PRODUCTS = (
    Rule(
        "fma_neg",
        "{op}.{r}.{f}(neg.{f}(x), y, z)",
        "{opposite}.{r}.{f}(x, y, z)",
        _FUSED,
        "The exact product changes its sign.",
    ),
    Rule(
        "fma_of_zeros",
        "fma.{r}.{f}(+0, +0, z)",
        "add.{r}.{f}(z, +0)",
        _ROUNDED,
        "The product is +0.",
    ),
    Rule(
        "fma_minus_zero",
        "fma.{r}.{f}(x, y, -0)",
        "mul.{r}.{f}(x, y)",
        _ROUNDED,
        "-0 changes no exact product, and the sum of it and a zero has the sign of the zero.",
    ),
    Rule(
        "fma_one",
        "fma.{r}.{f}(x, +1, z)",
        "add.{r}.{f}(x, z)",
        _ROUNDED,
        "The exact product is x.",
    ),
    Rule(
        "fma_minus_one",
        "fma.{r}.{f}(x, -1, z)",
        "add.{r}.{f}(neg.{f}(x), z)",
        _ROUNDED,
        "The exact product is -x.",
    ),
    Rule(
        "fma_of_exact_product",
        "fma.{r}.fp32(x, y, z)",
        "add.{r}.fp32(mul.{r}.fp32(x, y), z)",
        over(r=NEAREST_OR_ZERO),
        "fp32 holds the product of two fp16 numbers, so nothing is rounded in between.",
        where={"x": ("holds_fp16",), "y": ("holds_fp16",)},
    ),
    Rule(
        "fnma_of_exact_product",
        "fnma.{r}.fp32(x, y, z)",
        "add.{r}.fp32(neg.fp32(mul.{r}.fp32(x, y)), z)",
        over(r=NEAREST_OR_ZERO),
        "fp32 holds the product of two fp16 numbers, so nothing is rounded in between.",
        where={"x": ("holds_fp16",), "y": ("holds_fp16",)},
    ),
    Rule(
        "narrowed_product_without_minus_zero",
        "add.rn.{n}(convert.{r}.{n}.fp32(fma.{r}.fp32(x, y, +0)), +0)",
        "add.rn.{n}(convert.{r}.{n}.fp32(mul.{r}.fp32(x, y)), +0)",
        over(n=("fp16", "bf16"), r=NEAREST_OR_ZERO),
        "The fused product differs from the product only where that is exactly -0, which the last sum replaces.",
    ),
)

ZERO_FACTORS = (
    Rule(
        "fma_zero_factor",
        "{op}.{r}.{f}(x, {zero}, z)",
        "z",
        over(op=("fma", "fnma"), f=IEEE, r=NEAREST_OR_ZERO, zero=("+0", "-0")),
        "The product is a zero of some sign, which changes no number but -0.",
        where={"z": ("not_minus_zero",)},
        assumes="finite",
    ),
    Rule(
        "fma_plus_zero_product",
        "fma.{r}.{f}(x, +0, z)",
        "add.{r}.{f}(z, +0)",
        _ROUNDED,
        "The product is +0.",
        where={"x": ("not_negative",)},
        assumes="finite",
    ),
    Rule(
        "fma_zero_times_opposite",
        "fma.{r}.{f}(add.{r}.{f}(neg.{f}(z), +0), +0, z)",
        "add.{r}.{f}(z, +0)",
        _ROUNDED,
        "The product is +0, or it is a zero and z is not.",
        assumes="finite",
    ),
    Rule(
        "fma_infinity",
        "{op}.{r}.{f}(x, y, {infinity})",
        "{infinity}",
        over(op=("fma", "fnma"), f=IEEE, r=NEAREST_OR_ZERO, infinity=("+inf", "-inf")),
        "A finite product changes no infinity.",
        assumes="finite",
    ),
)

QUOTIENTS = (
    Rule(
        "div_of_plus_zero",
        "div.rn.fp32(+0, y)",
        "+0",
        over(),
        "Zero divided by a positive number is zero.",
        where={"y": ("has_normal_reciprocal",)},
    ),
)

DOCUMENTED_VALUES = (
    Rule(
        "exponential_of_special_values",
        "ex2.approx.fp32({x})",
        "{y}",
        pairs(
            "x",
            "y",
            ("guard.fp32(x, d)", "guard.fp32(ex2.approx.fp32(x), d)"),  # NaN of NaN
            ("-inf", "+0"),
            ("+0", "+1"),
            ("-0", "+1"),
        ),
        "The instruction sets state these results of every approximation of a power of two.",
        evidence="measured",
    ),
    Rule(
        "approximate_div_of_plus_zero",
        "div.{kind}.fp32(+0, y)",
        "+0",
        over(kind=("approx", "full")),
        "The reciprocal of y is a normal number, however it is approximated, and zero times a number is zero.",
        where={"y": ("has_normal_reciprocal",)},
        evidence="measured",
    ),
)
"""What approximations return where the instruction sets state the result."""
