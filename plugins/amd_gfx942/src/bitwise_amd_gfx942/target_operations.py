"""Declarations of the operations that only this architecture has, in the vocabulary of operations.

Where the results of a floating-point operation are documented, its function on bit patterns is in `functions`, which
may raise Unsupported for some operands.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.numerics import declare

ARCHITECTURES = ("gfx942", "gfx950")

_FLOATS = ("fp16", "fp32", "fp64")
_ROUNDINGS, _FTZ, _SATFINITE = ("rn", "ru", "rd", "rz"), ("ftz",), ("satfinite",)
_MANTISSA = {2: 10, 4: 23, 8: 52}


def _declare(*arguments: Any, **options: Any) -> None:
    for architecture in ARCHITECTURES:
        declare(architecture, *arguments, **options)


for _verb, _arity, _says in (
    ("add", 2, "a + b"), ("sub", 2, "a - b"), ("mul", 2, "a * b"), ("fma", 3, "a * b + c with one rounding"),
):  # fmt: skip
    _declare(
        _verb,
        (*_FLOATS, "bf16") if _verb == "add" else _FLOATS,
        ("",) * _arity,
        says=f"{_says} in a mode that flushes subnormal numbers or clamps overflow; `atomic`: in a memory unit",
        modifiers=(_ROUNDINGS, _FTZ, _SATFINITE, ("atomic",)),
        commutative=_verb != "sub",
    )
    for _factor in ("twice", "four_times", "half"):
        _declare(
            f"{_verb}_{_factor}",
            _FLOATS,
            ("",) * _arity,
            says=f"{_says}, multiplied by the output modifier",
            modifiers=(_ROUNDINGS, _FTZ, _SATFINITE),
        )

for _verb in ("min", "max"):
    _declare(
        _verb, _FLOATS, ("", ""), says=f"the {_verb}imum in IEEE mode: NaN where an operand is a signalling NaN",
        modifiers=(("signalling",),), commutative=True,
    )  # fmt: skip
    _declare(
        f"{_verb}3", _FLOATS, ("",) * 3, says=f"the {_verb}imum of three in IEEE mode",
        modifiers=(("signalling",),),
    )  # fmt: skip

_declare("med3", ("fp16", "fp32"), ("",) * 3, says="the median of three numbers; with a NaN their minimum")
# Its result is a pattern: a quiet NaN keeps its payload, so it is not that of arithmetic.
_declare("quieted", ("fp16",), says="a, with a signalling NaN replaced by the quiet NaN", result="b16")
_declare("saturate", _FLOATS, says="a clamped to [0, 1]; a NaN is +0 unless `nan`", modifiers=(("nan",),))
for _format, _power in (("fp16", "b16"), ("fp32", "b32"), ("fp64", "b32")):
    _declare(
        "ldexp", (_format,), ("", _power), says="a times 2 to the signed power b", modifiers=(_ROUNDINGS, _SATFINITE)
    )
_declare("frexp_mantissa", ("fp32", "fp64"), says="the mantissa of a in [1/2, 1)")
_declare(
    "frexp_exponent", ("fp32", "fp64"), says="the exponent that belongs to frexp_mantissa, an integer", result="b32"
)
_declare("fract", ("fp32", "fp64"), says="a minus its floor")
_declare("trig_preop", ("fp64",), ("", "b32"), says="segment b of the digits of 2 / pi, for the exponent of a")
_declare(
    "div",
    ("fp64",),
    ("", ""),
    says="a / b by the instruction sequence of `division_sequences`",
    modifiers=(("sequence",),),
)
_declare("divscale", ("fp32", "fp64"), ("",) * 3, says="an operand of a division scaled", modifiers=(_FTZ,))
_declare(
    "divscaled", ("fp32", "fp64"), ("",) * 3, says="whether the quotient is scaled back", result="b1",
    modifiers=(_FTZ,),
)  # fmt: skip
_declare(
    "divfmas", ("fp32", "fp64"), ("", "", "", "b1"), says="a * b + c, scaled back where d is set", modifiers=(_FTZ,)
)
_declare(
    "divfixup", _FLOATS, ("",) * 3, says="the quotient with its special cases handled", modifiers=(_FTZ, _SATFINITE)
)
_declare(
    "convert", ("fp16.fp32", "fp16.u16", "fp16.s16"), says="a, on overflow the greatest finite number",
    modifiers=(_ROUNDINGS, _SATFINITE),
)  # fmt: skip
_NARROW = ("e4m3fnuz.fp32", "e5m2fnuz.fp32")
declare("gfx942", "narrow", _NARROW, says="a rounded to nearest even", modifiers=(("rn",), _SATFINITE))
declare(
    "gfx950", "narrow", ("e4m3.fp32", "e5m2.fp32"), says="a rounded to nearest even", modifiers=(("rn",), _SATFINITE)
)
declare(
    "gfx942", "narrow_stochastic", _NARROW, ("", "b32"), says="a rounded by the random bits b",
    modifiers=(_SATFINITE,),
)  # fmt: skip
_declare("dot2", ("fp32.fp16",), ("", "", "", "", "fp32"), says="a * c + b * d + e", modifiers=(_FTZ,))


def classes_of(pattern: Array) -> Array:
    """The class of each pattern in v_cmp_class's numbering: 0 and 1 for NaNs, 2 to 9 from -infinity to +infinity."""
    mantissa, bits = _MANTISSA[pattern.dtype.itemsize], 8 * pattern.dtype.itemsize
    top = (1 << bits - 1 - mantissa) - 1
    exponent = (pattern >> pattern.dtype.type(mantissa)) & pattern.dtype.type(top)
    fraction = pattern & pattern.dtype.type((1 << mantissa) - 1)
    negative = (pattern >> pattern.dtype.type(bits - 1)) != 0
    quiet = (pattern >> pattern.dtype.type(mantissa - 1)) & pattern.dtype.type(1) != 0
    size = np.where(exponent == top, 3, np.where(exponent != 0, 2, np.where(fraction != 0, 1, 0)))
    nan = (exponent == top) & (fraction != 0)
    return np.where(nan, np.where(quiet, 1, 0), np.where(negative, 5 - size, 6 + size))


