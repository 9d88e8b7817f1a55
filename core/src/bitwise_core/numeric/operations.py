"""The vocabulary of operations: every name that core, the plugins and trees use, and what it means.

A name is `<verb>[.<modifier>...].<format>[.<format>][@<architecture>]`; `core/OPERATIONS.md` lists all verbs, and is
written from the tables of this module.

    add.rn.ftz.fp32             modifiers in this order: rounding, `ftz`, `nan` or `satfinite`, `sat` or `relu`
    convert.rzi.s32.fp32        two formats: the result's and then the operand's
    shr.s32 shr.u32 add.b32     s, u or b where the sign matters or does not
    ex2.approx.ftz.fp32@ARCH    an approximation of an architecture: a name without an evaluation
    med3.fp32@ARCH              an operation of one architecture, which its plugin has declared (`declare`)

A rounding that cannot matter and a sign that cannot matter are accepted and left out of the operation's own name:
`operation("add.s32").name` is "add.b32", `operation("convert.rn.fp32.fp16").name` is "convert.fp32.fp16".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, partial
from itertools import product
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from bitwise_core.numeric import conversion, floating, integer
from bitwise_core.numeric.conversion import INTEGER_ROUNDINGS, IntegerRounding
from bitwise_core.numeric.floating import ARITHMETIC, CLASSES, COMPARISONS, Mode
from bitwise_core.numeric.formats import FORMATS, INTEGER_FORMATS, FloatFormat, Format, IntegerFormat
from bitwise_core.numeric.softfloat import ROUNDINGS, Rounding
from bitwise_core.numeric.words import Bits, storage

Array = npt.NDArray[Any]
Function = Callable[..., Array]
Groups = tuple[tuple[str, ...], ...]
"""The modifiers of a name in order: of each group at most one."""


class Unevaluable(ValueError):
    """There is no arithmetic for this operation here; the message names it."""


class UnknownOperation(KeyError):
    """A name that is not in the vocabulary: the sentence says why, and gives the nearest name."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"no operation {name!r}: {reason}")
        self.name = name

    def __str__(self) -> str:
        near = _nearest(self.name)
        return str(self.args[0]) if near is None else f"{self.args[0]}; the nearest name is {near!r}"

    def __reduce__(self) -> Any:
        return _unknown_again, (self.name, self.args[0])


def _nearest(name: str) -> str | None:
    """The name with the same words in another order, else that with one word less, else the one most alike."""
    words = name.partition("@")[0].split(".")
    names = vocabulary()
    for wanted in (words, *(words[:place] + words[place + 1 :] for place in range(len(words)))):
        found = next((each for each in names if sorted(each.split(".")) == sorted(wanted)), None)
        if found is not None:
            return found
    return next(iter(get_close_matches(name, names, 1, 0.5)), None)


def _unknown_again(name: str, sentence: str) -> UnknownOperation:
    error = UnknownOperation(name, "")
    error.args = (sentence,)
    return error


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """What an operation's name means.  There is one record of each name, so that records compare by identity.

    `commutative` says that the first two operands may change places (of an fma, the factors); `associative` that the
    operands of several form a set: an integer operation that is associative and commutes.
    `function` acts on arrays of patterns of at least one axis, predicates as booleans, and is None where the bits are
    the hardware's; the operands' types must be right (of floating-point operations it raises TypeError otherwise).
    `architecture` is the one whose own the operation is, "" for all others.
    """

    name: str
    verb: str
    modifiers: tuple[str, ...]
    result: Format
    operands: tuple[Format, ...]
    function: Function | None
    commutative: bool = False
    associative: bool = False
    architecture: str = ""
    arity: int = field(init=False)
    bits: int = field(init=False)
    plain: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arity", len(self.operands))
        object.__setattr__(self, "bits", self.result.bits)
        object.__setattr__(self, "plain", not _NOT_PLAIN & set(self.modifiers))

    def __reduce__(self) -> Any:
        return operation, (self.name,)

    def __repr__(self) -> str:
        return f"<operation {self.name}>"

    @property
    def rounding(self) -> str | None:
        """The rounding modifier, None where there is none."""
        known = (*ROUNDINGS, *INTEGER_ROUNDINGS)
        return next((modifier for modifier in self.modifiers if modifier in known), None)

    @property
    def is_comparison(self) -> bool:
        """Whether it compares two operands of one format."""
        return self.verb in _COMPARED

    @property
    def is_float(self) -> bool:
        """Whether an operand is a floating-point number."""
        return any(isinstance(form, FloatFormat) for form in self.operands)

    @property
    def sees_nan_patterns(self) -> bool:
        """Whether operands that are different NaNs can give results other than NaNs, or other than each other's.

        So it is for everything that reads patterns as integers.  Rounding to tf32, or reading as tf32, drops
        low bits, which turns some NaNs into infinities.
        """
        formats = (self.result, *self.operands)
        return any(isinstance(form, IntegerFormat) for form in self.operands) or any(
            form.name == "tf32" for form in formats
        )

    @property
    def evaluable(self) -> bool:
        """Whether there is an arithmetic."""
        return self.function is not None

    @property
    def evaluate(self) -> Callable[..., Bits]:
        """The function on patterns.  Raises Unevaluable for an approximation.

        It takes one array per operand, in the unsigned type of the operand's width, and returns the array of
        results in that of the result's, a predicate as 0 or 1; shapes broadcast.  It raises TypeError for other types.
        """
        if self.function is None:
            raise Unevaluable(f"{self.name} is an approximation whose bits the hardware decides: it has no arithmetic")
        return partial(_evaluate, self)


