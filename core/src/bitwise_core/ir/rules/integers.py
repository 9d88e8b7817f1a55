"""Rules of integers: rings, lattices, bits."""

from __future__ import annotations

from bitwise_core.ir.rules.rule import Rule, over

_WIDTHS = ("8", "16", "32", "64")
_RINGS = over(w=("32", "64"))
_ALL = over(w=_WIDTHS)

LINEAR = (
    Rule(
        "integer_sub_is_add",
        "sub.b{w}(x, y)",
        "add.b{w}(x, neg.b{w}(y))",
        _RINGS,
        "Arithmetic modulo a power of two is a ring.",
        execution="ring",
    ),
    Rule(
        "integer_mul_distributes",
        "mul.b{w}(add.b{w}(x, y), z)",
        "add.b{w}(mul.b{w}(x, z), mul.b{w}(y, z))",
        _RINGS,
        "Arithmetic modulo a power of two is a ring.",
        execution="ring",
    ),
    Rule(
        "integer_shl_distributes",
        "shl.b{w}(add.b{w}(x, y), z)",
        "add.b{w}(shl.b{w}(x, z), shl.b{w}(y, z))",
        _RINGS,
        "A shift to the left is a product with a power of two, or with zero.",
        execution="ring",
    ),
    Rule(
        "integer_neg_distributes",
        "neg.b{w}(add.b{w}(x, y))",
        "add.b{w}(neg.b{w}(x), neg.b{w}(y))",
        _RINGS,
        "Arithmetic modulo a power of two is a ring.",
        execution="ring",
    ),
)

MASKS = (
    Rule(
        "bits_idempotent", "{op}.b{w}(x, x)", "x", over(op=("and", "or"), w=("1", *_WIDTHS)), "Bits form a lattice.",
        execution="set",
    ),
    Rule(
        "and_ones",
        "and.b{w}(x, {ones})",
        "x",
        tuple({**each, "ones": f"{(1 << int(each['w'])) - 1:#x}"} for each in _ALL),
        "A one keeps a bit.",
        execution="set",
    ),
    Rule("and_zero", "and.b{w}(x, 0x0)", "0x0", _ALL, "A zero clears a bit.", execution="set"),
    Rule("or_zero", "{op}.b{w}(x, 0x0)", "x", over(op=("or", "xor"), w=_WIDTHS), "A zero changes no bit.",
         execution="set"),
    Rule("integer_extremum_idempotent", "{op}.{s}{w}(x, x)", "x", over(op=("max", "min"), s=("s", "u"), w=_WIDTHS),
         "The result is one of its operands.", execution="set"),
)  # fmt: skip
