"""Scopes of a PTX function: name lookup of registers, special registers and symbols in nested blocks."""

from __future__ import annotations

import re
from collections.abc import Container

from bitwise_core.assembly.module import Immediate, Operand, Register, Symbol, Vector
from bitwise_nvidia_ptx.special_register_names import SPECIAL_REGISTERS
from bitwise_nvidia_ptx.text.lexer import ParseError, snippet

_RESERVED = frozenset(["_", "%", "WARP_SZ"])
LANE_NAMES = "xyzw"
_LANE_OF = dict(zip("xyzwrgba", LANE_NAMES * 2, strict=True))
_MAXIMUM_DIGITS = 10
_TRAILING = re.compile(rf"[0-9]{{1,{_MAXIMUM_DIGITS}}}\Z")

Family = tuple[int, str, int, int]
"""A declaration `%r<n>`: n, the unique prefix of its registers, width in bits, lanes of each register."""


class Scope:
    """The names declared in one block, in a function's outermost block, or in the module.

    Lookup continues in the enclosing scope.  `registers` (widths by unique name) and `taken` (unique names of symbols)
    belong to the function, are shared by its blocks, and grow with each declaration.
    """

    __slots__ = ("ambiguous", "cache", "families", "named", "number", "parent", "registers", "taken")

    def __init__(self, parent: Scope | None, number: int, registers: dict[str, int], taken: set[str]) -> None:
        self.parent, self.number, self.registers, self.taken = parent, number, registers, taken
        self.named: dict[str, Operand] = {}
        self.families: dict[str, Family] = {}
        self.ambiguous = False  # whether a family's prefix ends in a digit: %r12 may be %r1<n> at 2 or %r<n> at 12
        self.cache: dict[str, Operand] = {}

    @property
    def root(self) -> Scope:
        """The scope of the module."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def _check_new(self, name: str, known: Container[str]) -> None:
        self._check_special(name)
        if name in known:
            raise ParseError(f"{name} is declared twice in this block; remove or rename one")
        self.cache.clear()

    def symbol(self, name: str) -> str:
        """Declare a label, a parameter or an array.  Returns its unique name in the function."""
        self._check_new(name, self.named)
        root = self.root
        unique = name if self.number == 0 and (root is self or name not in root.taken) else f"{name}${self.number}"
        if unique in self.taken or (root is not self and unique in root.taken):
            raise ParseError(f"{name} has the unique name {unique}, which is declared elsewhere; rename one")
        self.taken.add(unique)
        self.named[name] = Symbol(unique)
        return unique

    def label(self, name: str) -> str:
        """Declare a label or a jump table, as `symbol` does.

        Raises ParseError if an outer block declares the same name: a branch before the label would be ambiguous.
        """
        scope = self.parent
        while scope is not None:
            if scope._declared_here(name) is not None:
                raise ParseError(f"label {name} hides a name declared outside its block; rename one")
            scope = scope.parent
        return self.symbol(name)

    def register(self, name: str, width: int, lanes: int) -> None:
        """Declare one register of `lanes` times `width` bits.

        The unique name of a register of an inner block is `name$block`, that of a lane `name.x`.
        """
        self._check_register(name, self.named)
        unique = name if self.number == 0 else f"{name}${self.number}"
        if unique in self.registers:
            unique += "$$"
        self.named[name] = self._make(unique, width, lanes)

    def family(self, prefix: str, count: int, width: int, lanes: int) -> None:
        """Declare the registers `prefix0` to `prefix(count - 1)`.

        Their unique prefix is `prefix`, or `prefix$block$` in an inner block, followed by `$$` if it would end in a
        digit or equal the name of another register.
        """
        self._check_register(prefix, self.families)
        unique = prefix if self.number == 0 else f"{prefix}${self.number}$"
        if unique[-1].isdigit() or unique in self.registers:
            unique += "$$"
        self.families[prefix] = (count, unique, width, lanes)
        self.ambiguous = self.ambiguous or prefix[-1].isdigit()
        if lanes == 1:
            self.registers[unique] = width

    def _check_register(self, name: str, known: Container[str]) -> None:
        self._check_new(name, known)
        if "$" in name:
            raise ParseError(f"register {name} has a '$' in its name, which the parser reserves; rename it")

    def _check_special(self, name: str) -> None:
        if name in SPECIAL_REGISTERS or name in _RESERVED:
            raise ParseError(f"{name} is reserved by PTX and cannot be declared; rename it")

    def _make(self, unique: str, width: int, lanes: int) -> Operand:
        if lanes == 1:
            self.registers[unique] = width
            return Register(unique)
        names = [f"{unique}.{part}" for part in LANE_NAMES[:lanes]]
        self.registers.update((name, width) for name in names)
        return Vector(tuple(Register(name) for name in names))

    def is_predicate(self, found: Operand) -> bool:
        """Return whether `found` is a predicate register."""
        if not isinstance(found, Register):
            return False
        width = self.registers.get(found.name)
        if width is None:
            width = self.registers.get(found.name.rstrip("0123456789"))
        return width == 1 or found.name == "%is_explicit_cluster"

    def _declared_here(self, name: str) -> Operand | None:
        found = self.named.get(name)
        if not self.families:
            return found
        if not self.ambiguous:  # the usual case: the digits at the end are the number in the family
            prefix = name.rstrip("0123456789")
            return self._of_family(name, prefix, name[len(prefix) :], found) if prefix in self.families else found
        if (trailing := _TRAILING.search(name)) is None:
            return found
        for length in range(1, len(trailing[0]) + 1):
            prefix = name[: len(name) - length]
            if prefix in self.families:
                found = self._of_family(name, prefix, name[len(prefix) :], found)
        return found

    def _of_family(self, name: str, prefix: str, index: str, found: Operand | None) -> Operand | None:
        """Return the register with a number in a family, or `found` if the family has no such register."""
        count, unique, width, lanes = self.families[prefix]
        if not 1 <= len(index) <= _MAXIMUM_DIGITS or (len(index) > 1 and index[0] == "0") or int(index) >= count:
            return found
        if found is not None:
            raise ParseError(f"{name} is declared twice in this block; remove or rename one")
        self._check_special(name)
        return Register(f"{unique}{index}") if lanes == 1 else self._make(f"{unique}{index}", width, lanes)

    def find(self, name: str) -> Operand:
        """Return the operand that `name` denotes in this scope.

        `_`, the destination of a discarded result, is a register of that name.  Raises ParseError for an undeclared
        name.
        """
        base, dot, part = name.partition(".")
        scope: Scope | None = self
        while scope is not None:
            found = scope._declared_here(base)
            if found is not None:
                if not dot:
                    return found
                if isinstance(found, Vector) and _LANE_OF.get(part, "none") in LANE_NAMES[: len(found.items)]:
                    return found.items[LANE_NAMES.index(_LANE_OF[part])]
                raise ParseError(f"{base} has no element .{part}")
            scope = scope.parent
        if name in SPECIAL_REGISTERS or name == "_":
            return Register(name)
        if name == "WARP_SZ":
            return Immediate(32)
        what = "register" if name.startswith("%") else "name"
        raise ParseError(f"{what} {snippet(name)} is not declared; declare it, or correct the name")