_NOT_PLAIN = {"ftz", "sat", "satfinite", "relu", "atomic", "signalling"}
"""Modifiers that change what the verb does to special values, so that no rule of the verb applies."""

_COMPARED = frozenset((*COMPARISONS, *(f"{verb}u" for verb in COMPARISONS), "ord", "unord"))

_INTERNED: dict[str, Operation] = {}


def _evaluate(meaning: Operation, *arrays: npt.NDArray[Any]) -> Bits:
    assert meaning.function is not None
    kinds = [storage(form.bits) for form in meaning.operands]
    _check_types(meaning.name, kinds, arrays)
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    operands = [np.atleast_1d(array) for array in arrays]
    for place, form in enumerate(meaning.operands):
        if form.bits == 1:
            operands[place] = operands[place].astype(np.bool_)
    result = meaning.function(*operands).reshape(shape)
    return result.astype(np.uint8) if meaning.bits == 1 else result


def _check_types(name: str, kinds: Sequence[np.dtype[Any]], arrays: Sequence[npt.NDArray[Any]]) -> None:
    if len(arrays) != len(kinds):
        raise TypeError(f"{name} takes {len(kinds)} operands and was given {len(arrays)}")
    for array, kind in zip(arrays, kinds, strict=True):
        if array.dtype != kind:
            raise TypeError(f"{name} takes patterns as {kind} and was given {array.dtype}")


def _checked(core: Function, name: str, kinds: tuple[np.dtype[Any], ...], *arrays: npt.NDArray[Any]) -> Array:
    """A floating-point function, which reads the arrays' bytes, on arrays of the right types."""
    _check_types(name, kinds, arrays)
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    return core(*arrays).reshape(shape)


@cache
def _table(core: Function, kind: np.dtype[Any], bits: int) -> Array:
    return core(np.arange(1 << bits, dtype=kind))


def _look_up(core: Function, bits: int, operand: Bits) -> Array:
    return _table(core, operand.dtype, bits)[operand]


def _make(
    verb: str,
    modifiers: Sequence[str | None],
    formats: Sequence[Format],
    operands: Sequence[Format],
    result: Format,
    core: Function | None,
    *,
    commutative: bool = False,
    associative: bool = False,
    architecture: str = "",
) -> Operation:
    """The record: the one that there is of its name, or a new one."""
    kept = tuple(modifier for modifier in modifiers if modifier)
    name = ".".join((verb, *kept, *(form.name for form in formats)))
    name = f"{name}@{architecture}" if architecture else name
    found = _INTERNED.get(name)
    if found is not None:
        return found
    if core is not None and any(isinstance(form, FloatFormat) for form in (result, *operands)):
        if len(operands) == 1 and operands[0].bits <= 16:
            core = partial(_look_up, core, operands[0].bits)
        core = partial(_checked, core, name, tuple(storage(form.bits) for form in operands))
    made = Operation(name, verb, kept, result, tuple(operands), core, commutative, associative, architecture)
    return _INTERNED.setdefault(name, made)


# -- tables -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb of the tables: which names it has, and what it does.

    `formats` are those in which a name may end.  `operands` and `result` are formats, "" for the name's last format,
    "wide" for twice its width.  `signless` says that only the width matters, so that the name ends in b.
    `modifiers` are groups of which a name takes at most one each, in order; of a `required` verb one of the first.
    `make` gives the function for a format and the modifiers.
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


