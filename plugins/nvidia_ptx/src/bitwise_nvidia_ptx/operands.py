"""The operands of one PTX instruction: literals, names, vectors and addresses."""

from __future__ import annotations

import math
import re
import struct

from bitwise_core.assembly.module import Address, Immediate, Negated, Operand, Paired, Register, Symbol, Vector
from bitwise_nvidia_ptx.lexer import NAME, RefusedError, snippet
from bitwise_nvidia_ptx.names import Scope

_INTEGER = re.compile(
    r"(-\s*+)?+(?:0[xX]([0-9A-Fa-f]{1,16}+)|0[bB]([01]{1,64}+)|(0[0-7]{0,22}+)|([1-9][0-9]{0,19}+))U?+\Z", re.ASCII
)
_FLOAT_BITS = re.compile(r"0(?:[fF]([0-9A-Fa-f]{8})|[dD]([0-9A-Fa-f]{16}))\Z", re.ASCII)
_DECIMAL = re.compile(
    r"-?+(?:[0-9]{1,400}+\.[0-9]{0,400}+|\.[0-9]{1,400}+|[0-9]{1,400}+(?=[eE]))(?:[eE][-+]?[0-9]{1,4}+)?\Z", re.ASCII
)
_WORD = re.compile(rf"({NAME}(?:\.[a-z])?)(?:\s*+\+\s*+(-?+\s*+[0-9]\w*+))?\Z", re.ASCII)
_PIECE = re.compile(r"\s*+(\[[^\[\]]*+\]|\{[^{}]*+\}|\([^()]*+\)|[^\s,\[\]{}()][^,\[\]{}()]*+)\s*+(?:,|\Z)", re.ASCII)


def integer(text: str) -> int:
    """The value of an integer literal: decimal, `0x`, `0b` or octal, a sign, an optional U.

    Raises RefusedError for anything else, and for a value that 64 bits cannot hold.
    """
    match = _INTEGER.match(text)
    if match is None:
        raise RefusedError(f"{snippet(text)} is not an operand; a comma or a semicolon may be missing")
    sign, hexadecimal, binary, octal, decimal = match.groups()
    if hexadecimal:
        value = int(hexadecimal, 16)
    elif binary:
        value = int(binary, 2)
    else:
        value = int(octal, 8) if octal else int(decimal)
    if value >= 1 << 64 or (sign and value > 1 << 63):
        raise RefusedError(f"{snippet(text)} does not fit in 64 bits")
    return -value if sign else value


def number(text: str) -> Immediate:
    """An integer or floating-point literal; a decimal fraction is an f64, as PTX has it.

    Raises RefusedError for anything else.
    """
    match = _FLOAT_BITS.match(text)
    if match is not None:
        return Immediate(int(match[1], 16), "f32") if match[1] else Immediate(int(match[2], 16), "f64")
    if _DECIMAL.match(text) is not None:
        value = float(text)
        if math.isinf(value):
            raise RefusedError(f"{snippet(text)} is larger than any f64")
        return Immediate(struct.unpack("<Q", struct.pack("<d", value))[0], "f64")
    return Immediate(integer(text))


def pieces(text: str) -> list[str]:
    """The operands of a list, split at its outermost commas.  Raises RefusedError where a comma or bracket is amiss."""
    text = text.strip()
    if not text or text.endswith(","):
        raise RefusedError(f"an operand is missing at the end of {snippet(text)}")
    found: list[str] = []
    position = 0
    while position < len(text):
        match = _PIECE.match(text, position)
        if match is None:
            raise RefusedError(
                f"{snippet(text[position:])} is not a list of operands; look for a bracket or a semicolon"
            )
        found.append(match[1])
        position = match.end()
    return found


def _word(text: str, scope: Scope) -> tuple[Operand, int]:
    match = _WORD.match(text)
    if match is None:
        raise RefusedError(f"{snippet(text)} is not an operand; a comma or a semicolon may be missing")
    return scope.find(match[1]), integer(match[2]) if match[2] else 0


def _address(text: str, scope: Scope) -> Address:
    first, *rest = pieces(text[1:-1])
    extra = tuple([operand(piece, scope) for piece in rest])
    if first[0] in "0123456789-":
        return Address(None, integer(first), extra)
    base, offset = _word(first.rstrip(), scope)
    if not isinstance(base, Register | Symbol) or base.name == "_":
        raise RefusedError(f"{snippet(first)} is not an address")
    return Address(base, offset, extra)


def _register(text: str, scope: Scope) -> Register:
    found, offset = _word(text.strip(), scope)
    if not isinstance(found, Register) or offset:
        raise RefusedError(f"{snippet(text)} is not a register")
    return found


def _parse(text: str, scope: Scope) -> Operand:
    text = text.strip()
    first = text[:1]
    if first == "{":
        return Vector(tuple(operands(text[1:-1], scope)))
    if first == "[":
        return _address(text, scope)
    if first == "!":
        register = _register(text[1:], scope)
        if not scope.predicate(register):
            raise RefusedError(f"{snippet(text)} negates what is not a predicate")
        return Negated(register)
    if first and first in "0123456789-.":
        return number(text)
    if "|" in text:
        left, _, right = text.partition("|")
        return Paired(_register(left, scope), _register(right, scope))
    found, offset = _word(text, scope)
    if not offset:
        return found
    if not isinstance(found, Symbol):
        raise RefusedError(f"{snippet(text)} is not an operand; only an address takes an offset")
    return Address(found, offset)


def operand(text: str, scope: Scope) -> Operand:
    """One operand.

    `symbol+4` outside brackets, the address itself, is an `Address` of that symbol.  Raises RefusedError for a
    literal, a name or an address that does not parse.
    """
    found = scope.cache.get(text)
    if found is None:
        found = scope.cache[text] = _parse(text, scope)
    return found


def operands(text: str, scope: Scope) -> list[Operand]:
    """A list of operands, one at least.  Raises RefusedError as `operand` does."""
    parts = pieces(text) if "{" in text or "[" in text or "(" in text else text.split(",")
    cache = scope.cache
    return [cache.get(part) or operand(part, scope) for part in parts]


def _group(text: str, scope: Scope) -> Vector:
    inner = text[1:-1]
    return Vector(tuple(operands(inner, scope)) if inner.strip() else ())


def call_operands(text: str, scope: Scope) -> tuple[Operand, ...]:
    """The operands of a call: returns, the function or register, arguments, then whatever names its prototype.

    Raises RefusedError as `operand` does, and where the call has no target.
    """
    parts = pieces(text)
    returns = _group(parts.pop(0), scope) if parts[0].startswith("(") else Vector(())
    if not parts:
        raise RefusedError("this call names no function")
    target = operand(parts.pop(0), scope)
    arguments = _group(parts.pop(0), scope) if parts and parts[0].startswith("(") else Vector(())
    return (returns, target, arguments, *[operand(part, scope) for part in parts])
