"""PTX declarations: registers, parameters and arrays, with their types and initial values."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from bitwise_core.assembly.module import Parameter, SharedArray
from bitwise_nvidia_ptx.text.lexer import NAME, ParseError, snippet
from bitwise_nvidia_ptx.text.operands import parse_integer, parse_number
from bitwise_nvidia_ptx.text.scope import Scope

WIDTHS = {
    "pred": 1,
    "f16x2": 32,
    "bf16": 16,
    "bf16x2": 32,
    "tf32": 32,
    "e4m3": 8,
    "e5m2": 8,
    "b128": 128,
    **{f"{kind}{width}": width for kind in "bus" for width in (8, 16, 32, 64)},
    **{f"f{width}": width for width in (16, 32, 64)},
}
"""The width in bits of each type that the parser accepts in a declaration."""

INITIAL_LIMIT = 64 * 1024 * 1024
"""The largest size of an array with initial values, in bytes."""

_REGISTERS = re.compile(r"\s++(?:\.v([24])\s++|(?!\.v[24]\s))\.(\w++)\s++(.*+)\Z", re.ASCII | re.DOTALL)
_REGISTER = re.compile(rf"\s*+({NAME})\s*+(?:<\s*+([0-9]{{1,9}}+)\s*+>\s*+)?\Z", re.ASCII)
_ATTRIBUTE = re.compile(r"\s*+\.(?:(align)\s++([0-9]{1,6}+)(?![\w.])|v([24])(?!\w)|(\w++))", re.ASCII)
_DECLARED = re.compile(rf"\s*+({NAME})\s*+((?:\[\s*+\w*+\s*+\]\s*+)*+)\Z", re.ASCII)
_BOUND = re.compile(r"\[\s*+(\w*+)\s*+\]", re.ASCII)
_SPACES = frozenset(["global", "shared", "const", "local"])


def _width(kind: str) -> int:
    width = WIDTHS.get(kind)
    if width is None:
        raise ParseError(f".{kind} is not a supported type of a declaration")
    return width


def declare_registers(rest: str, scope: Scope) -> None:
    """Declare in `scope` the registers of a `.reg` directive; `rest` is the text after `.reg`.

    Raises ParseError for an unknown type, a name that is already declared, or text that is not a list of names.
    """
    match = _REGISTERS.match(rest)
    if match is None:
        raise ParseError(f"{snippet('.reg' + rest)} lists no registers; write .reg .type name, name<count>")
    lanes, width = int(match[1] or 1), _width(match[2])
    for text in match[3].split(","):
        register = _REGISTER.match(text)
        if register is None:
            raise ParseError(f"{snippet(text)} is not the name of a register")
        if register[2]:
            scope.family(register[1], int(register[2]), width, lanes)
        else:
            scope.register(register[1], width, lanes)


class Declaration(NamedTuple):
    """One declared name; sizes are in bytes.

    `size` is 0 for an array with an open bound; `element` is the size of an element, `kind` the type without its dot.
    """

    name: str
    size: int
    element: int
    align: int
    array: bool
    pointer: bool
    kind: str


def parse_declaration(text: str) -> Declaration:
    """Parse a parameter or array from the text after its state space: attributes, type, name, bounds.

    Raises ParseError for an unknown type or attribute, and for text that is not a declaration.
    """
    position, align, lanes, kind, pointer = 0, 0, 1, "", False
    while (match := _ATTRIBUTE.match(text, position)) is not None:
        position = match.end()
        word = match[4]
        if match[1]:
            if align:
                raise ParseError(".align is given twice; a declaration has one alignment")
            align = int(match[2])
            if align == 0 or align & (align - 1):
                raise ParseError(f"an alignment is a power of two, and {align} is not")
        elif match[3]:
            lanes = int(match[3])
        elif word == "ptr" and not pointer:
            pointer = True
        elif not (pointer and word in _SPACES):
            if kind:
                raise ParseError(f".{word} follows the type .{kind}; a declaration has one type")
            kind = word
    match = _DECLARED.match(text, position)
    if match is None or not kind:
        raise ParseError(f"{snippet(text)} is not a declaration; write .type name or .type name[count]")
    element = _width(kind) * lanes // 8
    if element == 0:
        raise ParseError("a predicate must be a register; declare it with .reg")
    bounds = _BOUND.findall(match[2])
    count = 1
    for axis, bound in enumerate(bounds):
        if not bound and axis:
            raise ParseError("only the first bound of an array may be left open")
        count *= parse_integer(bound) if bound else 0
    default = 4 if pointer else element
    return Declaration(match[1], element * count, element, align or default, bool(bounds), pointer, kind)


def parse_parameter(text: str, scope: Scope) -> Parameter:
    """Parse `.param ...` and declare the parameter in `scope`.

    `align` is the alignment of the pointee for a pointer, and of the parameter itself for an array or an aligned
    scalar.  Raises ParseError for anything else.
    """
    stripped = text.strip()
    if not stripped.startswith(".param"):
        raise ParseError(
            f"{snippet(text)} is not a parameter; write .param .type name (register parameters are not supported)"
        )
    found = parse_declaration(stripped[len(".param") :])
    if found.size == 0:
        raise ParseError(f"parameter {found.name} has no size")
    aligned = found.pointer or found.array or ".align" in text
    return Parameter(scope.symbol(found.name), found.size, found.pointer, found.align if aligned else 1)


def _element_bytes(text: str, found: Declaration) -> bytes:
    literal = parse_number(text)
    size = found.element
    if found.kind.startswith("f") and literal.kind == "int":
        raise ParseError(f"{snippet(text)} is an integer, and .{found.kind} needs a floating-point literal")
    value = literal.value
    if literal.kind != "int":
        if not found.kind.startswith("f") or (literal.kind == "f32") != (size == 4):
            raise ParseError(f"{snippet(text)} does not have the width of .{found.kind}")
    elif not -(1 << (8 * size - 1)) <= value < 1 << (8 * size):
        raise ParseError(f"{snippet(text)} does not fit in .{found.kind}")
    return struct.pack("<Q", value % (1 << 64))[:size]


def _initial_bytes(text: str, found: Declaration) -> bytes:
    inner = text.strip()
    braced = inner.startswith("{") and inner.endswith("}")
    if braced != found.array or (found.array and not inner[1:-1].strip()):
        raise ParseError(
            f"{snippet(text)} does not initialise {found.name}: an array takes a braced list, a scalar a single value"
        )
    if found.element > 8 or found.kind in ("b128", "f16", "bf16"):
        raise ParseError(f"initial values of .{found.kind} elements of {found.element} bytes are not supported")
    values = [_element_bytes(part.strip(), found) for part in (inner[1:-1] if braced else inner).split(",")]
    data = b"".join(values)
    size = found.size or len(data)
    if size > INITIAL_LIMIT:
        raise ParseError(f"{found.name} has initial values for {size} bytes; at most {INITIAL_LIMIT} are supported")
    if len(data) > size:
        raise ParseError(f"{found.name} has {len(data)} bytes of initial values and {size} bytes of space")
    return data.ljust(size, b"\0")


def parse_array(rest: str, scope: Scope, *, initial: bool, open_ended: bool) -> SharedArray:
    """Parse an array or scalar in `.shared`, `.local`, `.global` or `.const` space and declare it in `scope`.

    `rest` is the text after the state space; `initial` and `open_ended` say whether this state space allows initial
    values and an empty bound.  Raises ParseError for text that is not a declaration, for values that do not fit, and
    for values that name a symbol.
    """
    declaration, equals, values = rest.partition("=")
    found = parse_declaration(declaration)
    if equals and not initial:
        raise ParseError(f"{found.name} is in a state space that takes no initial values")
    data = _initial_bytes(values, found) if equals else None
    size = found.size if data is None else len(data)
    if size == 0 and not open_ended:
        raise ParseError(f"{found.name} has no size; only an .extern array may have an open bound")
    return SharedArray(scope.symbol(found.name), size, found.align, data)
