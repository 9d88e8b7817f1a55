"""Calls of device functions: each call gets its own copy of the function's instructions, after the kernel's own.

A call computes an address (s_getpc_b64, s_add_u32, s_addc_u32 with a symbol), jumps to it and leaves the return address
in a register pair (s_swappc_b64), to which the function returns (s_setpc_b64).  Here an address is an arbitrary number
that identifies the function.  Both jumps get two operands: a label, in the copy or after the call, and the address that
their register pair must hold.  A kernel in which it holds another value is Unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from bitwise_core.assembly.module import Immediate, Instruction, Operand, Symbol, Vector

Body: TypeAlias = tuple[list[Instruction], dict[str, int]]
"""Instructions, and the index of the instruction that each label precedes."""

FUNCTIONS_BASE, RETURNS_BASE = 0x7E00_0000_0000, 0x7F00_0000_0000
"""Numbers that identify functions, and return addresses."""

_ADDRESS_STEP = 4096
_MAX_CALLS = 64
_RELATIVE = re.compile(r"(.+)@rel32@(lo|hi)\+(\d+)")


def inline_calls(body: Body, functions: Mapping[str, Body]) -> Body:
    """Append a copy of the called function for each call; calls of unknown functions are left unchanged."""
    if not functions:
        return body
    addresses = {name: FUNCTIONS_BASE + _ADDRESS_STEP * index for index, name in enumerate(functions)}
    names = {address: name for name, address in addresses.items()}
    instructions, labels = _resolve_addresses(body[0], addresses), dict(body[1])
    calls = 0
    index = 0
    while index < len(instructions):
        each = instructions[index]
        address = (
            _call_target(instructions, index) if each.opcode == "s_swappc_b64" and len(each.operands) == 2 else None
        )
        if address in names and calls < _MAX_CALLS:
            calls += 1
            entry, return_label, return_address = (
                f"call {calls}",
                f"return {calls}",
                Immediate(RETURNS_BASE + _ADDRESS_STEP * calls),
            )
            labels[entry], labels[return_label] = len(instructions), index + 1
            call_operands = (*each.operands, Symbol(entry), Immediate(address), return_address)
            instructions[index] = Instruction(each.opcode, call_operands, None, each.line, each.source)
            callee, callee_labels = functions[names[address]]
            for label, position in callee_labels.items():
                labels[f"{entry} {label}"] = len(instructions) + position
            return_operands = (Symbol(return_label), return_address)
            instructions += [
                _copy_instruction(one, entry, return_operands) for one in _resolve_addresses(callee, addresses)
            ]
        index += 1
    return instructions, labels


def _copy_instruction(instruction: Instruction, entry: str, return_operands: tuple[Operand, ...]) -> Instruction:
    """A copy of a function's instruction: its branches get the labels of the copy, its return the operands given."""
    operands = instruction.operands
    if instruction.opcode.startswith(("s_branch", "s_cbranch")):
        operands = tuple(Symbol(f"{entry} {each.name}") if isinstance(each, Symbol) else each for each in operands)
    elif instruction.opcode == "s_setpc_b64" and len(operands) == 1:
        operands = (*operands, *return_operands)
    else:
        return instruction
    return Instruction(instruction.opcode, operands, None, instruction.line, instruction.source)


def _resolve_addresses(instructions: Sequence[Instruction], addresses: Mapping[str, int]) -> list[Instruction]:
    """Replace each triple that computes the address of a function by s_getpc_b64 with the address and two s_nop."""
    found = list(instructions)
    for index in range(len(found) - 2):
        first, low, high = found[index : index + 3]
        if (first.opcode, low.opcode, high.opcode) != ("s_getpc_b64", "s_add_u32", "s_addc_u32"):
            continue
        pair = first.operands[0]
        if not isinstance(pair, Vector) or len(pair.items) != 2 or len(first.operands) != 1:
            continue
        names = [_relative_symbol(each, which, 4 if which == "lo" else 12, register)
                 for each, which, register in ((low, "lo", pair.items[0]), (high, "hi", pair.items[1]))]  # fmt: skip
        if names[0] is None or names[0] != names[1] or names[0] not in addresses:
            continue
        given = (pair, Immediate(addresses[names[0]]))
        found[index] = Instruction(first.opcode, given, None, first.line, first.source)
        for position, each in ((index + 1, low), (index + 2, high)):
            found[position] = Instruction("s_nop", (Immediate(0),), None, each.line, each.source)
    return found


def _relative_symbol(instruction: Instruction, which: str, distance: int, register: Operand) -> str | None:
    """The function whose offset an instruction adds to a register, relative to the preceding s_getpc_b64."""
    if len(instruction.operands) != 3 or instruction.operands[:2] != (register, register):
        return None
    symbol = instruction.operands[2]
    found = _RELATIVE.fullmatch(symbol.name) if isinstance(symbol, Symbol) else None
    return found[1].strip('"') if found and found[2] == which and int(found[3]) == distance else None


def _call_target(instructions: Sequence[Instruction], index: int) -> int | None:
    """The address last written to the register pair of a call; checked again when the call is executed."""
    target = instructions[index].operands[1]
    for each in reversed(instructions[:index]):
        if each.opcode == "s_getpc_b64" and len(each.operands) == 2 and each.operands[0] == target:
            address = each.operands[1]
            return address.value if isinstance(address, Immediate) else None
    return None
