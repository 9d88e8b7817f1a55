"""Whether the elements that a symbolic block stores have different addresses in all blocks of a given launch.

The polynomials of addresses and conditions are evaluated in every block and thread.  Where that shows that no element
is stored twice, and that no buffer is both read and written, the blocks do not race on global memory.  Nothing is
concluded where a symbol has no number, such as the iteration of a loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import gcd, prod
from typing import Any

import numpy as np

from bitwise_core import numerics
from bitwise_core.checker.parametric.accessed_elements import LoadedElement, StoredElement
from bitwise_core.checker.parametric.polynomial import Polynomial
from bitwise_core.checker.parametric.signature import Run
from bitwise_core.execution.concrete import PreparedLaunch, machine_for
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.launch import Launch, buffer_at
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.global_memory import GlobalMemory
from bitwise_core.execution.memory.shared_memory import SHARED_LIMIT
from bitwise_core.execution.values.distinct import sorted_distinct
from bitwise_core.execution.values.symbolic_vector import UNSIGNED, Array
from bitwise_core.numerics import modular

MAXIMUM_TILES = 1 << 16
LARGEST_INDEX = (1 << 31) - 1
"""Integers of 32 bits above this one may stand for a negative or a nonnegative number."""
_DIVISIONS = frozenset(f"{verb}.{form}" for verb in ("div", "rem") for form in ("s32", "u32"))
_OPERATIONS = _DIVISIONS | frozenset(
    ("min.s32", "min.u32", "max.s32", "max.u32", "and.b32", "or.b32", "xor.b32", "shr.s32", "shr.u32", "shl.b32")
)
"""The operations on symbols that are evaluated."""
_INDICES = frozenset({"i8", "i16", "i32", "u8", "u16", "u32"})
SPARSE = 16
"""Addresses are counted in a table if it is at most this many times longer than the number of addresses."""


class _Undecided(Exception):
    """A symbol has no number in the launch, or one whose sign is not known."""


def stores_distinct_elements(run: Run, prepared: PreparedLaunch, buffers: Mapping[str, int]) -> bool:
    """Whether no two threads of the launch store one element, and no buffer is both read and written.

    `run` is an execution of the kernel.  Raises ManifestError where the launch does not fit the kernel.
    """
    if prepared.block != prepared.kernel.threads:
        return False
    memory = GlobalMemory(TermDomain())
    machine = machine_for(prepared, memory, buffers, np.arange(prepared.launch.blocks), SHARED_LIMIT)
    try:
        return _GivenLaunch(run, machine).is_free_of_conflicts()
    except _Undecided:
        return False


def shared_buffers(launch: Launch) -> frozenset[str]:
    """The buffers that several arguments of a launch name."""
    described = [each if each.tensor_map is None else each.tensor_map for each in launch.args]
    named = Counter(each.buffer for each in described if each.buffer is not None)
    return frozenset(name for name, count in named.items() if count > 1)


def writes_shared_buffer(run: Run, prepared: PreparedLaunch, buffers: Mapping[str, int]) -> bool:
    """Whether the kernel may write a buffer that several arguments of the launch name.

    `run` is an execution of the kernel.  Raises ManifestError where the launch does not fit the kernel.
    """
    names = shared_buffers(prepared.launch)
    if not names:
        return False
    if any(each.tensor_map is not None and each.tensor_map.buffer in names for each in prepared.launch.args):
        return True
    memory = GlobalMemory(TermDomain())
    machine = machine_for(prepared, memory, buffers, np.arange(1), SHARED_LIMIT)
    pointers = _GivenLaunch(run, machine).pointers
    written = {each.access.pointer for each in run.memory.stored} | set(run.memory.contributed)
    shared = {buffers[name] for name in names}
    return any(pointers.get(each) is None or pointers[each] in shared for each in written)


def may_wrap(run: Run, launch: Launch) -> bool:
    """Whether an index of 32 bits may wrap around in the launch, which the analysis of the kernel assumes not to be.

    It is not expected to where no scalar is negative, and the product of two of them has less than 32 bits.
    """
    if not run.domain.integers.wraps_assumed:
        return False
    scalars = [int(each.value) for each in launch.args if each.kind in _INDICES and each.value is not None]
    return min(scalars, default=0) < 0 or prod(sorted(scalars)[-2:]) > LARGEST_INDEX


class _GivenLaunch:
    """The numbers of the symbols of a run in a launch, with a row for each block or for each tile of a loop."""

    def __init__(self, run: Run, machine: Machine) -> None:
        self.run, self.table = run, run.domain.integers.table
        self.coordinates = {each.symbol: each.definition for each in run.domain.coordinates.created}
        self.numbers: dict[int, Array] = {}
        """The number of each atom, of shape (rows or 1, 1)."""
        self.pointers: dict[int, int] = {}
        """The buffer of each pointer parameter, by the index of the parameter."""
        self._set_parameters(machine)
        self._set_blocks(machine)

    def _set_parameters(self, machine: Machine) -> None:
        for name, atom in self.run.parameters.items():
            value = machine.parameters.get(name)
            if not isinstance(value, np.ndarray) or value.size != 1:
                continue
            number, pointer = int(value.flat[0]), self.table.atoms[atom].pointer
            if pointer is not None:
                self.pointers[pointer] = buffer_at(number)
            if pointer is not None or value.dtype == np.uint64 or number <= LARGEST_INDEX:
                self.numbers[atom] = np.full((1, 1), number, dtype=np.uint64)

    def _set_blocks(self, machine: Machine) -> None:
        tiles = self.run.domain.integers.tiles
        found = {}
        for name, atom in self.table.block_symbols.items():
            value = machine.special.get(name)
            if isinstance(value, np.ndarray) and value.ndim == 2 and value.shape[1] == 1:
                found[atom] = value.astype(np.uint64)
        if tiles is not None:
            # The tiles take the place of the blocks along one axis, and there must be one block along the others.
            block = self.table.block_symbols[tiles.block]
            self.numbers.update({atom: value[:1] for atom, value in found.items() if atom != block})
            if any((value != value[0]).any() for atom, value in found.items() if atom != block):
                raise _Undecided
            self.numbers[tiles.symbol] = np.arange(self._tile_count(), dtype=np.uint64)[:, None]
            return
        self.numbers.update(found)

    def _tile_count(self) -> int:
        """The number of tiles for which the condition of the loop holds."""
        tiles = self.run.domain.integers.tiles
        assert tiles is not None
        condition = tiles.condition
        rest = Polynomial(
            condition.bits, {m: c for m, c in condition.terms.items() if m != (tiles.symbol,)}, condition.constant
        )
        factor = modular.signed(condition.terms.get((tiles.symbol,), 0), condition.bits)
        bound = self._signed(rest)
        if not isinstance(factor, int) or factor >= 0 or bound.size != 1:
            raise _Undecided
        count = int(bound.flat[0]) // -factor + 1
        if count > MAXIMUM_TILES:
            raise _Undecided
        return max(count, 1)

    # -- polynomials --------------------------------------------------------------------------------------------------

    def _number(self, atom: int) -> Array:
        found = self.numbers.get(atom)
        if found is None:
            found = self.numbers[atom] = self._defined(atom)
        return found

    def _defined(self, atom: int) -> Array:
        """The number of a coordinate or of the result of an operation on 32-bit integers."""
        if atom in self.coordinates:
            return _as_index(self._residue(self.coordinates[atom]))
        definition = self.table.atoms[atom].definition
        if definition is None:
            raise _Undecided
        if definition[0] == "quotient":
            return _as_index(self._residue(definition[1])) // np.uint64(definition[2])
        if definition[0] != "operation" or definition[1] not in _OPERATIONS:
            raise _Undecided
        function = numerics.operation(definition[1]).function
        operands = [self._residue(each).astype(UNSIGNED[32]) for each in definition[2]]
        if function is None or any(each.bits != 32 for each in definition[2]):
            raise _Undecided
        if definition[1] in _DIVISIONS and (operands[1] == 0).any():
            raise _Undecided
        return _as_index(np.asarray(function(*operands)).astype(np.uint64))

    def _residue(self, value: Polynomial) -> Array:
        """The polynomial modulo 2**bits, of shape (rows or 1, threads or 1), in the instance that is the launch."""
        total: Any = _of_instance(value.constant)
        for monomial, coefficient in value.terms.items():
            product: Any = _of_instance(coefficient)
            for atom in monomial:
                product = product * self._number(atom)
            total = total + product
        found: Array = total & np.uint64((1 << value.bits) - 1)
        return found

    def _signed(self, value: Polynomial) -> Array:
        found: Array = modular.signed(self._residue(value), value.bits)
        return found

    # -- accesses -----------------------------------------------------------------------------------------------------

    def is_free_of_conflicts(self) -> bool:
        """See `stores_distinct_elements`."""
        memory = self.run.memory
        stores = [each.access for each in memory.stored]
        plain = [each for each in stores if each.operation == "store"]
        written = self._buffers(plain)
        others = self._buffers(each for each in stores if each.operation != "store")
        others |= {self._buffer(pointer) for pointer in memory.contributed}
        read = self._buffers(each for loads in memory.loaded.values() for each in loads)
        if written & (others | read) or others & read or any(each.iterations for each in stores):
            return False
        granule = gcd(*(each.bits for each in plain)) // 8
        if not plain or not granule:
            return not plain
        return self._are_distinct(plain, granule) or self._are_distinct(_without_equal_elements(plain), granule)

    def _buffer(self, pointer: int) -> int:
        if pointer not in self.pointers:
            raise _Undecided
        return self.pointers[pointer]

    def _buffers(self, accesses: Iterable[StoredElement | LoadedElement]) -> set[int]:
        return {self._buffer(each.pointer) for each in accesses}

    def _are_distinct(self, stores: Sequence[StoredElement], granule: int) -> bool:
        """Whether no two of the units of `granule` bytes that all threads of all rows store are the same."""
        found = [self._places(each) for each in stores]
        units = [
            each + offset
            for each, store in zip(found, stores, strict=True)
            for offset in range(0, store.bits // 8, granule)
        ]
        places = np.concatenate(units)
        if not places.size:
            return True
        if (places % granule).any():
            return False
        places = (places - places.min()) // granule
        if int(places.max()) < SPARSE * places.size:
            return int(np.bincount(places).max()) == 1
        return len(sorted_distinct(places)) == len(places)

    def _places(self, store: StoredElement) -> Array:
        """The addresses at which the threads of all rows store an element."""
        active: Array = np.ones((1, 1), dtype=bool)
        for each in store.conditions:
            active = active & (self._signed(each) >= 0)
        shape = (max((each.shape[0] for each in self.numbers.values()), default=1), store.threads.size)
        address, active = (
            np.broadcast_to(each[:, store.threads] if each.shape[1] > 1 else each, shape)
            for each in (self._signed(store.address), active)
        )
        return address[active]


def _of_instance(coefficient: modular.Residue) -> Array:
    """The coefficient in the instance that is the launch itself, of shape (1, threads or 1)."""
    return np.full((1, 1), coefficient, dtype=np.uint64) if isinstance(coefficient, int) else coefficient[:1]


def _as_index(residue: Array) -> Array:
    """A 32-bit integer as a number.  Raises _Undecided where its sign depends on how it is read."""
    if (residue > LARGEST_INDEX).any():
        raise _Undecided
    return residue


def _without_equal_elements(stores: Sequence[StoredElement]) -> list[StoredElement]:
    """The stores without threads that store the same value at the same address as another thread of the block."""
    words = np.concatenate([np.broadcast_to(each.element[:, 0], (2, each.threads.size)) for each in stores], axis=1)
    kept = np.zeros(words.shape[1], dtype=bool)
    kept[np.unique(words, axis=1, return_index=True)[1]] = True
    ends = np.cumsum([each.threads.size for each in stores])
    parts = np.split(kept, ends[:-1])
    return [replace(each, threads=each.threads[part]) for each, part in zip(stores, parts, strict=True)]