_FTZ, _NAN, _SATFINITE = ("ftz",), ("nan",), ("satfinite",)
_CLAMPS = ("sat", "relu")
_NUMBERS = tuple(
    form.name
    for form in FORMATS.values()
    if isinstance(form, FloatFormat) and form.canonical_nan is not None and form.signed
)
_IEEE = ("fp64", "fp32", "fp16", "bf16")


def _widths(letters: str, *widths: int) -> tuple[str, ...]:
    return tuple(f"{letter}{bits}" for letter in letters for bits in widths or (8, 16, 32, 64))


def _mode(modifiers: Sequence[str | None]) -> Mode:
    return Mode(ftz="ftz" in modifiers, sat="sat" in modifiers, relu="relu" in modifiers)


def _rounded(verb: str) -> Callable[[FloatFormat, tuple[str | None, ...]], Function]:
    return lambda form, given: partial(floating.arithmetic, verb, form, cast("Rounding", given[0]), _mode(given))


def _extremum(verb: str) -> Callable[[FloatFormat, tuple[str | None, ...]], Function]:
    return lambda form, given: partial(floating.extremum, verb, form, "nan" in given, _mode(given))


def _sign(verb: str) -> Callable[[FloatFormat, tuple[str | None, ...]], Function]:
    return lambda form, given: partial(floating.change_sign, verb, form, _mode(given))


def _relation(verb: str) -> Callable[[FloatFormat, tuple[str | None, ...]], Function]:
    return lambda form, given: partial(floating.compare, verb, form, _mode(given))


def _class(verb: str) -> Callable[[FloatFormat, tuple[str | None, ...]], Function]:
    return lambda form, given: partial(floating.classify, verb, form)


_SAID = {
    "add": "a + b", "sub": "a - b", "mul": "a * b", "div": "a / b", "fma": "a * b + c with one rounding",
    "sqrt": "the square root", "rcp": "1 / a",
}  # fmt: skip
_ASKED = {
    "eq": "a = b", "ne": "a < b or a > b", "lt": "a < b", "le": "a <= b", "gt": "a > b", "ge": "a >= b",
}  # fmt: skip

FLOAT_VERBS: tuple[Verb, ...] = (
    *(
        Verb(
            verb, _NUMBERS, ("",) * arity,
            f"{_SAID[verb]}; `atomic` marks the sum of a memory unit" if verb == "add" else _SAID[verb],
            _rounded(verb), modifiers=(ROUNDINGS, _FTZ, _CLAMPS, *((("atomic",),) if verb == "add" else ())),
            required=True, commutative=verb in ("add", "mul", "fma"),
        )
        for verb, arity in ARITHMETIC.items()
    ),
    *(
        Verb(
            verb, _NUMBERS, ("", ""), f"the {word} number, -0 below +0; a NaN gives way unless `nan`", _extremum(verb),
            modifiers=(_FTZ, _NAN, _CLAMPS), commutative=True,
        )
        for verb, word in (("min", "lesser"), ("max", "greater"))
    ),
    Verb("neg", _NUMBERS, ("",), "the sign flipped", _sign("neg"), modifiers=(_FTZ,)),
    Verb("abs", _NUMBERS, ("",), "the sign cleared", _sign("abs"), modifiers=(_FTZ,)),
    *(
        Verb(
            verb + unordered, _NUMBERS, ("", ""), _ASKED[verb] + (", or an operand is NaN" if unordered else ""),
            _relation(verb + unordered), "b1", (_FTZ,), commutative=verb in ("eq", "ne"),
        )
        for verb in COMPARISONS
        for unordered in ("", "u")
    ),
    Verb("ord", _NUMBERS, ("", ""), "no operand is NaN", _relation("ord"), "b1", (_FTZ,), commutative=True),
    Verb("unord", _NUMBERS, ("", ""), "an operand is NaN", _relation("unord"), "b1", (_FTZ,), commutative=True),
    *(Verb(verb, _IEEE, ("",), f"whether a is {word}", _class(verb), "b1") for verb, word in zip(
        CLASSES, ("finite", "infinite", "no NaN", "NaN", "normal", "subnormal"), strict=True
    )),
)  # fmt: skip
"""Operations on floating-point numbers."""

_APPROXIMATION = (("approx", "full"), ("turns",), ("literal",), _FTZ, (*_SATFINITE, *_CLAMPS))

