"""Operands of an instruction as functions of the machine: what they read, and where a result goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from bitwise_amd_gfx942.opcodes.constants import BITS, pattern
from bitwise_amd_gfx942.registers import in_active_lanes, lane_mask_key, read_word, write_word
from bitwise_core.assembly.module import Immediate, Instruction, Modified, Operand, Register, Vector
from bitwise_core.execution.architecture import UnknownInstruction
from bitwise_core.execution.machine import Machine, literal
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import poison
from bitwise_core.numerics import Operation, operation

Reader: TypeAlias = Callable[[Machine], Value]
Writer: TypeAlias = Callable[[Machine, Value], None]

_READABLE = {"vcc_lo", "vcc_hi", "exec_lo", "exec_hi", "m0", "flat_scratch_lo", "flat_scratch_hi"}


def is_vector(operand: Operand) -> bool:
    """Whether the operand is one of vector registers, or of accumulation registers."""
    first = operand.items[0] if isinstance(operand, Vector) else operand
    return isinstance(first, Register) and first.name[0] in "va" and first.name[1:].isdigit()


def known_register(name: str, instruction: Instruction) -> None:
    """Raises UnknownInstruction for a register that holds something not modelled here."""
    if not name[1:].isdigit() and name not in _READABLE:
        raise UnknownInstruction(instruction, f"uses the register {name}, which is not modelled")


def word_reader(name: str, instruction: Instruction) -> Reader:
    """The 32 bits of a register."""
    known_register(name, instruction)
    if lane_mask_key(name) is None and not name.startswith("exec"):

        def read(machine: Machine) -> Value:
            found = machine.registers.get(name)
            if type(found) is PackedVector:
                return _where_it_runs(machine, found)
            return poison(32) if found is None else found

        return read
    return lambda machine: read_word(machine, name)


_KEPT = 1 << 14
_READERS: dict[tuple[Operand, str], Reader] = {}
_WRITERS: dict[tuple[Operand, int], Writer] = {}
"""Functions made for operands before: they hold nothing of the instruction that they were made for."""


def _where_it_runs(machine: Machine, value: PackedVector) -> Value:
    """A register as one value, or as its parts, where it is so in every active lane; other lanes hold anything."""
    mask, whole = machine.mask, value.whole
    if whole is not None and (whole if mask is None else whole | ~mask).all():
        return as_symbolic_vector(value)
    if mask is None or (whole is not None and (whole & mask).any()):
        return value
    return PackedVector(tuple(_part_where_it_runs(machine, part, mask) for part in value.parts))


def _part_where_it_runs(machine: Machine, part: Array | SymbolicVector, mask: Array) -> Array | SymbolicVector:
    if isinstance(part, SymbolicVector) and L.constant_mask(part) is False:
        return part
    found = in_active_lanes(machine, part, mask)
    assert not isinstance(found, PackedVector)
    return found


def reader(operand: Operand, kind: str, instruction: Instruction) -> Reader:
    """What an operand gives as a value of that type: its lowest bits where the register is wider.

    Raises UnknownInstruction where the operand has another width, or is changed in a way that its type has not.
    """
    found = _READERS.get((operand, kind))
    if found is None:
        if len(_READERS) > _KEPT:
            _READERS.clear()
        found = _READERS[operand, kind] = _reader(operand, kind, instruction)
    return found


def _reader(operand: Operand, kind: str, instruction: Instruction) -> Reader:
    bits = BITS[kind]
    if isinstance(operand, Modified):
        return _changed(reader(operand.operand, kind, instruction), operand, kind, instruction)
    if isinstance(operand, Immediate):
        constant = literal(pattern(operand, kind, instruction), bits)
        return lambda machine: constant
    if isinstance(operand, Register):
        whole = word_reader(operand.name, instruction)
        if bits == 32:
            return whole
        if bits < 32:
            return lambda machine: extract(whole(machine), 0, bits)
        raise UnknownInstruction(instruction, f"takes {bits} bits and is given the register {operand.name}")
    if isinstance(operand, Vector):
        parts = [word_reader(each.name, instruction) for each in operand.items if isinstance(each, Register)]
        if 32 * len(parts) != bits or len(parts) != len(operand.items):
            raise UnknownInstruction(instruction, f"takes {bits} bits and is given {len(operand.items)} registers")
        return lambda machine: side_by_side(machine, parts)
    raise UnknownInstruction(instruction, f"takes a register or a constant, not {operand}")


def side_by_side(machine: Machine, parts: Sequence[Reader]) -> Value:
    """Several registers as one value."""
    return concat([_in_acting_lanes(machine, part(machine)) for part in parts])


def _in_acting_lanes(machine: Machine, value: Value) -> Value:
    """The value, its halves kept apart where only lanes that do not act hold one number in both.

    What such a lane still has from before must not show in what the others store.
    """
    if not isinstance(value, PackedVector) or value.whole is None or machine.mask is None:
        return value
    return value if (value.whole & machine.mask).any() else PackedVector(value.parts)


def _changed(inner: Reader, operand: Modified, kind: str, instruction: Instruction) -> Reader:
    if not kind.startswith(("fp", "bf")) or not set(operand.changes) <= {"abs", "neg"}:
        raise UnknownInstruction(instruction, f"changes an operand by {operand.changes[-1]}, which is not modelled")
    signs = [operation(f"{change}.{kind}") for change in operand.changes]

    def read(machine: Machine) -> Value:
        value = inner(machine)
        for sign in signs:
            value = changed_sign(machine, sign, value)
        return value

    return read


def _flipped(meaning: Operation, pattern: Array) -> Array:
    sign = pattern.dtype.type(1 << (8 * pattern.dtype.itemsize - 1))
    found: Array = pattern ^ sign if meaning.verb == "neg" else pattern & ~sign
    return found


def changed_sign(machine: Machine, meaning: Operation, value: Value) -> Value:
    """neg or abs, which change no more than the sign bit: of a signalling NaN comes one."""
    if isinstance(value, np.ndarray):
        return _flipped(meaning, value)
    followed = L.lazy_integers(value)
    if followed is not None:
        found: Value | None = followed.apply([value], lambda each: _flipped(meaning, each))
        if found is not None:
            return found
    changed = machine.domain.floating(meaning, [value])
    if isinstance(changed, SymbolicVector):
        quiet = value.flags & L.QUIET if isinstance(value, SymbolicVector) else 0
        changed = L.with_flags(L.without_flags(changed, L.QUIET), quiet)
    return changed


def writer(operand: Operand, bits: int, instruction: Instruction) -> Writer:
    """Where a result of so many bits goes.  Raises UnknownInstruction where the operand does not take it.

    A result of 16 bits fills the low half of a register and clears the high one, as most of gfx9's do.
    """
    found = _WRITERS.get((operand, bits))
    if found is None:
        if len(_WRITERS) > _KEPT:
            _WRITERS.clear()
        found = _WRITERS[operand, bits] = _writer(operand, bits, instruction)
    return found


def _writer(operand: Operand, bits: int, instruction: Instruction) -> Writer:
    if isinstance(operand, Register) and bits <= 32:
        name = operand.name
        known_register(name, instruction)
        if name in ("exec_lo", "exec_hi"):
            raise UnknownInstruction(instruction, "writes a part of the execution mask, which is not modelled")
        if bits == 16:
            return lambda machine, value: write_word(machine, name, concat([value, literal(0, 16)]))
        if lane_mask_key(name) is None:
            return lambda machine, value: _write_plain(machine, name, value)
        return lambda machine, value: write_word(machine, name, value)
    if isinstance(operand, Vector) and bits == 32 * len(operand.items):
        parts = [writer(each, 32, instruction) for each in operand.items]

        def write(machine: Machine, value: Value) -> None:
            for index, part in enumerate(parts):
                part(machine, extract(value, 32 * index, 32))

        return write
    raise UnknownInstruction(instruction, f"has a result of {bits} bits and is given {operand}")


def _write_plain(machine: Machine, name: str, value: Value) -> None:
    if machine.mask is not None:
        old = machine.registers.get(name)
        value = blend_values(machine.mask, value, poison(32) if old is None else old)
    machine.registers[name] = value


def half_writer(operand: Operand, high: bool, instruction: Instruction, *, loads: bool = False) -> Writer:
    """Where a result of 16 bits goes that leaves the other half of the register as it was.

    `loads` says that memory is its source: registers have error correction codes of 32 bits on this machine, so that
    what a load leaves in the other half is not told (LLVM: `d16PreservesUnusedBits`).
    """
    if not isinstance(operand, Register) or not is_vector(operand):
        raise UnknownInstruction(instruction, f"has a result of 16 bits and is given {operand}")
    name = operand.name
    read = word_reader(name, instruction)

    def write(machine: Machine, value: Value) -> None:
        kept: Value = poison(16, "the other half of a load") if loads else extract(read(machine), 0 if high else 16, 16)
        _write_plain(machine, name, concat([kept, value] if high else [value, kept]))

    return write
