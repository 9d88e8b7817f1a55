"""Trees as text: an exact form that parses to the same nodes, and an indented outline for readers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from bitwise_core.ir.constant_text import constant_text
from bitwise_core.ir.element_names import NO_WIDTHS, element_name
from bitwise_core.ir.nodes import (
    Concat,
    Constant,
    Gather,
    Label,
    Load,
    Matrix,
    Node,
    OpaqueOperation,
    Operation,
    Select,
    Slice,
    TreeError,
    Undefined,
    descendants,
)

_PLAIN = re.compile(r"[A-Za-z_$.%][\w$.]*\Z", re.ASCII)
_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"(?:[+-]\d+)?|[\[\]]|[^\s\[\]]+)')
_ADDRESS = re.compile(r'(?P<buffer>"(?:[^"\\]|\\.)*"|[A-Za-z_$.%][\w$.]*)(?P<offset>[+-]\d+)\Z', re.ASCII)


def address(load: Load) -> str:
    """Return a load's address: the buffer and the byte offset, `X+24`."""
    buffer = load.buffer if _PLAIN.match(load.buffer) else json.dumps(load.buffer)
    return f"{buffer}{load.offset:+d}"


def head(node: Node) -> str:
    """Return a node's text without its children: `add.rn.fp32`, `load X+24 b32`, `slice 16 b8`."""
    if isinstance(node, Operation):
        return node.name
    if isinstance(node, Matrix):
        return f"matrix {node.instruction}"
    if isinstance(node, Load):
        return f"load {address(node)} b{node.bits}"
    if isinstance(node, Constant):
        return f"constant {node.value:#x} b{node.bits}"
    if isinstance(node, Slice):
        return f"slice {node.low_bit} b{node.bits}"
    if isinstance(node, Gather):
        return f"gather b{node.bits}"
    if isinstance(node, OpaqueOperation):
        return f"instruction {node.name} b{node.bits}"
    if isinstance(node, Undefined):
        return f"undefined {json.dumps(node.reason)} b{node.bits}"
    return node.kind


def write(*roots: Node) -> str:
    """Return one line per node, shared nodes once, and a last line with the roots.  `read` returns the same roots."""
    names: dict[Node, str] = {}
    lines = []
    for node in descendants(*roots):
        names[node] = f"%{len(names)}"
        parts = [names[child] for child in node.children]
        if isinstance(node, Matrix):
            count = len(node.left)
            parts = [parts[0], "[", *parts[1 : count + 1], "]", "[", *parts[count + 1 :], "]"]
        lines.append(" ".join((names[node], "=", head(node), *parts)))
    lines.append(" ".join(("return", *(names[root] for root in roots))))
    return "\n".join(lines) + "\n"


_WIDTH_DIGITS = 7
"""The characters of the longest width, `b` included."""


class _Line:
    """The tokens of one line and their parsers; every error names the line."""

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.tokens: list[str] = []
        position = 0
        text = text.strip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise self.error(f"cannot read {text[position:]!r}")
            self.tokens.append(found.group(1))
            position = found.end()
        self.tokens.reverse()

    def error(self, reason: str) -> TreeError:
        return TreeError(f"line {self.number} of the tree: {reason}")

    def take(self, what: str) -> str:
        if not self.tokens:
            raise self.error(f"it ends where {what} is expected")
        return self.tokens.pop()

    def integer(self, what: str) -> int:
        token = self.take(what)
        try:
            return int(token, 0)
        except ValueError:
            raise self.error(f"{token!r} is not a {what}") from None

    def width(self) -> int:
        token = self.take("a width")
        if not re.fullmatch(r"b\d+", token, re.ASCII):
            raise self.error(f"{token!r} is not a width such as b32")
        if len(token) > _WIDTH_DIGITS:
            raise self.error(f"the width {token[:_WIDTH_DIGITS]}... is beyond that of any value")
        return int(token[1:])

    def quoted(self, what: str) -> str:
        token = self.take(what)
        try:
            value = json.loads(token)
        except ValueError:
            value = None
        if not isinstance(value, str):
            raise self.error(f"{token!r} is not a quoted {what}")
        return value

    def node(self, known: dict[str, Node]) -> Node:
        token = self.take("a node")
        if token not in known:
            raise self.error(f"{token!r} is not defined above")
        return known[token]

    def rest(self, known: dict[str, Node]) -> tuple[Node, ...]:
        nodes = []
        while self.tokens:
            nodes.append(self.node(known))
        return tuple(nodes)

    def group(self, known: dict[str, Node]) -> tuple[Node, ...]:
        if self.take("[") != "[":
            raise self.error("the factors of a matrix step must be in brackets, [left] [right]")
        nodes = []
        while self.tokens and self.tokens[-1] != "]":
            nodes.append(self.node(known))
        self.take("]")
        return tuple(nodes)