APPROXIMATIONS: tuple[Verb, ...] = tuple(
    Verb(verb, _NUMBERS, ("",) * arity, says, None, modifiers=_APPROXIMATION, required=True)
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
"""Operations whose bits the hardware decides; `literal`: of a number that the assembler knows."""


def _always(function: Function) -> Callable[[IntegerFormat, tuple[str | None, ...]], Function]:
    return lambda form, given: function


def _typed(function: Callable[..., Array]) -> Callable[[IntegerFormat, tuple[str | None, ...]], Function]:
    return lambda form, given: partial(function, form)


def _verbal(verb: str, function: Callable[..., Array]) -> Callable[[IntegerFormat, tuple[str | None, ...]], Function]:
    return lambda form, given: partial(function, verb, form)


def _saturated(plain: Function, saturating: Function) -> Callable[[IntegerFormat, tuple[str | None, ...]], Function]:
    return lambda form, given: saturating if "sat" in given else plain


def _funnel(direction: str) -> Callable[[IntegerFormat, tuple[str | None, ...]], Function]:
    return lambda form, given: partial(integer.funnel_shift, direction, str(given[0]))


_BITS, _BOTH = _widths("b"), _widths("su")
TRUTH_TABLES = tuple(f"{number:#04x}" for number in range(256))

INTEGER_VERBS: tuple[Verb, ...] = (
    *(
        Verb(verb, _BITS, ("", ""), says, _always(function), signless=True, commutative=sets, associative=sets)
        for verb, says, function, sets in (
            ("add", "a + b", np.add, True), ("sub", "a - b", np.subtract, False), ("mul", "a * b", np.multiply, True),
        )
    ),
    *(
        Verb(
            verb, ("b1", *_BITS), ("", ""), f"a {verb} b, bit by bit", _always(function), signless=True,
            commutative=True, associative=True,
        )
        for verb, function in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor))
    ),
    Verb("not", ("b1", *_BITS), ("",), "every bit flipped", _always(np.invert), signless=True),
    Verb("neg", _BITS, ("",), "-a", _always(integer.negate), signless=True),
    Verb("abs", _widths("s"), ("",), "|a|; of the most negative number itself", _always(integer.absolute)),
    *(
        Verb(
            verb, ("b1", *_BITS), ("", ""), says, _verbal(verb, integer.compare), "b1", signless=True, commutative=True
        )
        for verb, says in (("eq", "a = b"), ("ne", "a is not b"))
    ),
    *(
        Verb(verb, _BOTH, ("", ""), _ASKED[verb], _verbal(verb, integer.compare), "b1")
        for verb in ("lt", "le", "gt", "ge")
    ),
    *(
        Verb(verb, _BOTH, ("", ""), f"the {word} number", _verbal(verb, integer.extremum), commutative=True,
             associative=True)
        for verb, word in (("min", "lesser"), ("max", "greater"))
    ),
    Verb("shl", _BITS, ("", "b32"), "a shifted to the left by b; 0 from the width on", _verbal("shl", integer.shift),
         signless=True),
    Verb("shr", _BOTH, ("", "b32"), "a shifted to the right by b; 0, or copies of the sign, from the width on",
         _verbal("shr", integer.shift)),
    Verb("mulhi", _BOTH, ("", ""), "the high half of a * b", _typed(integer.multiply_high), commutative=True),
    Verb("mulwide", _widths("su", 8, 16, 32), ("", ""), "a * b in twice the width", _typed(integer.multiply_wide),
         "wide", commutative=True),
    Verb("div", _BOTH, ("", ""), "a / b toward zero; all ones by zero", _typed(integer.divide)),
    Verb("rem", _BOTH, ("", ""), "a - b * (a / b); all ones by zero", _typed(integer.remainder)),
    Verb("addc", _BITS, ("", "", "b1"), "a + b + c", _always(integer.add_with_carry), signless=True, commutative=True),
    Verb("subc", _BITS, ("", "", "b1"), "a - b - c", _always(integer.subtract_with_borrow), signless=True),
    Verb("carry", _widths("u"), ("", ""), "whether a + b wraps", _always(integer.carry_out), "b1", commutative=True),
    Verb("carryc", _widths("u"), ("", "", "b1"), "whether a + b + c wraps", _always(integer.carry_out_of_three), "b1",
         commutative=True),
    Verb("borrow", _widths("u"), ("", ""), "whether a - b wraps", _always(integer.borrow_out), "b1"),
    Verb("borrowc", _widths("u"), ("", "", "b1"), "whether a - b - c wraps", _always(integer.borrow_out_of_three),
         "b1"),
    Verb("addoverflow", _widths("s"), ("", ""), "whether a + b leaves the range", _always(integer.sum_overflows), "b1",
         commutative=True),
    Verb("suboverflow", _widths("s"), ("", ""), "whether a - b leaves the range",
         _always(integer.difference_overflows), "b1"),
    Verb("addsat", _widths("u"), ("", ""), "a + b, at most the greatest number", _always(integer.saturating_sum),
         commutative=True),
    Verb("subsat", _widths("u"), ("", ""), "a - b, at least 0", _always(integer.saturating_difference)),
    Verb("low24", ("s32", "u32"), ("",), "the lowest 24 bits, extended by their sign or with zeros",
         _typed(integer.low_24)),
    Verb("bfe", _widths("su", 32, 64), ("", "b32", "b32"),
         "c bits of a from bit b on, b and c modulo 256; beyond the top zeros, or copies of the sign",
         _typed(integer.extract_field)),
    Verb("bfewrap", ("s32", "u32"), ("", "b32", "b32"), "c bits of a from bit b on, b and c modulo 32",
         _typed(integer.extract_field_wrapped)),
    Verb("bfi", _widths("b", 32, 64), ("", "", "b32", "b32"),
         "the low d bits of a in b from bit c on, c and d modulo 256", _typed(integer.insert_field), signless=True),
    Verb("bitmask", _widths("b", 32, 64), ("b32", "b32"), "a ones from bit b on, a and b modulo the width",
         _typed(integer.field_mask), signless=True),
    Verb("bittest", _BITS, ("", "b32"), "whether bit b of a, modulo the width, is set", _always(integer.bit_is_set),
         "b1", signless=True),
    Verb("popc", _BITS, ("",), "how many bits are set", _always(integer.count_ones), "b32", signless=True),
    Verb("clz", _BITS, ("",), "how many zeros lead; the width for 0", _always(integer.count_leading_zeros), "b32",
         signless=True),
    Verb("brev", _BITS, ("",), "the bits in reverse", _always(integer.reverse_bits), signless=True),
    Verb("findmsb", _widths("su", 32, 64), ("",),
         "the place of the highest set bit (s: of the highest unlike the sign), `top`: from the top; all ones if none",
         lambda form, given: partial(integer.find_highest, form, "top" in given), "b32", (("top",),)),
    Verb("findlsb", _BITS, ("",), "the place of the lowest set bit; all ones if none", _always(integer.find_lowest),
         "b32", signless=True),
    Verb("copysign", _widths("b", 16, 32, 64), ("", ""), "the highest bit of a on the others of b",
         _always(integer.copy_sign), signless=True),
    *(
        Verb(f"shf{direction}", ("b32",), ("", "", "b32"),
             f"the {word} word of b:a shifted to the {side} by c, modulo 32 or (`clamp`) 32 at most",
             _funnel(direction),
             modifiers=(("wrap", "clamp"),), required=True, signless=True)
        for direction, side, word in (("l", "left", "high"), ("r", "right", "low"))
    ),
    Verb("lop3", ("b32",), ("", "", ""), "bit by bit, bit 4 a + 2 b + c of the truth table that the modifier is",
         lambda form, given: partial(integer.logic_of_three, int(given[0] or "0", 16)), modifiers=(TRUTH_TABLES,),
         required=True, signless=True),
    Verb("prmt", ("b32",), ("", "", "b32"), "four bytes of b:a by the nibbles of c: bit 3 fills with the byte's sign",
         _always(integer.permute_bytes), signless=True),
    *(
        Verb(f"{verb}bysign", _widths("b", 32, 64), ("", ""),
             f"the {word} pattern in the order of floating-point numbers: by sign, then by magnitude",
             _always(partial(integer.extremum_by_sign, verb)), signless=True, commutative=True)
        for verb, word in (("min", "lesser"), ("max", "greater"))
    ),
    Verb("sad", _BOTH, ("", "", ""), "c and the distance of a and b", _typed(integer.add_distance), commutative=True),
    *(
        Verb(f"dp4{one}{other}", ("b32",), ("", "", ""), "c and the products of the four bytes of a and b"
             f" ({'signed' if one == 's' else 'unsigned'} and {'signed' if other == 's' else 'unsigned'})",
             _always(partial(integer.dot_of_bytes, one == "s", other == "s")), signless=True)
        for one in "su"
        for other in "su"
    ),
)  # fmt: skip
"""Operations on integers; the modifier of `lop3` is two hexadecimal digits."""

