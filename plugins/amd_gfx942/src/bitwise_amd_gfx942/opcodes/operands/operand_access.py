"""Operands as functions of the machine: readers of sources and writers of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from bitwise_amd_gfx942.opcodes.memory.select_provenance import read_select
from bitwise_amd_gfx942.opcodes.memory.selected_offsets import SelectedOffset
from bitwise_amd_gfx942.opcodes.operands.constants import BITS, immediate_bits
from bitwise_amd_gfx942.opcodes.operands.deferred_lanes import DeferredLanes, masked_write
from bitwise_amd_gfx942.registers import in_active_lanes, lane_mask_key, read_word, write_word
from bitwise_core.assembly.module import Immediate, Instruction, Modified, Operand, Register, Vector
from bitwise_core.execution.architecture import UnknownInstruction
from bitwise_core.execution.deferred_blends import DeferredBlend, deferred_blend
from bitwise_core.execution.deferred_selects import DeferredSelect, is_unread_by_parts, part_of
from bitwise_core.execution.machine import Machine, literal
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.deferred_values import DeferredValue
from bitwise_core.execution.values.logic import combine
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat, extract, high_half
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import poison
from bitwise_core.numerics import Operation, operation

Reader: TypeAlias = Callable[[Machine], Value]
Writer: TypeAlias = Callable[[Machine, Value], None]

_READABLE = {"vcc_lo", "vcc_hi", "exec_lo", "exec_hi", "m0", "flat_scratch_lo", "flat_scratch_hi"}


def is_vector(operand: Operand) -> bool:
    """Whether the operand consists of vector registers or of accumulation registers."""
    first = operand.items[0] if isinstance(operand, Vector) else operand
    return isinstance(first, Register) and first.name[0] in "va" and first.name[1:].isdigit()


def check_register(name: str, instruction: Instruction) -> None:
    """Raises UnknownInstruction for a register whose contents are not modelled."""
    if not name[1:].isdigit() and name not in _READABLE:
        raise UnknownInstruction(instruction, f"uses the register {name}, which is not modelled")


def word_reader(name: str, instruction: Instruction) -> Reader:
    """The reader of a register's 32 bits."""
    check_register(name, instruction)
    if lane_mask_key(name) is None and not name.startswith("exec"):

        def read(machine: Machine) -> Value:
            found: Any = machine.registers.get(name)
            if type(found) is PackedVector:
                return _narrow_to_active(machine, found)
            if type(found) is SelectedOffset:
                return found.blended
            if type(found) is DeferredSelect:
                value = read_select(machine, found)
                return _narrow_to_active(machine, value) if found.ends and type(value) is PackedVector else value
            if type(found) is DeferredLanes:
                return found.in_active_lanes(machine)
            if type(found) is DeferredBlend:
                held = found.in_lanes(machine.mask)
                return _narrow_to_active(machine, held) if type(held) is PackedVector else held
            if isinstance(found, DeferredValue):
                held = found.value
                return _narrow_to_active(machine, held) if type(held) is PackedVector else held
            return poison(32) if found is None else found

        return read
    return lambda machine: read_word(machine, name)


_CACHE_SIZE = 1 << 14
_READERS: dict[tuple[Operand, str], Reader] = {}
_WRITERS: dict[tuple[Operand, int], Writer] = {}
"""Readers and writers by operand and type; they depend on nothing else of an instruction."""


def _narrow_to_active(machine: Machine, value: PackedVector) -> Value:
    """A register as one value, or as its parts, where that holds in every active lane; inactive lanes do not matter."""
    mask, whole = machine.mask, value.whole
    if whole is not None and (whole if mask is None else whole | ~mask).all():
        return as_symbolic_vector(value)
    if mask is None or (whole is not None and (whole & mask).any()):
        return value
    parts = tuple(_narrow_part_to_active(machine, part, mask) for part in value.parts)
    low = parts[0]
    if len(parts) == 2 and L.width(low) == 16 and isinstance(low, SymbolicVector) and not isinstance(low.flags, int):
        # The low half of a bf16 that was widened is 0 except for a NaN; 0 is as good in lanes that are not read.
        held = blend_values(mask, low, literal(0, 16))
        assert not isinstance(held, PackedVector)
        widened = PackedVector((held, *parts[1:]))
        if high_half(widened) is not None:
            return widened
    return PackedVector(parts)


