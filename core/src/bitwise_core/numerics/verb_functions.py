"""The verbs of the vocabulary of operations, as tables: the names of each, and what it computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from bitwise_core.numerics import floating, integers
from bitwise_core.numerics.floating import ARITHMETIC, CLASSES, COMPARISONS, Mode
from bitwise_core.numerics.formats import FORMATS, FloatFormat, IntegerFormat
from bitwise_core.numerics.softfloat import ROUNDINGS, Rounding

Array: TypeAlias = npt.NDArray[Any]
Function: TypeAlias = Callable[..., Array]
Groups: TypeAlias = tuple[tuple[str, ...], ...]
"""The modifiers of a name in order: at most one of each group."""


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb of the tables: its names, and what it computes.

    `formats` are the formats in which a name may end.  `operands` and `result` are formats, "" for the name's last
    format, "wide" for twice its width.  `says` describes the result for the page of operations.  `signless` means that
    only the width matters, so that the name ends in b.  `modifiers` are groups of which a name takes at most one each,
    in order; a `required` verb takes exactly one of the first group.  `make` returns the function for a format and the
    modifiers.
    """

    verb: str
    formats: tuple[str, ...]
    operands: tuple[str, ...]
    says: str
    make: Callable[[Any, tuple[str | None, ...]], Function] | None
    result: str = ""
    modifiers: Groups = ()
    required: bool = False
    signless: bool = False
    commutative: bool = False
    associative: bool = False


FTZ, NAN, SATFINITE = ("ftz",), ("nan",), ("satfinite",)
CLAMPS = ("sat", "relu")
NUMBERS = tuple(
    form.name
    for form in FORMATS.values()
    if isinstance(form, FloatFormat) and form.canonical_nan is not None and form.signed
)
_IEEE = ("fp64", "fp32", "fp16", "bf16")


def _widths(letters: str, *widths: int) -> tuple[str, ...]:
    return tuple(f"{letter}{bits}" for letter in letters for bits in widths or (8, 16, 32, 64))


def mode_of(modifiers: Sequence[str | None]) -> Mode:
    """Return the mode that the modifiers other than the rounding select."""
    return Mode(ftz="ftz" in modifiers, sat="sat" in modifiers, relu="relu" in modifiers)


def _rounded(verb: str) -> Callable[[FloatFormat, tuple[str | None, ...]], Function]:
    return lambda form, given: partial(floating.arithmetic, verb, form, cast("Rounding", given[0]), mode_of(given))


def _extremum(verb: str) -> Callable[[FloatFormat, tuple[str | None, ...]], Function]:
    return lambda form, given: partial(floating.extremum, verb, form, "nan" in given, mode_of(given))


def _sign(verb: str) -> Callable[[FloatFormat, tuple[str | None, ...]], Function]:
    return lambda form, given: partial(floating.change_sign, verb, form, mode_of(given))


def _relation(verb: str) -> Callable[[FloatFormat, tuple[str | None, ...]], Function]:
    return lambda form, given: partial(floating.compare, verb, form, mode_of(given))


def _class(verb: str) -> Callable[[FloatFormat, tuple[str | None, ...]], Function]:
    return lambda form, given: partial(floating.classify, verb, form)


_ARITHMETIC_TEXT = {
    "add": "a + b", "sub": "a - b", "mul": "a * b", "div": "a / b", "fma": "a * b + c with one rounding",
    "fnma": "c - a * b with one rounding", "sqrt": "the square root", "rcp": "1 / a",
}  # fmt: skip
_COMPARISON_TEXT = {
    "eq": "a = b", "ne": "a < b or a > b", "lt": "a < b", "le": "a <= b", "gt": "a > b", "ge": "a >= b",
}  # fmt: skip

