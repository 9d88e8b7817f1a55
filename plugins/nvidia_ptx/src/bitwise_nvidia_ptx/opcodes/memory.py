"""mov, cvta, ld, st, prefetches, cache policies and fences.

Source: PTX ISA 8.7, "Data Movement and Conversion Instructions".
Cache and eviction hints, memory ordering and scopes do not change the values of race-free accesses; they are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TypeAlias

import numpy as np

from bitwise_core.assembly.module import Address, Immediate, Instruction, Operand, Register, Symbol, Vector
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, NO_DESTINATION, Effect, InstructionInfo
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.memory import local_memory
from bitwise_core.execution.memory.access import (
    check_aligned,
    gather_shared,
    load_global,
    read_shared,
    store_global,
    write_shared,
)
from bitwise_core.execution.opcode_steps import for_each_set_of_threads
from bitwise_core.execution.races.colliding_lanes import (
    MAXIMUM_BITS,
    check_load,
    may_be_settled,
    values_of_lowest_lanes,
)
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.execution.values.term_hash import poison
from bitwise_core.numerics import operation
from bitwise_nvidia_ptx.addresses.pointer_parameters import pointer_parameters
from bitwise_nvidia_ptx.addresses.shared import own_offset
from bitwise_nvidia_ptx.assembler_choices.expanded_branches import behind_expanded_branches
from bitwise_nvidia_ptx.opcodes.clusters import load_from_cluster, store_to_cluster
from bitwise_nvidia_ptx.opcodes.common import (
    check_kind,
    check_modifiers,
    integer_unless_float,
    operands_of,
    parts_of,
    type_bits,
)

TABLE = OpcodeTable()

PARAMETER_BASE = 1 << 32
"""The first generic address of kernel parameters."""

IGNORED_MODIFIERS = {
    "volatile", "relaxed", "weak", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "nc",
    "ca", "cg", "cs", "cv", "lu", "wb", "wt",
    "L1::evict_last", "L1::evict_first", "L1::no_allocate", "L1::evict_normal",
    "L1::evict_unchanged",
    "L2::evict_last", "L2::evict_first", "L2::evict_normal", "L2::cache_hint", "L2::64B",
    "L2::128B", "L2::256B", "noftz", "unified", "mmio",
}  # fmt: skip
"""Modifiers of ld and st that are ignored."""

_STRONG = frozenset({"volatile", "relaxed", "release", "mmio"})
"""Modifiers of st whose accesses other threads may wait for."""

_SPACES = {
    "global",
    "shared",
    "shared::cta",
    "shared::cluster",
    "param",
    "param::entry",
    "param::func",
    "const",
    "local",
}


_MOVES_INTEGERS = Effect.MOVE | Effect.INTEGER


def _move_effects(instruction: Instruction) -> Effect:
    return _MOVES_INTEGERS if integer_unless_float(instruction) is Effect.INTEGER else Effect.MOVE


_MOVED = (
    "pred", "f16", "bf16", "f16x2", "bf16x2", "f32", "f64", "b128",
    *(f"{letter}{bits}" for letter in "bsu" for bits in (16, 32, 64)),
)  # fmt: skip
_PARTS = (8, 16, 32, 64)


@TABLE.opcode("mov", operands=DESTINATION_FIRST, effects=_move_effects, least=2)
def move(instruction: Instruction, context: Context) -> Step:
    """mov of registers, literals and addresses of symbols, and packing or unpacking of vectors."""
    _, *modifiers, kind = parts_of(instruction)
    check_modifiers(instruction, modifiers, set())
    check_kind(instruction, kind, _MOVED)
    bits = type_bits(kind)
    destination, source = operands_of(instruction, 2)
    for operand in (destination, source):
        if isinstance(operand, Vector) and bits not in (len(operand.items) * size for size in _PARTS):
            raise UnknownInstruction(instruction, f"has a vector of {len(operand.items)} parts")
    if isinstance(source, Vector):
        width = bits // len(source.items)
        items = source.items

        def pack(machine: Machine) -> None:
            machine.write(destination, concat([machine.read_bits(item, width) for item in items]))

        return pack

    def step(machine: Machine) -> None:
        machine.write(destination, machine.read_bits(source, bits))

    return step


@TABLE.opcode("cvta", operands=DESTINATION_FIRST, effects=Effect.INTEGER)
@TABLE.opcode("isspacep", operands=DESTINATION_FIRST, effects=Effect.NONE)
def convert_address(instruction: Instruction, context: Context) -> Step:
    """cvta copies the address: generic addresses of global, shared and local memory equal those in their spaces.

    Addresses of parameters have 32 bits in their space; their generic addresses begin at `PARAMETER_BASE`.
    """
    if instruction.opcode.startswith("isspacep"):
        raise UnknownInstruction(instruction)
    parts = instruction.opcode.split(".")
    bits = type_bits(parts[-1])
    destination, source = instruction.operands

    def step(machine: Machine) -> None:
        value = machine.read_bits(source, bits)
        if parts[1:] == ["param", "u64"]:
            value = concat([extract(value, 0, 32), np.full((1, 1), PARAMETER_BASE >> 32, dtype=np.uint32)])
        machine.write(destination, value)

    return step


def address_of(machine: Machine, operand: Operand) -> Value:
    """Return the address of a bracketed operand, in 64 bits if it is known.  Raises Unsupported."""
    if not isinstance(operand, Address):
        raise Unsupported(f"the operand {operand} is not an address")
    if operand.base is None:
        return np.full((1, 1), operand.offset, dtype=np.uint64)
    value = machine.read(operand.base)
    if isinstance(value, np.ndarray):
        wide = value.astype(np.uint64, copy=False)
        return wide + np.uint64(operand.offset & (2**64 - 1)) if operand.offset else wide
    if operand.offset:
        bits = L.width(value)
        offset = np.full((1, 1), operand.offset & ((1 << bits) - 1), dtype=L.UNSIGNED[bits])
        return machine.domain.integer(operation(f"add.b{bits}"), [value, offset])
    return value


def _access(instruction: Instruction) -> tuple[str, int, str]:
    """Return the state space, the number of elements and the element type of ld or st.  Raises UnknownInstruction."""
    _, *modifiers, kind = instruction.opcode.split(".")
    space, count = "generic", 1
    for each in modifiers:
        if each in _SPACES:
            space = each if each == "shared::cluster" else each.split("::")[0]
        elif each in ("v2", "v4", "v8"):
            count = int(each[1:])
        elif each not in IGNORED_MODIFIERS:
            raise UnknownInstruction(instruction, f"has the modifier .{each}, which is not modelled")
    return space, count, kind


def elements(operand: Operand, count: int, instruction: Instruction) -> tuple[Operand, ...]:
    """Return the registers of an access of `count` elements.  Raises UnknownInstruction for another number."""
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != count:
        raise UnknownInstruction(instruction)
    return items


def load_info(instruction: Instruction) -> InstructionInfo:
    """Return what a load reads and writes; a strong load outside shared memory may race with writes of other blocks."""
    root, *modifiers = instruction.opcode.split(".")
    in_cluster = "shared::cluster" in modifiers
    info = DESTINATION_FIRST.info(instruction, Effect.LOAD | Effect.CLUSTER if in_cluster else Effect.LOAD)
    if root == "ldu" or "nc" in modifiers:
        info = replace(info, coherent=False)
    if root != "ld" or in_cluster or "shared" in modifiers or {"acquire", "relaxed", "volatile"}.isdisjoint(modifiers):
        return info
    acquires = "acquire" in modifiers and not {"gpu", "sys"}.isdisjoint(modifiers)
    return replace(info, nondeterminism="memory is read that other blocks may be writing", acquires=acquires)


@TABLE.opcode("ld", "ldu", operands=load_info, least=2)
def load(instruction: Instruction, context: Context) -> Step:
    """ld from parameters, constants, shared and global memory, vectors included."""
    space, count, kind = _access(instruction)
    destination, source = instruction.operands[:2]
    bits = type_bits(kind)
    targets = elements(destination, count, instruction)
    line = instruction.line
    extends, coherent = kind[0] == "s", load_info(instruction).coherent
    widths = [register_bits(target, context, bits) for target in targets]
    memory = "shared" if space == "shared" else "global"
    base = source.base.name if isinstance(source, Address) and isinstance(source.base, Register) else ""

    @cache
    def pointers() -> frozenset[str] | None:
        return pointer_parameters(context.kernel, base, context.arch.opcodes)

    def step(machine: Machine) -> None:
        if space not in ("param", "local"):
            whole = machine.known(address_of(machine, source))
            if isinstance(whole, np.ndarray):
                check_aligned(machine, whole, bits * count // 8, line)
                if space != "generic" or not local_memory.is_local(machine, whole, line):
                    check_load(machine, memory, whole, bits * count // 8)
        # Every element is loaded before one is written: the register of the address may be among the destinations.
        found = [
            _load_one(machine, space, source, index * bits // 8, bits, line, pointers, coherent)
            for index in range(count)
        ]
        for value, target, width in zip(found, targets, widths, strict=True):
            machine.write(target, extend(machine, value, bits, width, extends))

    return step


def register_bits(target: Operand, context: Context, bits: int) -> int:
    """Return the declared width of a destination register; loads of 8 and 16 bits may write a wider one."""
    if not isinstance(target, Register):
        return bits
    found = context.kernel.registers.get(target.name)
    if found is None:
        found = context.kernel.registers.get(target.name.rstrip("0123456789"))
    return max(bits, found) if found is not None else bits


def extend(machine: Machine, value: Value, bits: int, width: int, signed: bool) -> Value:
    """Sign- or zero-extend a value of `bits` bits to `width` bits."""
    if width == bits:
        return value

    if isinstance(value, np.ndarray) and not signed:
        return value.astype(L.UNSIGNED[width])
    if signed:
        extension = operation(f"convert.b{width}.s{bits}")
        if isinstance(value, np.ndarray):
            assert extension.function is not None
            return extension.function(value)
        return machine.domain.integer(extension, [value])
    fill: list[Value] = []
    left = width - bits
    while left:
        size = min(32, left & -left)
        fill.append(np.zeros((1, 1), dtype=L.UNSIGNED[size]))
        left -= size
    return concat([value, *fill])


PointerParameters: TypeAlias = Callable[[], frozenset[str] | None]


def buffers_of(machine: Machine, pointers: frozenset[str] | None) -> list[int] | None:
    """Return the buffers to which pointer parameters point in this launch, or None if they are unknown."""
    values = [machine.parameters.get(name) for name in sorted(pointers or ())]
    found = [machine.memory.buffer_of_pointer(each) for each in values if each is not None]
    return [each for each in found if each is not None] or None


def _load_one(
    machine: Machine,
    space: str,
    source: Operand,
    offset: int,
    bits: int,
    line: int,
    pointers: PointerParameters,
    coherent: bool,
) -> Value:
    if space == "param":
        return _parameter(machine, source, offset, bits)
    address = address_of(machine, source)
    known = machine.known(address)
    if space == "shared":
        if known is None:
            return gather_shared(machine, _moved(machine, address, offset), bits, line)
        return read_shared(machine, own_offset(machine, known + np.uint64(offset) if offset else known), bits)
    if space == "shared::cluster":
        if known is None:
            raise DataDependent("shared memory is read at a computed address", line)
        return load_from_cluster(machine, known + np.uint64(offset) if offset else known, bits)
    if space == "local":
        return local_memory.load(machine, address, offset, bits, line)
    if space == "const":
        raise Unsupported("constant memory is not modelled", line)
    if known is None:
        address = _moved(machine, address, offset)
        return machine.memory.gather(address, bits, machine.mask, line, buffers_of(machine, pointers()))
    where = known.astype(np.uint64, copy=False)
    where = where + np.uint64(offset) if offset else where
    if space == "generic" and local_memory.is_local(machine, where, line):
        return local_memory.load(machine, where, 0, bits, line)
    constant = local_memory.load_constant(machine, where, bits)
    if constant is not None:
        return constant
    return load_global(machine, where, bits, line, coherent=coherent)


def _moved(machine: Machine, address: Value, offset: int) -> Value:
    """Return an address that depends on data with a number of bytes added."""
    if not offset:
        return address
    bits = L.width(address)
    amount = np.full((1, 1), offset, dtype=L.UNSIGNED[bits])
    return machine.domain.integer(operation(f"add.b{bits}"), [address, amount])


def _parameter(machine: Machine, source: Operand, offset: int, bits: int) -> Value:
    assert isinstance(source, Address)
    if not isinstance(source.base, Symbol):
        raise DataDependent("a parameter is read at a computed address")
    value = machine.parameters.get(source.base.name)
    if value is None:
        raise Unsupported(f"the parameter {source.base.name} has no value in this launch")
    low = (source.offset + offset) * 8
    if low == 0 and L.width(value) == bits:
        return value
    if low + bits > L.width(value):
        raise Unsupported(f"the parameter {source.base.name} is read past its end")
    return extract(value, low, bits)


def store_info(instruction: Instruction) -> InstructionInfo:
    """Return what a store reads and writes."""
    modifiers = instruction.opcode.split(".")
    effects = Effect.STORE | Effect.CLUSTER if "shared::cluster" in modifiers else Effect.STORE
    info = NO_DESTINATION.info(instruction, effects)
    if "release" in modifiers and "shared" not in modifiers and not {"gpu", "sys"}.isdisjoint(modifiers):
        return replace(info, releases=True)
    return info


def store(instruction: Instruction, context: Context) -> Step:
    """st to shared and global memory and to call parameters, vectors included."""
    space, count, kind = _access(instruction)
    target, source = instruction.operands[:2]
    bits = type_bits(kind)
    items = elements(source, count, instruction)
    line = instruction.line
    memory = "shared" if space == "shared" else "global"
    plain = space in ("shared", "global", "generic") and _STRONG.isdisjoint(instruction.opcode.split("."))
    small = plain and space != "generic" and count * bits <= MAXIMUM_BITS
    # What a caller has executed before a function is not known here.
    of_entry = context.kernel.name not in context.module.functions
    together = of_entry and id(instruction) not in behind_expanded_branches(context.kernel, context.arch.opcodes)

    def step(machine: Machine) -> None:
        values = [machine.read_bits(item, bits) for item in items]
        if space == "param":
            _store_parameter(machine, target, concat(values))
            return
        symbolic_address = address_of(machine, target)
        address = machine.known(symbolic_address)
        if address is None and space in ("global", "generic"):
            machine.memory.scatter(machine, symbolic_address, concat(values), line)
            return
        if address is None:
            raise DataDependent("memory is written at a computed address", line)
        if isinstance(address, np.ndarray):
            check_aligned(machine, address, bits * count // 8, line)
        if space == "local" or (space == "generic" and local_memory.is_local(machine, address, line)):
            local_memory.store(machine, address, values, bits, line)
            return
        if plain:
            values = values_of_lowest_lanes(machine, memory, address, values, measured=small and together)
        if space == "shared":
            write_shared(machine, own_offset(machine, address), concat(values), one_store=small and together)
            return
        if space == "shared::cluster":
            store_to_cluster(machine, address, concat(values))
            return
        if space == "const":
            raise Unsupported("the kernel stores to constant memory", line)
        where = address.astype(np.uint64, copy=False)
        if small and together and may_be_settled(machine):
            machine.memory.lane_stores[line] = machine.warp
        for index, value in enumerate(values):
            element = where + np.uint64(index * bits // 8) if index else where
            store_global(machine, element, value, bits, line)

    return step


def _store_parameter(machine: Machine, target: Operand, value: Value) -> None:
    assert isinstance(target, Address)
    if not isinstance(target.base, Symbol):
        raise DataDependent("a parameter is written at a computed address")
    old = machine.parameters.get(target.base.name)
    low, high = target.offset * 8, target.offset * 8 + L.width(value)
    parts: list[Value] = [value]
    if low:
        if old is None or L.width(old) < low:
            raise Unsupported(f"the parameter {target.base.name} is written with a gap before it")
        parts.insert(0, extract(old, 0, low))
    if old is not None and L.width(old) > high:
        parts.append(extract(old, high, L.width(old) - high))
    machine.set_parameter(target.base.name, concat(parts))


@TABLE.opcode("createpolicy", operands=DESTINATION_FIRST, effects=Effect.NONE)
@TABLE.opcode("prefetch", "prefetchu", "membar", "applypriority", operands=NO_DESTINATION, effects=Effect.NONE)
def no_operation(instruction: Instruction, context: Context) -> Step:
    """Prefetches, cache policies and fences have no effect on values.  A policy has no known bits."""
    root = instruction.opcode.split(".")[0]
    destination = instruction.operands[0] if root == "createpolicy" else None
    if instruction.opcode.startswith("fence.proxy.async"):
        return _proxy_fence(instruction)

    def step(machine: Machine) -> None:
        if destination is not None:
            machine.write(destination, poison(64))

    return step


def _proxy_fence(instruction: Instruction) -> Step:
    """Return a step that makes the active threads' writes to shared memory visible to the asynchronous proxy."""
    _, _, _, *spaces = instruction.opcode.split(".")
    if set(spaces) - {"global", "shared::cta", "shared::cluster"}:
        raise UnknownInstruction(instruction)

    def step(machine: Machine) -> None:
        if spaces == ["global"]:
            return
        if machine.condition is not None:
            raise Unsupported("a fence depends on data", instruction.line)
        for_each_set_of_threads(machine, lambda: fence(machine))

    def fence(machine: Machine) -> None:
        for races in machine.races.acting(machine.mask):
            races.fence(machine.active_threads(), of_cluster=spaces != ["shared::cta"])

    return step


def literal_value(operand: Operand, instruction: Instruction) -> int:
    """Return the value of an operand that must be a literal.  Raises UnknownInstruction."""
    if not isinstance(operand, Immediate):
        raise UnknownInstruction(instruction, "needs a literal operand")
    return operand.value