def _narrow_part_to_active(machine: Machine, part: Array | SymbolicVector, mask: Array) -> Array | SymbolicVector:
    if isinstance(part, SymbolicVector) and L.constant_mask(part) is False:
        return part
    found = in_active_lanes(machine, part, mask)
    assert not isinstance(found, PackedVector)
    return found


def reader(operand: Operand, kind: str, instruction: Instruction) -> Reader:
    """The reader of an operand as a value of the type `kind`: the low bits where the register is wider.

    Raises UnknownInstruction where the operand has another width, or a modifier that the type does not have.
    """
    found = _READERS.get((operand, kind))
    if found is None:
        if len(_READERS) > _CACHE_SIZE:
            _READERS.clear()
        found = _READERS[operand, kind] = _reader(operand, kind, instruction)
    return found


def _reader(operand: Operand, kind: str, instruction: Instruction) -> Reader:
    bits = BITS[kind]
    if isinstance(operand, Modified):
        return _modified_reader(reader(operand.operand, kind, instruction), operand, kind, instruction)
    if isinstance(operand, Immediate):
        constant = literal(immediate_bits(operand, kind, instruction), bits)
        return lambda machine: constant
    if isinstance(operand, Register):
        whole = word_reader(operand.name, instruction)
        if bits == 32:
            return whole
        if bits < 32:
            return part_reader(operand, 0, bits, instruction)
        raise UnknownInstruction(instruction, f"takes {bits} bits and is given the register {operand.name}")
    if isinstance(operand, Vector):
        parts = [word_reader(each.name, instruction) for each in operand.items if isinstance(each, Register)]
        if 32 * len(parts) != bits or len(parts) != len(operand.items):
            raise UnknownInstruction(instruction, f"takes {bits} bits and is given {len(operand.items)} registers")
        return lambda machine: join_registers(machine, parts)
    raise UnknownInstruction(instruction, f"takes a register or a constant, not {operand}")


def part_reader(operand: Operand, low: int, bits: int, instruction: Instruction) -> Reader:
    """The reader of `bits` bits of an operand of 32 bits, from bit `low` up; of a select by parts, only these."""
    whole = reader(operand, "b32", instruction)
    if bits == BITS["b32"]:
        return whole
    name = operand.name if isinstance(operand, Register) else ""

    def read(machine: Machine) -> Value:
        held = machine.registers.get(name)
        if type(held) is DeferredBlend:
            held = held.written_in(machine.mask)
        if held is not None and is_unread_by_parts(held):
            found = part_of(held, low, bits)
            if machine.mask is None or isinstance(found, PackedVector):
                return found
            return _narrow_part_to_active(machine, found, machine.mask)
        return extract(whole(machine), low, bits)

    return read


def unread_reader(operand: Operand, instruction: Instruction) -> Reader:
    """The reader of 32 bits for a select: a register that holds a select by parts is returned unread."""
    whole = reader(operand, "b32", instruction)
    if not isinstance(operand, Register):
        return whole

    def read(machine: Machine) -> Value:
        held = machine.registers.get(operand.name)
        return held if held is not None and is_unread_by_parts(held) else whole(machine)

    return read


def join_registers(machine: Machine, parts: Sequence[Reader]) -> Value:
    """Several registers joined into one value, the first in the low bits."""
    return concat([_split_where_inactive(machine, part(machine)) for part in parts])


def _split_where_inactive(machine: Machine, value: Value) -> Value:
    """The value, as separate halves where only inactive lanes hold a single value that spans both.

    A value left in an inactive lane must not affect how the active lanes are stored.
    """
    if not isinstance(value, PackedVector) or value.whole is None or machine.mask is None:
        return value
    return value if (value.whole & machine.mask).any() else PackedVector(value.parts)


def _modified_reader(inner: Reader, operand: Modified, kind: str, instruction: Instruction) -> Reader:
    if not kind.startswith(("fp", "bf")) or not set(operand.changes) <= {"abs", "neg"}:
        raise UnknownInstruction(
            instruction, f"applies {operand.changes[-1]} to an operand of type {kind}, which is not modelled"
        )
    sign_changes = [operation(f"{change}.{kind}") for change in operand.changes]

    def read(machine: Machine) -> Value:
        value = inner(machine)
        for sign_change in sign_changes:
            value = apply_sign(machine, sign_change, value)
        return value

    return read


