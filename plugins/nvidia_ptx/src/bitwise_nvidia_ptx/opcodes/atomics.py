"""atom and red: contributions to global memory whose order is not determined.

Source: PTX ISA 8.7, "Parallel Synchronization and Communication Instructions: atom, red".
"""

from __future__ import annotations

import numpy as np

from bitwise_core.asm import Instruction, Operand, Vector
from bitwise_core.machine import lanes as L
from bitwise_core.machine.arch import Context, OpcodeTable, UnknownInstruction
from bitwise_core.machine.lane_hash import term
from bitwise_core.machine.lanes import Value
from bitwise_core.machine.pieces import cut
from bitwise_core.machine.state import Machine, Step
from bitwise_nvidia_ptx.opcodes.common import FORMATS, PACKED, type_bits
from bitwise_nvidia_ptx.opcodes.memory import HINTS, address_of, global_only

TABLE = OpcodeTable()

_ATOMIC = {"add", "min", "max", "and", "or", "xor"}


@TABLE.opcode("atom", "red")
def atomic(instruction: Instruction, context: Context) -> Step:
    """atom and red on global memory: each active lane contributes; the old value depends on the order of threads."""
    root, *modifiers, kind = instruction.opcode.split(".")
    operation = next((each for each in modifiers if each in _ATOMIC | {"cas", "exch", "inc", "dec"}), "")
    count = next((int(each[1:]) for each in modifiers if each in ("v2", "v4", "v8")), 1)
    rest = [each for each in modifiers if each not in HINTS | {operation, "global", "v2", "v4", "v8"}]
    if rest or operation not in _ATOMIC:
        raise UnknownInstruction(instruction)
    destination = instruction.operands[0] if root == "atom" else None
    target, source = instruction.operands[1:3] if root == "atom" else instruction.operands[:2]
    items = source.items if isinstance(source, Vector) else (source,)
    element, packed = PACKED.get(kind, (kind, 1))
    bits = type_bits(element)
    name = f"{operation}.rn.{FORMATS[element]}" if element in FORMATS else _integer_name(operation, element)
    if element in FORMATS and operation != "add":
        name = f"{operation}.{FORMATS[element]}"
    if element == "f32" and operation == "add":
        name = "add.rn.ftz.atomic.fp32"  # on global memory it flushes subnormals, whatever the modifiers say
    line = instruction.line

    def step(machine: Machine) -> None:
        target_address = address_of(machine, target)
        address = machine.known(target_address)
        if address is None or machine.condition is not None:
            _contribute(machine, name, target_address, [machine.read_bits(item, bits * packed) for item in items], line)
            _write_old(machine, destination, bits * packed, line)
            return
        where = address.astype(np.uint64, copy=False)
        global_only(machine, where, line)
        place = 0
        for item in items:
            value = machine.read_bits(item, bits * packed)
            for low in range(0, bits * packed, bits):
                part = cut(value, low, bits)
                machine.memory.atomic(
                    name, where + np.uint64(place), part, machine.mask, machine.thread, machine.epoch, line
                )
                place += bits // 8
        _write_old(machine, destination, bits * packed, line)

    if count != len(items):
        raise UnknownInstruction(instruction)
    return step


def _write_old(machine: Machine, destination: Operand | None, bits: int, line: int) -> None:
    """The value that an atomic operation found depends on the order of threads."""
    if destination is None:
        return
    old = term(bits, f"old value at line {line}", [], L.UNDETERMINED)
    for each in destination.items if isinstance(destination, Vector) else (destination,):
        machine.write(each, old)


def _contribute(machine: Machine, name: str, address: Value, values: list[Value], line: int) -> None:
    condition = [machine.condition] if machine.condition is not None else []
    parts = [address, *values, *condition]
    machine.memory.contribute(name, parts, machine.mask, (machine.blocks, machine.threads), line)


def _integer_name(operation: str, kind: str) -> str:
    if operation in ("add", "and", "or", "xor"):
        return f"{operation}.b{kind[1:]}"
    return f"{operation}.{kind}"
