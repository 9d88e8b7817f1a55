"""The vocabulary of operations: every name that core, the plugins and expression trees use, and its meaning.

A name is `<verb>[.<modifier>...].<format>[.<format>][@<architecture>]`; `core/OPERATIONS.md`, which is generated from
the tables of `verbs`, lists all verbs.

    add.rn.ftz.fp32             modifiers in this order: rounding, `ftz`, `nan` or `satfinite`, `sat` or `relu`
    convert.rzi.s32.fp32        two formats: the result's and then the operand's
    shr.s32 shr.u32 add.b32     s or u where the result depends on the sign, otherwise b
    ex2.approx.ftz.fp32@ARCH    an approximation of an architecture: a name without an evaluation
    med3.fp32@ARCH              an operation of one architecture, declared by its plugin (`declare`)

A rounding or a sign that has no effect is accepted, and left out of the operation's canonical name:
`operation("add.s32").name` is "add.b32", `operation("convert.rn.fp32.fp16").name` is "convert.fp32.fp16".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cache, partial
from itertools import product
from typing import Any, cast

from bitwise_core.numerics import conversion, integers
from bitwise_core.numerics.conversion import INTEGER_ROUNDINGS, IntegerRounding
from bitwise_core.numerics.formats import FORMATS, INTEGER_FORMATS, FloatFormat, Format, IntegerFormat
from bitwise_core.numerics.record import Operation, intern_operation
from bitwise_core.numerics.softfloat import ROUNDINGS, Rounding
from bitwise_core.numerics.verb_functions import (
    APPROXIMATIONS,
    CLAMPS,
    FLOAT_VERBS,
    FTZ,
    INTEGER_VERBS,
    NUMBERS,
    SATFINITE,
    TRUTH_TABLES,
    Function,
    Groups,
    Verb,
    always,
    mode_of,
)


class UnknownOperation(KeyError):
    """A name is not in the vocabulary: the message says why, and gives the nearest name."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"no operation {name!r}: {reason}")
        self.name = name

    def __str__(self) -> str:
        near = _nearest(self.name)
        return str(self.args[0]) if near is None else f"{self.args[0]}; the nearest name is {near!r}"

    def __reduce__(self) -> Any:
        return _unknown_again, (self.name, self.args[0])


def _nearest(name: str) -> str | None:
    """Return the name with the same words in another order, else without one of the words, else the most similar."""
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


_FLOATS = {verb.verb: verb for verb in FLOAT_VERBS}
_APPROXIMATE = {verb.verb: verb for verb in APPROXIMATIONS}
_INTEGERS = {verb.verb: verb for verb in INTEGER_VERBS}


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
    """Add operations of one architecture to the vocabulary: `<verb>[.<modifier>...].<format>@<architecture>`.

    A plugin calls it at import time, for operations that no other architecture has.  `formats` are the endings of the
    names; a pair of formats is written "fp16.fp32".  `operands` are formats, "" for the last format of the name;
    `result` is a format, "" for the first format of the name.  `modifiers` are groups of which a name takes at most one
    each, in order.  `function` acts on arrays like `Operation.function` and must be exact for every pattern; without it
    the hardware decides the bits, and `BitSupport.functions` of the architecture may provide them.  `says` describes
    the result.  Raises ValueError for a name that is already declared, and for an unknown format.
    """
    for ending in formats:
        unknown = [each for each in (*ending.split("."), *operands, result) if each and each not in FORMATS]
        if unknown:
            raise ValueError(f"{verb}.{ending}@{architecture} names the unknown format {unknown[0]!r}")
        key = (architecture, verb, ending)
        if key in _DECLARED:
            raise ValueError(f"the operation {verb}.{ending}@{architecture} is declared twice")
        make = None if function is None else always(function)
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
        return intern_operation(
            given.verb, taken, formats, operands, FORMATS[given.result] if given.result else formats[0], core,
            commutative=given.commutative, architecture=architecture,
        )  # fmt: skip
    raise UnknownOperation(name, f"{architecture} has declared no such operation, and it is not an approximation")


# -- names ------------------------------------------------------------------------------------------------------------


@cache
def operation(name: str) -> Operation:
    """Return the operation of that name.  Raises UnknownOperation, a KeyError, for any other name."""
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
    if form.name not in NUMBERS:
        raise UnknownOperation(name, f"{form.name} has conversions only")
    return _floating(name, verb, form, modifiers, architecture)


def _take(name: str, modifiers: Sequence[str], *groups: Sequence[str]) -> tuple[str | None, ...]:
    """Return one optional modifier of each group, in order.  Raises UnknownOperation for any other modifier."""
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
        raise UnknownOperation(name, f"{verb} rounds: name one of the roundings {', '.join(ROUNDINGS)}")
    core = None if given.make is None else given.make(form, taken)
    return _of_verb(given, form, taken, core, architecture)


def _of_verb(
    given: Verb, form: Format, taken: tuple[str | None, ...], core: Function | None, architecture: str = ""
) -> Operation:
    def of(word: str) -> Format:
        return INTEGER_FORMATS[f"b{2 * form.bits}"] if word == "wide" else FORMATS[word] if word else form

    return intern_operation(
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
                name, "the product of two 64-bit integers fits in no format; mulhi and mul compute its halves"
            )
        if form.signed is None and f"u{form.bits}" in given.formats:
            raise UnknownOperation(name, f"it depends on the sign: write s{form.bits} or u{form.bits}")
        raise UnknownOperation(name, f"{verb} has the formats {', '.join(given.formats)}")
    taken = _take(name, modifiers, *given.modifiers)
    if given.required and taken[0] is None:
        raise UnknownOperation(name, f"{verb} takes a modifier: {', '.join(given.modifiers[0][:4])}")
    assert given.make is not None
    return _of_verb(given, form, taken, given.make(form, taken))


