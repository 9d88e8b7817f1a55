"""atom and red on global and shared memory, where the order of threads is not determined.

Source: PTX ISA 8.7, "Parallel Synchronization and Communication Instructions: atom, red".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from bitwise_core.assembly.module import Address, Instruction, Operand, Register, Symbol, Vector
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction, named
from bitwise_core.execution.domains.domain import DataDependent
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, NO_DESTINATION, Effect, InstructionInfo
from bitwise_core.execution.machine import Machine, Step, invert, literal
from bitwise_core.execution.memory.access import check_aligned, check_in_buffer, update_global, update_shared
from bitwise_core.execution.memory.atomic_changes import ONE_OPERAND, compare_and_exchange
from bitwise_core.execution.memory.atomic_contributions import identity_of
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.integers.predicate_bits import without_bits
from bitwise_core.execution.values.logic import combine
from bitwise_core.execution.values.packing import as_symbolic_vector, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import full_hash
from bitwise_core.numerics import Operation, operation
from bitwise_nvidia_ptx.addresses.pointer_parameters import pointer_parameters
from bitwise_nvidia_ptx.addresses.shared import own_offset
from bitwise_nvidia_ptx.opcodes.common import DEPENDS_ON_ORDER, PACKED, name_of_update, type_bits
from bitwise_nvidia_ptx.opcodes.compare import compare
from bitwise_nvidia_ptx.opcodes.memory import IGNORED_MODIFIERS, address_of, buffers_of

TABLE = OpcodeTable()

_COMBINED = {"add", "min", "max", "and", "or", "xor"}
_SHARED = {"shared", "shared::cta"}
_CHANGES = {"exch": "exchange", "inc": "increment", "dec": "decrement"}
_UPDATES: Mapping[str, tuple[str, ...]] = {
    "cas": ("b16", "b32", "b64"),
    "exch": ("b32", "b64"),
    "inc": ("u32",),
    "dec": ("u32",),
}
"""The operations whose order decides the content, with their types."""


MAXIMUM_GUARDED = 1 << 14
"""Operations of more lanes at once under a condition on data are followed as a set of contributions."""


def atomic_info(instruction: Instruction) -> InstructionInfo:
    """Return what atom and red read and write.

    Outside shared memory, the final content may depend on the order of threads, and the result of atom does.
    """
    root, *modifiers = instruction.opcode.split(".")
    returns = root == "atom"
    shared = not _SHARED.isdisjoint(modifiers)
    effects = Effect.LOAD | Effect.STORE if returns or shared else Effect.STORE
    info = (DESTINATION_FIRST if returns else NO_DESTINATION).info(instruction, effects)
    if shared:
        returned = "an atomic operation gives back a value that depends on the order of threads"
        return replace(info, nondeterministic_result=returned if returns else None)
    floats = modifiers[-1].startswith(("f", "bf")) and "add" in modifiers
    device = {"cta", "cluster"}.isdisjoint(modifiers)
    unordered = floats or not _UPDATES.keys().isdisjoint(modifiers)
    return replace(
        info,
        nondeterminism=DEPENDS_ON_ORDER if unordered else None,
        nondeterministic_result="an atomic operation gives back a value that depends on the order of threads",
        # Without a scope, an atomic operation has that of the device.
        acquires=device and not {"acquire", "acq_rel"}.isdisjoint(modifiers),
        releases=device and not {"release", "acq_rel"}.isdisjoint(modifiers),
    )


@TABLE.opcode("atom", "red", operands=atomic_info)
def atomic(instruction: Instruction, context: Context) -> Step:
    """atom and red on global memory: each active thread contributes; the old value depends on the order of threads."""
    root, *modifiers, kind = instruction.opcode.split(".")
    verb = next((each for each in modifiers if each in _COMBINED | _UPDATES.keys()), "")
    count = next((int(each[1:]) for each in modifiers if each in ("v2", "v4", "v8")), 1)
    if not _SHARED.isdisjoint(modifiers):
        return _update_of_shared(instruction, verb, kind)
    rest = [each for each in modifiers if each not in IGNORED_MODIFIERS | {verb, "global", "v2", "v4", "v8"}]
    if rest or not verb:
        raise UnknownInstruction(instruction)
    if verb in _UPDATES:
        return _update(instruction, verb, kind)
    destination = instruction.operands[0] if root == "atom" else None
    target, source = instruction.operands[1:3] if root == "atom" else instruction.operands[:2]
    items = source.items if isinstance(source, Vector) else (source,)
    element, packed = PACKED.get(kind, (kind, 1))
    bits = type_bits(element)
    meaning = named(instruction, name_of_update(verb, element))
    line, of_block = instruction.line, _has_scope_of_block(instruction)
    base = target.base.name if isinstance(target, Address) and isinstance(target.base, Register) else ""

    def step(machine: Machine) -> None:
        target_address = address_of(machine, target)
        address = machine.known(target_address)
        if of_block:
            _limit_scope(machine, address, bits, packed * count, line)
        if address is not None and packed == 1 == count and _combine_guarded(machine, meaning, address, items[0], line):
            _write_old_value(machine, destination, bits, line)
            return
        if address is None or machine.condition is not None:
            values = [machine.read_bits(item, bits * packed) for item in items]
            buffers = (
                buffers_of(machine, pointer_parameters(context.kernel, base, context.arch.opcodes)) if base else None
            )
            _contribute(machine, meaning, target_address, values, line, buffers)
            _write_old_value(machine, destination, bits * packed, line)
            return
        where = address.astype(np.uint64, copy=False)
        check_in_buffer(machine, where, line)
        offset = 0
        for item in items:
            value = machine.read_bits(item, bits * packed)
            for low in range(0, bits * packed, bits):
                part = extract(value, low, bits)
                machine.memory.atomic(
                    meaning, where + np.uint64(offset), part, machine.mask, machine.thread, machine.epoch, line
                )
                offset += bits // 8
        _write_old_value(machine, destination, bits * packed, line)

    if count != len(items):
        raise UnknownInstruction(instruction)
    return step


def _has_scope_of_block(instruction: Instruction) -> bool:
    """Return whether an operation is atomic only with those of threads of its block, or of its cluster."""
    return not {"cta", "cluster"}.isdisjoint(instruction.opcode.split("."))


def _limit_scope(machine: Machine, address: Array | None, bits: int, count: int, line: int) -> None:
    """The operation on `count` elements from an address on, None if data decides it, has the scope of a block."""
    if address is None:
        raise DataDependent("an atomic operation in the scope of a block is at a computed address", line)
    for element in range(count):
        where = address.astype(np.uint64, copy=False) + np.uint64(element * bits // 8)
        machine.memory.limit_scope(where, bits, machine.mask, machine.thread, machine.epoch, line)


def _update_of_shared(instruction: Instruction, verb: str, kind: str) -> Step:
    """An operation on integers in shared memory whose order does not matter.  Raises UnknownInstruction."""
    root, *modifiers, _ = instruction.opcode.split(".")
    plain = set(modifiers) <= IGNORED_MODIFIERS | _SHARED | {verb}
    operands = instruction.operands if root == "atom" else (Symbol("_"), *instruction.operands)
    if verb not in _COMBINED or kind[0] not in "bsu" or not plain or len(operands) != 3:
        raise UnknownInstruction(instruction)
    destination, target, source = operands
    if isinstance(source, Vector):
        raise UnknownInstruction(instruction)
    bits, line = type_bits(kind), instruction.line
    meaning = named(instruction, f"{verb}.{kind}")

    def step(machine: Machine) -> None:
        address = machine.known(address_of(machine, target))
        if address is None:
            raise DataDependent("an atomic operation on shared memory is at a computed address", line)
        check_aligned(machine, address, bits // 8, line)
        update_shared(machine, own_offset(machine, address), meaning, machine.read_bits(source, bits))
        if destination != Symbol("_"):
            machine.write(destination, machine.memory.old_value(bits, (machine.blocks, machine.threads), line))

    return step


def _update(instruction: Instruction, verb: str, kind: str) -> Step:
    """An exchange, comparison and exchange, increment or decrement.  Raises UnknownInstruction."""
    returns = instruction.opcode.startswith("atom.")
    operands = instruction.operands if returns else (Symbol("_"), *instruction.operands)
    count = 2 if verb == "cas" else 1
    hinted = "L2::cache_hint" in instruction.opcode.split(".")
    if kind not in _UPDATES[verb] or len(operands) != 2 + count + hinted or (not returns and verb in ("cas", "exch")):
        raise UnknownInstruction(instruction)
    destination, target, *sources = operands[: 2 + count]
    if any(isinstance(each, Vector) for each in sources):
        raise UnknownInstruction(instruction)
    bits, line, of_block = type_bits(kind), instruction.line, _has_scope_of_block(instruction)

    def step(machine: Machine) -> None:
        if of_block:
            _limit_scope(machine, machine.known(address_of(machine, target)), bits, 1, line)
        values = [machine.read_bits(each, bits) for each in sources]
        domain = machine.domain
        change = (
            compare_and_exchange(domain, values[0], values[1])
            if verb == "cas"
            else ONE_OPERAND[_CHANGES[verb]](domain, values[0])
        )
        machine.write(destination, update_global(machine, address_of(machine, target), bits, change, line))

    return step


def _write_old_value(machine: Machine, destination: Operand | None, bits: int, line: int) -> None:
    """Write the value before an atomic operation, which is undetermined: it depends on the order of threads."""
    if destination is None:
        return
    for each in destination.items if isinstance(destination, Vector) else (destination,):
        machine.write(each, machine.memory.old_value(bits, (machine.blocks, machine.threads), line))


def _combine_guarded(machine: Machine, meaning: Operation, address: Array, source: Operand, line: int) -> bool:
    """Execute an operation on integers at known addresses under a condition on data; return whether it was executed.

    Where the condition is false, it is an operation with the number that leaves every content as it is.
    """
    condition = machine.condition
    if condition is None or identity_of(meaning) is None:
        return False
    bits = meaning.result.bits
    value, holds = machine.read_bits(source, bits), as_symbolic_vector(condition)
    outer, active = machine.mask, machine.active()
    if np.count_nonzero(active) > MAXIMUM_GUARDED:
        return False
    machine.mask = active & ~np.asarray(L.equals_constant(holds, 0))
    try:
        by_sign = _float_extremum(machine, meaning, value, holds)
        if by_sign is not None:
            meaning, holds = by_sign
        identity = identity_of(meaning)
        assert identity is not None
        where = address.astype(np.uint64, copy=False)
        check_in_buffer(machine, where, line)
        guarded = machine.domain.select(holds, value, literal(identity, bits))
        machine.memory.atomic(meaning, where, guarded, machine.mask, machine.thread, machine.epoch, line)
    finally:
        machine.mask = outer
    return True


def _contribute(
    machine: Machine, meaning: Operation, address: Value, values: list[Value], line: int, buffers: list[int] | None
) -> None:
    shape = (machine.blocks, machine.threads)
    condition = machine.guard()
    if condition is None:
        machine.memory.contribute(meaning, [address, *values], machine.mask, shape, line, buffers)
        return
    outer = machine.mask
    holds = as_symbolic_vector(condition)
    never = L.equals_constant(holds, 0)
    if never is not False:
        machine.mask = machine.active() & ~never
    try:
        by_sign = _float_extremum(machine, meaning, values[0], holds) if len(values) == 1 else None
        if by_sign is not None:
            meaning, holds = by_sign
        machine.memory.contribute(meaning, [address, *values, holds], machine.mask, shape, line, buffers)
    finally:
        machine.mask = outer


def _float_extremum(
    machine: Machine, meaning: Operation, value: Value, condition: SymbolicVector
) -> tuple[Operation, SymbolicVector] | None:
    """Recognise one half of an atomic maximum or minimum of floats by sign: return its operation and plain condition.

    Compilers implement an atomic maximum of floats by two integer operations: max.s32 if the sign bit of the value is
    clear, and min.u32 if it is set.  Order the bit patterns by sign and magnitude: those with the sign bit first, from
    greatest to least magnitude, then the others from least to greatest (so -NaN < -inf < ... < -0 < +0 < ... < +inf <
    +NaN).  If the sign bit of v is clear, max.s32 returns v for any pattern with a sign bit, and otherwise the greater
    pattern: the later in that order.  If the sign bit of v is set, min.u32 keeps any pattern without one, and otherwise
    returns the lesser magnitude: the later in that order.  So both halves together compute a maximum in one total
    order, for all NaNs and zeros, and the order of contributions does not matter.  A minimum is the same with min.s32
    and max.u32.  The condition of each half is necessary: max.s32 of a pattern with a sign bit does not commute with
    min.u32.

    Returns None if the condition is not proved to be that of the half.
    """
    verb, kind = meaning.verb, meaning.result.name
    if verb not in ("max", "min") or kind not in ("s32", "u32", "s64", "u64"):
        return None
    bits, clear = int(kind[1:]), kind[0] == "s"
    kept = verb if clear else {"max": "min", "min": "max"}[verb]
    signed = f"s{bits}"
    least, zero = literal(-1, bits), literal(0, bits)
    plain = as_symbolic_vector(
        compare(machine, "gt" if clear else "lt", signed, value, least if clear else zero, False)
    )
    other = as_symbolic_vector(
        compare(machine, "ge" if clear else "le", signed, value, zero if clear else least, False)
    )
    opposite = compare(machine, "lt" if clear else "gt", signed, value, zero if clear else least, False)
    proved: L.Array | bool = False
    for each in (plain, other, as_symbolic_vector(invert(machine.domain, opposite))):
        for form in (each, *_round_trips(machine, each)):
            proved = proved | (full_hash(form) == full_hash(condition)).all(axis=0)
    known = L.constant_mask(as_symbolic_vector(value))
    if known is not False and np.any(known):
        sign = (as_symbolic_vector(value).words[0] >> np.uint64(bits - 1)) & np.uint64(1)
        fits = known & (sign == (0 if clear else 1)) & L.equals_constant(condition, 1)
        proved = proved | fits
    active = machine.active()
    if not (np.broadcast_to(proved, active.shape) | ~active).all():
        return None
    return operation(f"{kept}bysign.b{bits}"), plain


def _round_trips(machine: Machine, predicate: SymbolicVector) -> Iterator[SymbolicVector]:
    """Yield the forms of a predicate that was exchanged as an integer 1 or 0: a shuffled word, or a byte in memory."""
    word = without_bits(machine.domain.select(predicate, literal(1, 32), literal(0, 32)))
    half = without_bits(machine.domain.select(predicate, literal(1, 16), literal(0, 16)))
    byte = concat([extract(half, 0, 8), np.zeros((1, 1), dtype=np.uint8)])
    for number, bits in ((word, 32), (byte, 16)):
        lowest = combine(machine, "and", number, literal(1, bits), bits)
        yield as_symbolic_vector(compare(machine, "ne", f"b{bits}", lowest, literal(0, bits), False))
