"""Families of operations for the canonical rules."""

from __future__ import annotations

from bitwise_core.numerics import FLOAT_FORMATS, FloatFormat, operation
from canonical_rules.patterns import Family

FORMATS = ("fp64", "fp32", "fp16", "bf16")
NOT_DOWN = ("rn", "rz", "ru", "rna")
SYMMETRIC = ("rn", "rz", "rna")
ALL = ("rn", "rz", "ru", "rd", "rna")


def rounded(roundings: tuple[str, ...], flush: bool = False) -> tuple[Family, ...]:
    """Arithmetic of one rounding in every format."""
    families = []
    for name in FORMATS:
        for rounding in roundings:
            suffix = f"{rounding}{'.ftz' * flush}.{name}"
            operations = {verb: f"{verb}.{suffix}" for verb in ("add", "sub", "mul", "fma")}
            operations |= {verb: f"{verb}.{name}" for verb in ("neg", "abs")}
            families.append(Family(suffix, operations, name, FLOAT_FORMATS[name].bits))
    return tuple(families)


def choosing(verb: str, *modifiers: str) -> tuple[Family, ...]:
    """Minimum or maximum, with the modifiers, in every format."""
    return tuple(
        Family(f"{verb}{modifier}.{name}", {"max": f"{verb}{modifier}.{name}"}, name, FLOAT_FORMATS[name].bits)
        for name in FORMATS
        for modifier in modifiers
    )


def named(*names: str) -> tuple[Family, ...]:
    """Return families of one operation each, called `op` in the pattern."""
    families = []
    for name in names:
        form = operation(name).operands[0]
        families.append(Family(name, {"op": name}, form.name if isinstance(form, FloatFormat) else None, form.bits))
    return tuple(families)


def integers(*verbs: str) -> tuple[Family, ...]:
    """One integer operation each, in every width, and with both signs where the sign matters."""
    kinds = {"min": "su", "max": "su"}
    return named(
        *(f"{verb}.{letter}{bits}" for verb in verbs for letter in kinds.get(verb, "b") for bits in (8, 16, 32, 64))
    )


def widened(*pairs: tuple[str, str]) -> tuple[Family, ...]:
    """Conversions of the narrow format to the wide one and back, in every rounding."""
    return tuple(
        Family(
            f"{rounding}.{narrow}.{wide}",
            {"narrow": f"convert.{rounding}.{narrow}.{wide}", "widen": f"convert.{wide}.{narrow}"},
            narrow,
            FLOAT_FORMATS[narrow].bits,
        )
        for narrow, wide in pairs
        for rounding in ALL
    )


def signs() -> tuple[Family, ...]:
    """Negation and absolute value in every format."""
    return tuple(
        Family(name, {verb: f"{verb}.{name}" for verb in ("neg", "abs")}, name, FLOAT_FORMATS[name].bits)
        for name in FORMATS
    )


def widening(narrow: str, wide: str, roundings: tuple[str, ...], *variables: str) -> tuple[Family, ...]:
    """Operations of both formats: the words for the narrow one end in `_narrow`; `variables` are in it."""
    families = []
    for rounding in roundings:
        operations = {"widen": f"convert.{wide}.{narrow}"}
        for ending, name in (("", wide), ("_narrow", narrow)):
            operations |= {f"{verb}{ending}": f"{verb}.{rounding}.{name}" for verb in ("add", "mul", "fma")}
            operations |= {f"{verb}{ending}": f"{verb}.{name}" for verb in ("neg", "abs", "max", "min")}
            operations |= {f"{verb}_nan{ending}": f"{verb}.nan.{name}" for verb in ("max", "min")}
        within = dict.fromkeys(variables, narrow)
        families.append(Family(f"{rounding}.{narrow}.{wide}", operations, wide, FLOAT_FORMATS[wide].bits, within))
    return tuple(families)


def rings(*amounts: str) -> tuple[Family, ...]:
    """Arithmetic modulo a power of two; the variables in `amounts` are amounts of shifts."""
    within = dict.fromkeys(amounts, "b32")
    return tuple(
        Family(
            f"b{bits}", {verb: f"{verb}.b{bits}" for verb in ("add", "sub", "mul", "neg", "shl")}, None, bits, within
        )
        for bits in (8, 16, 32, 64)
    )


WIDENINGS = (("fp16", "fp32"), ("bf16", "fp32"), ("fp32", "fp64"))


def of_widenings(*variables: str) -> tuple[Family, ...]:
    """Each pair of a format and one that holds it, rounded to nearest; `variables` are narrow."""
    return tuple(family for pair in WIDENINGS for family in widening(*pair, ("rn",), *variables))


def from_integers() -> tuple[Family, ...]:
    """Conversions of integers of 8 and 16 bits, of the same ones widened to 32, and the widening."""
    return tuple(
        Family(
            f"{rounding}.{target}.{sign}{bits}",
            {
                "convert": f"convert.{rounding}.{target}.{sign}{bits}",
                "convert_wide": f"convert.{rounding}.{target}.{sign}32",
                "widen": f"convert.{sign}32.{sign}{bits}",
            },
            target,
            FLOAT_FORMATS[target].bits,
            {"x": f"{sign}{bits}"},
        )
        for rounding in ("rn", "rz", "rd", "ru")
        for target in ("fp16", "bf16", "fp32", "fp64")
        for sign in "su"
        for bits in (8, 16)
    )


def to_integers() -> tuple[Family, ...]:
    """Conversions to integers of a narrow format, of its numbers in fp32, and the widening."""
    return tuple(
        Family(
            f"{rounding}.{target}.{narrow}",
            {
                "convert": f"convert.{rounding}.{target}.{narrow}",
                "convert_wide": f"convert.{rounding}.{target}.fp32",
                "widen": f"convert.fp32.{narrow}",
            },
            None,
            int(target[1:]),
            {"x": narrow},
        )
        for rounding in ("rni", "rzi", "rmi", "rpi")
        for target in ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
        for narrow in ("fp16", "bf16")
    )


BF16_IN_FP32 = {"widen": "convert.fp32.bf16"}
EXTREMA = ("", ".nan", ".ftz", ".ftz.nan")