_FLOATS = {verb.verb: verb for verb in FLOAT_VERBS}
_APPROXIMATE = {verb.verb: verb for verb in APPROXIMATIONS}
_INTEGERS = {verb.verb: verb for verb in INTEGER_VERBS}

APPROXIMATE: dict[str, int] = {verb.verb: len(verb.operands) for verb in APPROXIMATIONS}
"""Operations whose bits the hardware decides, and how many operands they take."""


# -- an architecture's own operations ---------------------------------------------------------------------------------

_DECLARED: dict[tuple[str, str, str], Verb] = {}


def declare(
    architecture: str,
    verb: str,
    formats: Sequence[str],
    operands: Sequence[str] = ("",),
    *,
    says: str,
    result: str = "",
    modifiers: Groups = (),
    commutative: bool = False,
    function: Function | None = None,
) -> None:
    """Adds operations of one architecture to the vocabulary: `<verb>[.<modifier>...].<format>@<architecture>`.

    A plugin calls it where its module is loaded, for what no other architecture has.  `formats` are the endings of the
    names, a pair of formats as "fp16.fp32".  `operands` are formats, "" for the last one of the name; so is `result`,
    "" for the first one.  `modifiers` are groups of which a name takes at most one each, in order.  `function` acts on
    arrays as `Operation.function` does and must be exact for every pattern; without it the bits are the hardware's, and
    `BitPatterns.functions` of the architecture may give them.  `says` is a sentence for people.
    Raises ValueError for a name that is declared already, and for a format that there is not.
    """
    for ending in formats:
        unknown = [each for each in (*ending.split("."), *operands, result) if each and each not in FORMATS]
        if unknown:
            raise ValueError(f"{verb}.{ending}@{architecture} names the format {unknown[0]!r}, which there is not")
        key = (architecture, verb, ending)
        if key in _DECLARED:
            raise ValueError(f"the operation {verb}.{ending}@{architecture} is declared twice")
        make = None if function is None else _always(function)
        _DECLARED[key] = Verb(verb, (ending,), tuple(operands), says, make, result, modifiers, commutative=commutative)
    vocabulary.cache_clear()


