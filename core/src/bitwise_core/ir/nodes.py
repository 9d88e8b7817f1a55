"""Immutable, interned nodes: two nodes of the same structure are the same object.

Trees are as deep as reduction chains are long, so no function of this package is recursive.
Constructors check their arguments and raise TreeError.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar, cast

from bitwise_core import numerics
from bitwise_core.errors import BitwiseError

N = TypeVar("N", bound="Node")

_INTERNED: weakref.WeakValueDictionary[tuple[Any, ...], Node] = weakref.WeakValueDictionary()
_LOCK = threading.Lock()
_WORD = re.compile(r"[\w.:/+-]+", re.ASCII)


class TreeError(BitwiseError, ValueError):
    """A node is invalid: the message says which and why."""


class Node:
    """A value of `bits` bits.  Identity is structural equality, so nodes hash and compare in constant time."""

    __slots__ = ("__weakref__", "bits")
    bits: int
    kind: ClassVar[str] = "node"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"nodes are immutable: build a new {self.kind} with another {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"nodes are immutable: {name} cannot be deleted")

    def __copy__(self: N) -> N:
        return self

    def __deepcopy__(self: N, memo: object) -> N:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a node is interned in its process: send the text of ir.text.write, and read it there")

    def __repr__(self) -> str:
        return f"<{self.kind} node of {self.bits} bits>"

    @property
    def children(self) -> tuple[Node, ...]:
        """The operand nodes, in order."""
        return ()


def _find(key: tuple[Any, ...]) -> Node | None:
    with _LOCK:
        return _INTERNED.get(key)


def _intern(cls: type[N], key: tuple[Any, ...], bits: int, *fields: tuple[str, object]) -> N:
    """Return the node of that key: the existing one, or a new one with those fields."""
    made = object.__new__(cls)
    object.__setattr__(made, "bits", bits)
    for name, value in fields:
        object.__setattr__(made, name, value)
    with _LOCK:
        return cast("N", _INTERNED.setdefault(key, made))


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise TreeError(message)


def _require_integer(value: object, what: str) -> None:
    _require(type(value) is int, f"{what} must be an integer, not {value!r}")


def _require_text(value: object, what: str) -> None:
    _require(isinstance(value, str) and value != "", f"{what}, not {value!r}")


def _require_nodes(values: tuple[object, ...], what: str) -> None:
    for value in values:
        _require(isinstance(value, Node), f"{what} must be made of nodes, not of {type(value).__name__}")


class Load(Node):
    """The initial content of `bits` bits of memory, `offset` bytes into the named buffer."""

    __slots__ = ("buffer", "offset")
    kind = "load"
    buffer: str
    offset: int

    def __new__(cls, buffer: str, offset: int, bits: int) -> Load:
        """Return the interned node.  Raises TreeError for invalid fields."""
        key = (cls, buffer, offset, bits)
        _require_text(buffer, "a load names its buffer")
        _require_integer(offset, f"the offset of a load from {buffer}")
        _require_integer(bits, f"the width of a load from {buffer}")
        _require(bits > 0 and bits % 8 == 0, f"a load from {buffer} reads whole bytes, not {bits} bits")
        return cast("Load | None", _find(key)) or _intern(cls, key, bits, ("buffer", buffer), ("offset", offset))


class Constant(Node):
    """A constant bit pattern."""

    __slots__ = ("value",)
    kind = "constant"
    value: int

    def __new__(cls, bits: int, value: int) -> Constant:
        """Return the interned node.  Raises TreeError for invalid fields."""
        _require_integer(bits, "the width of a constant")
        _require_integer(value, "the value of a constant")
        _require(bits > 0, f"a constant has at least one bit, not {bits}")
        _require(0 <= value < 1 << bits, f"the constant {value:#x} is not a pattern of {bits} bits")
        key = (cls, bits, value)
        return cast("Constant | None", _find(key)) or _intern(cls, key, bits, ("value", value))


class Operation(Node):
    """A scalar operation of `bitwise_core.numerics`, under its canonical name."""

    __slots__ = ("name", "operands")
    kind = "operation"
    name: str
    operands: tuple[Node, ...]

    def __new__(cls, name: str, operands: tuple[Node, ...]) -> Operation:
        """Return the interned node.  Raises TreeError for invalid fields."""
        operands = tuple(operands)
        found = _find((cls, name, operands))
        if found is not None:
            return cast("Operation", found)
        _require_nodes(operands, name)
        try:
            meaning = numerics.operation(name)
        except KeyError as error:
            raise TreeError(str(error)) from None
        widths = [form.bits for form in meaning.operands]
        given = [operand.bits for operand in operands]
        _require(widths == given, f"{name} takes operands of {_listed(widths)} bits and was given {_listed(given)}")
        key = (cls, meaning.name, operands)
        return _intern(cls, key, meaning.result.bits, ("name", meaning.name), ("operands", operands))

    @property
    def children(self) -> tuple[Node, ...]:
        """The operands."""
        return self.operands

    @property
    def meaning(self) -> numerics.Operation:
        """The record of the operation."""
        return numerics.operation(self.name)


def _listed(widths: list[int]) -> str:
    return " and ".join(map(str, widths)) or "no"


class Matrix(Node):
    """One fused step of a matrix unit: the accumulator plus the products left[i] * right[i].

    `instruction` names the family, native k, types and architecture, which determine the bits.  The factors of an
    instruction with block scales are bytes: packed elements and then scales, whose numbers differ with the types.
    """

    __slots__ = ("accumulator", "instruction", "left", "right")
    kind = "matrix"
    instruction: str
    accumulator: Node
    left: tuple[Node, ...]
    right: tuple[Node, ...]

    def __new__(cls, instruction: str, accumulator: Node, left: tuple[Node, ...], right: tuple[Node, ...]) -> Matrix:
        """Return the interned node.  Raises TreeError for invalid fields."""
        left, right = tuple(left), tuple(right)
        key = (cls, instruction, accumulator, left, right)
        found = _find(key)
        if found is not None:
            return cast("Matrix", found)
        _require_text(instruction, "a matrix step names its instruction")
        _require(
            _WORD.fullmatch(instruction) is not None,
            f"the instruction {instruction!r} is not one word of letters, digits and . _ : / + -",
        )
        _require_nodes((accumulator, *left, *right), instruction)
        _require(len(left) > 0 and len(right) > 0, f"{instruction} has no products")
        bytes_only = all(node.bits == 8 for node in (*left, *right))
        _require(
            len(left) == len(right) or bytes_only, f"{instruction} has {len(left)} left and {len(right)} right factors"
        )
        for factors, side in ((left, "left"), (right, "right")):
            _require(len({node.bits for node in factors}) == 1, f"the {side} factors of {instruction} differ in width")
        fields = ("instruction", instruction), ("accumulator", accumulator), ("left", left), ("right", right)
        return _intern(cls, key, accumulator.bits, *fields)

    @property
    def children(self) -> tuple[Node, ...]:
        """The accumulator, the left factors, the right factors."""
        return (self.accumulator, *self.left, *self.right)


class Select(Node):
    """`if_true` where the predicate, one bit, is set, and `if_false` elsewhere."""

    __slots__ = ("if_false", "if_true", "predicate")
    kind = "select"
    predicate: Node
    if_true: Node
    if_false: Node

    def __new__(cls, predicate: Node, if_true: Node, if_false: Node) -> Select:
        """Return the interned node.  Raises TreeError for invalid fields."""
        key = (cls, predicate, if_true, if_false)
        found = _find(key)
        if found is not None:
            return cast("Select", found)
        _require_nodes((predicate, if_true, if_false), "a select")
        _require(predicate.bits == 1, f"the predicate of a select has one bit, not {predicate.bits}")
        _require(
            if_true.bits == if_false.bits, f"a select chooses between {if_true.bits} bits and {if_false.bits} bits"
        )
        fields = ("predicate", predicate), ("if_true", if_true), ("if_false", if_false)
        return _intern(cls, key, if_true.bits, *fields)

    @property
    def children(self) -> tuple[Node, ...]:
        """The predicate, then both values."""
        return (self.predicate, self.if_true, self.if_false)


class Slice(Node):
    """`bits` bits of a value, from bit `low_bit` up."""

    __slots__ = ("low_bit", "node")
    kind = "slice"
    node: Node
    low_bit: int

    def __new__(cls, node: Node, low_bit: int, bits: int) -> Slice:
        """Return the interned node.  Raises TreeError for invalid fields."""
        _require_nodes((node,), "a slice")
        _require_integer(low_bit, "the lowest bit of a slice")
        _require_integer(bits, "the width of a slice")
        _require(
            low_bit >= 0 and bits > 0 and low_bit + bits <= node.bits,
            f"bits {low_bit} to {low_bit + bits - 1} are not in a value of {node.bits} bits",
        )
        key = (cls, node, low_bit, bits)
        return cast("Slice | None", _find(key)) or _intern(cls, key, bits, ("node", node), ("low_bit", low_bit))

    @property
    def children(self) -> tuple[Node, ...]:
        """The value that the bits are extracted from."""
        return (self.node,)


class Concat(Node):
    """A concatenation of values, the first in the lowest bits."""

    __slots__ = ("parts",)
    kind = "concat"
    parts: tuple[Node, ...]

    def __new__(cls, parts: tuple[Node, ...]) -> Concat:
        """Return the interned node.  Raises TreeError for invalid fields."""
        parts = tuple(parts)
        _require_nodes(parts, "a concatenation")
        _require(len(parts) > 0, "a concatenation has at least one part")
        key = (cls, parts)
        return cast("Concat | None", _find(key)) or _intern(cls, key, sum(p.bits for p in parts), ("parts", parts))

    @property
    def children(self) -> tuple[Node, ...]:
        """The parts, lowest first."""
        return self.parts


class Gather(Node):
    """The initial content of memory at an address that depends on data."""

    __slots__ = ("address",)
    kind = "gather"
    address: Node

    def __new__(cls, address: Node, bits: int) -> Gather:
        """Return the interned node.  Raises TreeError for invalid fields."""
        _require_nodes((address,), "a gather")
        _require_integer(bits, "the width of a gather")
        _require(bits > 0 and bits % 8 == 0, f"a gather reads whole bytes, not {bits} bits")
        key = (cls, address, bits)
        return cast("Gather | None", _find(key)) or _intern(cls, key, bits, ("address", address))

    @property
    def children(self) -> tuple[Node, ...]:
        """The address."""
        return (self.address,)


class OpaqueOperation(Node):
    """A step that is not an operation of the vocabulary, such as a lane's local load at a computed address."""

    __slots__ = ("name", "operands")
    kind = "instruction"
    name: str
    operands: tuple[Node, ...]

    def __new__(cls, name: str, operands: tuple[Node, ...], bits: int) -> OpaqueOperation:
        """Return the interned node.  Raises TreeError for invalid fields."""
        operands = tuple(operands)
        _require_text(name, "an instruction has a name")
        _require(not any(c.isspace() for c in name), f"an instruction's name is one word, not {name!r}")
        _require_nodes(operands, name)
        _require_integer(bits, f"the width of {name}")
        _require(bits > 0, f"{name} has at least one bit, not {bits}")
        key = (cls, name, operands, bits)
        return cast("OpaqueOperation | None", _find(key)) or _intern(
            cls, key, bits, ("name", name), ("operands", operands)
        )

    @property
    def children(self) -> tuple[Node, ...]:
        """The operands."""
        return self.operands


