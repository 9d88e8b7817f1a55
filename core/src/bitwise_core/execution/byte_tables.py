"""The function that a cone computes of one or two bytes of its inputs, as tables of its results.

The cone is executed on terms, in lanes that differ in one byte each, to find the bytes on which its result depends, and
then on every value of these bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

import numpy as np

from bitwise_core.execution.cone_execution import executed
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.instruction_cones import Cone
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.program import Program
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value, width
from bitwise_core.execution.values.term_hash import exact_hash

MAXIMUM_BYTES = 2
"""The most bytes on which the result of a cone that is looked up depends."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Bits of a result: `table` has one axis of 256 numbers for each of `atoms`, which are bytes of inputs.

    No atom: a constant.  `copies`: the bits are those of the only atom.
    """

    low: int
    bits: int
    atoms: tuple[tuple[int, int], ...]
    table: Array
    tag: str
    copies: bool


Function: TypeAlias = tuple[Part, ...]
"""The parts of a result, least significant first."""


_FUNCTIONS: OrderedDict[Hashable, Function | None] = OrderedDict()
"""The functions of the most recent cones, by architecture, form and constant inputs; None: not of a few bytes."""

_MAXIMUM_FUNCTIONS = 1024
"""How many functions are cached, of at most 256 KiB each."""


def cached_function(
    machine: Machine,
    cone: Cone,
    captured: Sequence[Mapping[str, Value]],
    inputs: tuple[Hashable, tuple[tuple[int, int], ...]],
    program: Program,
) -> Function | None:
    """Return the function of a cone, with its constant inputs and the widths of the others, as it was found before."""
    key = (program.architecture, cone.form, inputs)
    if key in _FUNCTIONS:
        _FUNCTIONS.move_to_end(key)
        return _FUNCTIONS[key]
    found = _FUNCTIONS[key] = _function(machine, cone, captured, dict(inputs[1]), program)
    if len(_FUNCTIONS) > _MAXIMUM_FUNCTIONS:
        _FUNCTIONS.popitem(last=False)
    return found


def _function(
    machine: Machine,
    cone: Cone,
    captured: Sequence[Mapping[str, Value]],
    widths: Mapping[int, int],
    program: Program,
) -> Function | None:
    """Return the function that a cone computes of some bytes of its inputs, None if there are too many of them."""
    run = _Trial(machine, cone, captured, program)
    every = [(number, byte) for number, bits in widths.items() for byte in range(bits // 8)]
    halves = run.dependences(every)
    if not halves or any(len(needed) > MAXIMUM_BYTES for _, _, needed in halves):
        return None
    # Where every half depends on one byte at most, one execution has all of them: it gives all bytes the same value.
    single = all(len(needed) <= 1 for _, _, needed in halves)
    common = run.table([[atom for _, _, needed in halves for atom in needed]], widths) if single else None
    found: list[Part] = []
    for low, bits, needed in halves:
        table = common if single else run.table([[atom] for atom in needed], widths)
        if table is None:
            return None
        found += _parts(table, needed, low, bits)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Trial:
    """Executions of a cone on other inputs than those of the launch."""

    machine: Machine
    cone: Cone
    captured: Sequence[Mapping[str, Value]]
    program: Program

    def dependences(self, atoms: Sequence[tuple[int, int]]) -> list[tuple[int, int, list[tuple[int, int]]]]:
        """Return the halves of the result: the first bit and the number of bits, and the bytes that they depend on.

        Each byte is a load.  Lane 0 has one place for each, and every other lane another place for one of them.  The
        list is empty if the dependence cannot be found out.
        """
        # Far apart, so that no bytes are adjacent.
        places = np.full((len(atoms), 1 + len(atoms)), 0, dtype=np.uint64) + (
            np.arange(1, len(atoms) + 1, dtype=np.uint64)[:, None] << np.uint64(20)
        )
        places[np.arange(len(atoms)), 1 + np.arange(len(atoms))] += np.uint64(1 << 19)
        loads = {
            atom: SymbolicVector(8, L.both_words(row[None]), L.LOAD) for atom, row in zip(atoms, places, strict=True)
        }
        outer, self.machine.domain = self.machine.domain, TermDomain()
        try:
            result = self._result(loads)
        finally:
            self.machine.domain = outer
        if result is None or width(result) not in (16, 32, 64):
            return []
        found = []
        for low in range(0, width(result), 16):
            half = as_symbolic_vector(extract(result, low, 16))
            words = np.broadcast_to(exact_hash(half), (2, *places[:1].shape))
            flags = L.flags_of_lanes(half.flags, places[:1].shape)
            changed = (words != words[:, :, :1]).any(axis=0) | (flags != flags[:, :1])
            needed = [atom for atom, differs in zip(atoms, changed[0, 1:], strict=True) if differs]
            found.append((low, 16, needed))
        return found

    def table(self, atoms: Sequence[Sequence[tuple[int, int]]], widths: Mapping[int, int]) -> Array | None:
        """Return the results for all values of some bytes, in an axis for those of equal value; other bytes are 0."""
        size = 256 ** len(atoms)
        numbers = np.arange(size, dtype=np.uint64)
        values: dict[tuple[int, int], Value] = {}
        for number, bits in widths.items():
            for byte in range(bits // 8):
                values[number, byte] = np.zeros((1, 1), dtype=np.uint8)
        for axis, alike in enumerate(atoms):
            shift = np.uint64(8 * (len(atoms) - 1 - axis))
            values.update(dict.fromkeys(alike, (numbers >> shift & np.uint64(255)).astype(np.uint8)[None]))
        result = self._result(values)
        if not isinstance(result, np.ndarray) or result.dtype == np.bool_:
            return None
        return np.broadcast_to(result, (1, size)).reshape((256,) * len(atoms))

    def _result(self, atoms: Mapping[tuple[int, int], Value]) -> Value | None:
        """Return the result of the cone where these are the bytes of its inputs, the others those of the launch."""
        inputs = list(self.captured)
        for number in {number for number, _ in atoms}:
            (name,) = self.captured[number]
            count = sum(each == number for each, _ in atoms)
            inputs[number] = {name: _joined([atoms[number, byte] for byte in range(count)])}
        try:
            return executed(self.machine, self.cone, self.program, inputs)
        except Exception:
            # What a step cannot do with these inputs is no function; it is executed on those of the launch.
            return None


def _joined(parts: Sequence[Value]) -> Value:
    """Return bytes as one value; numbers of different shapes are broadcast."""
    if all(isinstance(each, np.ndarray) for each in parts):
        total = np.zeros((1, 1), dtype=np.uint64)
        for place, each in enumerate(parts):
            assert isinstance(each, np.ndarray)
            total = total | each.astype(np.uint64) << np.uint64(8 * place)
        return total.astype(L.UNSIGNED[8 * len(parts)])
    return concat(parts)


def _parts(table: Array, atoms: Sequence[tuple[int, int]], low: int, bits: int) -> Iterator[Part]:
    """Yield the parts of bits of a result: bytes where they are constant, copied, or depend on different bytes."""
    kind = L.UNSIGNED[bits]
    numbers: Array = (table >> table.dtype.type(low)).astype(kind)
    deep = [axis for axis in range(numbers.ndim) if (numbers != numbers.take([0], axis=axis)).any()]
    for axis in reversed(range(numbers.ndim)):
        if axis not in deep:
            numbers = numbers.take(0, axis=axis)
    own = tuple(atoms[axis] for axis in deep)
    if bits > 16 or (bits == 16 and _separable(table, low, len(deep))):
        yield from _parts(table, atoms, low, bits // 2)
        yield from _parts(table, atoms, low + bits // 2, bits // 2)
        return
    copies = bits == 8 and len(own) == 1 and bool((numbers == np.arange(256)).all())
    digest = blake2b(np.ascontiguousarray(numbers).tobytes(), digest_size=16).hexdigest()
    yield Part(low, bits, own, numbers, f"table {bits} {len(own)} {digest}", copies)


def _separable(table: Array, low: int, most: int) -> bool:
    """Return whether one byte of 16 bits is constant, or each depends on fewer atoms than both."""
    counts = []
    for place in (low, low + 8):
        byte = (table >> table.dtype.type(place)).astype(np.uint8)
        counts.append(sum(bool((byte != byte.take([0], axis=axis)).any()) for axis in range(byte.ndim)))
    return max(counts) > 0 and (min(counts) == 0 or max(counts) < most)
