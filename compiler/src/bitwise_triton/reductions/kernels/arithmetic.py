"""Arithmetic with a unique result on every compiler: Triton builtins that run while a kernel is compiled."""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"

from __future__ import annotations

import math
from typing import Any

import triton.language as tl

_FLOATS = {"fp16": ("f16", "h"), "fp32": ("f32", "r"), "fp64": ("f64", "d")}


def unwrap_constexpr(value: Any) -> Any:
    """A value without Triton's `constexpr` wrapper."""
    return value.value if isinstance(value, tl.constexpr) else value


@tl.core.builtin
def rounded(name, a, b, _semantic=None, _generator=None):
    """`a + b` or `a * b` (name "add" or "mul"), rounded once and never contracted with another operation."""
    name, a, b = unwrap_constexpr(name), _semantic.to_tensor(a), _semantic.to_tensor(b)
    scalar = a.type.scalar
    if not scalar.is_floating():
        return a.__add__(b, _semantic=_semantic) if name == "add" else a.__mul__(b, _semantic=_semantic)
    if scalar.name not in _FLOATS:
        raise ValueError(f"A pinned {name} takes fp16, fp32 or fp64, not {scalar.name}; convert the operands first.")
    kind, register = _FLOATS[scalar.name]
    if _semantic.builder.options.backend_name == "hip":
        text, constraint = f"v_{name}_{kind} $0, $1, $2", "v"
    else:
        text, constraint = f"{name}.rn.{kind} $0, $1, $2;", register
    constraints = ",".join([f"={constraint}", constraint, constraint])
    return tl.inline_asm_elementwise(text, constraints, [a, b], scalar, True, 1, _semantic=_semantic)


@tl.core.builtin
def absolute_difference(a, b, _semantic=None, _generator=None):
    """max(a, b) - min(a, b), NaN if either is NaN: symmetric in its operands."""
    nan = tl.PropagateNan.ALL
    greater = tl.maximum(a, b, propagate_nan=nan, _semantic=_semantic)
    smaller = tl.minimum(a, b, propagate_nan=nan, _semantic=_semantic)
    return greater.__sub__(smaller, _semantic=_semantic)


@tl.core.builtin
def quiet(x, _semantic=None, _generator=None):
    """`x` with signalling NaNs made quiet, on targets whose maximum and minimum distinguish them."""
    kind, _ = _FLOATS.get(x.type.scalar.name, ("", ""))
    if _semantic.builder.options.backend_name != "hip" or not kind:
        return x
    return tl.inline_asm_elementwise(
        f"v_max_{kind} $0, $1, $1", "=v,v", [x], x.type.scalar, True, 1, _semantic=_semantic
    )


@tl.core.builtin
def constant(value, dtype, _semantic=None):
    """A scalar constant with its sign. Triton's own constants turn -0.0 into 0.0."""
    value, dtype = unwrap_constexpr(value), unwrap_constexpr(dtype)
    if value != 0 or math.copysign(1, value) > 0 or not dtype.is_floating():
        return _semantic.scalar_constant(value, dtype)
    single = tl.tensor(_semantic.builder.get_fp32(-0.0), tl.float32)
    return single.to(dtype, _semantic=_semantic)


@tl.core.builtin
def opaque(x, _semantic=None, _generator=None):
    """`x`, of 32-bit integers, through a move that hides its value from the compiler."""
    x = _semantic.to_tensor(x)
    hip = _semantic.builder.options.backend_name == "hip"
    text, constraints = ("v_mov_b32 $0, $1", "=v,v") if hip else ("mov.b32 $0, $1;", "=r,r")
    return tl.inline_asm_elementwise(text, constraints, [x], x.type.scalar, True, 1, _semantic=_semantic)


@tl.core.builtin
def negative_zero_constant(dtype, _semantic=None):
    """A scalar -0.0 for masked lanes of a load.

    Triton's AMD backend treats a constant -0.0 as the +0.0 that masked lanes get anyway, and drops it. There the sign
    comes from a move that hides the value.
    """
    dtype = unwrap_constexpr(dtype)
    if _semantic.builder.options.backend_name != "hip" or not dtype.is_floating():
        return constant(-0.0, dtype, _semantic=_semantic)
    sign = opaque(_semantic.scalar_constant(-(1 << 31), tl.int32), _semantic=_semantic)
    return sign.to(tl.float32, bitcast=True, _semantic=_semantic).to(dtype, _semantic=_semantic)


@tl.core.builtin
def promoted(x, what, _semantic=None):
    """`x` in the type of its sum: bfloat16 as float32, small integers as 32 bits, as in `tl.sum`."""
    scalar = x.type.scalar
    if scalar.is_bf16():
        return x.to(tl.float32, _semantic=_semantic)
    if scalar.is_int() and scalar.int_bitwidth < 32:
        return x.to(tl.int32 if scalar.is_int_signed() else tl.uint32, _semantic=_semantic)
    if scalar.is_floating() and scalar.name not in _FLOATS:
        raise ValueError(
            f"{unwrap_constexpr(what)} takes fp16, bf16, fp32 or fp64, not {scalar.name}; convert the operand first."
        )
    return x