def _declared(name: str, base: str, architecture: str) -> Operation:
    tokens = base.split(".")
    for count in (2, 1):
        given = _DECLARED.get((architecture, tokens[0], ".".join(tokens[-count:]))) if len(tokens) > count else None
        if given is None:
            continue
        taken = _take(name, tokens[1:-count], *given.modifiers)
        formats = [FORMATS[each] for each in tokens[-count:]]
        operands = [FORMATS[each] if each else formats[-1] for each in given.operands]
        core = None if given.make is None else given.make(formats[-1], taken)
        return _make(
            given.verb, taken, formats, operands, FORMATS[given.result] if given.result else formats[0], core,
            commutative=given.commutative, architecture=architecture,
        )  # fmt: skip
    raise UnknownOperation(name, f"{architecture} has declared no such operation, and it is no approximation")


# -- names ------------------------------------------------------------------------------------------------------------


@cache
def operation(name: str) -> Operation:
    """The operation of that name.  Raises UnknownOperation, a KeyError with a sentence, for any other name."""
    base, _, architecture = name.partition("@")
    tokens = base.split(".")
    formats: list[Format] = []
    while len(tokens) > 1 and len(formats) < 2 and tokens[-1] in FORMATS:
        formats.insert(0, FORMATS[tokens.pop()])
    verb, modifiers = tokens[0], tuple(tokens[1:])
    approximate = bool({"approx", "full"} & set(modifiers)) and verb in _APPROXIMATE
    if architecture and not approximate:
        return _declared(name, base, architecture)
    if verb == "convert":
        if len(formats) != 2:
            raise UnknownOperation(name, "a conversion names its destination format and then its source format")
        return _conversion(name, formats[0], formats[1], modifiers)
    if len(formats) != 1:
        raise UnknownOperation(name, f"it must end in one format of {', '.join(FORMATS)}")
    form = formats[0]
    if isinstance(form, IntegerFormat):
        return _integer(name, verb, form, modifiers)
    if form.name not in _NUMBERS:
        raise UnknownOperation(name, f"{form.name} takes part in conversions only")
    return _floating(name, verb, form, modifiers, architecture)


def _take(name: str, modifiers: Sequence[str], *groups: Sequence[str]) -> tuple[str | None, ...]:
    """One optional modifier of each group, in order.  Raises UnknownOperation if anything else is there."""
    rest = list(modifiers)
    taken = [rest.pop(0) if rest and rest[0] in group else None for group in groups]
    if rest:
        allowed = ", then ".join(" or ".join(group) for group in groups if group is not TRUTH_TABLES) or "none"
        raise UnknownOperation(name, f"{rest[0]!r} is unknown or out of place; the modifiers here are {allowed}")
    return tuple(taken)