def _sign_bit_changed(meaning: Operation, pattern: Array) -> Array:
    sign = pattern.dtype.type(1 << (8 * pattern.dtype.itemsize - 1))
    found: Array = pattern ^ sign if meaning.verb == "neg" else pattern & ~sign
    return found


def apply_sign(machine: Machine, meaning: Operation, value: Value) -> Value:
    """neg or abs, which change only the sign bit: a signalling NaN stays one."""
    if isinstance(value, np.ndarray):
        return _sign_bit_changed(meaning, value)
    lazy = L.lazy_integers(value)
    if lazy is not None:
        found: Value | None = lazy.apply([value], lambda each: _sign_bit_changed(meaning, each))
        if found is not None:
            return found
    known: dict[tuple[int, Operation], tuple[Value, Array | None, Value]] = machine.extra.setdefault(_SIGNS, {})
    before = known.get((id(value), meaning))
    if before is not None and before[0] is value and before[1] is machine.mask:
        return before[2]
    changed = _with_sign_changed(machine, meaning, value)
    if len(known) >= _MAXIMUM_SIGNS:
        known.clear()
    known[id(value), meaning] = value, machine.mask, changed
    return changed


_SIGNS = "values with another sign"
"""The key of `machine.extra` for the results of the latest changes of signs: many products have one factor negated."""

_MAXIMUM_SIGNS = 64


def _with_sign_changed(machine: Machine, meaning: Operation, value: Value) -> Value:
    sign = 1 << (meaning.bits - 1)
    verb, mask = ("xor", sign) if meaning.verb == "neg" else ("and", sign - 1)
    whole = as_symbolic_vector(value) if isinstance(value, PackedVector) and high_half(value) is None else value
    changed = combine(machine, verb, whole, literal(mask, meaning.bits), meaning.bits)
    if isinstance(changed, SymbolicVector) and changed is not value:
        quiet = value.flags & L.QUIET if isinstance(value, SymbolicVector) else 0
        changed = L.with_flags(L.without_flags(changed, L.QUIET), quiet)
    return changed


def writer(operand: Operand, bits: int, instruction: Instruction) -> Writer:
    """The writer of a result of `bits` bits.  Raises UnknownInstruction where the operand has another width.

    A result of 16 bits is written to the low half of the register and clears the high half, as most 16-bit
    instructions of gfx9 do.
    """
    found = _WRITERS.get((operand, bits))
    if found is None:
        if len(_WRITERS) > _CACHE_SIZE:
            _WRITERS.clear()
        found = _WRITERS[operand, bits] = _writer(operand, bits, instruction)
    return found


def _writer(operand: Operand, bits: int, instruction: Instruction) -> Writer:
    if isinstance(operand, Register) and bits <= 32:
        name = operand.name
        check_register(name, instruction)
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
    lanes = machine.written_lanes
    if lanes is not None and not machine.is_dead_elsewhere(name):
        old = machine.registers.get(name)
        later = masked_write(lanes, value, old, machine.threads)
        value = deferred_blend(machine, lanes, value, poison(32) if old is None else old) if later is None else later
    machine.registers[name] = value


def half_writer(operand: Operand, high: bool, instruction: Instruction, *, from_memory: bool = False) -> Writer:
    """The writer of a result of 16 bits that leaves the other half of the register unchanged.

    `from_memory`: the result is loaded.  Registers have error correction over 32 bits on this machine, so the other
    half is undefined after such a load (LLVM: `d16PreservesUnusedBits`).
    """
    if not isinstance(operand, Register) or not is_vector(operand):
        raise UnknownInstruction(instruction, f"has a result of 16 bits and is given {operand}")
    name = operand.name
    read = word_reader(name, instruction)

    def write(machine: Machine, value: Value) -> None:
        kept: Value = (
            poison(16, "the other half of a load") if from_memory else extract(read(machine), 0 if high else 16, 16)
        )
        _write_plain(machine, name, concat([kept, value] if high else [value, kept]))

    return write
