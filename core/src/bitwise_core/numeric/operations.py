"""Operations by their canonical name: `<verb>[.<modifier>...].<format>[.<format>]`.

Modifiers come in this order: rounding, `ftz`, `nan` or `satfinite`, `sat` or `relu`.

    add sub mul div fma sqrt rcp   a rounding is required: fma.rn.ftz.fp32, mul.rz.fp16
    min max                        max.fp32 drops a NaN, max.nan.fp32 propagates it; -0 < +0
    neg abs                        neg.fp32
    eq ne lt le gt ge, ...u        lt.fp32 is false for NaN, ltu.fp32 true; ord, unord; the result is b1
    convert                        destination first: convert.rn.fp16.fp32, convert.fp32.fp16 (exact, so no rounding),
                                   convert.rzi.s32.fp32, convert.rni.fp32.fp32, convert.rn.satfinite.e4m3.fp32
    add sub mul and or xor not neg shl eq ne     on patterns: add.b32; shl's and shr's amount has the same width
    min max mulhi mulwide shr abs lt le gt ge    on integers: min.s32, mulwide.u32
    ex2 lg2 rcp rsqrt sqrt sin cos tanh div      with approx or full: known to exist, not evaluated

A rounding that cannot matter and a sign that cannot matter are accepted and left out of the operation's own name:
`operation("add.s32").name` is "add.b32", `operation("convert.rn.fp32.fp16").name` is "convert.fp32.fp16".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from bitwise_core.numeric import conversion, floating, integer
from bitwise_core.numeric.conversion import INTEGER_ROUNDINGS, IntegerRounding
from bitwise_core.numeric.floating import ARITHMETIC, COMPARISONS, Mode
from bitwise_core.numeric.formats import FORMATS, INTEGER_FORMATS, FloatFormat, Format, IntegerFormat
from bitwise_core.numeric.softfloat import ROUNDINGS, Rounding
from bitwise_core.numeric.words import Bits, storage

APPROXIMATE: dict[str, int] = {
    "ex2": 1,
    "lg2": 1,
    "rcp": 1,
    "rsqrt": 1,
    "sqrt": 1,
    "sin": 1,
    "cos": 1,
    "tanh": 1,
    "div": 2,
}
"""Operations whose bits the hardware decides, and how many operands they take."""

_FLAGS: dict[str, tuple[str, ...]] = {"ftz": ("ftz",), "nan": ("nan",), "satfinite": ("satfinite",)}
_CLAMPS = ("sat", "relu")


class Unevaluable(ValueError):
    """There is no arithmetic for this operation here; the message names it."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What an operation's name means.

    `commutative` says that the first two operands may change places (of an fma, the factors).
    `arithmetic` is None for an approximation.
    """

    name: str
    arity: int
    commutative: bool
    arithmetic: Callable[..., Bits] | None
    verb: str
    modifiers: tuple[str, ...]
    result: Format
    operands: tuple[Format, ...]

    @property
    def rounding(self) -> str | None:
        """The rounding modifier, None where there is none."""
        known = (*ROUNDINGS, *INTEGER_ROUNDINGS)
        return next((modifier for modifier in self.modifiers if modifier in known), None)

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
        return self.arithmetic is not None

    @property
    def evaluate(self) -> Callable[..., Bits]:
        """The function on patterns.  Raises Unevaluable for an approximation.

        It takes one array per operand, in the unsigned type of the operand's width, and returns the array of
        results in that of the result's; shapes broadcast.  It raises TypeError for other types.
        """
        if self.arithmetic is None:
            raise Unevaluable(f"{self.name} is an approximation whose bits the hardware decides: it has no arithmetic")
        return self.arithmetic


@cache
def operation(name: str) -> Operation:
    """The operation of that name.  Raises KeyError, with a sentence, for a name outside the grammar."""
    tokens = name.split(".")
    formats: list[Format] = []
    while len(tokens) > 1 and len(formats) < 2 and tokens[-1] in FORMATS:
        formats.insert(0, FORMATS[tokens.pop()])
    verb, modifiers = tokens[0], tuple(tokens[1:])
    if verb == "convert":
        if len(formats) != 2:
            raise _unknown(name, "a conversion names its destination format and then its source format")
        return _conversion(name, formats[0], formats[1], modifiers)
    if len(formats) != 1:
        raise _unknown(name, f"it must end in one format of {', '.join(FORMATS)}")
    form = formats[0]
    if isinstance(form, IntegerFormat):
        return _integer(name, verb, form, modifiers)
    if form.canonical_nan is None or not form.signed:
        raise _unknown(name, f"{form.name} takes part in conversions only")
    if "approx" in modifiers or "full" in modifiers:
        return _approximate(name, verb, form, modifiers)
    return _floating(name, verb, form, modifiers)


def _unknown(name: str, reason: str) -> KeyError:
    return KeyError(f"no operation {name!r}: {reason}")


def _take(name: str, modifiers: Sequence[str], *groups: Sequence[str]) -> tuple[str | None, ...]:
    """One optional modifier of each group, in order.  Raises KeyError if anything else is there."""
    rest = list(modifiers)
    taken = [rest.pop(0) if rest and rest[0] in group else None for group in groups]
    if rest:
        allowed = ", then ".join(" or ".join(group) for group in groups) or "none"
        raise _unknown(name, f"{rest[0]!r} is unknown or out of place; the modifiers here are {allowed}")
    return tuple(taken)


def _evaluate(
    core: Callable[..., Bits], name: str, kinds: tuple[np.dtype[Any], ...], *arrays: npt.NDArray[Any]
) -> Bits:
    if len(arrays) != len(kinds):
        raise TypeError(f"{name} takes {len(kinds)} operands and was given {len(arrays)}")
    for array, kind in zip(arrays, kinds, strict=True):
        if array.dtype != kind:
            raise TypeError(f"{name} takes patterns as {kind} and was given {array.dtype}")
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    return core(*(np.atleast_1d(array) for array in arrays)).reshape(shape)


@cache
def _table(core: Callable[..., Bits], kind: np.dtype[Any], bits: int) -> Bits:
    return core(np.arange(1 << bits, dtype=kind))


def _look_up(core: Callable[..., Bits], bits: int, operand: Bits) -> Bits:
    return _table(core, operand.dtype, bits)[operand]


def _make(
    verb: str,
    modifiers: Sequence[str | None],
    result: Format,
    operands: tuple[Format, ...],
    core: Callable[..., Bits] | None,
    commutative: bool = False,
    formats: tuple[Format, ...] | None = None,
) -> Operation:
    kept = tuple(modifier for modifier in modifiers if modifier)
    name = ".".join((verb, *kept, *(form.name for form in formats or (operands[0],))))
    kinds = tuple(storage(form.bits) for form in operands)
    if core is not None and len(operands) == 1 and operands[0].bits <= 16:
        core = partial(_look_up, core, operands[0].bits)
    arithmetic = core and partial(_evaluate, core, name, kinds)
    return Operation(name, len(operands), commutative, arithmetic, verb, kept, result, operands)


def _mode(*modifiers: str | None) -> Mode:
    return Mode(ftz="ftz" in modifiers, sat="sat" in modifiers, relu="relu" in modifiers)


def _floating(name: str, verb: str, form: FloatFormat, modifiers: tuple[str, ...]) -> Operation:
    predicate = INTEGER_FORMATS["b1"]
    if verb in ARITHMETIC:
        taken = _take(name, modifiers, ROUNDINGS, _FLAGS["ftz"], _CLAMPS)
        if taken[0] is None:
            raise _unknown(name, f"{verb} rounds, so name a rounding of {', '.join(ROUNDINGS)}")
        core = partial(floating.arithmetic, verb, form, cast("Rounding", taken[0]), _mode(*taken))
        return _make(verb, taken, form, (form,) * ARITHMETIC[verb], core, verb in ("add", "mul", "fma"))
    if verb in ("min", "max"):
        taken = _take(name, modifiers, _FLAGS["ftz"], _FLAGS["nan"], _CLAMPS)
        core = partial(floating.extremum, verb, form, taken[1] is not None, _mode(*taken))
        return _make(verb, taken, form, (form, form), core, commutative=True)
    if verb in ("neg", "abs"):
        taken = _take(name, modifiers, _FLAGS["ftz"])
        return _make(verb, taken, form, (form,), partial(floating.change_sign, verb, form, _mode(*taken)))
    if verb in ("ord", "unord") or verb.removesuffix("u") in COMPARISONS:
        taken = _take(name, modifiers, _FLAGS["ftz"])
        core = partial(floating.compare, verb, form, _mode(*taken))
        symmetric = verb.removesuffix("u") in ("eq", "ne", "ord", "unord")
        return _make(verb, taken, predicate, (form, form), core, symmetric)
    raise _unknown(name, f"floating-point numbers have no {verb!r}")


def _approximate(name: str, verb: str, form: FloatFormat, modifiers: tuple[str, ...]) -> Operation:
    if verb not in APPROXIMATE:
        raise _unknown(name, f"{verb!r} has no approximation; {', '.join(APPROXIMATE)} have")
    taken = _take(name, modifiers, ("approx", "full"), _FLAGS["ftz"], _CLAMPS)
    return _make(verb, taken, form, (form,) * APPROXIMATE[verb], None)


def _integer(name: str, verb: str, form: IntegerFormat, modifiers: tuple[str, ...]) -> Operation:
    _take(name, modifiers)
    signless = INTEGER_FORMATS[f"b{form.bits}"]
    predicate = INTEGER_FORMATS["b1"]
    if verb in integer.SIGNLESS:
        arity = integer.SIGNLESS[verb]
        core = partial(integer.pattern, verb, signless)
        return _make(verb, (), signless, (signless,) * arity, core, verb in ("add", "mul", "and", "or", "xor"))
    if verb in ("eq", "ne"):
        core = partial(integer.compare, verb, signless)
        return _make(verb, (), predicate, (signless, signless), core, commutative=True)
    if form.signed is None:
        raise _unknown(name, f"unknown, or it depends on the sign: then write s{form.bits} or u{form.bits}")
    if verb in integer.SIGNED:
        if verb == "abs" and not form.signed:
            raise _unknown(name, "the absolute value of an unsigned integer is itself")
        if verb == "mulwide" and form.bits == 64:
            raise _unknown(name, "the product of two 64-bit integers fits no format; mulhi and mul give its halves")
        result = INTEGER_FORMATS[f"b{2 * form.bits}"] if verb == "mulwide" else form
        core = partial(integer.arithmetic, verb, form)
        commutes = verb in ("min", "max", "mulhi", "mulwide")
        return _make(verb, (), result, (form,) * integer.SIGNED[verb], core, commutes)
    if verb in COMPARISONS:
        return _make(verb, (), predicate, (form, form), partial(integer.compare, verb, form))
    raise _unknown(name, f"integers have no {verb!r}")


def _conversion(name: str, target: Format, source: Format, modifiers: tuple[str, ...]) -> Operation:
    if isinstance(target, IntegerFormat) and isinstance(source, IntegerFormat):
        return _between_integers(name, target, source, modifiers)
    if isinstance(source, IntegerFormat):
        assert isinstance(target, FloatFormat)
        return _from_integer(name, target, source, modifiers)
    if isinstance(target, IntegerFormat):
        if target.signed is None:
            raise _unknown(name, f"say whether the integer is signed: s{target.bits} or u{target.bits}")
        taken = _take(name, modifiers, tuple(INTEGER_ROUNDINGS), _FLAGS["ftz"])
        if taken[0] is None:
            raise _unknown(name, f"name a rounding to integers of {', '.join(INTEGER_ROUNDINGS)}")
        core = partial(conversion.float_to_integer, target, source, cast("IntegerRounding", taken[0]), _mode(*taken))
        return _make("convert", taken, target, (source,), core, formats=(target, source))
    return _between_floats(name, target, source, modifiers)


def _between_floats(name: str, target: FloatFormat, source: FloatFormat, modifiers: tuple[str, ...]) -> Operation:
    if not target.subnormals:
        raise _unknown(name, f"how zero and negative numbers become {target.name} is not established")
    if target is source and modifiers and modifiers[0] in INTEGER_ROUNDINGS:
        taken = _take(name, modifiers, tuple(INTEGER_ROUNDINGS), _FLAGS["ftz"], _CLAMPS)
        core = partial(conversion.float_to_integral, target, cast("IntegerRounding", taken[0]), _mode(*taken))
        return _make("convert", taken, target, (source,), core, formats=(target, source))
    taken = _take(name, modifiers, ROUNDINGS, _FLAGS["ftz"], _FLAGS["satfinite"], _CLAMPS)
    if target.holds(source):
        taken = (None, *taken[1:])
    elif taken[0] is None:
        raise _unknown(name, f"{target.name} does not hold every {source.name}, so name a rounding")
    if taken[1] and (target.name, source.name) == ("fp16", "fp32"):
        if taken[0] not in ("rn", "rz", "rna"):
            raise _unknown(name, "whether a subnormal operand is flushed before it is rounded up is not established")
        taken = (taken[0], None, *taken[2:])  # a subnormal fp32 becomes a zero in either case
    if target.canonical_nan is None and taken[2] is None:
        raise _unknown(name, f"{target.name} has neither infinity nor NaN, so write satfinite")
    rounding = cast("Rounding", taken[0] or "rn")
    core = partial(conversion.float_to_float, target, source, rounding, _mode(*taken), taken[2] is not None)
    return _make("convert", taken, target, (source,), core, formats=(target, source))


def _from_integer(name: str, target: FloatFormat, source: IntegerFormat, modifiers: tuple[str, ...]) -> Operation:
    if source.signed is None:
        raise _unknown(name, f"say whether the integer is signed: s{source.bits} or u{source.bits}")
    if target.canonical_nan is None or not target.subnormals:
        raise _unknown(name, f"integers do not become {target.name}")
    taken = _take(name, modifiers, ROUNDINGS, _CLAMPS)
    if source.bits - bool(source.signed) <= target.precision and source.bits <= target.largest_exponent:
        taken = (None, taken[1])
    elif taken[0] is None:
        raise _unknown(name, f"{target.name} does not hold every {source.name}, so name a rounding")
    rounding = cast("Rounding", taken[0] or "rn")
    core = partial(conversion.integer_to_float, target, source, rounding, _mode(*taken))
    return _make("convert", taken, target, (source,), core, formats=(target, source))


def _between_integers(name: str, target: IntegerFormat, source: IntegerFormat, modifiers: tuple[str, ...]) -> Operation:
    (saturate,) = _take(name, modifiers, ("sat",))
    if saturate:
        if target.signed is None or source.signed is None:
            raise _unknown(name, "a saturating conversion depends on both signs: write s or u")
    else:
        target = INTEGER_FORMATS[f"b{target.bits}"]
        if target.bits <= source.bits:
            source = INTEGER_FORMATS[f"b{source.bits}"]
        elif source.signed is None:
            raise _unknown(name, f"widening depends on the sign: write s{source.bits} or u{source.bits}")
    core = partial(conversion.integer_to_integer, target, source, saturate is not None)
    return _make("convert", (saturate,), target, (source,), core, formats=(target, source))
