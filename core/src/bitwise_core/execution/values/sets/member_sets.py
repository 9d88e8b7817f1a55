"""The members of sets under an idempotent operation, so that a member of both operands counts once in their union.

The payload of a set is the sum of its members' hashes.  A set that is combined with itself is recognised by its
payload.  Two different sets may share members too: elements beyond the end of a tensor are often one value, which
several threads hold.  Where the members are known by the payload, they are added once, so that the payload does not
depend on how many threads hold a value, nor on the order of the combinations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values.symbolic_vector import Array

MAXIMUM_MEMBERS = 1 << 21
"""The most members of all sets together; further sets are single members of the sets that they join."""

MAXIMUM_EXAMINED = 1 << 16
"""The most values that are examined to find repeated ones."""

_FOLLOWING = 4
"""How many values that entered the sets of a thread last are compared with the next one."""

_Key = tuple[int, int]

_NO_MEMBERS: frozenset[_Key] = frozenset()

_EMPTY: _Key = (0, 0)
"""The payload of the set without members."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

_PRIMES = ((1 << 32) - 5, (1 << 64) - 59)
"""The moduli of sums of hashes (`hashing.sum_of_members`), without and with the low half of a word."""


class MemberSets:
    """The sets that have been made so far, each under the payload that identifies it."""

    def __init__(self) -> None:
        self.members: dict[_Key, frozenset[_Key]] = {}
        self.room = MAXIMUM_MEMBERS

    def union(
        self, left: hashing.Words, right: hashing.Words, total: hashing.Words, *, upper_half: bool = False
    ) -> hashing.Words:
        """Return `total`, the sums of two payloads, with the payload of the union where sets share members.

        `upper_half` means that the low half of the first word is not part of a payload.
        """
        shape = np.broadcast_shapes(left.shape, right.shape)
        keys = np.concatenate([np.broadcast_to(each, shape).reshape(2, -1) for each in (left, right)])
        first, place = _different_columns(keys)
        different = keys[:, first].T
        shared = np.zeros(len(different), dtype=bool)
        sums = np.zeros((2, len(different)), dtype=np.uint64)
        for row, pair in enumerate(different.tolist()):
            left_key, right_key = (pair[0], pair[1]), (pair[2], pair[3])
            if not self._note_disjoint(left_key, right_key, upper_half):
                shared[row], sums[:, row] = self._note(left_key, right_key, upper_half)
        if not shared.any():
            return total
        place = place.reshape(shape[1:])
        return np.where(shared[place], sums[:, place], np.broadcast_to(total, shape))

    def _note_disjoint(self, left: _Key, right: _Key, upper_half: bool) -> bool:
        """Keep the union of two sets if they share no member; return whether they share none."""
        if _EMPTY in (left, right) or left == right:
            return False
        one, other = self.members.get(left), self.members.get(right)
        if one is None:
            if other is not None and left in other:
                return False
        elif right in one if other is None else not one.isdisjoint(other):
            return False
        key = _sum_of_union(left, right, _NO_MEMBERS, upper_half)
        if key not in self.members:
            count = (1 if one is None else len(one)) + (1 if other is None else len(other))
            if self.room >= count:
                self.room -= count
                if one is None:
                    self.members[key] = frozenset((left, right)) if other is None else other.union((left,))
                else:
                    self.members[key] = one.union((right,)) if other is None else one | other
        return True

    def _note(self, left: _Key, right: _Key, upper_half: bool) -> tuple[bool, _Key]:
        """Keep the union of two sets that may share members; return whether they do, and the payload of the union."""
        one, other = self._of(left), self._of(right)
        common = one & other
        key = _sum_of_union(left, right, common, upper_half)
        if key not in self.members:
            count = len(one) + len(other) - len(common)
            if self.room >= count:
                self.room -= count
                self.members[key] = one | other
        return bool(common), key

    def _of(self, key: _Key) -> frozenset[_Key]:
        if key == _EMPTY:
            return frozenset()
        found = self.members.get(key)
        return frozenset([key]) if found is None else found


class MembersRepeat(Exception):
    """Sets may share members, so that the launch is to be executed with the members followed."""