def _read_load(line: _Line, known: dict[str, Node]) -> Node:
    token = line.take("an address such as X+24")
    found = _ADDRESS.match(token)
    if found is None:
        raise line.error(f"{token!r} is not an address such as X+24")
    buffer = found["buffer"]
    return Load(json.loads(buffer) if buffer.startswith('"') else buffer, int(found["offset"]), line.width())


def _read_constant(line: _Line, known: dict[str, Node]) -> Node:
    value = line.integer("value")
    return Constant(line.width(), value)


def _read_matrix(line: _Line, known: dict[str, Node]) -> Node:
    instruction = line.take("an instruction")
    return Matrix(instruction, line.node(known), line.group(known), line.group(known))


def _read_select(line: _Line, known: dict[str, Node]) -> Node:
    return Select(line.node(known), line.node(known), line.node(known))


def _read_slice(line: _Line, known: dict[str, Node]) -> Node:
    low_bit, bits = line.integer("bit"), line.width()
    return Slice(line.node(known), low_bit, bits)


def _read_concat(line: _Line, known: dict[str, Node]) -> Node:
    return Concat(line.rest(known))


def _read_gather(line: _Line, known: dict[str, Node]) -> Node:
    bits = line.width()
    return Gather(line.node(known), bits)


def _read_instruction(line: _Line, known: dict[str, Node]) -> Node:
    name, bits = line.take("an instruction"), line.width()
    return OpaqueOperation(name, line.rest(known), bits)


def _read_undefined(line: _Line, known: dict[str, Node]) -> Node:
    reason = line.quoted("reason")
    return Undefined(reason, line.width())


_READERS: dict[str, Callable[[_Line, dict[str, Node]], Node]] = {
    "load": _read_load,
    "constant": _read_constant,
    "matrix": _read_matrix,
    "select": _read_select,
    "slice": _read_slice,
    "concat": _read_concat,
    "gather": _read_gather,
    "instruction": _read_instruction,
    "undefined": _read_undefined,
}


def read(text: str) -> tuple[Node, ...]:
    """Return the roots that `write` wrote.  Raises TreeError, which names the line; blank lines are skipped."""
    known: dict[str, Node] = {}
    for number, content in enumerate(text.split("\n"), start=1):
        line = _Line(number, content)
        if not line.tokens:
            continue
        name = line.take("a name")
        if name == "return":
            roots = line.rest(known)
            if any(rest.strip() for rest in text.split("\n")[number:]):
                raise TreeError(f"line {number + 1} of the tree: the return must be the last line")
            return roots
        if not re.fullmatch(r"%\w+", name, re.ASCII) or line.take("=") != "=":
            raise line.error("a line must have the form %name = node")
        if name in known:
            raise line.error(f"{name} is defined a second time")
        verb = line.take("an operation")
        try:
            reader = _READERS.get(verb)
            known[name] = reader(line, known) if reader else Operation(verb, line.rest(known))
        except TreeError as error:
            message = str(error)
            raise (error if message.startswith("line ") else line.error(message)) from None
        except ValueError as error:  # of a quoted name, or of an integer with thousands of digits
            raise line.error(str(error)) from None
        if line.tokens:
            raise line.error(f"{line.tokens[-1]!r} is an extra operand")
    raise TreeError("the tree has no line that returns its roots")


def render(root: Node, max_depth: int = 12, max_lines: int = 200, widths: Mapping[str, int] = NO_WIDTHS) -> str:
    """Return an indented outline; a shared node is written once and then referenced by name.

    Nodes deeper than `max_depth` or beyond `max_lines` are replaced by `...`.  A load is written as the elements that
    it reads; `widths` are the widths of the buffers' elements in bytes, by default those of the loads.
    """

    def title(node: Node, parent: Node | None, place: int) -> str:
        if isinstance(node, Label):
            return node.name
        if isinstance(node, Constant):
            return f"constant {constant_text(node, parent, place)} b{node.bits}"
        if not isinstance(node, Load):
            return head(node)
        return element_name(node.buffer, node.offset, node.bits // 8, widths.get(node.buffer))

    uses: dict[Node, int] = {root: 1}
    for node in descendants(root):
        for child in node.children:
            uses[child] = uses.get(child, 0) + 1
    names: dict[Node, str] = {}
    lines: list[str] = []
    stack: list[tuple[Node, int, Node | None, int]] = [(root, 0, None, 0)]
    while stack:
        node, depth, parent, place = stack.pop()
        indent = "  " * depth
        if len(lines) >= max_lines:
            lines.append(f"{indent}... {len(stack) + 1} more operands, of {len(uses)} nodes in all")
            break
        if node in names:
            lines.append(f"{indent}{names[node]} (above)")
            continue
        label = title(node, parent, place)
        if node.children and uses[node] > 1:
            names[node] = f"%{len(names)}"
            label = f"{names[node]} = {label}"
        if node.children and depth >= max_depth:
            names.pop(node, None)
            lines.append(f"{indent}{title(node, parent, place)} ...")
            continue
        lines.append(indent + label)
        stack.extend((child, depth + 1, node, number) for number, child in reversed(list(enumerate(node.children))))
    return "\n".join(lines) + "\n"
