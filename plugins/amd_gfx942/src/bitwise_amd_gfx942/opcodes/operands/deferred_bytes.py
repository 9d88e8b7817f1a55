"""Registers whose bytes are those of a loaded word beside zeros, moved when something reads them.

fp8e5 becomes fp16 by moving each byte to the upper half of 16 bits, which takes three or four instructions for a
register of two elements.  Only matrix instructions read most of these registers, and they take the bytes from the
loaded words, those of all registers at once (`matrix_fragments`).  What else reads such a register executes the
instruction that wrote it.

An instruction is deferred only where all lanes are active.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from bitwise_amd_gfx942.opcodes.operands.deferred_lanes import may_defer
from bitwise_core.assembly.module import Immediate, Operand, Register, registers_of
from bitwise_core.execution.machine import Control, Machine, Step
from bitwise_core.execution.values.deferred_values import DeferredValue
from bitwise_core.execution.values.loads_and_zeros import LoadsAndZeros, loads_and_zeros
from bitwise_core.execution.values.symbolic_vector import SymbolicVector, Value

Bytes: TypeAlias = tuple[int, int, int, int]
"""The bytes of a register, least significant first: a number below 256, or `OF_SOURCE` and the place of a byte."""

Moves: TypeAlias = Callable[[Sequence[Bytes]], Bytes | None]
"""The bytes of an instruction's result from those of its sources, None where they are no bytes of these."""

OF_SOURCE = 256
_ALL_BYTES: Bytes = (OF_SOURCE, OF_SOURCE + 1, OF_SOURCE + 2, OF_SOURCE + 3)
_BITS = 32
_MAXIMUM_DEPTH = 16
"""How many moves of moved bytes are deferred."""


class DeferredBytes(DeferredValue):
    """The bytes of a loaded word at other places, beside constants.

    `source` is the word and `loads` what it loads, `bytes_of_source` says where the bytes are.
    """

    __slots__ = ("_held", "_machine", "_result", "_step", "bytes_of_source", "loads", "source")

    def __init__(
        self, source: SymbolicVector, loads: LoadsAndZeros, places: Bytes, step: Step, machine: Machine, result: str,
        held: Mapping[str, Value],
    ) -> None:  # fmt: skip
        self.source, self.loads, self.bytes_of_source = source, loads, places
        self._step, self._machine, self._result, self._held = step, machine, result, held
        depths = [each.depth for each in held.values() if type(each) is DeferredBytes and not each.is_computed]
        super().__init__(_BITS, 1 + max(depths, default=0))

    def compute(self) -> Value:
        """Return what the instruction writes, which is executed with the registers that it was to read."""
        machine = self._machine
        outer = machine.registers, machine.mask, machine.condition, machine.path
        machine.registers, machine.mask, machine.condition, machine.path = dict(self._held), None, None, None
        try:
            self._step(machine)
            found = machine.registers[self._result]
        finally:
            machine.registers, machine.mask, machine.condition, machine.path = outer
        self._held = {}
        return found


def moving_bytes(step: Step, result: Operand, sources: Sequence[Operand], moves: Moves) -> Step:
    """Return the step of an instruction, deferred where it moves bytes of a loaded word.

    `step` reads and writes no registers but those of its operands.
    """
    if not isinstance(result, Register) or not all(map(_is_word, sources)):
        return step
    names = [each.name if isinstance(each, Register) else "" for each in sources]
    numbers = [_bytes_of(each.value) if isinstance(each, Immediate) else None for each in sources]
    name, reads = result.name, sorted(registers_of(*sources))

    def run(machine: Machine) -> Control | None:
        registers = machine.registers
        held = [registers.get(each) for each in reads]
        if not any(type(each) is SymbolicVector or type(each) is DeferredBytes for each in held):
            return step(machine)
        if not may_defer(machine):
            return step(machine)
        source: tuple[SymbolicVector, LoadsAndZeros] | None = None
        found: list[Bytes] = []
        for register, number in zip(names, numbers, strict=True):
            if number is not None:
                found.append(number)
                continue
            value = registers.get(register)
            if type(value) is np.ndarray and value.size == 1 and value.dtype == np.uint32:
                found.append(_bytes_of(int(value.flat[0])))
                continue
            moved = _moved(machine, value)
            if moved is None or (source is not None and source[0] is not moved[0]):
                return step(machine)
            source = moved[:2]
            found.append(moved[2])
        places = moves(found) if source is not None else None
        if source is None or places is None or max(places) < OF_SOURCE:
            return step(machine)
        values = {register: value for register, value in zip(reads, held, strict=True) if value is not None}
        later = DeferredBytes(*source, places, step, machine, name, values)
        if later.depth > _MAXIMUM_DEPTH:
            return step(machine)
        registers[name] = later
        return None

    return run


