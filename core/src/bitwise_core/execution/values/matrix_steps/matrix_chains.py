"""Chains of fused matrix steps: results whose payload is a sum over the steps, computed when it is read.

The payload of a step's result is a factor times that of its accumulator, plus the hashes of the row's vector, of the
column's vector and of the step.  Nothing is mixed between two steps: after n steps the payload is start * factor**n +
rows + columns, where `rows` depends on the rows of A and `columns` on the columns of B alone.  A step takes time for
rows and columns instead of for every output.

The sum determines the chain.  As a polynomial in the factor, whose coefficients are sums of hashes of vectors, it has
the unordered pair of step s in its term of degree n - s, which is what the result depends on.  Two chains have one
payload only if a linear combination of independent hashes vanishes, whose coefficients are sums of a few powers.
The first word is a sum modulo 2**64, where products of differences of powers may vanish (a Thue-Morse sequence of two
vectors and its complement, from 1024 steps on).  The second word therefore holds two sums modulo the prime 2**31 - 1,
each with a primitive root as factor: products of differences of powers do not vanish there.

Sums have relations, (i, j) + (k, l) = (i, l) + (k, j), so every other use of a result mixes its payload first
(`CHAINED`, `term_hash.base_hash`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import full_hash

PRIME = 2**31 - 1
_DIVISORS = (2, 3, 7, 11, 31, 151, 331)
"""The prime divisors of `PRIME` - 1."""


def _primitive_root(number: int) -> int:
    """Return the first primitive root of `PRIME` from a number on."""
    return number if all(pow(number, PRIME // each, PRIME) != 1 for each in _DIVISORS) else _primitive_root(number + 1)


_HASHES = [int(each) for each in hashing.constant("a matrix step").ravel()]
FACTORS = (
    _HASHES[0] & ~7 | 3,
    _primitive_root(_HASHES[1] % 2**30 + 2),
    _primitive_root((_HASHES[1] >> 32) % 2**30 + 2),
)
"""What a step multiplies the sums of its accumulator by: modulo 2**64, and twice modulo `PRIME`."""

_NO_WORDS: hashing.Words = np.zeros((2, 1, 1), dtype=np.uint64)

_BITS = np.uint64(31)
_LOW = np.uint64(PRIME)
_FORM = L.NUMBER_FORM | 255 << L.OPERATION_SHIFT & ~L.CUT


@cache
def _powers(count: int, dimensions: int) -> Array:
    """Return a power of the factors, shaped (3, 1, ...) for arrays with a number of axes."""
    powers = [pow(factor, count, modulus) for factor, modulus in zip(FACTORS, (2**64, PRIME, PRIME), strict=True)]
    return np.array(powers, dtype=np.uint64).reshape(3, *(1,) * (dimensions - 1))


def sums_of(words: hashing.Words) -> Array:
    """Return the three sums, shape (3, ...), that a payload or a hash holds."""
    return np.stack([words[0], words[1] >> _BITS & _LOW, words[1] & _LOW])


def _reduce(sums: Array) -> None:
    """Reduce the sums modulo `PRIME`, in place, to less than 2**31 + 8."""
    for _ in range(2):
        above = sums[1:] >> _BITS
        sums[1:] &= _LOW
        sums[1:] += above


def _payload(sums: Array) -> hashing.Words:
    """Return the payload of sums that are not reduced, which are changed."""
    _reduce(sums)
    _reduce(sums)
    sums[1:] *= sums[1:] != _LOW
    return np.stack([sums[0], sums[1] << _BITS | sums[2]])


def payload_of(accumulator: SymbolicVector) -> hashing.Words:
    """Return what a step multiplies: the payload of a chain's result, the hash of any other value."""
    chained = _is_chained(accumulator.flags)
    if isinstance(chained, bool):
        return accumulator.words if chained else full_hash(accumulator)
    return np.where(chained, accumulator.words, full_hash(accumulator))


def _is_chained(flags: L.Flags) -> bool | Array:
    """Return which values are results of chains, without an operation on them."""
    return (flags & _FORM) == L.TERM | L.CHAINED


class ChainedSteps(SymbolicVector):
    """The results of `count` steps, of one `shape` (2, blocks, ...) to which all parts broadcast.

    `start` is the payload or the hash of the first accumulator; `rows` and `columns` are sums of shape (3, ...).
    """

    __slots__ = ("_columns", "_computed", "_count", "_of_registers", "_rows", "_start", "shape")

    def __init__(self, bits: int, flags: int, start: hashing.Words, count: int, rows: Array, columns: Array) -> None:
        self._start, self._count, self._rows, self._columns = start, count, rows, columns
        self.shape = (2, *np.broadcast_shapes(start.shape[1:], rows.shape[1:], columns.shape[1:]))
        super().__init__(bits, start, flags)
        self._computed: hashing.Words | None = None
        self._of_registers: hashing.Words | None = None

    @property
    def words(self) -> hashing.Words:
        """The payload."""
        if self._computed is None:
            begun = sums_of(self._start) * _powers(self._count, len(self.shape))
            few, many = (begun, self._columns) if begun.size <= self._columns.size else (self._columns, begun)
            self._computed = _payload((few + self._rows) + many)
        return self._computed

    @words.setter
    def words(self, words: hashing.Words) -> None:
        self._computed, self._of_registers = words, None

    def registers(self, count: int) -> hashing.Words:
        """Return the payload for `count` registers of each thread, shape (2, blocks, count, threads)."""
        found = self._of_registers
        if found is None or found.shape[2] != count:
            # Registers are views of this array, which is a copy of the payload where that is broadcast.
            found = np.broadcast_to(self.words, self.shape).reshape(2, self.shape[1], count, -1)
            self._of_registers = found
        return found