FLOAT_VERBS: tuple[Verb, ...] = (
    *(
        Verb(
            verb, NUMBERS, ("",) * arity,
            _ARITHMETIC_TEXT[verb] + ("; `atomic` marks the sum of a memory unit" if verb == "add" else ""),
            _rounded(verb), modifiers=(ROUNDINGS, FTZ, CLAMPS, *((("atomic",),) if verb == "add" else ())),
            required=True, commutative=verb in ("add", "mul", "fma", "fnma"),
        )
        for verb, arity in ARITHMETIC.items()
    ),
    *(
        Verb(
            verb, NUMBERS, ("", ""), f"the {word} number, -0 below +0; the other operand for a NaN, unless `nan`",
            _extremum(verb), modifiers=(FTZ, NAN, CLAMPS), commutative=True,
        )
        for verb, word in (("min", "lesser"), ("max", "greater"))
    ),
    Verb("neg", NUMBERS, ("",), "the sign flipped", _sign("neg"), modifiers=(FTZ,)),
    Verb("abs", NUMBERS, ("",), "the sign cleared", _sign("abs"), modifiers=(FTZ,)),
    Verb("guard", NUMBERS, ("", ""), "a, or NaN where b is NaN", lambda form, given: partial(floating.guard, form)),
    *(
        Verb(
            verb + unordered, NUMBERS, ("", ""),
            _COMPARISON_TEXT[verb] + (", or an operand is NaN" if unordered else ""), _relation(verb + unordered), "b1",
            (FTZ,), commutative=verb in ("eq", "ne"),
        )
        for verb in COMPARISONS
        for unordered in ("", "u")
    ),
    Verb("ord", NUMBERS, ("", ""), "no operand is NaN", _relation("ord"), "b1", (FTZ,), commutative=True),
    Verb("unord", NUMBERS, ("", ""), "an operand is NaN", _relation("unord"), "b1", (FTZ,), commutative=True),
    *(Verb(verb, _IEEE, ("",), f"whether a is {word}", _class(verb), "b1") for verb, word in zip(
        CLASSES, ("finite", "infinite", "not NaN", "NaN", "normal", "subnormal"), strict=True
    )),
)  # fmt: skip
"""Operations on floating-point numbers."""

_APPROXIMATION = (("approx", "full"), ("turns",), ("literal",), FTZ, (*SATFINITE, *CLAMPS))

APPROXIMATIONS: tuple[Verb, ...] = tuple(
    Verb(verb, NUMBERS, ("",) * arity, says, None, modifiers=_APPROXIMATION, required=True)
    for verb, arity, says in (
        ("ex2", 1, "2 to the power a"),
        ("lg2", 1, "the logarithm to base 2"),
        ("rcp", 1, "1 / a"),
        ("rsqrt", 1, "1 / the square root"),
        ("sqrt", 1, "the square root"),
        ("sin", 1, "the sine; `turns`: of an angle in full turns"),
        ("cos", 1, "the cosine; `turns`: of an angle in full turns"),
        ("tanh", 1, "the hyperbolic tangent"),
        ("div", 2, "a / b"),
    )
)
"""Operations whose bits the hardware decides; `literal`: the operand is a constant that the assembler knows."""


def always(function: Function) -> Callable[[IntegerFormat, tuple[str | None, ...]], Function]:
    """Return a `Verb.make` that gives one function for every format."""
    return lambda form, given: function


def _typed(function: Callable[..., Array]) -> Callable[[IntegerFormat, tuple[str | None, ...]], Function]:
    return lambda form, given: partial(function, form)


def _by_verb(verb: str, function: Callable[..., Array]) -> Callable[[IntegerFormat, tuple[str | None, ...]], Function]:
    return lambda form, given: partial(function, verb, form)


def _funnel(direction: str) -> Callable[[IntegerFormat, tuple[str | None, ...]], Function]:
    return lambda form, given: partial(integers.funnel_shift, direction, str(given[0]))


_BITS, _BOTH = _widths("b"), _widths("su")
TRUTH_TABLES = tuple(f"{number:#04x}" for number in range(256))

