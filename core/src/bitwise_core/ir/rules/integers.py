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
    Rule("integer_add_zero", "add.b{w}(x, 0x0)", "x", _RINGS, "Zero is neutral.", execution="ring"),
    Rule("integer_sub_zero", "sub.b{w}(x, 0x0)", "x", _RINGS, "Zero is neutral.", execution="ring"),
    Rule("integer_sub_of_itself", "sub.b{w}(x, x)", "0x0", _RINGS, "The sum of opposites is zero.", execution="ring"),
    Rule("integer_mul_one", "mul.b{w}(x, 0x1)", "x", _RINGS, "One is neutral.", execution="ring"),
    Rule("integer_mul_zero", "mul.b{w}(x, 0x0)", "0x0", _RINGS, "A product with zero is zero.", execution="ring"),
    Rule("integer_shl_zero", "shl.b{w}(x, 0x0)", "x", _RINGS, "No bit is moved.", execution="ring"),
    Rule(
        "selected_integer_is_linear",
        "select(p, x, y)",
        "add.b{w}(y, mul.b{w}(sub.b{w}(x, y), select(p, 0x1, 0x0)))",
        _RINGS,
        "A select is one number plus the distance of the other where the predicate holds.",
        formats={"x": "b{w}", "y": "b{w}"},
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
    Rule("xor_of_itself", "xor.b{w}(x, x)", "0x0", _ALL, "Each bit is compared with itself."),
    Rule("xor_twice", "xor.b{w}(x, xor.b{w}(x, y))", "y", _ALL, "A bit that is flipped twice is the bit."),
    Rule("integer_extremum_idempotent", "{op}.{s}{w}(x, x)", "x", over(op=("max", "min"), s=("s", "u"), w=_WIDTHS),
         "The result is one of its operands.", execution="set"),
    Rule("extremum_by_sign_idempotent", "{op}bysign.b{w}(x, x)", "x", over(op=("max", "min"), w=("32", "64")),
         "The result is one of its operands.", execution="set"),
    Rule(
        "no_bit_of_either",
        "eq.b{w}(or.b{w}(x, y), 0x0)",
        "and.b1(eq.b{w}(x, 0x0), eq.b{w}(y, 0x0))",
        _ALL,
        "No bit is set in either.",
    ),
    Rule(
        "extremum_by_sign_neutral",
        "{op}bysign.b{w}(x, {end})",
        "x",
        tuple(
            {"op": op, "w": str(w), "end": f"{(1 << w) - 1 if op == 'max' else (1 << w - 1) - 1:#x}"}
            for op in ("max", "min")
            for w in (32, 64)
        ),
        "The pattern of all ones is the first in this order, that of all ones but the sign bit is the last.",
        execution="set",
    ),
)  # fmt: skip

