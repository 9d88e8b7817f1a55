"""The domain of the launch-parametric analysis: `TermDomain` for data, polynomials for integers of the launch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_core.checker.parametric import polynomial as P
from bitwise_core.checker.parametric.coordinates import Coordinates
from bitwise_core.checker.parametric.integers import ParametricIntegers
from bitwise_core.checker.parametric.values import (
    Equality,
    ParametricInteger,
    Predicate,
    Selection,
    compare,
    conjunction,
    integer_of,
    negated,
    polynomial_of,
    without_structure,
)
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.matrix_steps.mma_steps import HashedVectors, MmaStep, OperandVectors
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import full_hash
from bitwise_core.numerics import Operation, operation

_NOT, _AND = operation("not.b1"), operation("and.b1")
_MASKED = hashing.constant("masked content of memory")
_UNDEFINED = hashing.constant("a result of undefined operands")


class ParametricDomain(TermDomain):
    """Terms over memory at symbolic addresses, in `rows` instances of the launch at once."""

    name = "terms of every launch"

    def __init__(self, coordinates: Coordinates) -> None:
        super().__init__()
        self.rows, self.coordinates = coordinates.rows, coordinates
        self.integers = ParametricIntegers(coordinates)

    @property
    def defers_steps(self) -> bool:
        """See `StepsInOrder`: an operation may state an assumption on the launch."""
        return False

    def symbol(
        self, tag: str, bits: int, *, block: bool = False, pointer: int | None = None, axis: str = ""
    ) -> ParametricInteger:
        """A symbol of the launch; a block coordinate has a different hash in the instance that renames its axis."""
        table, coordinates = self.integers.table, self.coordinates
        words = np.repeat(hashing.constant(tag), self.rows, axis=1) if block else hashing.constant(tag)
        if block:
            row = coordinates.renaming.get(axis or tag)
            if row is not None:
                words[:, row] = hashing.constant(f"another {tag}")[:, 0]
            if not axis:
                for name, place in enumerate(coordinates.naming_rows):
                    words[:, place] = hashing.constant(f"output coordinate {name}")[:, 0]
        number = table.atom(words, block=block, pointer=pointer)
        if not block or axis:
            table.launch_atoms.add(number)
        if block:
            table.block_symbols[tag] = number
            table.nonnegative_atoms.add(number)
        return ParametricInteger(self.integers, P.atom_polynomial(number, bits))

    # -- operations ---------------------------------------------------------------------------------------------------

    def integer(self, operation: Operation, operands: Sequence[Value]) -> Value:
        """See `Domain.integer`."""
        if operation is _NOT and isinstance(operands[0], Equality):
            return operands[0].negated()
        if operation is _NOT and isinstance(operands[0], Predicate):
            opposite = negated(self.integers, operands[0])
            if opposite is not None:
                return opposite
        if operation is _AND and any(isinstance(each, Predicate) for each in operands):
            return conjunction(self.integers, operands)
        if any(isinstance(each, ParametricInteger) for each in operands):
            found = self._parametric_integer(operation, operands)
            if found is not None:
                return found
        return super().integer(operation, [self._term_of(each) for each in operands])

    def floating(self, operation: Operation, operands: Sequence[Value], properties: int = 0) -> Value:
        """See `Domain.floating`."""
        undefined = _undefined_result(operation.bits, operands)
        if undefined is not None:
            return undefined
        return super().floating(operation, [self._term_of(each) for each in operands], properties)

    @staticmethod
    def _term_of(value: Value) -> Value:
        return without_structure(value) if isinstance(value, ParametricInteger | Predicate) else value

    def _negate(self, value: Value) -> Value:
        return super().integer(_NOT, [value])

    def _parametric_integer(self, operation: Operation, operands: Sequence[Value]) -> Value | None:
        if operation.is_float:
            return None
        if operation.is_comparison:
            return compare(self.integers, operation, operands, self._negate)
        values = []
        for operand in operands:
            width = L.width(operand)
            value = polynomial_of(self.integers, operand, width)
            if value is None:
                return None
            values.append(value)
        return integer_of(self.integers, self.integers.apply(operation, values))

    def select(self, predicate: Value, if_true: Value, if_false: Value) -> Value:
        """See `Domain.select`."""
        if (
            isinstance(predicate, np.ndarray)
            or if_true is if_false
            or isinstance(if_true, PackedVector)
            or isinstance(if_false, PackedVector)
        ):
            return super().select(predicate, if_true, if_false)
        if isinstance(if_true, ParametricInteger) or isinstance(if_false, ParametricInteger):
            return self._select_integer(predicate, if_true, if_false)
        if isinstance(if_true, Selection) and _equal_arrays(if_true.if_false, if_false):
            return self.select(conjunction(self.integers, [predicate, if_true.predicate]), if_true.if_true, if_false)
        if isinstance(if_true, Predicate | ParametricInteger):
            if_true = without_structure(if_true)
        if isinstance(if_false, Predicate | ParametricInteger):
            if_false = without_structure(if_false)
        condition = without_structure(predicate)
        if (
            isinstance(if_false, np.ndarray)
            and not if_false.any()
            and isinstance(if_true, SymbolicVector)
            and _is_load_or_zero(if_true)
        ):
            return self._masked(predicate, condition, if_true, if_false)
        result = super().select(condition, if_true, if_false)
        if isinstance(result, SymbolicVector) and not (
            isinstance(condition.flags, int) and condition.flags & L.NEGATED
        ):
            return Selection(self, result, predicate, if_true, if_false)
        return result

    def _masked(self, predicate: Value, condition: SymbolicVector, load: SymbolicVector, zero: Array) -> Value:
        """A load where the predicate is true, else 0: a load of masked memory."""
        mask = hashing.mix(full_hash(condition) * hashing.multiplier(16) + _MASKED)
        words, flags = load.words + mask, load.flags | L.sticky_flags(condition)
        if not isinstance(load.flags, int):
            words = np.where((load.flags & np.uint32(L.KIND)) == L.CONST, np.uint64(0), words)
        known = L.constant_mask(condition)
        if known is not False:
            taken = condition.words[0] != 0
            words = np.where(known & taken, load.words, words)
            words = np.where(known & ~taken, np.uint64(0), words)
            flags = L.uniform_flags(
                np.where(known & ~taken, np.uint32(0) | L.constant_flags(zero, load.bits), np.uint32(0) | flags)
            )
        return Selection(self, SymbolicVector(load.bits, words, flags), predicate, load, zero)

    def _select_integer(self, predicate: Value, if_true: Value, if_false: Value) -> Value:
        bits = L.width(if_true)
        left, right = polynomial_of(self.integers, if_true, bits), polynomial_of(self.integers, if_false, bits)
        condition = without_structure(predicate)
        if left is None or right is None or np.any(np.bitwise_and(condition.flags, L.STICKY)):
            return super().select(condition, without_structure(if_true), without_structure(if_false))
        chosen = P.atom_polynomial(self.integers.table.atom(full_hash(condition)), bits)
        return integer_of(self.integers, self.integers.opaque("select", [chosen, left, right], bits))

    def mma_step(
        self, step: MmaStep, accumulator: SymbolicVector, left: OperandVectors, right: OperandVectors
    ) -> SymbolicVector:
        """See `Domain.mma_step`."""
        undefined = _undefined_result(accumulator.bits, [accumulator])
        if undefined is None:
            return super().mma_step(step, accumulator, left, right)
        assert isinstance(left, HashedVectors)
        assert isinstance(right, HashedVectors)
        shape = np.broadcast_shapes(accumulator.words.shape, left.words.shape, right.words.shape)
        words = undefined.words.reshape(2, *(1,) * (len(shape) - 1))
        return SymbolicVector(accumulator.bits, np.broadcast_to(words, shape), undefined.flags)

    def gather(self, address: Value, bits: int, mask: Array | None) -> Value:
        """See `Domain.gather`: a load identified by the polynomial of its address."""
        if not isinstance(address, ParametricInteger):
            raise Unsupported("memory is read at an address that is not an offset from one pointer")
        return SymbolicVector(bits, self.integers.words_of(address.polynomial), L.LOAD)


def _undefined_result(bits: int, operands: Sequence[Value]) -> SymbolicVector | None:
    """The result of an operation with an operand that is undefined in all lanes; None without such an operand."""
    for each in operands:
        if isinstance(each, SymbolicVector) and isinstance(each.flags, int) and each.flags & L.POISON:
            return SymbolicVector(bits, _UNDEFINED, L.TERM | (each.flags & L.STICKY))
    return None


def _is_load_or_zero(lanes: SymbolicVector) -> bool:
    """Whether every lane is a load or the constant zero."""
    if isinstance(lanes.flags, int):
        return lanes.flags == L.LOAD
    known = L.constant_mask(lanes)
    return bool(np.all((lanes.flags == L.LOAD) | (known & (lanes.words[0] == 0))))


def _equal_arrays(left: Value, right: Value) -> bool:
    return isinstance(left, np.ndarray) and isinstance(right, np.ndarray) and bool(np.all(left == right))