INTEGER_VERBS: tuple[Verb, ...] = (
    *(
        Verb(verb, _BITS, ("", ""), says, always(function), signless=True, commutative=commutes, associative=commutes)
        for verb, says, function, commutes in (
            ("add", "a + b", np.add, True), ("sub", "a - b", np.subtract, False), ("mul", "a * b", np.multiply, True),
        )
    ),
    *(
        Verb(
            verb, ("b1", *_BITS), ("", ""), f"a {verb} b, bit by bit", always(function), signless=True,
            commutative=True, associative=True,
        )
        for verb, function in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor))
    ),
    Verb("not", ("b1", *_BITS), ("",), "the complement of every bit", always(np.invert), signless=True),
    Verb("neg", _BITS, ("",), "-a", always(integers.negate), signless=True),
    Verb("abs", _widths("s"), ("",), "|a|; the most negative number is unchanged", always(integers.absolute)),
    *(
        Verb(
            verb, ("b1", *_BITS), ("", ""), says, _by_verb(verb, integers.compare), "b1", signless=True,
            commutative=True,
        )
        for verb, says in (("eq", "a = b"), ("ne", "a != b"))
    ),
    *(
        Verb(verb, _BOTH, ("", ""), _COMPARISON_TEXT[verb], _by_verb(verb, integers.compare), "b1")
        for verb in ("lt", "le", "gt", "ge")
    ),
    *(
        Verb(verb, _BOTH, ("", ""), f"the {word} number", _by_verb(verb, integers.extremum), commutative=True,
             associative=True)
        for verb, word in (("min", "lesser"), ("max", "greater"))
    ),
    Verb("shl", _BITS, ("", "b32"), "a shifted left by b; 0 for b >= the width", _by_verb("shl", integers.shift),
         signless=True),
    Verb("shr", _BOTH, ("", "b32"), "a shifted right by b; 0, or copies of the sign, for b >= the width",
         _by_verb("shr", integers.shift)),
    Verb("mulhi", _BOTH, ("", ""), "the high half of a * b", _typed(integers.multiply_high), commutative=True),
    Verb("mulwide", _widths("su", 8, 16, 32), ("", ""), "a * b in twice the width", _typed(integers.multiply_wide),
         "wide", commutative=True),
    Verb("div", _BOTH, ("", ""), "a / b rounded toward zero; all ones for b = 0", _typed(integers.divide)),
    Verb("rem", _BOTH, ("", ""), "a - b * (a / b); all ones for b = 0", _typed(integers.remainder)),
    Verb("addc", _BITS, ("", "", "b1"), "a + b + c", always(integers.add_with_carry), signless=True, commutative=True),
    Verb("subc", _BITS, ("", "", "b1"), "a - b - c", always(integers.subtract_with_borrow), signless=True),
    Verb("carry", _widths("u"), ("", ""), "whether a + b wraps", always(integers.carry_out), "b1", commutative=True),
    Verb("carryc", _widths("u"), ("", "", "b1"), "whether a + b + c wraps", always(integers.carry_out_of_three), "b1",
         commutative=True),
    Verb("borrow", _widths("u"), ("", ""), "whether a - b wraps", always(integers.borrow_out), "b1"),
    Verb("borrowc", _widths("u"), ("", "", "b1"), "whether a - b - c wraps", always(integers.borrow_out_of_three),
         "b1"),
    Verb("addoverflow", _widths("s"), ("", ""), "whether a + b overflows", always(integers.sum_overflows), "b1",
         commutative=True),
    Verb("suboverflow", _widths("s"), ("", ""), "whether a - b overflows",
         always(integers.difference_overflows), "b1"),
    Verb("addsat", _widths("u"), ("", ""), "a + b, at most the greatest number", always(integers.saturating_sum),
         commutative=True),
    Verb("subsat", _widths("u"), ("", ""), "a - b, at least 0", always(integers.saturating_difference)),
    Verb("low24", ("s32", "u32"), ("",), "the lowest 24 bits, sign-extended or zero-extended",
         _typed(integers.low_24)),
    Verb("bfe", _widths("su", 32, 64), ("", "b32", "b32"),
         "c bits of a from bit b up, b and c modulo 256; zeros, or copies of the sign, beyond the top",
         _typed(integers.extract_field)),
    Verb("bfewrap", ("s32", "u32"), ("", "b32", "b32"), "c bits of a from bit b up, b and c modulo 32",
         _typed(integers.extract_field_wrapped)),
    Verb("bfi", _widths("b", 32, 64), ("", "", "b32", "b32"),
         "b with the low d bits of a inserted from bit c up, c and d modulo 256", _typed(integers.insert_field),
         signless=True),
    Verb("bitmask", _widths("b", 32, 64), ("b32", "b32"), "a set bits from bit b up, a and b modulo the width",
         _typed(integers.field_mask), signless=True),
    Verb("bittest", _BITS, ("", "b32"), "whether bit b of a, modulo the width, is set", always(integers.bit_is_set),
         "b1", signless=True),
    Verb("popc", _BITS, ("",), "the number of set bits", always(integers.count_ones), "b32", signless=True),
    Verb("clz", _BITS, ("",), "the number of leading zeros; the width for 0", always(integers.count_leading_zeros),
         "b32", signless=True),
    Verb("brev", _BITS, ("",), "the bits in reverse order", always(integers.reverse_bits), signless=True),
    Verb("findmsb", _widths("su", 32, 64), ("",),
         "the position of the highest set bit (s: highest bit unlike the sign), `top`: from the top; all ones if none",
         lambda form, given: partial(integers.find_highest, form, "top" in given), "b32", (("top",),)),
    Verb("findlsb", _BITS, ("",), "the position of the lowest set bit; all ones if none", always(integers.find_lowest),
         "b32", signless=True),
    Verb("findnth", ("b32",), ("", "b32", "b32"),
         "the position of the |c|-th set bit of a from bit b on, upwards (c > 0) or downwards (c < 0); b if c is 0 and"
         " bit b is set; all ones if none, or if b is above 31", always(integers.find_nth), signless=True),
    Verb("copysign", _widths("b", 16, 32, 64), ("", ""), "the highest bit of a and the other bits of b",
         always(integers.copy_sign), signless=True),
    *(
        Verb(f"shf{direction}", ("b32",), ("", "", "b32"),
             f"the {word} word of b:a shifted {side} by c, modulo 32 or (`clamp`) at most 32",
             _funnel(direction),
             modifiers=(("wrap", "clamp"),), required=True, signless=True)
        for direction, side, word in (("l", "left", "high"), ("r", "right", "low"))
    ),
    Verb("lop3", ("b32",), ("", "", ""), "for each bit, bit 4 a + 2 b + c of the truth table that is the modifier",
         lambda form, given: partial(integers.logic_of_three, int(given[0] or "0", 16)), modifiers=(TRUTH_TABLES,),
         required=True, signless=True),
    Verb("prmt", ("b32",), ("", "", "b32"),
         "four bytes of b:a, selected by the nibbles of c; bit 3 of a nibble replicates the byte's sign",
         always(integers.permute_bytes), signless=True),
    *(
        Verb(f"{verb}bysign", _widths("b", 32, 64), ("", ""),
             f"the {word} pattern in the order of floating-point numbers: by sign, then by magnitude",
             always(partial(integers.extremum_by_sign, verb)), signless=True, commutative=True)
        for verb, word in (("min", "lesser"), ("max", "greater"))
    ),
    Verb("sad", _BOTH, ("", "", ""), "c + |a - b|", _typed(integers.add_distance), commutative=True),
    *(
        Verb(f"dp4{one}{other}", ("b32",), ("", "", ""), "c + the products of the four bytes of a and b"
             f" ({'signed' if one == 's' else 'unsigned'} and {'signed' if other == 's' else 'unsigned'})",
             always(partial(integers.dot_of_bytes, one == "s", other == "s")), signless=True)
        for one in "su"
        for other in "su"
    ),
)  # fmt: skip
"""Operations on integers; the modifier of `lop3` is two hexadecimal digits."""
