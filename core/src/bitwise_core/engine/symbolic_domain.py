"""The domain of a reading for every launch: `TermDomain` for data, polynomials for what the launch would fix.

Integer operations on symbols are exact modulo their width.  Where an index of 32 bits is widened or compared, it is
taken to be the integer that its polynomial says: this is the named condition WITHOUT_WRAPPING.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import Any

import numpy as np

from bitwise_core.engine import polynomial as P
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

WITHOUT_WRAPPING = "32-bit indices do not wrap around where they are widened or compared"

_NOT_NEGATIVE = hashing.constant("not negative")
_ALL_OF = hashing.constant("all of")
_MASKED = hashing.constant("masked content of memory")


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
        self._interned: dict[tuple[Any, ...], int] = {}
        self._interned_natural = self.not_less_than_zero()
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

    def integer(
        self, name: str, operands: Sequence[Value], bits: int, evaluate: Callable[..., Array], *, gathers: bool = False
    ) -> Value:
        """See `Domain.integer`."""
        if bits == 1 and name in ("not.pred", "and.pred"):
            if name == "not.pred" and isinstance(operands[0], Equality):
                return operands[0].inverse()
            if name == "not.pred" and isinstance(operands[0], Predicate):
                return self._inverse(operands[0], evaluate)
            if name == "and.pred" and any(isinstance(each, Predicate) for each in operands):
                return self.all_of(operands)
        if any(isinstance(each, Symbolic) for each in operands):
            found = self._symbolic(name, operands, bits, gathers)
            if found is not None:
                return found
        return super().integer(name, [self._bare(each) for each in operands], bits, evaluate, gathers=gathers)

    def floating(self, name: str, operands: Sequence[Value], bits: int, properties: int = 0) -> Value:
        """See `Domain.floating`."""
        return super().floating(name, [self._bare(each) for each in operands], bits, properties)

    @staticmethod
    def _bare(value: Value) -> Value:
        return plain(value) if isinstance(value, Symbolic | Predicate) else value

    def _symbolic(self, name: str, operands: Sequence[Value], bits: int, gathers: bool) -> Value | None:
        if name.startswith("compare."):
            return self._compare(name, operands)
        values = []
        for operand in operands:
            width = L.width(operand)
            value = self.polynomial(operand, width)
            if value is None:
                return None
            values.append(value)
        verb = name.split(".")[0]
        rule = OPERATIONS.get(verb)
        if rule is not None:
            found = rule(self, name, values, bits)
            if found is not None:
                return self.integer_of(found)
        return self.opaque(name, values, bits, commutes=gathers, alignment=_cleared(verb, values))

    def _compare(self, name: str, operands: Sequence[Value]) -> Value | None:
        _, base, kind = name.split(".")
        left, right = (self.polynomial(each, L.width(each)) for each in operands)
        if left is None or right is None:
            return None
        if base == "eq":
            difference = self.canonical(P.subtract(left, right))
            if not difference.terms:
                found = difference.constant
                return np.full((1, 1), found == 0) if isinstance(found, int) else found == 0
            tag = hashing.constant(f"zero of {left.bits} bits")
            for each in (difference, P.negate(difference)):
                tag = tag + hashing.finalise(P.words(self.atoms, each) * hashing.multiplier(14))
            return Equality(hashing.finalise(tag), P.subtract(left, right))
        if kind[0] == "s":
            if left.bits < 64:
                first, second = self.widened(left, 64), self.widened(right, 64)
            else:
                first, second = left, right
                self.wraps_assumed = True
            if first is not None and second is not None:
                difference = P.subtract(second, first)
                return self.not_negative(P.shifted(difference, -1) if base == "lt" else difference)
        if base == "le":
            swapped = self._compare(f"compare.lt.{kind}", operands[::-1])
            return None if swapped is None else super().integer("not.pred", [swapped], 1, np.logical_not)
        hashed = [
            hashing.finalise(self.words_of(each) * hashing.multiplier(31 + index))
            for index, each in enumerate((left, right))
        ]
        return Lanes(1, hashing.finalise(hashed[0] + hashed[1] + hashing.constant(name)), L.TERM)

    # -- predicates -------------------------------------------------------------------------------------------------

    def not_negative(self, value: Polynomial) -> Value:
        """Whether the integer is 0 or more."""
        return self._predicate((self.coordinates.rewritten(self._multiplied_out(value)),), (), None)

    def _multiplied_out(self, value: Polynomial) -> Polynomial:
        """x / c - r >= 0 is x - c * r >= 0 where r is at least 1: the quotient is rounded toward zero."""
        for monomial, coefficient in value.terms.items():
            definition = self.atoms[monomial[0]].definition if len(monomial) == 1 and P.is_one(coefficient) else None
            if definition is None or definition[0] != "quotient":
                continue
            rest = Polynomial(64, {m: c for m, c in value.terms.items() if m != monomial}, value.constant)
            inner = self.widened(definition[1], 64)
            if inner is not None and self._at_most_minus_one(rest):
                return P.add(inner, P.scale(rest, definition[2]))
        return value

    def _at_most_minus_one(self, value: Polynomial) -> bool:
        for monomial, coefficient in value.terms.items():
            if not isinstance(coefficient, int) or P.signed(coefficient, 64) > 0 or not set(monomial) <= self.naturals:
                return False
        return bool(np.all(P.signed(value.constant, 64) <= -1))

    def _tightened(self, value: Polynomial) -> Polynomial:
        """Divided by what all its coefficients share."""
        shared: Any = 0
        for coefficient in value.terms.values():
            number = P.signed(coefficient, 64)
            shared = (
                gcd(shared, number) if isinstance(number, int) and isinstance(shared, int) else np.gcd(shared, number)
            )
        if isinstance(shared, int):
            if shared <= 1:
                return value
            terms = {m: P.quotient(c, shared, 64) for m, c in value.terms.items()}
            return Polynomial(64, terms, P.quotient(value.constant, shared, 64))
        shared = np.maximum(shared, np.int64(1))
        if (shared == 1).all():
            return value
        terms = {m: P.unsigned(np.asarray(P.signed(c, 64)) // shared, 64) for m, c in value.terms.items()}
        return Polynomial(64, terms, P.unsigned(np.asarray(P.signed(value.constant, 64)) // shared, 64))

    def _predicate(self, polynomials: Sequence[Polynomial], opaque: Sequence[Lanes], known: Array | None) -> Value:
        """All of these conditions, and the known one."""
        total: Any = hashing.constant("all of")
        failed: Any = False if known is None else ~known
        undecided: Any = False
        for value in map(self._tightened, map(self.canonical, polynomials)):
            hashed = hashing.finalise(P.words(self.atoms, value) * hashing.multiplier(13) + _NOT_NEGATIVE)
            decided, truth = self._decided(value)
            if decided is not False:
                failed = failed | (decided & ~truth)
                hashed = np.where(decided, np.uint64(0), hashed)
                undecided = undecided | ~np.asarray(decided)
            else:
                undecided = True
            total = total + hashed
        for lanes in opaque:
            hashed = hashing.finalise(full_hash(lanes) * hashing.multiplier(15) + _ALL_OF)
            settled = L.known_where(lanes)
            if settled is False:
                undecided = True
            else:
                failed = failed | (settled & (lanes.words[0] == 0))
                hashed = np.where(settled, np.uint64(0), hashed)
                undecided = undecided | ~np.asarray(settled)
            total = total + hashed
        words = hashing.finalise(total + _ALL_OF)
        if failed is False and undecided is True:
            return Predicate(self, tuple(polynomials), tuple(opaque), Lanes(1, words, L.TERM | _sticky(opaque)))
        failed = np.atleast_2d(np.asarray(failed))
        settled = np.atleast_2d(np.asarray(failed | ~np.asarray(undecided)))
        if settled.all():
            return np.atleast_2d(~failed)
        words = np.where(settled, (~failed).astype(np.uint64), words)
        meta = np.where(settled, np.uint32(L.KNOWN), np.uint32(L.TERM)) | np.uint32(_sticky(opaque))
        lanes = Lanes(1, words, L.uniform(np.broadcast_to(meta, words.shape[1:])))
        if known is None:
            return Predicate(self, tuple(polynomials), tuple(opaque), lanes)
        return lanes

    def not_less_than_zero(self) -> int:
        """A symbol for some integer that is not negative."""
        return self.atom(hashing.constant("an integer that is not negative"))

    def _decided(self, value: Polynomial) -> tuple[Any, Any]:
        """The lanes in which the polynomial's sign is known (False: none), and whether it is not negative there."""
        free = self._interned_natural
        lanes: Any = True
        rising: Any = True
        falling: Any = True
        for monomial, coefficient in value.terms.items():
            if monomial == (free,):
                number = np.asarray(P.signed(coefficient, 64))
                rising, falling = number >= 0, number <= 0
                continue
            if isinstance(coefficient, int):
                return False, False
            lanes = lanes & (coefficient == 0)
        constant = np.asarray(P.signed(value.constant, 64))
        lanes = lanes & ((rising & (constant >= 0)) | (falling & (constant < 0)))
        return (lanes, constant >= 0) if np.any(lanes) else (False, False)

    def all_of(self, values: Sequence[Value]) -> Value:
        """The conjunction of predicates."""
        if len(values) == 1:
            return values[0]
        polynomials: list[Polynomial] = []
        opaque: list[Lanes] = []
        known: Array | None = None
        for value in values:
            if isinstance(value, np.ndarray):
                known = value if known is None else known & value
            elif isinstance(value, Predicate):
                for each in value.polynomials:
                    _merge(polynomials, self.coordinates.rewritten(each))
                opaque.extend(each for each in value.opaque if not any(each.words is other.words for other in opaque))
            else:
                opaque.append(plain(value))
        if known is not None and known.all():
            known = None
        return self._predicate(polynomials, opaque, known)

    def _inverse(self, value: Predicate, evaluate: Callable[..., Array]) -> Value:
        if len(value.polynomials) == 1 and not value.opaque:
            return self.not_negative(P.shifted(P.negate(value.polynomials[0]), -1))
        return super().integer("not.pred", [plain(value)], 1, evaluate)

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
            return self.select(self.all_of([predicate, if_true.predicate]), if_true.if_true, if_false)
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


