"""Activation functions as PyTorch's CUDA kernels compute them in fp32: the operations of nvcc 13.0, one by one.

Each is a tree over its argument.  Products and sums that nvcc contracts are `fma` here.  Before a launcher runs one, it
compares all inputs of 16 bits with PyTorch's own operator, since another build of PyTorch may contain others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from types import MappingProxyType

from bitwise_core.descriptors.evaluation import Formulas
from bitwise_core.ir import Constant, Node, Operation, Select

_ONE = Constant(32, 0x3F800000)
_HALF = Constant(32, 0x3F000000)
_EX2 = "ex2.approx.ftz.fp32@sm_90"
_RCP = "rcp.approx.ftz.fp32@sm_90"


def _constant(pattern: int) -> Node:
    return Constant(32, pattern)


def _on(name: str, *operands: Node) -> Node:
    return Operation(name, operands)


def _fma(x: Node, y: Node, z: Node) -> Node:
    return _on("fma.rn.fp32", x, y, z)


def _mul(x: Node, y: Node) -> Node:
    return _on("mul.rn.fp32", x, y)


def _polynomial(x: Node, coefficients: Sequence[Node]) -> Node:
    """Return the polynomial in x, by Horner's scheme; the leading coefficient comes first."""
    return reduce(lambda total, each: _fma(total, x, each), coefficients)


def _with_sign(magnitude: Node, sign: Node) -> Node:
    return _on("or.b32", _on("and.b32", magnitude, _constant(0x7FFFFFFF)), _on("and.b32", sign, _constant(0x80000000)))


def _silu_divisor(x: Node) -> Node:
    """Return 1 + exp(-x)."""
    negative = _on("neg.fp32", x)
    place = _on("fma.rn.sat.fp32", negative, _constant(0x3BBB989D), _HALF)
    rounded = _on("fma.rd.fp32", place, _constant(0x437C0000), _constant(0x4B400001))
    whole = _on("neg.fp32", _on("add.rn.fp32", rounded, _constant(0xCB40007F)))
    rest = _fma(negative, _constant(0x32A57060), _fma(negative, _constant(0x3FB8AA3B), whole))
    scale = _on("shl.b32", rounded, Constant(32, 23))
    return _fma(_on(_EX2, rest), scale, _ONE)


def silu(x: Node) -> Node:
    """Return x / (1 + exp(-x))."""
    return _on("div.rn.fp32", x, _silu_divisor(x))


def _tanh(x: Node) -> Node:
    magnitude = _on("abs.fp32", x)
    power = _on("add.rn.fp32", _on(_EX2, _mul(magnitude, _constant(0x4038AA3B))), _ONE)
    large = _fma(_on(_RCP, power), _constant(0xC0000000), _ONE)
    large = Select(_on("ge.fp32", magnitude, _constant(0x41102CB4)), _ONE, large)
    return Select(_on("ge.fp32", magnitude, _constant(0x3F19999A)), _with_sign(large, x), _small_tanh(x))


def _small_tanh(x: Node) -> Node:
    patterns = (0x3C80F082, 0xBD563CAE, 0x3E085941, 0xBEAAA9ED, 0)
    return _fma(_polynomial(_mul(x, x), [_constant(each) for each in patterns]), x, x)


def gelu_tanh(x: Node) -> Node:
    """Return 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x**3)))."""
    return _gelu_tanh_in(x, _tanh)


_ERF = (
    (0x38EB4C3A, 0x38B1E96A), (0xBAAE005B, 0xBA574D20), (0x3C09919F, 0x3BAAD5EA), (0xBD24D99A, 0xBCDC1BE7),
    (0x3E235519, 0x3DE718AF), (0x3F69B4F9, 0xBEC093AC), (0x3F210A14, 0x3E0375D3),
)  # fmt: skip
"""The coefficients of the polynomial of erf: for magnitudes from 1.003 on, and below."""


def _erf(x: Node) -> Node:
    magnitude = _on("abs.fp32", x)
    is_large = _on("ge.fp32", magnitude, _constant(0x3F8060FE))
    argument = Select(is_large, magnitude, _mul(x, x))
    total = _polynomial(argument, [Select(is_large, _constant(high), _constant(low)) for high, low in _ERF])
    factor = Select(is_large, _on("neg.fp32", magnitude), x)
    found = _fma(total, factor, factor)
    tail = _with_sign(_on("sub.rn.fp32", _ONE, _on(_EX2, found)), x)
    return Select(_on("ltu.fp32", magnitude, _constant(0x3F8060FE)), found, tail)


def gelu(x: Node) -> Node:
    """Return 0.5 x (1 + erf(x / sqrt(2)))."""
    return _mul(_mul(x, _HALF), _on("add.rn.fp32", _erf(_mul(x, _constant(0x3F3504F3))), _ONE))


def _silu_in_bf16(x: Node) -> Node:
    power = _on(_EX2, _mul(x, _constant(0xBFB8AA3B)))
    return _on("div.full.fp32@sm_90", x, _on("add.rn.fp32", power, _ONE))


def _silu_in_fp16(x: Node) -> Node:
    divisor = _silu_divisor(x)
    inverse = _on(_RCP, divisor)
    quotient = _mul(x, inverse)
    refined = _fma(_fma(_on("neg.fp32", quotient), divisor, x), inverse, quotient)
    # The refined quotient is NaN for infinities and for an infinite divisor, and +0 for -0.
    return Select(_on("gt.fp32", _on("abs.fp32", refined), Constant(32, 0)), refined, quotient)


def _gelu_tanh_in(x: Node, tanh: Callable[[Node], Node]) -> Node:
    inner = _mul(_fma(_mul(x, _mul(x, x)), _constant(0x3D372713), x), _constant(0x3F4C422A))
    return _mul(_mul(x, _HALF), _on("add.rn.fp32", tanh(inner), _ONE))


def _large_tanh(x: Node) -> Node:
    power = _on("add.rn.fp32", _on(_EX2, _mul(_on("abs.fp32", x), _constant(0x4038AA3B))), _ONE)
    return _with_sign(_fma(_on(_RCP, power), _constant(0xC0000000), _ONE), x)


def _unclamped_tanh(x: Node) -> Node:
    is_large = _on("ge.fp32", _on("abs.fp32", x), _constant(0x3F19999A))
    return Select(is_large, _large_tanh(x), _small_tanh(x))


FORMULAS: Formulas = MappingProxyType({"gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu})
"""The functions by the names of steps of an Epilogue."""

SHORT_FORMULAS: Formulas = MappingProxyType(
    {
        **FORMULAS, "silu.bf16": _silu_in_bf16, "silu.fp16": _silu_in_fp16,
        "gelu_tanh.bf16": lambda x: _gelu_tanh_in(x, _large_tanh),
        "gelu_tanh.fp16": lambda x: _gelu_tanh_in(x, _unclamped_tanh),
    }
)  # fmt: skip
"""FORMULAS, and shorter forms for a type, which have the same bits for all of its numbers once they are rounded to it.

The tests compare them.
"""