def _floating(name: str, verb: str, form: FloatFormat, modifiers: tuple[str, ...], architecture: str) -> Operation:
    approximate = "approx" in modifiers or "full" in modifiers
    given = (_APPROXIMATE if approximate else _FLOATS).get(verb)
    if given is None and approximate:
        raise UnknownOperation(name, f"{verb!r} has no approximation; {', '.join(_APPROXIMATE)} have")
    if given is None or form.name not in given.formats:
        raise UnknownOperation(name, f"{form.name} numbers have no {verb!r}")
    taken = _take(name, modifiers, *given.modifiers)
    if given.required and taken[0] is None:
        raise UnknownOperation(name, f"{verb} rounds, so name a rounding of {', '.join(ROUNDINGS)}")
    core = None if given.make is None else given.make(form, taken)
    return _made(given, form, taken, core, architecture)


def _made(
    given: Verb, form: Format, taken: tuple[str | None, ...], core: Function | None, architecture: str = ""
) -> Operation:
    def of(word: str) -> Format:
        return INTEGER_FORMATS[f"b{2 * form.bits}"] if word == "wide" else FORMATS[word] if word else form

    return _make(
        given.verb, taken, (form,), [of(each) for each in given.operands], of(given.result), core,
        commutative=given.commutative, associative=given.associative, architecture=architecture,
    )  # fmt: skip


def _integer(name: str, verb: str, form: IntegerFormat, modifiers: tuple[str, ...]) -> Operation:
    given = _INTEGERS.get(verb)
    if given is None:
        raise UnknownOperation(name, f"integers have no {verb!r}")
    if given.signless:
        form = INTEGER_FORMATS[f"b{form.bits}"]
    if form.name not in given.formats:
        if verb == "abs" and form.signed is False:
            raise UnknownOperation(name, "the absolute value of an unsigned integer is itself")
        if verb == "mulwide" and form.bits == 64:
            raise UnknownOperation(
                name, "the product of two 64-bit integers fits no format; mulhi and mul give its halves"
            )
        if form.signed is None and f"u{form.bits}" in given.formats:
            raise UnknownOperation(name, f"it depends on the sign: write s{form.bits} or u{form.bits}")
        raise UnknownOperation(name, f"{verb} has the formats {', '.join(given.formats)}")
    taken = _take(name, modifiers, *given.modifiers)
    if given.required and taken[0] is None:
        raise UnknownOperation(name, f"{verb} takes a modifier: {', '.join(given.modifiers[0][:4])}")
    assert given.make is not None
    return _made(given, form, taken, given.make(form, taken))


def _conversion(name: str, target: Format, source: Format, modifiers: tuple[str, ...]) -> Operation:
    if isinstance(target, IntegerFormat) and isinstance(source, IntegerFormat):
        return _between_integers(name, target, source, modifiers)
    if isinstance(source, IntegerFormat):
        assert isinstance(target, FloatFormat)
        return _from_integer(name, target, source, modifiers)
    if isinstance(target, IntegerFormat):
        if target.signed is None:
            raise UnknownOperation(name, f"say whether the integer is signed: s{target.bits} or u{target.bits}")
        taken = _take(name, modifiers, tuple(INTEGER_ROUNDINGS), _FTZ)
        if taken[0] is None:
            raise UnknownOperation(name, f"name a rounding to integers of {', '.join(INTEGER_ROUNDINGS)}")
        core = partial(conversion.float_to_integer, target, source, cast("IntegerRounding", taken[0]), _mode(taken))
        return _converting(taken, target, source, core)
    return _between_floats(name, target, source, modifiers)


def _converting(taken: Sequence[str | None], target: Format, source: Format, core: Function) -> Operation:
    return _make("convert", taken, (target, source), (source,), target, core)


def _between_floats(name: str, target: FloatFormat, source: FloatFormat, modifiers: tuple[str, ...]) -> Operation:
    if not target.subnormals:
        raise UnknownOperation(name, f"how zero and negative numbers become {target.name} is not established")
    if target is source and modifiers and modifiers[0] in INTEGER_ROUNDINGS:
        taken = _take(name, modifiers, tuple(INTEGER_ROUNDINGS), _FTZ, _CLAMPS)
        core = partial(conversion.float_to_integral, target, cast("IntegerRounding", taken[0]), _mode(taken))
        return _converting(taken, target, source, core)
    taken = _take(name, modifiers, ROUNDINGS, _FTZ, _SATFINITE, _CLAMPS)
    if target.holds(source):
        taken = (None, *taken[1:])
    elif taken[0] is None:
        raise UnknownOperation(name, f"{target.name} does not hold every {source.name}, so name a rounding")
    if taken[1] and (target.name, source.name) == ("fp16", "fp32"):
        if taken[0] not in ("rn", "rz", "rna"):
            raise UnknownOperation(
                name, "whether a subnormal operand is flushed before it is rounded up is not established"
            )
        taken = (taken[0], None, *taken[2:])  # a subnormal fp32 becomes a zero in either case
    if target.canonical_nan is None and taken[2] is None:
        raise UnknownOperation(name, f"{target.name} has neither infinity nor NaN, so write satfinite")
    rounding = cast("Rounding", taken[0] or "rn")
    core = partial(conversion.float_to_float, target, source, rounding, _mode(taken), taken[2] is not None)
    return _converting(taken, target, source, core)