def _merge(polynomials: list[Polynomial], new: Polynomial) -> None:
    """Adds a condition; of two that differ in their constants only, the stronger one stays."""
    for index, old in enumerate(polynomials):
        if old.terms.keys() == new.terms.keys() and all(_equal(old.terms[m], new.terms[m]) for m in new.terms):
            least = np.minimum(P.signed(old.constant, 64), P.signed(new.constant, 64))
            polynomials[index] = Polynomial(64, old.terms, P.unsigned(int(least) if np.ndim(least) == 0 else least, 64))
            return
    polynomials.append(new)


def _equal(left: P.Coefficient, right: P.Coefficient) -> bool:
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    return bool(np.all(P.wide(left) == P.wide(right)))


def _is_content(lanes: Lanes) -> bool:
    """Whether every lane is the content of memory, or a known zero in place of it."""
    if isinstance(lanes.meta, int):
        return lanes.meta == L.LEAF
    known = L.known_where(lanes)
    return bool(np.all((lanes.meta == L.LEAF) | (known & (lanes.words[0] == 0))))


def _same(left: Value, right: Value) -> bool:
    return isinstance(left, np.ndarray) and isinstance(right, np.ndarray) and bool(np.all(left == right))


def _sticky(opaque: Sequence[Lanes]) -> int:
    found = 0
    for each in opaque:
        found |= int(np.bitwise_or.reduce(np.atleast_1d(np.asarray(each.meta)), axis=None)) & L.STICKY
    return found
