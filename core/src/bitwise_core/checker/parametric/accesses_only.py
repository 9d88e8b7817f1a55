"""Execution of the accesses to shared memory alone: integers are those of the launch, all data is undefined.

Accesses and their order depend on data only where an address or a condition does.  Such an address is not a number, so
the execution stops there; a condition on data is one that may be true or false.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from bitwise_core.checker.parametric import polynomial as P
from bitwise_core.checker.parametric.domain import ParametricDomain
from bitwise_core.checker.parametric.loops.loop_state import queue_of_copies
from bitwise_core.checker.parametric.values import Equality, polynomial_of
from bitwise_core.execution.active_lanes import WholeBlocks
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.shared_memory import FinerGranule, SharedMemory
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.matrix_steps.mma_steps import HashedVectors, MmaStep, OperandVectors
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import poison
from bitwise_core.numerics import Operation

_UNDEFINED = {bits: poison(bits) for bits in (1, 8, 16, 32, 64, 128)}
_FLAGS = L.TERM | L.POISON


def undefined(bits: int) -> SymbolicVector:
    """Data, of which nothing is known."""
    found = _UNDEFINED.get(bits)
    return poison(bits) if found is None else found


def _is_data(value: Value) -> bool:
    return not isinstance(value, np.ndarray | L.LazyIntegers | Equality)


class AccessDomain(ParametricDomain):
    """The integers of a parametric domain, with undefined results of operations on data."""

    name = "accesses of every launch"

    def __init__(self, domain: ParametricDomain) -> None:
        super().__init__(domain.coordinates)
        self.integers = domain.integers

    def floating(self, operation: Operation, operands: Sequence[Value], properties: int = 0) -> Value:
        """See `Domain.floating`."""
        if all(isinstance(each, np.ndarray) for each in operands):
            return super().floating(operation, operands, properties)
        return undefined(operation.bits)

    def integer(self, operation: Operation, operands: Sequence[Value]) -> Value:
        """See `Domain.integer`; a comparison whose result depends on the launch is undefined."""
        if any(map(_is_data, operands)):
            return undefined(operation.bits)
        if operation.is_comparison and self._depends_on_launch(operands):
            return undefined(1)
        return super().integer(operation, operands)

    def _depends_on_launch(self, operands: Sequence[Value]) -> bool:
        left, right = (polynomial_of(self.integers, each, L.width(each)) for each in operands)
        return left is None or right is None or bool(P.subtract(left, right).terms)

    def select(self, predicate: Value, if_true: Value, if_false: Value) -> Value:
        """See `Domain.select`."""
        if not isinstance(predicate, np.ndarray) and (_is_data(predicate) or _is_data(if_true) or _is_data(if_false)):
            return if_true if if_true is if_false else undefined(L.width(if_true))
        return super().select(predicate, if_true, if_false)

    def operand_vectors(self, elements: SymbolicVector, form: str, parts: int = 1) -> OperandVectors:
        """See `Domain.operand_vectors`."""
        shape = (2, 1, *elements.words.shape[2:-1])
        return HashedVectors(np.zeros(shape, dtype=np.uint64), None, L.POISON)

    def mma_step(
        self, step: MmaStep, accumulator: SymbolicVector, left: OperandVectors, right: OperandVectors
    ) -> SymbolicVector:
        """See `Domain.mma_step`."""
        assert isinstance(left, HashedVectors)
        assert isinstance(right, HashedVectors)
        shape = np.broadcast_shapes(accumulator.words.shape, left.words.shape, right.words.shape)
        return SymbolicVector(accumulator.bits, np.zeros(shape, dtype=np.uint64), _FLAGS)


class UnreadMemory:
    """Global memory whose contents are undefined; a store is rejected."""

    undetermined = None

    def buffer_of_pointer(self, pointer: Value) -> int | None:
        """Return None: buffers are not distinguished."""
        return None

    def gather(self, address: Value, bits: int, mask: Array | None, line: int, buffers: object = None) -> Value:
        """Undefined data."""
        return undefined(bits)

    def copied(
        self,
        machine: Machine,
        address: Value,
        bits: int,
        count: Value | None,
        mask: Array | None,
        line: int,
        buffers: object = None,
    ) -> Value:
        """Undefined data."""
        return undefined(bits)

    def __getattr__(self, name: str) -> Any:
        raise Unsupported("global memory is not only read")


class UnfilledSharedMemory(SharedMemory):
    """Shared memory whose contents are undefined and not kept."""

    @staticmethod
    def of(shared: SharedMemory) -> UnfilledSharedMemory:
        """A memory with the cells of another one."""
        found = UnfilledSharedMemory.__new__(UnfilledSharedMemory)
        found.granule, found.blocks, found.version, found.recorder = shared.granule, shared.blocks, 0, None
        found.words, found.flags = shared.words, shared.flags
        return found

    def _reserve(self, size: int) -> None:
        """Nothing: no cell is kept."""

    def store(self, cells: Array, value: Value, mask: Array | None, rows: Array | None = None) -> None:
        """Nothing: no cell is kept."""

    def holds(self, cells: Array, value: Value, mask: Array | None, rows: Array | None = None) -> Array:
        """Raise Unsupported: whether threads wrote equal values is not known."""
        raise Unsupported("threads write values of which nothing is known to one address")

    def load(self, cells: Array, bits: int, rows: Array | None = None, whole: WholeBlocks | None = None) -> Value:
        """Undefined data."""
        if bits % (8 * self.granule):
            raise FinerGranule(max(1, bits // 8))
        return undefined(bits)


@contextmanager
def accesses_only(machine: Machine) -> Iterator[None]:
    """Execute accesses to shared memory alone; registers, memories and other state are restored at the end.

    Races and asynchronous reads are not: they are those of the executed accesses.
    """
    assert isinstance(machine.domain, ParametricDomain)
    registers, shared, extra = machine.registers, machine.shared, machine.extra
    domain, memory, local = machine.domain, machine.memory, machine.local
    machine.registers, machine.shared, machine.local = dict(registers), UnfilledSharedMemory.of(shared), dict(local)
    machine.domain, machine.memory = AccessDomain(domain), UnreadMemory()  # type: ignore[assignment]
    machine.extra = {key: value for key, value in extra.items() if key not in ("tiles", "fragments")}
    if "copies" in extra:
        machine.extra["copies"] = queue_of_copies(extra["copies"])
    try:
        yield
    finally:
        machine.registers, machine.shared, machine.extra = registers, shared, extra
        machine.domain, machine.memory, machine.local = domain, memory, local
