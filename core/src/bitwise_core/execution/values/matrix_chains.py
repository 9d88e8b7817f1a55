"""Chains of fused matrix steps: results whose payload is a sum over the steps, computed when it is read.

The payload of a step's result is `FACTOR` times that of its accumulator, plus the hashes of the row's vector, of the
column's vector and of the step.  Nothing is mixed between two steps: after n steps the payload is start * FACTOR**n +
rows + columns, where `rows` depends on the rows of A and `columns` on the columns of B alone.  A step takes time for
rows and columns instead of for every output.

The sum determines the chain.  As a polynomial in FACTOR, whose coefficients are sums of hashes of vectors, it has the
unordered pair of step s in its term of degree n - s, which is what the result depends on.  Two chains have one payload
only if a linear combination of independent hashes vanishes modulo 2**64, in both words.  Its coefficients are
differences of powers of FACTOR.  FACTOR is 3 modulo 8, so that FACTOR**d - 1 is divisible by 2**(2 + log2(d)) at most,
by which the probability 2**-64 of each word grows.  Sums have relations, (i, j) + (k, l) = (i, l) + (k, j), so every
other use of a result mixes its payload first (`CHAINED`, `term_hash.base_hash`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import full_hash

FACTOR = hashing.constant("a matrix step") & np.uint64(2**64 - 8) | np.uint64(3)
"""What a step multiplies the payload of its accumulator by, shape (2, 1, 1)."""

_FORM = L.NUMBER_FORM | 255 << L.OPERATION_SHIFT


@cache
def _power(count: int, dimensions: int) -> hashing.Words:
    """Return a power of `FACTOR`, shaped for arrays with a number of axes."""
    words = [pow(each, count, 2**64) for each in FACTOR.ravel().tolist()]
    return hashing.shaped(np.array(words, dtype=np.uint64), dimensions)


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
    """The results of a chain of steps, of one shape (2, blocks, ...) to which its parts broadcast."""

    __slots__ = ("_columns", "_computed", "_count", "_rows", "_start", "shape")

    def __init__(
        self, bits: int, flags: int, start: hashing.Words, count: int, rows: hashing.Words, columns: hashing.Words
    ) -> None:
        self._start, self._count, self._rows, self._columns = start, count, rows, columns
        self.shape = np.broadcast_shapes(start.shape, rows.shape, columns.shape)
        super().__init__(bits, rows, flags)
        self._computed: hashing.Words | None = None

    @property
    def words(self) -> hashing.Words:  # type: ignore[override]
        """The payload."""
        if self._computed is None:
            begun = self._start * _power(self._count, len(self.shape))
            if begun.size <= self._rows.size:
                self._computed = np.add(begun + self._rows, self._columns)
            else:
                self._computed = np.empty(self.shape, dtype=np.uint64)
                np.add(self._rows, self._columns, out=self._computed)
                self._computed += begun
        return self._computed

    @words.setter
    def words(self, words: hashing.Words) -> None:
        self._computed = words

    def registers(self, count: int) -> hashing.Words:
        """Return the payload for `count` registers of each thread, shape (2, blocks, count, threads)."""
        return np.broadcast_to(self.words, self.shape).reshape(2, self.shape[1], count, -1)


class ChainedRegister(SymbolicVector):
    """One of the `count` registers of each thread that hold the results of chains of steps."""

    __slots__ = ("_computed", "_count", "_index", "_whole")

    def __init__(self, whole: ChainedSteps, count: int, index: int) -> None:
        self._whole, self._count, self._index = whole, count, index
        super().__init__(whole.bits, whole._rows, whole.flags)
        self._computed: hashing.Words | None = None
        self.bundle = whole, index

    @property
    def words(self) -> hashing.Words:  # type: ignore[override]
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


def next_steps(accumulator: SymbolicVector, flags: int, rows: hashing.Words, columns: hashing.Words) -> ChainedSteps:
    """Return the results of one more step, of which `rows` and `columns` are the hashes of both vectors."""
    if isinstance(accumulator, ChainedSteps) and _is_chained(accumulator.flags) is True:
        factor = _power(1, len(accumulator.shape))
        rows, columns = accumulator._rows * factor + rows, accumulator._columns * factor + columns
        return ChainedSteps(accumulator.bits, flags, accumulator._start, accumulator._count + 1, rows, columns)
    start = payload_of(accumulator)
    return ChainedSteps(accumulator.bits, flags, start, 1, rows, columns)


def step_payload(accumulator: SymbolicVector, rows: hashing.Words, columns: hashing.Words) -> hashing.Words:
    """Return the payload of one more step's results."""
    start = payload_of(accumulator)
    return start * _power(1, start.ndim) + rows + columns
