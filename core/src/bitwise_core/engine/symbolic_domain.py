"""The domain of a reading for every launch: `TermDomain` for data, polynomials for what the launch would fix.

Integer operations on symbols are exact modulo their width.  Where an index of 32 bits is widened or compared, it is
taken to be the integer that its polynomial says: this is the named condition WITHOUT_WRAPPING.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitwise_core.engine import polynomial as P
from bitwise_core.engine import predicates
from bitwise_core.engine.polynomial import Atom, Polynomial
from bitwise_core.engine.symbolic import Chosen, Equality, Predicate, Symbolic, plain
from bitwise_core.engine.symbolic_integers import OPERATIONS
from bitwise_core.engine.tiles import Coordinates
from bitwise_core.machine import hashing
from bitwise_core.machine import lanes as L
from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.lane_hash import exact_hash, full_hash
from bitwise_core.machine.lanes import Array, Lanes, Pieces, Value
from bitwise_core.machine.pieces import as_lanes
from bitwise_core.machine.terms import TermDomain
from bitwise_core.numeric import Operation, operation

WITHOUT_WRAPPING = "32-bit indices do not wrap around where they are widened or compared"

_NOT, _AND = operation("not.b1"), operation("and.b1")
_MASKED = hashing.constant("masked content of memory")


@dataclass(frozen=True, slots=True)
class Tiles:
    """The number of a tile that a turn of a loop is run for, in place of a block's; `condition` says which there are.

    `condition` must not be negative.
    """

    symbol: int
    block: str
    condition: Polynomial


class SymbolicDomain(TermDomain):
    """Terms over memory at symbolic addresses; `rows` instances of the launch run side by side."""

    name = "terms of every launch"

    def __init__(self, rows: int, coordinates: Coordinates) -> None:
        super().__init__()
        self.rows, self.coordinates = rows, coordinates
        self.atoms: list[Atom] = []
        self.wraps_assumed = False
        self.entries: list[Polynomial | None] = []
        """The conditions under which the loops read so far have a turn (None: nothing in front of the loop says)."""
        self.block_symbols: dict[str, int] = {}
        self.naturals: set[int] = set()
        """Symbols that are never negative."""
        self.tiles: Tiles | None = None
        self.facts: list[Polynomial] = []
        """Integers that are not negative where control is."""
        self._interned: dict[tuple[Any, ...], int] = {}
        self.natural = self.atom(hashing.constant("an integer that is not negative"))
        """A symbol for some integer that is not negative."""
        coordinates.attach(self)

    # -- atoms and polynomials --------------------------------------------------------------------------------------

    def atom(
        self,
        words: hashing.Words,
        *,
        block: bool = False,
        pointer: int | None = None,
        definition: tuple[Any, ...] | None = None,
        alignment: int = 1,
    ) -> int:
        """The number of the atom with this hash."""
        key = (words.shape, words.tobytes())
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = len(self.atoms)
            self.atoms.append(Atom(found, words, block, pointer, definition, alignment))
        return found

    def symbol(
        self, tag: str, bits: int, *, block: bool = False, pointer: int | None = None, axis: str = ""
    ) -> Symbolic:
        """A symbol of the launch; a block coordinate has another name in the instance that renames its axis."""
        words = np.repeat(hashing.constant(tag), self.rows, axis=1) if block else hashing.constant(tag)
        if block:
            row = self.coordinates.renaming.get(axis or tag)
            if row is not None:
                words[:, row] = hashing.constant(f"another {tag}")[:, 0]
            if not axis:
                for name, place in enumerate(self.coordinates.plain_names):
                    words[:, place] = hashing.constant(f"output coordinate {name}")[:, 0]
        number = self.atom(words, block=block, pointer=pointer)
        if block:
            self.block_symbols[tag] = number
            self.naturals.add(number)
        return Symbolic(self, P.of_atom(number, bits))

    def polynomial(self, value: Value, bits: int) -> Polynomial | None:
        """Any value as a polynomial; data is an atom.  None where nothing wrote it."""
        if isinstance(value, np.ndarray):
            return P.constant_of(value, bits)
        if isinstance(value, Symbolic):
            return value.polynomial
        lanes = as_lanes(value)
        if np.any(np.bitwise_and(lanes.meta, L.STICKY)):
            return None
        words = hashing.finalise(exact_hash(lanes) + hashing.constant(f"data as an integer of {bits} bits"))
        return P.of_atom(self.atom(words), bits)

    def canonical(self, value: Polynomial) -> Polynomial:
        """The polynomial in terms of the output coordinates that are known by now, in every instance."""
        return self.coordinates.instanced(value)

    def integer_of(self, value: Polynomial) -> Value:
        """A value for the polynomial: a plain array where no symbol occurs."""
        if not value.terms:
            number = value.constant
            dtype = L.UNSIGNED[value.bits]
            return np.full((1, 1), number, dtype=dtype) if isinstance(number, int) else number.astype(dtype)
        value = self.coordinates.noticed(value)
        if not value.terms:
            return self.integer_of(value)
        return Symbolic(self, value)

    def widened(self, value: Polynomial, bits: int) -> Polynomial | None:
        """The same integer in more bits, under the named condition."""
        found = P.widened(value, bits)
        if found is not None and value.terms:
            self.wraps_assumed = True
        return found

    def words_of(self, value: Polynomial) -> hashing.Words:
        """The hash of a polynomial, linear in its constant."""
        return P.words(self.atoms, self.canonical(value))

    def opaque(
        self,
        name: str,
        operands: Sequence[Polynomial],
        bits: int,
        *,
        commutes: bool = False,
        definition: tuple[Any, ...] | None = None,
        alignment: int = 1,
    ) -> Value:
        """The result of an operation that is not taken apart."""
        total = hashing.constant(f"{name} to {bits}")
        for position, operand in enumerate(operands):
            hashed = hashing.finalise(
                self.words_of(operand) * hashing.multiplier(31) + hashing.constant(f"operand of {operand.bits}")
            )
            total = total + (hashed if commutes else hashed * hashing.multiplier(position + 1))
        block = any(self.atoms[number].block for operand in operands for number in operand.atoms())
        if definition is None:
            definition = ("operation", name, tuple(operands))
        number = self.atom(hashing.finalise(total), block=block, definition=definition, alignment=alignment)
        return self.integer_of(P.of_atom(number, bits))

    def defined(self, name: str, operand: Polynomial, definition: tuple[Any, ...]) -> Polynomial:
        """A symbol for a function of one 32-bit integer, which later rules may look into."""
        value = self.opaque(name, [operand], 32, definition=definition)
        assert isinstance(value, Symbolic)
        return value.polynomial

    def quotient(self, value: Polynomial, by: int) -> Polynomial:
        """The 32-bit quotient toward zero by a positive number."""
        return self.defined(f"quotient by {by} of", value, ("quotient", value, by))

    # -- operations -------------------------------------------------------------------------------------------------

    def integer(self, operation: Operation, operands: Sequence[Value]) -> Value:
        """See `Domain.integer`."""
        if operation is _NOT and isinstance(operands[0], Equality):
            return operands[0].inverse()
        if operation is _NOT and isinstance(operands[0], Predicate):
            opposite = predicates.inverse(self, operands[0])
            if opposite is not None:
                return opposite
        if operation is _AND and any(isinstance(each, Predicate) for each in operands):
            return predicates.all_of(self, operands)
        if any(isinstance(each, Symbolic) for each in operands):
            found = self._symbolic(operation, operands)
            if found is not None:
                return found
        return super().integer(operation, [self._bare(each) for each in operands])

    def floating(self, operation: Operation, operands: Sequence[Value], properties: int = 0) -> Value:
        """See `Domain.floating`."""
        return super().floating(operation, [self._bare(each) for each in operands], properties)

    @staticmethod
    def _bare(value: Value) -> Value:
        return plain(value) if isinstance(value, Symbolic | Predicate) else value

    def _opposite(self, value: Value) -> Value:
        return super().integer(_NOT, [value])

    def _symbolic(self, operation: Operation, operands: Sequence[Value]) -> Value | None:
        if operation.is_float:
            return None
        if operation.is_comparison:
            return predicates.compare(self, operation, operands, self._opposite)
        values = []
        for operand in operands:
            width = L.width(operand)
            value = self.polynomial(operand, width)
            if value is None:
                return None
            values.append(value)
        rule = OPERATIONS.get(operation.verb)
        if rule is not None:
            found = rule(self, operation, values, operation.bits)
            if found is not None:
                return self.integer_of(found)
        commutes = operation.commutative and operation.arity == 2
        alignment = _cleared(operation.verb, values)
        return self.opaque(operation.name, values, operation.bits, commutes=commutes, alignment=alignment)

    def select(self, predicate: Value, if_true: Value, if_false: Value) -> Value:
        """See `Domain.select`."""
        if (
            isinstance(predicate, np.ndarray)
            or if_true is if_false
            or isinstance(if_true, Pieces)
            or isinstance(if_false, Pieces)
        ):
            return super().select(predicate, if_true, if_false)
        if isinstance(if_true, Symbolic) or isinstance(if_false, Symbolic):
            return self._select_integer(predicate, if_true, if_false)
        if isinstance(if_true, Chosen) and _same(if_true.if_false, if_false):
            return self.select(predicates.all_of(self, [predicate, if_true.predicate]), if_true.if_true, if_false)
        if isinstance(if_true, Predicate | Symbolic):
            if_true = plain(if_true)
        if isinstance(if_false, Predicate | Symbolic):
            if_false = plain(if_false)
        condition = plain(predicate)
        if (
            isinstance(if_false, np.ndarray)
            and not if_false.any()
            and isinstance(if_true, Lanes)
            and _is_content(if_true)
        ):
            return self._masked(predicate, condition, if_true, if_false)
        result = super().select(condition, if_true, if_false)
        if isinstance(result, Lanes) and not (isinstance(condition.meta, int) and condition.meta & L.NEGATED):
            return Chosen(self, result, predicate, if_true, if_false)
        return result

    def _masked(self, predicate: Value, condition: Lanes, leaf: Lanes, zero: Array) -> Value:
        """A leaf where the predicate holds, else 0: a leaf of masked memory."""
        mask = hashing.finalise(full_hash(condition) * hashing.multiplier(16) + _MASKED)
        words, meta = leaf.words + mask, leaf.meta | L.sticky(condition)
        if not isinstance(leaf.meta, int):
            words = np.where((leaf.meta & np.uint32(L.KIND)) == L.KNOWN, np.uint64(0), words)
        known = L.known_where(condition)
        if known is not False:
            taken = condition.words[0] != 0
            words = np.where(known & taken, leaf.words, words)
            words = np.where(known & ~taken, np.uint64(0), words)
            meta = L.uniform(
                np.where(known & ~taken, np.uint32(0) | L.known_meta(zero, leaf.bits), np.uint32(0) | meta)
            )
        return Chosen(self, Lanes(leaf.bits, words, meta), predicate, leaf, zero)

    def _select_integer(self, predicate: Value, if_true: Value, if_false: Value) -> Value:
        bits = L.width(if_true)
        left, right = self.polynomial(if_true, bits), self.polynomial(if_false, bits)
        condition = plain(predicate)
        if left is None or right is None or np.any(np.bitwise_and(condition.meta, L.STICKY)):
            return super().select(condition, plain(if_true), plain(if_false))
        chosen = P.of_atom(self.atom(full_hash(condition)), 1)
        return self.opaque("select", [Polynomial(bits, chosen.terms), left, right], bits)

    def gather(self, address: Value, bits: int, mask: Array | None) -> Value:
        """See `Domain.gather`: a leaf named by its address's polynomial."""
        if not isinstance(address, Symbolic):
            raise Unreadable("memory is read at an address that is no sum over one pointer")
        return Lanes(bits, self.words_of(address.polynomial), L.LEAF)


def _cleared(verb: str, values: Sequence[Polynomial]) -> int:
    """What a value whose low bits are masked away is a multiple of."""
    masks = [each.constant for each in values if not each.terms and isinstance(each.constant, int)]
    return masks[0] & -masks[0] if verb == "and" and masks and masks[0] else 1


def _is_content(lanes: Lanes) -> bool:
    """Whether every lane is the content of memory, or a known zero in place of it."""
    if isinstance(lanes.meta, int):
        return lanes.meta == L.LEAF
    known = L.known_where(lanes)
    return bool(np.all((lanes.meta == L.LEAF) | (known & (lanes.words[0] == 0))))


def _same(left: Value, right: Value) -> bool:
    return isinstance(left, np.ndarray) and isinstance(right, np.ndarray) and bool(np.all(left == right))