def _is_of_class(pattern: Array, wanted: Array) -> Array:
    found: Array = wanted >> classes_of(pattern).astype(np.uint32) & np.uint32(1) != 0
    return found


def _byte_permute(high: Array, low: Array, selector: Array) -> Array:
    pair = high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
    result: Array = np.zeros(np.broadcast_shapes(high.shape, low.shape, selector.shape), dtype=np.uint32)
    for position in range(4):
        choice = (selector >> np.uint32(8 * position) & np.uint32(255)).astype(np.uint64)
        byte = pair >> (np.uint64(8) * (choice & np.uint64(7))) & np.uint64(255)
        sign_place = np.uint64(16) * (choice & np.uint64(3)) + np.uint64(15)
        sign = np.where(pair >> sign_place & np.uint64(1), np.uint64(255), np.uint64(0))
        fixed = np.where(choice == 12, np.uint64(0), np.uint64(255))
        chosen = np.where(choice < 8, byte, np.where(choice < 12, sign, fixed))
        result = result | chosen.astype(np.uint32) << np.uint32(8 * position)
    return result


def _byte_align(high: Array, low: Array, amount: Array) -> Array:
    pair = high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
    return (pair >> ((amount & np.uint32(3)) * np.uint32(8)).astype(np.uint64)).astype(np.uint32)


def _bit_field(is_signed: bool, a: Array, control: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    offset = control.astype(np.uint64) & np.uint64(bits - 1)
    count = np.minimum(control.astype(np.uint64) >> np.uint64(16) & np.uint64(0x7F), np.uint64(64))
    top = np.minimum(np.uint64(64) - count, np.uint64(63))
    kind = np.int64 if is_signed else np.uint64
    wide = (a.view(f"int{bits}").astype(kind) if is_signed else a.astype(kind)) >> offset.astype(kind)
    moved = wide.view(np.uint64) << top
    field = (moved.view(np.int64) >> top.astype(np.int64)).view(np.uint64) if is_signed else moved >> top
    return np.where(count == 0, np.uint64(0), field).astype(a.dtype)


def _shifted_add_carry(count: int, a: Array, b: Array) -> Array:
    found: Array = ((a.astype(np.uint64) << np.uint64(count)) + b.astype(np.uint64)) >> np.uint64(32) != 0
    return found


_declare(
    "class", _FLOATS, ("", "b32"), says="whether a is in one of the classes whose bits are set in b", result="b1",
    function=_is_of_class,
)  # fmt: skip
_declare(
    "perm", ("b32",), ("",) * 3, function=_byte_permute,
    says="four bytes selected by the bytes of c: 0 to 7 of a:b, 8 to 11 signs, 12 zeros, above ones",
)  # fmt: skip
_declare("alignbyte", ("b32",), ("",) * 3, says="the low word of a:b shifted by c bytes", function=_byte_align)
for _format in ("s32", "u32", "s64", "u64"):
    _declare(
        "bfepacked", (_format,), ("", "b32"), function=partial(_bit_field, _format[0] == "s"),
        says="a bit field of a: offset b[5:0], width b[22:16]",
    )  # fmt: skip
for _count in (1, 2, 3, 4):
    _declare(
        f"lshl{_count}_add_carry", ("u32",), ("", ""), result="b1", function=partial(_shifted_add_carry, _count),
        says=f"whether (a << {_count}) + b wraps",
    )  # fmt: skip
