"""Rules of floating-point sums, differences and signs."""

from __future__ import annotations

from bitwise_core.ir.rules.rule import IEEE, NEAREST_OR_ZERO, Rule, over

_SUMS = over(f=IEEE, r=NEAREST_OR_ZERO)
_DOWN = over(f=IEEE, r="rd")
_FLUSHED = over(f="fp32", r="rn.ftz")

_ZERO_PRODUCTS = tuple(
    {**each, "product": product.format(**each)}
    for each in _SUMS
    for product in ("mul.{r}.{f}(x, +0)", "neg.{f}(mul.{r}.{f}(x, +0))")
)

SUMS = (
    Rule(
        "sub_is_add",
        "sub.{r}.{f}(x, y)",
        "add.{r}.{f}(x, neg.{f}(y))",
        _SUMS,
        "IEEE 754 defines the difference as this sum.",
    ),
    Rule(
        "add_minus_zero",
        "add.{r}.{f}(x, -0)",
        "x",
        _SUMS,
        "-0 is the neutral element: it changes no number, and +0 + (-0) is +0 unless rounded down.",
        keeps="number",
        refuted=_DOWN + _FLUSHED,
    ),
    Rule(
        "add_plus_zero",
        "add.{r}.{f}(x, +0)",
        "x",
        _SUMS,
        "+0 changes only -0, which becomes +0.",
        where={"x": ("not_minus_zero",)},
        keeps="number",
        refuted=_FLUSHED,
    ),
    Rule(
        "add_plus_zero_outward",
        "add.{r}.{f}(add.{r}.{f}(x, +0), y)",
        "add.{r}.{f}(add.{r}.{f}(x, y), +0)",
        _SUMS,
        "Adding +0 only changes -0 to +0, and a sum is -0 only if both operands are: sums do not underflow.",
        refuted=_FLUSHED,
    ),
    Rule(
        "add_zero_product",
        "add.{r}.{f}({product}, z)",
        "z",
        _ZERO_PRODUCTS,
        "The product is a zero of some sign, which changes no number but -0.",
        where={"z": ("not_minus_zero",)},
        assumes="finite",
    ),
    Rule(
        "add_infinity",
        "add.{r}.{f}(x, {infinity})",
        "{infinity}",
        over(f=IEEE, r=NEAREST_OR_ZERO, infinity=("+inf", "-inf")),
        "A finite number changes no infinity.",
        assumes="finite",
    ),
)

SIGNS = (
    Rule("neg_neg", "neg.{f}(neg.{f}(x))", "x", over(f=IEEE), "Two negations cancel.", keeps="number"),
    Rule("abs_neg", "abs.{f}(neg.{f}(x))", "abs.{f}(x)", over(f=IEEE), "The magnitude has no sign."),
    Rule(
        "abs_not_negative",
        "abs.{f}(x)",
        "x",
        over(f=IEEE),
        "The sign bit is clear already.",
        where={"x": ("not_negative",)},
        keeps="number",
    ),
)
