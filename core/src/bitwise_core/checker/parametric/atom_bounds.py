"""Bounds of atoms that are not negative, in the threads that store an element, by the conditions of the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bitwise_core.checker.parametric import polynomial as P
from bitwise_core.checker.parametric.accessed_elements import StoredElement
from bitwise_core.checker.parametric.integers import ParametricIntegers
from bitwise_core.checker.parametric.polynomial import Monomial, Polynomial
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.numerics import modular

MAXIMUM_CHANGE = 1 << 40
"""The largest amount of a term with a negative factor in a sum that is proved to be nonnegative."""


class AtomBounds:
    """The bounds of the atoms of a launch where its elements are stored."""

    def __init__(self, integers: ParametricIntegers) -> None:
        self.integers, self.table, self.coordinates = integers, integers.table, integers.coordinates
        self._visited: set[tuple[str, int]] = set()
        """The questions about atoms that are being answered."""

    def possible(self, store: StoredElement) -> StoredElement:
        """The store without the threads that never execute it, because a bound on a nonnegative integer is negative."""
        store = replace(store, conditions=self._without_maxima(store.conditions))
        inside = np.ones(store.threads.size, dtype=bool)
        for number in set().union(*(self.coordinates.rewrite(each).atoms() for each in store.conditions)):
            bound = self.upper_bound(number, store)
            inside &= True if bound is None else bound >= 0
        return replace(
            store,
            threads=store.threads[inside],
            value=store.value[:, :, inside],
            element=store.element[:, :, inside],
        )

    def _without_maxima(self, conditions: Sequence[Polynomial]) -> tuple[Polynomial, ...]:
        """The conditions, and for an upper bound on a maximum of signed integers the same bound on each of them."""
        found = list(conditions)
        for each in found:
            value = self.coordinates.rewrite(each)
            monomial, coefficient = next(iter(value.terms.items()), ((), 0))
            definition = self.table.atoms[monomial[0]].definition if len(monomial) == 1 else None
            if len(value.terms) != 1 or definition is None or definition[:2] != ("operation", "max.s32"):
                continue
            factor = modular.signed(coefficient, value.bits)
            operands = [self.integers.widened(operand, value.bits) for operand in definition[2]]
            if isinstance(factor, int) and factor < 0:
                rest = Polynomial(value.bits, {}, value.constant)
                found.extend(P.add(rest, P.scale(operand, coefficient)) for operand in operands if operand is not None)
        return tuple(found)

    def upper_bound(self, number: int, store: StoredElement) -> Array | None:
        """The largest value of a nonnegative atom in each thread of a store, None where nothing bounds it."""
        key = "bound", number
        if key in self._visited:
            return None
        self._visited.add(key)
        try:
            return self._least_bound(number, store) if self._is_nonnegative(number, store) else None
        finally:
            self._visited.discard(key)

    def _least_bound(self, number: int, store: StoredElement) -> Array | None:
        """See `upper_bound`: the least bound that conditions give, on the atom or on a sum of which it is a term."""
        found: Array | None = None
        for coordinate in self.coordinates.created:
            factor = as_numbers(coordinate.definition).get((number,), 0)
            if factor <= 0 or not self._is_nonnegative_sum(coordinate.definition, store, without_bounds=True):
                continue
            limit = self.upper_bound(coordinate.symbol, store)
            if limit is not None:
                found = limit // factor if found is None else np.minimum(found, limit // factor)
        for each in store.conditions:
            value = self.coordinates.rewrite(each)
            coefficient = value.terms.get((number,))
            if not isinstance(coefficient, int) or len(value.terms) != 1:
                continue
            factor = int(modular.signed(coefficient, value.bits))
            if factor >= 0:
                continue
            constant = np.atleast_2d(np.asarray(modular.signed(value.constant, value.bits), dtype=np.int64))[0]
            constant = constant[store.threads] if constant.size > 1 else np.broadcast_to(constant, store.threads.size)
            bound = constant // -factor
            found = bound if found is None else np.minimum(found, bound)
        return found

    def _is_nonnegative(self, number: int, store: StoredElement) -> bool:
        """Whether an atom is not negative where a store is executed, by its definition and the conditions."""
        if number in self.table.nonnegative_atoms:
            return True
        key = "sign", number
        if key in self._visited:
            return False
        self._visited.add(key)
        try:
            for each in self.coordinates.created:
                if each.symbol == number:
                    return self._is_nonnegative_sum(each.definition, store)
            definition = self.table.atoms[number].definition
            if definition is None or definition[0] != "operation":
                return False
            signs = (self._is_nonnegative_sum(each, store) for each in definition[2])
            verb = definition[1].split(".")[0]
            if verb == "rem":
                return next(signs)
            return any(signs) if verb == "and" else verb in ("div", "min") and all(signs)
        finally:
            self._visited.discard(key)

    def _is_nonnegative_sum(self, value: Polynomial, store: StoredElement, without_bounds: bool = False) -> bool:
        """Whether a sum is not negative where a store is executed.

        Its terms are not negative, or, unless `without_bounds`, those with negative factors are bounded.
        """
        least = np.atleast_2d(np.asarray(modular.signed(value.constant, value.bits), dtype=np.int64))
        if not all(self._is_nonnegative(each, store) for each in value.atoms()):
            return False
        for monomial, coefficient in value.terms.items():
            numbers = modular.signed(coefficient, value.bits)
            if np.all(numbers >= 0):
                continue
            bound = self.upper_bound(monomial[0], store) if len(monomial) == 1 else None
            if without_bounds or bound is None or not isinstance(numbers, int):
                return False
            change = numbers * int(bound.max(initial=0))
            if abs(change) > MAXIMUM_CHANGE:
                return False
            least = least + change
        return bool((least >= 0).all())

    def largest_operand(self, number: int, limit: int, block: int) -> int | None:
        """The largest value of a block coordinate whose upper bits are at most `limit`; None for another atom."""
        if number == block:
            return limit
        definition = self.table.atoms[number].definition
        if definition is None or definition[0] != "operation" or len(definition[2]) != 2:
            return None
        operand, other = definition[2]
        if operand.number is not None:
            operand, other = other, operand
        amount, atoms = other.number, operand.atoms()
        if amount is None or len(atoms) != 1 or operand.constant != 0 or list(operand.terms.values()) != [1]:
            return None
        inner = next(iter(atoms))
        if list(operand.terms) != [(inner,)]:
            return None
        if definition[1] == "shr.u32" and definition[2][0] is operand and 0 <= amount < 32:
            return self.largest_operand(inner, ((limit + 1) << amount) - 1, block)
        low = amount & -amount
        whole = amount + low
        if definition[1] == "and.b32" and amount and not whole & amount and whole > self._largest(inner, block):
            return self.largest_operand(inner, limit + low - 1, block)
        return None

    def _largest(self, number: int, block: int) -> int:
        """A number that an atom does not exceed: a block coordinate, or its upper bits; in general that of 32 bits."""
        if number == block and number in self.table.nonnegative_atoms:
            return (1 << 31) - 1
        definition = self.table.atoms[number].definition
        if definition is not None and definition[:2] == ("operation", "shr.u32"):
            operand, amount = definition[2][0], definition[2][1].number
            if isinstance(amount, int) and 0 <= amount < 32:
                whole = operand.constant == 0 and operand.terms == {(block,): 1}
                largest = self._largest(block, block) if whole else (1 << 32) - 1
                return largest >> amount
        return (1 << 32) - 1


def as_numbers(value: Polynomial) -> dict[Monomial, int]:
    """Return the factors of a polynomial that are one number in all threads, as signed integers."""
    return {m: int(modular.signed(c, value.bits)) for m, c in value.terms.items() if isinstance(c, int)}
