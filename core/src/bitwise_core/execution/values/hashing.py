"""128-bit hashes of terms, computed for whole arrays of lanes at once.

A hash is a pair of 64-bit words, the leading axis (length 2) of a uint64 array.  Each word is mixed with constants of
its own, which are BLAKE2b digests of readable tags and thus the same in every process and on every machine.  The hashes
of two different terms are equal with probability at most 2**-62 per pair, in general about 2**-128, provided that the
mixing has no structure and that nobody constructs terms against these constants.  A diff runs both kernels again with
provenance and compares the trees themselves.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from typing import Literal

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
"""Hash words: shape (2, blocks, threads), or a shape that broadcasts to it."""

# Arrays, since NumPy converts a scalar in every operation.
_SHIFT_HIGH = np.array(32, dtype=np.uint64)
_SHIFT_LOW = np.array(29, dtype=np.uint64)


@cache
def constant(tag: str) -> Words:
    """Return the hash constant of a readable tag, shape (2, 1, 1)."""
    return np.frombuffer(blake2b(tag.encode(), digest_size=16).digest(), dtype=np.uint64).reshape(2, 1, 1).copy()


@cache
def multiplier(position: int) -> Words:
    """Return an odd multiplier for the operand at `position`, shape (2, 1, 1)."""
    return constant(f"multiplier {position}") | np.uint64(1)


_FIRST = constant("finalise first") | np.uint64(1)
_SECOND = constant("finalise second") | np.uint64(1)


def mix(words: Words) -> Words:
    """Apply a bijection without linear relations to each word, in place; return `words`.

    `words` has the leading axis of length 2 and any further axes.
    """
    first, second = (_FIRST, _SECOND) if words.ndim == 3 else (shaped(_FIRST, words.ndim), shaped(_SECOND, words.ndim))
    shifted = words >> _SHIFT_HIGH
    words ^= shifted
    words *= first
    np.right_shift(words, _SHIFT_LOW, out=shifted)
    words ^= shifted
    words *= second
    np.right_shift(words, _SHIFT_HIGH, out=shifted)
    words ^= shifted
    return words


_CARRIED = np.uint64(59)


def sum_of_members(left: Words, right: Words, carried: Words | np.uint64 = _CARRIED) -> Words:
    """Return the sums of two hashes modulo the prime 2**64 - 59, of which 2 is a primitive root.

    `carried` is what a carry adds: a word whose low 32 bits are not used has 5 * 2**32, for the prime 2**32 - 5.

    A member may occur many times, since a set may be combined with itself: n squarings make 2**n factors.  Modulo a
    power of two such a member would have no effect on the sum.
    """
    total = left + right
    total += (total < left) * carried
    return total


def same_lanes(left: Words, right: Words) -> npt.NDArray[np.bool_] | Literal[False]:
    """Return the lanes in which two hashes are equal, False if there are none."""
    first = left[0] == right[0]
    if not np.count_nonzero(first):
        return False
    both = first & (left[1] == right[1])
    return both if np.count_nonzero(both) else False


def shaped(words: Words, dimensions: int) -> Words:
    """Return a constant of shape (2, 1, 1) reshaped for arrays with another number of axes."""
    return words.reshape(2, *(1,) * (dimensions - 1))


@cache
def row_multipliers(count: int) -> Words:
    """Return the multipliers of an ordered vector of `count` elements, shape (2, 1, 1, count)."""
    return np.stack([multiplier(1000 + i) for i in range(count)], axis=-1)
