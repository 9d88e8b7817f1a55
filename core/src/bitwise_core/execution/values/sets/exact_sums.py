"""Sums of numbers that are 0 or 1 in fp32: no rounding, so that their order does not matter.

How many elements fulfil a condition is often a sum of such numbers.  Every partial sum is an integer of at most 2^24,
which fp32 holds exactly, so that a sum is the set of its members, each as often as it occurs.  A number that is 0 or 1
is known by its hash, since it may come from another thread or from memory, and so is the number of members of a sum.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.term_recorder import TermContext
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.hash_table import HashTable
from bitwise_core.execution.values.sets.ac_terms import AC_INDEX, member_hashes
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector
from bitwise_core.execution.values.term_hash import full_hash
from bitwise_core.numerics import IntegerFormat, Operation

SUM = "count.fp32"
"""The name of the sums among the associative operations."""

_ADDITIONS = frozenset({"add.rn.fp32", "add.rn.ftz.fp32", "add.rz.fp32", "add.rz.ftz.fp32"})
"""Additions that return every integer sum as it is: one that saturates does not."""

_ONE = 0x3F800000
_MOST_MEMBERS = 1 << 24
_MOST_KNOWN = 1 << 19
"""The most numbers that are kept: further ones are numbers like any other."""

_FACTS = L.NOT_MINUS_ZERO | L.NOT_NEGATIVE


class ExactSums:
    """The numbers of a run that are 0 or 1, and their sums, by their hashes."""

    def __init__(self) -> None:
        self._members = HashTable()
        self._room = _MOST_KNOWN

    def note_select(self, result: SymbolicVector, if_true: Array, if_false: Array) -> None:
        """A value is one of two constants in each lane."""
        if result.bits == 32 and all(_is_zero_or_one(each) for each in (if_true, if_false)):
            self._note(result, np.uint64(1))

    def note_conversion(self, result: SymbolicVector, info: Operation, greatest: int | None) -> None:
        """A value is the conversion of an integer that is at most `greatest`."""
        if greatest == 1 and info.result.name == "fp32" and isinstance(info.operands[0], IntegerFormat):
            self._note(result, np.uint64(1))

    def sum_of(
        self, info: Operation, values: list[SymbolicVector], context: TermContext
    ) -> tuple[bool | Array, SymbolicVector] | None:
        """Return the sum of two values, and the lanes in which it is exact; None where it is in none."""
        if info.name not in _ADDITIONS or self._members.is_empty:
            return None
        if any(L.flags_of_some_lane(each) & _FACTS != _FACTS for each in values):
            return None
        left_count, right_count = (self._members.find(full_hash(each)) for each in values)
        if left_count is None or right_count is None:
            return None
        (one, (first,)), (other, (second,)) = left_count, right_count
        exact: Array = one & other & (first + second <= _MOST_MEMBERS)
        for each in values:
            exact = exact & ~np.asarray(L.constant_mask(each))
        if not exact.any():
            return None
        index = AC_INDEX[SUM]
        (left, left_flags), (right, right_flags) = (member_hashes(SUM, index, each) for each in values)
        words = hashing.sum_of_members(left, right)
        flags = left_flags | right_flags | _FACTS | L.AC_TERMS | index << L.OPERATION_SHIFT
        result = context.note(info.name, SymbolicVector(32, words, flags), values, commutes=True)
        lanes = L.nonempty(exact)
        self._note(result, np.broadcast_to(first + second, exact.shape), exact)
        return (True if exact.all() else lanes), result

    def _note(self, value: SymbolicVector, members: Array | np.uint64, lanes: Array | None = None) -> None:
        """Keep the number of members of a value in some lanes (None: in those that are no constants)."""
        hashes = full_hash(value)
        shape = hashes.shape[1:]
        chosen = ~np.asarray(L.constant_mask(value)) if lanes is None else lanes
        keys = hashes[:, np.broadcast_to(chosen, shape)]
        counts = np.broadcast_to(members, shape)[np.broadcast_to(chosen, shape)]
        _, first = np.unique(keys[0], return_index=True)
        if first.size <= self._room:
            self._room -= first.size
            self._members.add(keys[:, first], counts[first])


def _is_zero_or_one(numbers: Array) -> bool:
    return bool(((numbers == 0) | (numbers == _ONE)).all())
