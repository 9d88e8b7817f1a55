"""Parse the operands of one PTX instruction: literals, names, vectors and addresses."""

from __future__ import annotations

import math
import re
import struct

from bitwise_core.assembly.module import Address, Immediate, Negated, Operand, Paired, Register, Symbol, Vector
from bitwise_nvidia_ptx.text.lexer import NAME, ParseError, snippet
from bitwise_nvidia_ptx.text.scope import Scope

_INTEGER = re.compile(
    r"(-\s*+)?(?:0[xX]([0-9A-Fa-f]{1,16}+)|0[bB]([01]{1,64}+)|(0[0-7]{0,22}+)|([1-9][0-9]{0,19}+))U?+\Z", re.ASCII
)
_FLOAT_BITS = re.compile(r"0(?:[fF]([0-9A-Fa-f]{8})|[dD]([0-9A-Fa-f]{16}))\Z", re.ASCII)
_DECIMAL = re.compile(
    r"-?+(?:[0-9]{1,400}+\.[0-9]{0,400}+|\.[0-9]{1,400}+|[0-9]{1,400}+(?=[eE]))(?:[eE][-+]?[0-9]{1,4}+)?\Z", re.ASCII
)
_WORD = re.compile(rf"({NAME}(?:\.[a-z])?)(?:\s*+\+\s*+(-?+\s*+[0-9]\w*+))?\Z", re.ASCII)
_PIECE = re.compile(r"\s*+(\[[^\[\]]*+\]|\{[^{}]*+\}|\([^()]*+\)|[^\s,\[\]{}()][^,\[\]{}()]*+)\s*+(?:,|\Z)", re.ASCII)


def parse_integer(text: str) -> int:
    """Return the value of an integer literal: decimal, `0x`, `0b` or octal, with an optional sign and an optional U.

    Raises ParseError for anything else, and for a value that does not fit in 64 bits.
    """
    match = _INTEGER.match(text)
    if match is None:
        raise ParseError(f"{snippet(text)} is not an operand; a comma or a semicolon may be missing")
    sign, hexadecimal, binary, octal, decimal = match.groups()
    if hexadecimal:
        value = int(hexadecimal, 16)
    elif binary:
        value = int(binary, 2)
    else:
        value = int(octal, 8) if octal else int(decimal)
    if value >= 1 << 64 or (sign and value > 1 << 63):
        raise ParseError(f"{snippet(text)} does not fit in 64 bits")
    return -value if sign else value


def parse_number(text: str) -> Immediate:
    """Parse an integer or floating-point literal; a decimal fraction is an f64, as in PTX.

    Raises ParseError for anything else.
    """
    match = _FLOAT_BITS.match(text)
    if match is not None:
        return Immediate(int(match[1], 16), "f32") if match[1] else Immediate(int(match[2], 16), "f64")
    if _DECIMAL.match(text) is not None:
        value = float(text)
        if math.isinf(value):
            raise ParseError(f"{snippet(text)} is larger than any f64")
        return Immediate(struct.unpack("<Q", struct.pack("<d", value))[0], "f64")
    return Immediate(parse_integer(text))


def split_operands(text: str) -> list[str]:
    """Split a list of operands at its outermost commas.  Raises ParseError for a misplaced comma or bracket."""
    text = text.strip()
    if not text or text.endswith(","):
        raise ParseError(f"an operand is missing at the end of {snippet(text)}")
    found: list[str] = []
    position = 0
    while position < len(text):
        match = _PIECE.match(text, position)
        if match is None:
            raise ParseError(f"{snippet(text[position:])} is not a list of operands; look for a bracket or a semicolon")
        found.append(match[1])
        position = match.end()
    return found


def _name_and_offset(text: str, scope: Scope) -> tuple[Operand, int]:
    match = _WORD.match(text)
    if match is None:
        raise ParseError(f"{snippet(text)} is not an operand; a comma or a semicolon may be missing")
    return scope.find(match[1]), parse_integer(match[2]) if match[2] else 0


def _address(text: str, scope: Scope) -> Address:
    first, *rest = split_operands(text[1:-1])
    extra = tuple([parse_operand(piece, scope) for piece in rest])
    if first[0] in "0123456789-":
        return Address(None, parse_integer(first), extra)
    base, offset = _name_and_offset(first.rstrip(), scope)
    if not isinstance(base, Register | Symbol) or base.name == "_":
        raise ParseError(f"{snippet(first)} is not an address")
    return Address(base, offset, extra)


def _register(text: str, scope: Scope) -> Register:
    found, offset = _name_and_offset(text.strip(), scope)
    if not isinstance(found, Register) or offset:
        raise ParseError(f"{snippet(text)} is not a register")
    return found


def _parse_uncached(text: str, scope: Scope) -> Operand:
    first = text[:1]
    if first == "%" and text.isascii() and text[1:].isalnum():
        return scope.find(text)
    if first == "{":
        return Vector(tuple(parse_operands(text[1:-1], scope)))
    if first == "[":
        return _address(text, scope)
    if first == "!":
        register = _register(text[1:], scope)
        if not scope.is_predicate(register):
            raise ParseError(f"{snippet(text)} negates an operand that is not a predicate")
        return Negated(register)
    if first and first in "0123456789-.":
        return parse_number(text)
    if "|" in text:
        left, _, right = text.partition("|")
        return Paired(_register(left, scope), _register(right, scope))
    found, offset = _name_and_offset(text, scope)
    if not offset:
        return found
    if not isinstance(found, Symbol):
        raise ParseError(f"{snippet(text)} is not an operand; only an address takes an offset")
    return Address(found, offset)


def parse_operand(text: str, scope: Scope) -> Operand:
    """Parse one operand.

    `symbol+4` outside brackets denotes the address itself; it is an `Address` of that symbol.  Raises ParseError for a
    literal, a name or an address that does not parse.
    """
    cache = scope.cache
    found = cache.get(text)
    if found is None:
        stripped = text.strip()
        found = cache.get(stripped)
        if found is None:
            found = cache[stripped] = _parse_uncached(stripped, scope)
        cache[text] = found
    return found


def parse_operands(text: str, scope: Scope) -> list[Operand]:
    """Parse a list of one or more operands.  Raises ParseError as `parse_operand` does."""
    parts = split_operands(text) if "{" in text or "[" in text or "(" in text else text.split(",")
    cache = scope.cache
    return [cache.get(part) or parse_operand(part, scope) for part in parts]


def _parenthesized(text: str, scope: Scope) -> Vector:
    inner = text[1:-1]
    return Vector(tuple(parse_operands(inner, scope)) if inner.strip() else ())


def parse_call_operands(text: str, scope: Scope) -> tuple[Operand, ...]:
    """Parse the operands of a call: returns, the function or register, arguments, then the prototype, if any.

    Raises ParseError as `parse_operand` does, and if the call has no target.
    """
    parts = split_operands(text)
    returns = _parenthesized(parts.pop(0), scope) if parts[0].startswith("(") else Vector(())
    if not parts:
        raise ParseError("this call names no function")
    target = parse_operand(parts.pop(0), scope)
    arguments = _parenthesized(parts.pop(0), scope) if parts and parts[0].startswith("(") else Vector(())
    return (returns, target, arguments, *[parse_operand(part, scope) for part in parts])
