"""Terms of values of machine code: equal terms denote equal values."""

from __future__ import annotations

from typing import TypeAlias

Term: TypeAlias = int

SIGN = 1 << 31

_INFINITY = 0x7F800000
_CANONICAL_NAN = 0x7FFFFFFF
_SUMS_AND_PRODUCTS = frozenset({"FADD", "FMUL", "FFMA"})
_CANONICAL_NANS = frozenset({"FMNMX", "FMNMX.FTZ", "MUFU.RCP", "MUFU.EX2", "MUFU.SQRT", "MUFU.RSQ"})
"""Instructions whose results are NaN only with the bits of the canonical NaN, as those of `_SUMS_AND_PRODUCTS`."""

_COMPUTES = frozenset({"FADD", "FMUL", "FFMA", "HADD2", "I2F", "I2FP", "MUFU"})
"""Opcodes whose result is not an unchanged operand."""

_SELECTS = frozenset({"FMNMX", "FSEL", "SEL"})
"""Opcodes whose result is one of the two operands after it."""


class NotUnderstood(Exception):
    """The code contains something for which nothing is proved."""


class Terms:
    """Terms, numbered so that equal terms have equal numbers."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], Term] = {}
        self._parts: list[tuple[object, ...]] = []
        self.constants: dict[Term, int] = {}

    def make(self, *parts: object) -> Term:
        """Return the number of a term."""
        found = self._numbers.setdefault(parts, len(self._parts))
        if found == len(self._parts):
            self._parts.append(parts)
        return found

    def parts(self, term: Term) -> tuple[object, ...]:
        """Return what `make` was given."""
        return self._parts[term]

    def constant(self, value: int) -> Term:
        """Return the term of a 32-bit number."""
        found = self.make("constant", value & 0xFFFFFFFF)
        self.constants[found] = value & 0xFFFFFFFF
        return found

    def bank(self, bank: int, offset: int) -> Term:
        """Return the term of four bytes of a constant bank."""
        return self.make("bank", bank, offset)

    def has_canonical_nan(self, term: Term) -> bool:
        """Return whether a value, read as an fp32 number, is no NaN but the canonical one."""
        head, *parts = self.parts(term)
        if head == "constant":
            bits = self.constants[term]
            return (bits & ~SIGN) <= _INFINITY or bits == _CANONICAL_NAN
        if head == "entry":
            return parts[-1] is True
        if head == "if":
            return all(self.has_canonical_nan(each) for each in parts[1:] if isinstance(each, Term))
        if head != "result" or not isinstance(parts[0], Term):
            return False
        mnemonic = str(self.parts(parts[0])[0])
        return mnemonic.partition(".")[0] in _SUMS_AND_PRODUCTS or mnemonic in _CANONICAL_NANS

    def may_be_exponential(self, term: Term) -> bool:
        """Return whether a value may be an exponential."""
        head, *parts = self.parts(term)
        if head == "if":
            return any(self.may_be_exponential(each) for each in parts[1:] if isinstance(each, Term))
        if head in ("constant", "bank", "first", "true"):
            return False
        if head != "result" or not parts or not isinstance(parts[0], Term):
            return True
        made_by, *operands = self.parts(parts[0])
        if made_by == "at" and isinstance(operands[1], Term):
            # A register may be kept in local memory; ptxas does not forward stores to other loads.
            return not str(self.parts(operands[1])[0]).startswith(("LDG", "LDS"))
        opcode = str(made_by).partition(".")[0]
        if opcode in _SELECTS and "implicit" in operands:
            # After the guard, the literal and the result come the two operands: sign, magnitude, value and the rest.
            values = [self.parts(each) for each in operands[3:5] if isinstance(each, Term)]
            sole = [each[2] for each in values if len(each) == 5 and isinstance(each[2], Term)]
            return len(sole) < 2 or any(map(self.may_be_exponential, sole))
        return str(made_by).startswith("MUFU.EX2") or opcode not in _COMPUTES