def _is_word(operand: Operand) -> bool:
    """Return whether an operand is a register or an integer."""
    return isinstance(operand, Register) or (isinstance(operand, Immediate) and operand.kind == "int")


def is_unmoved(value: object) -> bool:
    """Return whether a value consists of moved bytes, and nothing has read it."""
    return type(value) is DeferredBytes and not value.is_computed


def _moved(machine: Machine, value: Value | None) -> tuple[SymbolicVector, LoadsAndZeros, Bytes] | None:
    """Return the word of which a value has the bytes, and these; None for any other value."""
    if type(value) is DeferredBytes:
        return None if value.is_computed else (value.source, value.loads, value.bytes_of_source)
    if type(value) is not SymbolicVector or value.bits != _BITS or value.origins or value.maximum is not None:
        return None
    known: dict[int, tuple[SymbolicVector, LoadsAndZeros | None]] = machine.extra.setdefault(_WORDS, {})
    found = known.get(id(value))
    if found is None or found[0] is not value:
        if len(known) >= _MAXIMUM_WORDS:
            known.clear()
        loads = loads_and_zeros(value)
        found = known[id(value)] = value, loads if loads is not None and loads.is_apart else None
    return None if found[1] is None else (value, found[1], _ALL_BYTES)


_WORDS = "words whose bytes are moved"
"""The key of `machine.extra` for what the latest sources load."""

_MAXIMUM_WORDS = 256


def _bytes_of(number: int) -> Bytes:
    first, second, third, fourth = (number >> low & 255 for low in (0, 8, 16, 24))
    return first, second, third, fourth


def _number_of(places: Bytes) -> int | None:
    """Return the number that constant bytes are; None for others."""
    if max(places) >= OF_SOURCE:
        return None
    return sum(each << 8 * place for place, each in enumerate(places))


def shifted_bytes(places: Bytes, amount: Bytes, bits: int, left: bool) -> Bytes | None:
    """Return the bytes of a shift of the low `bits` bits, above which the result is zero.

    The low bits of the amount count.
    """
    number = _number_of(amount)
    if number is None or number % bits % 8:
        return None
    count, size = number % bits // 8, bits // 8
    kept = [*[0] * count, *places[: size - count]] if left else [*places[count:size], *[0] * count]
    first, second, third, fourth = (*kept, *[0] * (4 - size))
    return first, second, third, fourth


def masked_bytes(places: Bytes, other: Bytes) -> Bytes | None:
    """Return the bytes of a bitwise and with constant bytes of zeros or ones."""
    found = []
    for one, two in zip(places, other, strict=True):
        if 0 in (one, two):
            found.append(0)
        elif 255 in (one, two):
            found.append(two if one == 255 else one)
        else:
            return None
    first, second, third, fourth = found
    return first, second, third, fourth


def joined_bytes(places: Bytes, other: Bytes) -> Bytes | None:
    """Return the bytes of a bitwise or of which one has a zero byte wherever the other one has none."""
    if any(one and two for one, two in zip(places, other, strict=True)):
        return None
    first, second, third, fourth = (one or two for one, two in zip(places, other, strict=True))
    return first, second, third, fourth