def _conversion(name: str, target: Format, source: Format, modifiers: tuple[str, ...]) -> Operation:
    if isinstance(target, IntegerFormat) and isinstance(source, IntegerFormat):
        return _between_integers(name, target, source, modifiers)
    if isinstance(source, IntegerFormat):
        assert isinstance(target, FloatFormat)
        return _from_integer(name, target, source, modifiers)
    if isinstance(target, IntegerFormat):
        if target.signed is None:
            raise UnknownOperation(name, f"say whether the integer is signed: s{target.bits} or u{target.bits}")
        taken = _take(name, modifiers, tuple(INTEGER_ROUNDINGS), FTZ)
        if taken[0] is None:
            raise UnknownOperation(name, f"name one of the roundings to integers {', '.join(INTEGER_ROUNDINGS)}")
        core = partial(conversion.float_to_integer, target, source, cast("IntegerRounding", taken[0]), mode_of(taken))
        return _converting(taken, target, source, core)
    return _between_floats(name, target, source, modifiers)


def _converting(taken: Sequence[str | None], target: Format, source: Format, core: Function) -> Operation:
    return intern_operation("convert", taken, (target, source), (source,), target, core)


def _between_floats(name: str, target: FloatFormat, source: FloatFormat, modifiers: tuple[str, ...]) -> Operation:
    if not target.subnormals:
        raise UnknownOperation(name, f"the conversion of zero and negative numbers to {target.name} is not established")
    if target is source and modifiers and modifiers[0] in INTEGER_ROUNDINGS:
        taken = _take(name, modifiers, tuple(INTEGER_ROUNDINGS), FTZ, CLAMPS)
        core = partial(conversion.float_to_integral, target, cast("IntegerRounding", taken[0]), mode_of(taken))
        return _converting(taken, target, source, core)
    taken = _take(name, modifiers, ROUNDINGS, FTZ, SATFINITE, CLAMPS)
    if target.holds(source):
        taken = (None, *taken[1:])
    elif taken[0] is None:
        raise UnknownOperation(name, f"{target.name} does not hold every {source.name}: name a rounding")
    if taken[1] and (target.name, source.name) == ("fp16", "fp32"):
        if taken[0] not in ("rn", "rz", "rna"):
            raise UnknownOperation(
                name, "whether a subnormal operand is flushed before it is rounded up is not established"
            )
        taken = (taken[0], None, *taken[2:])  # a subnormal fp32 becomes a zero in either case
    if target.canonical_nan is None and taken[2] is None:
        raise UnknownOperation(name, f"{target.name} has neither infinity nor NaN: write satfinite")
    rounding = cast("Rounding", taken[0] or "rn")
    core = partial(conversion.float_to_float, target, source, rounding, mode_of(taken), taken[2] is not None)
    return _converting(taken, target, source, core)


def _from_integer(name: str, target: FloatFormat, source: IntegerFormat, modifiers: tuple[str, ...]) -> Operation:
    if source.signed is None:
        raise UnknownOperation(name, f"say whether the integer is signed: s{source.bits} or u{source.bits}")
    if target.canonical_nan is None or not target.subnormals:
        raise UnknownOperation(name, f"there is no conversion from integers to {target.name}")
    taken = _take(name, modifiers, ROUNDINGS, CLAMPS)
    if source.bits - bool(source.signed) <= target.precision and source.bits <= target.largest_exponent:
        taken = (None, taken[1])
    elif taken[0] is None:
        raise UnknownOperation(name, f"{target.name} does not hold every {source.name}: name a rounding")
    rounding = cast("Rounding", taken[0] or "rn")
    core = partial(conversion.integer_to_float, target, source, rounding, mode_of(taken))
    return _converting(taken, target, source, core)


def _between_integers(name: str, target: IntegerFormat, source: IntegerFormat, modifiers: tuple[str, ...]) -> Operation:
    (saturate,) = _take(name, modifiers, ("sat",))
    if saturate:
        if target.signed is None or source.signed is None:
            raise UnknownOperation(name, "a saturating conversion depends on both signs: write s or u")
        return _converting((saturate,), target, source, partial(integers.saturate, target, source))
    if 1 in (target.bits, source.bits):
        raise UnknownOperation(
            name, "a predicate is not an integer: ne converts an integer to a predicate, a select does the reverse"
        )
    target = INTEGER_FORMATS[f"b{target.bits}"]
    if target.bits <= source.bits:
        source = INTEGER_FORMATS[f"b{source.bits}"]
    elif source.signed is None:
        raise UnknownOperation(name, f"widening depends on the sign: write s{source.bits} or u{source.bits}")
    return _converting((), target, source, partial(integers.resize, target, source))


# -- the whole vocabulary ---------------------------------------------------------------------------------------------


def verbs() -> frozenset[str]:
    """Return every verb, those of conversions and of architectures included."""
    return frozenset((*_FLOATS, *_APPROXIMATE, *_INTEGERS, "convert", *(verb for _, verb, _ in _DECLARED)))


@cache
def vocabulary() -> tuple[str, ...]:
    """Return the canonical names, sorted; `lop3` with one truth table only, conversions with at most one flag."""
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
    """Yield choices of at most one modifier of each group; of exactly one of the first group where `required`."""
    optional = [(*((each,) for each in group), *(() if required and not place else ((),)))
                for place, group in enumerate(groups)]  # fmt: skip
    for chosen in product(*optional):
        yield tuple(word for part in chosen for word in part)
