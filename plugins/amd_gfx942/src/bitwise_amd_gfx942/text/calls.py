"""Calls of device functions: each call is given a copy of the function's instructions, behind the kernel's own.

A call takes an address (s_getpc_b64, s_add_u32, s_addc_u32 of a symbol), goes there and leaves its own address in a
pair of registers (s_swappc_b64), to which the function returns (s_setpc_b64).  Here an address is a number that stands
for the function, and both jumps name the place in the copy, or behind the call, and the address that must be in
their registers for that: a kernel in which it is not is not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from bitwise_core.assembly.module import Immediate, Instruction, Operand, Symbol, Vector

Body: TypeAlias = tuple[list[Instruction], dict[str, int]]
"""Instructions, and where the labels stand among them."""

FUNCTIONS_BASE, RETURNS_BASE = 0x7E00_0000_0000, 0x7F00_0000_0000
"""Addresses of functions, and behind calls."""

_STEP = 4096
_MOST = 64
_RELATIVE = re.compile(r"(.+)@rel32@(lo|hi)\+(\d+)")


def with_calls(body: Body, functions: Mapping[str, Body]) -> Body:
    """The body of a kernel with a copy of each function behind it for each call; calls of what is unknown stay."""
    if not functions:
        return body
    addresses = {name: FUNCTIONS_BASE + _STEP * index for index, name in enumerate(functions)}
    names = {address: name for name, address in addresses.items()}
    instructions, labels = _addressed(body[0], addresses), dict(body[1])
    calls = 0
    index = 0
    while index < len(instructions):
        each = instructions[index]
        address = _called(instructions, index) if each.opcode == "s_swappc_b64" and len(each.operands) == 2 else None
        if address in names and calls < _MOST:
            calls += 1
            entry, back, token = f"call {calls}", f"return {calls}", Immediate(RETURNS_BASE + _STEP * calls)
            labels[entry], labels[back] = len(instructions), index + 1
            goes = (*each.operands, Symbol(entry), Immediate(address), token)
            instructions[index] = Instruction(each.opcode, goes, None, each.line, each.source)
            own, places = functions[names[address]]
            for label, place in places.items():
                labels[f"{entry} {label}"] = len(instructions) + place
            comes = (Symbol(back), token)
            instructions += [_copied(one, entry, comes) for one in _addressed(own, addresses)]
        index += 1
    return instructions, labels


def _copied(instruction: Instruction, entry: str, comes: tuple[Operand, ...]) -> Instruction:
    operands = instruction.operands
    if instruction.opcode.startswith(("s_branch", "s_cbranch")):
        operands = tuple(Symbol(f"{entry} {each.name}") if isinstance(each, Symbol) else each for each in operands)
    elif instruction.opcode == "s_setpc_b64" and len(operands) == 1:
        operands = (*operands, *comes)
    else:
        return instruction
    return Instruction(instruction.opcode, operands, None, instruction.line, instruction.source)


def _addressed(instructions: Sequence[Instruction], addresses: Mapping[str, int]) -> list[Instruction]:
    """The instructions, each three that take the address of a function as one that holds it and two that do nothing."""
    found = list(instructions)
    for index in range(len(found) - 2):
        first, low, high = found[index : index + 3]
        if (first.opcode, low.opcode, high.opcode) != ("s_getpc_b64", "s_add_u32", "s_addc_u32"):
            continue
        pair = first.operands[0]
        if not isinstance(pair, Vector) or len(pair.items) != 2 or len(first.operands) != 1:
            continue
        names = [_relative(each, which, 4 if which == "lo" else 12, register)
                 for each, which, register in ((low, "lo", pair.items[0]), (high, "hi", pair.items[1]))]  # fmt: skip
        if names[0] is None or names[0] != names[1] or names[0] not in addresses:
            continue
        given = (pair, Immediate(addresses[names[0]]))
        found[index] = Instruction(first.opcode, given, None, first.line, first.source)
        for place, each in ((index + 1, low), (index + 2, high)):
            found[place] = Instruction("s_nop", (Immediate(0),), None, each.line, each.source)
    return found


def _relative(instruction: Instruction, which: str, distance: int, register: Operand) -> str | None:
    """The function whose distance an instruction adds to a register, counted from the s_getpc_b64 before it."""
    if len(instruction.operands) != 3 or instruction.operands[:2] != (register, register):
        return None
    symbol = instruction.operands[2]
    found = _RELATIVE.fullmatch(symbol.name) if isinstance(symbol, Symbol) else None
    return found[1].strip('"') if found and found[2] == which and int(found[3]) == distance else None


def _called(instructions: Sequence[Instruction], index: int) -> int | None:
    """The address that was last put into the registers which a call takes it from; checked when the call is made."""
    target = instructions[index].operands[1]
    for each in reversed(instructions[:index]):
        if each.opcode == "s_getpc_b64" and len(each.operands) == 2 and each.operands[0] == target:
            address = each.operands[1]
            return address.value if isinstance(address, Immediate) else None
    return None