class RepeatedMembers:
    """Finds sets that may share members, from what the threads of a block combine.

    Where threads hold copies of values, each value enters sets in equally many of them.  If one value does in more
    threads than another, several elements have that value: elements beyond the end of a tensor, or those that are
    loaded from one address.  So they have if one enters sets of a thread twice in a row, or nearly so.  The
    first and the last block of each batch are examined: a tensor ends there.
    `stops`: MembersRepeat is raised as soon as one is found.
    """

    def __init__(self) -> None:
        self.found = self.stops = False
        self._room = MAXIMUM_EXAMINED
        self._collected: list[tuple[hashing.Words, bool | Array]] | None = None
        self._last: dict[int, Array] = {}
        """By the number of threads: what entered the sets of each thread of the last block last, the latest first."""
        self.group: Array | None = None
        """The lanes that the execution is of, shape (blocks, threads), each 1 where all are alike; None: all."""

    @contextmanager
    def together(self) -> Iterator[None]:
        """Examine what enters sets within the context as if one operation combined it.

        Operations on a few lanes each may combine in different operations what one on all lanes combines.
        """
        outer, self._collected = self._collected, []
        try:
            yield
        finally:
            collected, self._collected = self._collected, outer
            self._examine(collected)

    def examine(self, words: hashing.Words, lanes: bool | Array) -> None:
        """Values enter sets in `lanes`; `words` are their hashes, (2, blocks, threads)."""
        if self.found or self._room <= 0 or lanes is False:
            return
        if self._collected is not None:
            self._collected.append((words, lanes))
        else:
            self._examine([(words, lanes)])

    def _examine(self, entries: Sequence[tuple[hashing.Words, bool | Array]]) -> None:
        for place in {0, -1} if entries else ():
            hashes = np.concatenate([_hashes_of(words[1], lanes, place) for words, lanes in entries])
            self._room -= hashes.size
            counts = np.unique(hashes, return_counts=True)[1]
            if counts.size and counts.min() != counts.max():
                self.found = True
        for words, lanes in entries:
            group = True if self.group is None else self.group[-1]
            hashes, active = np.broadcast_arrays(words[1, -1], np.atleast_2d(lanes)[-1] & group)
            self.found |= self._enters_again(hashes, active)
        if self.found and self.stops:
            raise MembersRepeat

    def _enters_again(self, hashes: Array, active: Array) -> bool:
        """Return whether a value that enters the set of an active thread of a block has just entered one of it.

        Each thread has its own last values, so that it does not matter which threads execute an operation together.
        """
        last = self._last.setdefault(len(hashes), np.zeros((_FOLLOWING, len(hashes)), dtype=np.uint64))
        again = bool(((last == hashes) & active).any())
        last[:, active] = np.concatenate([hashes[None], last[:-1]])[:, active]
        return again


def _hashes_of(hashes: Array, lanes: bool | Array, place: int) -> Array:
    """Return the hashes of a block in some lanes."""
    found: Array = hashes[place]
    if lanes is True:
        return found
    every, active = np.broadcast_arrays(found, np.atleast_2d(lanes)[place])
    chosen: Array = every[active]
    return chosen


def _different_columns(words: Array) -> tuple[Array, Array]:
    """Return the number of the first column of each kind, and the place of each column's kind among them."""
    mixed = words[0].copy()
    for each in words[1:]:
        mixed *= _MULTIPLIER
        mixed += each
    _, first, place = np.unique(mixed, return_index=True, return_inverse=True)
    if not np.array_equal(words[:, first][:, place], words):
        _, first, place = np.unique(words, axis=1, return_index=True, return_inverse=True)
    return first, place


def _sum_of_union(left: _Key, right: _Key, common: frozenset[_Key], upper_half: bool) -> _Key:
    """Return the sum of the members of two sets, each known by the sum of its own, of which `common` are in both."""
    low = left[1] + right[1]
    high = (left[0] >> 32) + (right[0] >> 32) if upper_half else left[0] + right[0]
    for each in common:
        low -= each[1]
        high -= each[0] >> 32 if upper_half else each[0]
    return high % _PRIMES[0] << 32 if upper_half else high % _PRIMES[1], low % _PRIMES[1]