class Label(OpaqueOperation):
    """A node of a picture: a text over other nodes, in the colour of `kind`.

    It is not interned, so that nodes of equal labels are drawn separately, and cannot be evaluated.
    """

    __slots__ = ("kind",)
    kind: str  # type: ignore[misc]

    def __new__(cls, name: str, operands: Sequence[Node], template: Node, kind: str | None = None) -> Label:
        """Return a new node with the width, and by default the kind, of the node `template`."""
        made = object.__new__(cls)
        fields = ("name", name), ("operands", tuple(operands)), ("bits", template.bits), ("kind", kind or template.kind)
        for field, value in fields:
            object.__setattr__(made, field, value)
        return made


class Undefined(Node):
    """An undefined value, with the reason."""

    __slots__ = ("reason",)
    kind = "undefined"
    reason: str

    def __new__(cls, reason: str, bits: int) -> Undefined:
        """Return the interned node.  Raises TreeError for invalid fields."""
        _require_text(reason, "an undefined value says why it is undefined")
        _require_integer(bits, "the width of an undefined value")
        _require(bits > 0, f"an undefined value has at least one bit, not {bits}")
        key = (cls, reason, bits)
        return cast("Undefined | None", _find(key)) or _intern(cls, key, bits, ("reason", reason))


def descendants(*roots: Node) -> Iterator[Node]:
    """Yield every node under the roots once, children before parents, in an order fixed by the structure."""
    done: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        node, opened = stack.pop()
        if node in done:
            continue
        if opened:
            done.add(node)
            yield node
            continue
        stack.append((node, True))
        stack.extend((child, False) for child in reversed(node.children) if child not in done)
