"""What a name in a PTX body stands for: registers, special registers, and symbols, block by block."""

from __future__ import annotations

import re
from collections.abc import Container

from bitwise_core.assembly.module import Immediate, Operand, Register, Symbol, Vector
from bitwise_nvidia_ptx.lexer import ParseError, snippet

_WITH_AXES = ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
_SCALARS = (
    "warpid",
    "nwarpid",
    "laneid",
    "smid",
    "nsmid",
    "gridid",
    "is_explicit_cluster",
    "cluster_ctarank",
    "cluster_nctarank",
    "lanemask_eq",
    "lanemask_le",
    "lanemask_lt",
    "lanemask_ge",
    "lanemask_gt",
    "clock",
    "clock_hi",
    "clock64",
    "globaltimer",
    "globaltimer_lo",
    "globaltimer_hi",
    "total_smem_size",
    "aggr_smem_size",
    "dynamic_smem_size",
    "current_graph_exec",
    "reserved_smem_offset_begin",
    "reserved_smem_offset_end",
    "reserved_smem_offset_cap",
    "reserved_smem_offset_0",
    "reserved_smem_offset_1",
)
SPECIAL_REGISTERS = frozenset(
    [f"%{name}{part}" for name in _WITH_AXES for part in ("", ".x", ".y", ".z", ".w")]
    + [f"%{name}" for name in _SCALARS]
    + [f"%envreg{n}" for n in range(32)]
    + [f"%pm{n}{wide}" for n in range(8) for wide in ("", "_64")]
)
"""The registers that the machine defines."""

_RESERVED = frozenset(["_", "%", "WARP_SZ"])
LANE_NAMES = "xyzw"
_LANE_OF = dict(zip("xyzwrgba", LANE_NAMES * 2, strict=True))
_FAMILY_DIGITS = 10
_TRAILING = re.compile(r"[0-9]{1,10}\Z")

Family = tuple[int, str, int, int]
"""A declaration `%r<n>`: n, the prefix of the names it gives, width in bits, lanes of each register."""


class Scope:
    """The names of one block, of a function's outermost block, or of the module; lookups go outwards.

    `registers` and `taken` (the symbols' unique names) are the function's own, shared by its blocks, and grow
    with each declaration.
    """

    __slots__ = ("cache", "families", "named", "number", "parent", "registers", "root", "taken")

    def __init__(self, parent: Scope | None, number: int, registers: dict[str, int], taken: set[str]) -> None:
        self.parent, self.number, self.registers, self.taken = parent, number, registers, taken
        self.root: Scope = self if parent is None else parent.root
        self.named: dict[str, Operand] = {}
        self.families: dict[str, Family] = {}
        self.cache: dict[str, Operand] = {}

    def _check_new(self, name: str, known: Container[str]) -> None:
        self._check_special(name)
        if name in known:
            raise ParseError(f"{name} is declared twice in this block; remove or rename one")
        self.cache.clear()

    def symbol(self, name: str) -> str:
        """Declare a label, a parameter or an array.  Returns the name it goes by, unique in its function."""
        self._check_new(name, self.named)
        root = self.root
        unique = name if self.number == 0 and (root is self or name not in root.taken) else f"{name}${self.number}"
        if unique in self.taken or (root is not self and unique in root.taken):
            raise ParseError(f"{name} cannot be told from {unique}, declared elsewhere; rename one")
        self.taken.add(unique)
        self.named[name] = Symbol(unique)
        return unique

    def label(self, name: str) -> str:
        """Declare a label or a jump table, as `symbol` does.

        Raises RefusedError where an outer block has the name too: a branch that stands before the label could
        mean either.
        """
        scope = self.parent
        while scope is not None:
            if scope._own(name) is not None:
                raise ParseError(f"label {name} hides a name declared outside its block; rename one")
            scope = scope.parent
        return self.symbol(name)

    def register(self, name: str, width: int, lanes: int) -> None:
        """Declare one register of `lanes` times `width` bits.

        A register of an inner block goes by `name$block`, a lane by `name.x`.
        """
        self._check_register(name, self.named)
        unique = name if self.number == 0 else f"{name}${self.number}"
        if unique in self.registers:
            unique += "$$"
        self.named[name] = self._make(unique, width, lanes)

    def family(self, prefix: str, count: int, width: int, lanes: int) -> None:
        """Declare the registers `prefix0` to `prefix(count - 1)`.

        The prefix they go by never ends in a digit and is no other register's name: it ends in `$$` where it
        would, and in `$block$` in an inner block.
        """
        self._check_register(prefix, self.families)
        unique = prefix if self.number == 0 else f"{prefix}${self.number}$"
        if unique[-1].isdigit() or unique in self.registers:
            unique += "$$"
        self.families[prefix] = (count, unique, width, lanes)
        if lanes == 1:
            self.registers[unique] = width

    def _check_register(self, name: str, known: Container[str]) -> None:
        self._check_new(name, known)
        if "$" in name:
            raise ParseError(f"register {name} has a '$' in its name, which the parser keeps for itself; rename it")

    def _check_special(self, name: str) -> None:
        if name in SPECIAL_REGISTERS or name in _RESERVED:
            raise ParseError(f"{name} is a name that PTX keeps for itself and cannot be declared; rename it")

    def _make(self, unique: str, width: int, lanes: int) -> Operand:
        if lanes == 1:
            self.registers[unique] = width
            return Register(unique)
        names = [f"{unique}.{part}" for part in LANE_NAMES[:lanes]]
        self.registers.update((name, width) for name in names)
        return Vector(tuple(Register(name) for name in names))

    def predicate(self, found: Operand) -> bool:
        """Whether `found` is a register of one bit."""
        if not isinstance(found, Register):
            return False
        width = self.registers.get(found.name)
        if width is None:
            width = self.registers.get(found.name.rstrip("0123456789"))
        return width == 1 or found.name == "%is_explicit_cluster"

    def _own(self, name: str) -> Operand | None:
        found = self.named.get(name)
        if not self.families or (trailing := _TRAILING.search(name)) is None:
            return found
        digits = trailing[0]
        for length in range(1, len(digits) + 1):
            index = digits[len(digits) - length :]
            if length > 1 and index[0] == "0":
                continue
            family = self.families.get(name[: len(name) - length])
            if family is None or int(index) >= family[0]:
                continue
            if found is not None:
                raise ParseError(f"{name} is declared twice in this block; remove or rename one")
            _, prefix, width, lanes = family
            self._check_special(name)
            unique = f"{prefix}{index}"
            found = Register(unique) if lanes == 1 else self._make(unique, width, lanes)
        return found

    def find(self, name: str) -> Operand:
        """What `name` stands for here.

        `_`, the place of a result that is thrown away, is a register of that name.  Raises RefusedError for a name
        that nothing declares.
        """
        base, dot, part = name.partition(".")
        scope: Scope | None = self
        while scope is not None:
            found = scope._own(base)
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