class ChainedRegister(SymbolicVector):
    """One of the `count` registers of each thread that hold the results of chains of steps."""

    __slots__ = ("_computed", "_count", "_index", "_whole")

    def __init__(self, whole: ChainedSteps, count: int, index: int) -> None:
        self._whole, self._count, self._index = whole, count, index
        super().__init__(whole.bits, _NO_WORDS, whole.flags)
        self._computed: hashing.Words | None = None
        self.bundle = whole, index

    @property
    def words(self) -> hashing.Words:
        """The payload."""
        if self._computed is None:
            self._computed = self._whole.registers(self._count)[:, :, self._index]
        return self._computed

    @words.setter
    def words(self, words: hashing.Words) -> None:
        self._computed = words


def shape_of(value: SymbolicVector) -> tuple[int, ...]:
    """Return the shape of a value's words, without computing them."""
    return value.shape if isinstance(value, ChainedSteps) else value.words.shape


def bundled(values: Sequence[Value]) -> SymbolicVector | None:
    """Return the results of one instruction, if the values are its registers from the first on; None for any others."""
    whole = None
    for index, value in enumerate(values):
        if not isinstance(value, SymbolicVector) or value.bundle is None or value.bundle[1] != index:
            return None
        if whole is not None and value.bundle[0] is not whole:
            return None
        whole = value.bundle[0]
    return whole


@cache
def _named(name: str, dimensions: int) -> Array:
    """Return the sums of the hash of a step's name, shaped for arrays with a number of axes."""
    found = sums_of(hashing.constant(name))
    return found.reshape(3, *(1,) * (dimensions - 1))


def next_steps(
    accumulator: SymbolicVector, flags: int, name: str, rows: hashing.Words, columns: hashing.Words
) -> ChainedSteps:
    """Return the results of one more step of a name, of which `rows` and `columns` are the hashes of both vectors."""
    own, others = sums_of(rows) + _named(name, rows.ndim), sums_of(columns)
    if isinstance(accumulator, ChainedSteps) and _is_chained(accumulator.flags) is True:
        factors = _powers(1, len(accumulator.shape))
        own, others = own + accumulator._rows * factors, others + accumulator._columns * factors
        _reduce(own)
        _reduce(others)
        return ChainedSteps(accumulator.bits, flags, accumulator._start, accumulator._count + 1, own, others)
    return ChainedSteps(accumulator.bits, flags, payload_of(accumulator), 1, own, others)


def more_steps(
    chain: ChainedSteps,
    name: str,
    rows: Array,
    columns: Array,
    row: Array,
    column: Array,
    places: tuple[Array | None, Array | None] = (None, None),
) -> ChainedSteps:
    """Return the results of n more steps of a name, as those of `next_steps` one after the other.

    `rows` and `columns` are the hashes of the vectors of all steps, shape (2, n, blocks, vectors); an output takes the
    vectors `row` and `column` of these.  `places` gives for each block of the chain its number among those of `rows`
    and of `columns`; None: its own.
    """
    count = rows.shape[1]
    weights = np.concatenate([_powers(count - 1 - each, 4) for each in range(count)], axis=1)
    factors = _powers(count, len(chain.shape))
    found = []
    for sums, before, index, place in (
        (sums_of(rows) + _named(name, 4), chain._rows, row, places[0]),
        (sums_of(columns), chain._columns, column, places[1]),
    ):
        _reduce(sums)
        weighted = sums * weights
        _reduce(weighted)
        of_vectors = weighted.sum(axis=1)
        if place is not None:
            of_vectors = of_vectors[:, place]
        total = of_vectors[:, :, index] + before * factors
        _reduce(total)
        found.append(total)
    flags = chain.flags
    assert isinstance(flags, int)
    return ChainedSteps(chain.bits, flags, chain._start, chain._count + count, found[0], found[1])


def step_payload(accumulator: SymbolicVector, name: str, rows: hashing.Words, columns: hashing.Words) -> hashing.Words:
    """Return the payload of the results of one more step, as `next_steps`."""
    start = payload_of(accumulator)
    return _payload(
        sums_of(start) * _powers(1, start.ndim) + (sums_of(rows) + _named(name, rows.ndim)) + sums_of(columns)
    )