_HALVES = ({"n": "16", "w": "32"}, {"n": "32", "w": "64"})
_WITH_ZEROS = tuple({**each, "zeros": "0x" + "0" * (int(each["n"]) // 4)} for each in _HALVES)

BOUNDED = (
    Rule(
        "average",
        "add.b{w}(and.b{w}(x, y), shr.u{w}(xor.b{w}(x, y), 0x1))",
        "shr.u{w}(add.b{w}(x, y), 0x1)",
        over(w=("32", "64")),
        "A sum is twice the common bits plus the others; it does not wrap.",
        where={"x": ("below_half",), "y": ("below_half",)},
    ),
    Rule(
        "signed_shift",
        "shr.s{w}(x, y)",
        "shr.u{w}(x, y)",
        over(w=("16", "32", "64")),
        "A number that is not negative is filled with zeros.",
        where={"x": ("below_half",)},
    ),
    Rule(
        "operation_on_selected_integers",
        "{op}.{s}{w}(select(p, x, y), select(p, z, v))",
        "select(p, {op}.{s}{w}(x, z), {op}.{s}{w}(y, v))",
        over(op=("add", "sub", "and", "or", "xor"), s="b", w=_WIDTHS)
        + over(op=("min", "max"), s=("s", "u"), w=_WIDTHS),
        "One predicate selects both operands.",
        formats=dict.fromkeys("xyzv", "b{w}"),
        execution="representation",
    ),
    Rule(
        "sign_of_small_number",
        "shr.u{w}(x, {last})",
        "0x0",
        tuple({"w": each, "last": f"{int(each) - 1:#x}"} for each in ("16", "32", "64")),
        "The highest bit is not set.",
        where={"x": ("below_half",)},
    ),
    Rule(
        "slice_of_slice",
        "slice.{inner}.{n}(slice.{outer}.{m}(x))",
        "slice.{low}.{n}(x)",
        tuple(
            {**each, "low": str(int(each["inner"]) + int(each["outer"]))}
            for each in over(
                inner=("0", "8", "16", "24"), n=("8", "16"), outer=("0", "16", "32"), m=("16", "32"), w=("32", "64")
            )
            if int(each["inner"]) + int(each["n"]) <= int(each["m"])
            and int(each["outer"]) + int(each["m"]) <= int(each["w"])
        ),
        "Bits of bits are bits.",
        formats={"x": "b{w}"},
        execution="representation",
    ),
    Rule(
        "sum_of_low_halves",
        "add.b{n}(slice.0.{n}(x), slice.0.{n}(y))",
        "slice.0.{n}(add.b{w}(x, y))",
        _HALVES[1:],
        "The low bits of a sum depend on the low bits of its operands.",
        formats={"x": "b{w}", "y": "b{w}"},
    ),
    Rule(
        "number_below_a_half",
        "add.b{w}(concat({zeros}, x), concat(y, {zeros}))",
        "concat(y, x)",
        _WITH_ZEROS,
        "No bit of one operand meets a bit of the other.",
        formats={"x": "b{n}", "y": "b{n}"},
        execution="representation",
    ),
    Rule(
        "shifted_low_half",
        "shr.u{n}(slice.0.{n}(x), y)",
        "slice.0.{n}(shr.u{w}(x, y))",
        _HALVES,
        "The high half has no bits that would enter the low one.",
        where={"x": ("fits_low_half",)},
        formats={"x": "b{w}"},
    ),
    Rule(
        "sign_extension",
        "convert.b{w}.s{n}(x)",
        "concat(x, {zeros})",
        _WITH_ZEROS,
        "A number that is not negative is extended by zeros.",
        where={"x": ("below_half",)},
    ),
    Rule(
        "signed_product_in_twice_the_width",
        "mulwide.s{n}(x, y)",
        "mul.b{w}(convert.b{w}.s{n}(x), convert.b{w}.s{n}(y))",
        _HALVES,
        "The operands are extended before they are multiplied.",
    ),
    Rule(
        "product_in_twice_the_width",
        "mulwide.u{n}(x, y)",
        "mul.b{w}(concat(x, {zeros}), concat(y, {zeros}))",
        _WITH_ZEROS,
        "The operands are extended before they are multiplied.",
    ),
)
"""Rules of integers that are known to be small, and of the extension to twice the width."""

_CODES = ("8", "16")

NARROW = (
    Rule(
        "operation_on_low_bits",
        "{op}.b{n}(slice.0.{n}(x), slice.0.{n}(y))",
        "slice.0.{n}({op}.b32(x, y))",
        over(op=("add", "sub", "and", "or", "xor"), n=_CODES),
        "The low bits of the result depend on the low bits of its operands.",
        formats={"x": "b32", "y": "b32"},
        execution="representation",
    ),
    Rule(
        "shift_of_low_bits",
        "shl.b{n}(slice.0.{n}(x), y)",
        "slice.0.{n}(shl.b32(x, y))",
        over(n=_CODES),
        "A shift to the left moves no bit down.",
        formats={"x": "b32"},
        execution="representation",
    ),
    Rule(
        "selection_of_low_bits",
        "select(p, slice.0.{n}(x), slice.0.{n}(y))",
        "slice.0.{n}(select(p, x, y))",
        over(n=_CODES),
        "The low bits of the selected value are selected.",
        formats={"x": "b32", "y": "b32"},
        execution="representation",
    ),
    Rule(
        "low_bits_of_masked",
        "slice.0.{n}(and.b{w}(x, or.b{w}(y, {ones})))",
        "slice.0.{n}(x)",
        tuple({"n": str(n), "w": str(w), "ones": f"{(1 << n) - 1:#x}"} for w in (16, 32, 64) for n in (8, 16) if n < w),
        "The mask keeps these bits.",
        formats={"x": "b{w}"},
        execution="representation",
    ),
    Rule(
        "number_of_low_bits",
        "slice.0.{n}(add.b32(x, y))",
        "slice.0.{n}(add.b32(x, convert.b32.s{n}(slice.0.{n}(y))))",
        over(n=_CODES),
        "The low bits of a sum depend on the low bits of its operands.",
        formats={"x": "b32", "y": "b32"},
        execution="representation",
    ),
    Rule(
        "comparison_of_low_halves",
        "{op}.{s}16(slice.0.16(x), slice.0.16(y))",
        "{op}.{s}32(x, y)",
        over(op=("lt", "le"), s="u") + over(op="eq", s="b"),
        "The high halves are zero.",
        where={"x": ("fits_low_half",), "y": ("fits_low_half",)},
        formats={"x": "b32", "y": "b32"},
        execution="representation",
    ),
)
"""Rules of integers of 8 and 16 bits that are the low bits of integers of 32 bits."""