def _from_integer(name: str, target: FloatFormat, source: IntegerFormat, modifiers: tuple[str, ...]) -> Operation:
    if source.signed is None:
        raise UnknownOperation(name, f"say whether the integer is signed: s{source.bits} or u{source.bits}")
    if target.canonical_nan is None or not target.subnormals:
        raise UnknownOperation(name, f"integers do not become {target.name}")
    taken = _take(name, modifiers, ROUNDINGS, _CLAMPS)
    if source.bits - bool(source.signed) <= target.precision and source.bits <= target.largest_exponent:
        taken = (None, taken[1])
    elif taken[0] is None:
        raise UnknownOperation(name, f"{target.name} does not hold every {source.name}, so name a rounding")
    rounding = cast("Rounding", taken[0] or "rn")
    core = partial(conversion.integer_to_float, target, source, rounding, _mode(taken))
    return _converting(taken, target, source, core)


def _between_integers(name: str, target: IntegerFormat, source: IntegerFormat, modifiers: tuple[str, ...]) -> Operation:
    (saturate,) = _take(name, modifiers, ("sat",))
    if saturate:
        if target.signed is None or source.signed is None:
            raise UnknownOperation(name, "a saturating conversion depends on both signs: write s or u")
        return _converting((saturate,), target, source, partial(integer.saturate, target, source))
    if 1 in (target.bits, source.bits):
        raise UnknownOperation(name, "a predicate is no integer: ne makes one of an integer, a choice an integer of it")
    target = INTEGER_FORMATS[f"b{target.bits}"]
    if target.bits <= source.bits:
        source = INTEGER_FORMATS[f"b{source.bits}"]
    elif source.signed is None:
        raise UnknownOperation(name, f"widening depends on the sign: write s{source.bits} or u{source.bits}")
    return _converting((), target, source, partial(integer.resize, target, source))


# -- the whole vocabulary ---------------------------------------------------------------------------------------------


def verbs() -> frozenset[str]:
    """Every verb: of all formats, of conversions, of architectures."""
    return frozenset((*_FLOATS, *_APPROXIMATE, *_INTEGERS, "convert", *(verb for _, verb, _ in _DECLARED)))


@cache
def vocabulary() -> tuple[str, ...]:
    """Every name, canonical, in order; of `lop3` one truth table, of conversions the flags that stand alone."""
    found = {each.name for each in _all()}
    return tuple(sorted(found))


def _all() -> Iterator[Operation]:
    for given in (*FLOAT_VERBS, *APPROXIMATIONS, *INTEGER_VERBS):
        groups = [(each[:1] if each is TRUTH_TABLES else each) for each in given.modifiers]
        for ending, words in product(given.formats, _choices(groups, given.required)):
            yield operation(".".join((given.verb, *words, ending)))
    for (architecture, verb, ending), given in sorted(_DECLARED.items()):
        for words in _choices(given.modifiers, False):
            yield operation(".".join((verb, *words, ending)) + f"@{architecture}")
    flags = [(), *((each,) for each in ("ftz", "satfinite", "sat", "relu"))]
    for target, source in product(FORMATS, FORMATS):
        for rounding, flag in product(((), *((each,) for each in (*ROUNDINGS, *INTEGER_ROUNDINGS))), flags):
            try:
                yield operation(".".join(("convert", *rounding, *flag, target, source)))
            except UnknownOperation:
                continue


def _choices(groups: Sequence[Sequence[str]], required: bool) -> Iterator[tuple[str, ...]]:
    """At most one modifier of each group; of the first one exactly, where it is required."""
    optional = [(*((each,) for each in group), *(() if required and not place else ((),)))
                for place, group in enumerate(groups)]  # fmt: skip
    for chosen in product(*optional):
        yield tuple(word for part in chosen for word in part)
