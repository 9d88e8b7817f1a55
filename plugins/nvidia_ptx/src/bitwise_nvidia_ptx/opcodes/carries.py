"""Extended precision: sums and products that read or write the carry flag.

Source: PTX ISA 8.7, "Extended-Precision Integer Arithmetic Instructions".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bitwise_core.asm import Instruction, Register
from bitwise_core.machine.arch import Context, UnknownInstruction
from bitwise_core.machine.instruction_info import Effect, InstructionInfo
from bitwise_core.machine.lanes import Array
from bitwise_core.machine.state import Machine, Step
from bitwise_core.machine.steps import apply_integer

CARRY = Register("%carry flag")
"""The condition code's carry, kept like a register of 32 bits (0 or 1)."""


_FLAG = frozenset({CARRY.name})


def with_carry_info(info: InstructionInfo, instruction: Instruction) -> InstructionInfo:
    """The info of a sum or product with the carry flag, which addc and madc read and .cc writes."""
    if instruction.opcode.startswith(("addc", "madc")):
        info = replace(info, reads=info.reads | _FLAG, effects=Effect.NONE)
    return replace(info, writes=info.writes | _FLAG) if ".cc" in instruction.opcode else info


def with_carry(instruction: Instruction, context: Context) -> Step:
    """add.cc, addc, mad.lo.cc, mad.hi.cc, madc.lo and madc.hi, each with or without .cc, of 32-bit numbers."""
    root, *modifiers, kind = instruction.opcode.split(".")
    writes = "cc" in modifiers
    parts = [each for each in modifiers if each != "cc"]
    if kind not in ("u32", "s32", "b32") or root not in ("add", "addc", "mad", "madc") or set(parts) - {"lo", "hi"}:
        raise UnknownInstruction(instruction)
    if kind == "s32" and "hi" in parts:
        raise UnknownInstruction(instruction)
    destination, *sources = instruction.operands
    reads = root.endswith("c")

    def whole(*numbers: Array) -> Array:
        *terms, carry = (each.astype(np.uint64) for each in numbers)
        if root.startswith("mad"):
            product = terms[0] * terms[1]
            half = product >> np.uint64(32) if "hi" in parts else product & np.uint64(0xFFFFFFFF)
            return half + terms[2] + carry
        return terms[0] + terms[1] + carry

    def low(*numbers: Array) -> Array:
        return whole(*numbers).astype(np.uint32)

    def high(*numbers: Array) -> Array:
        return (whole(*numbers) >> np.uint64(32)).astype(np.uint32)

    name = f"{root.removesuffix('c')} {' '.join(parts)} with carry"

    def step(machine: Machine) -> None:
        carry = machine.read_bits(CARRY, 32) if reads else np.zeros((1, 1), dtype=np.uint32)
        values = [*(machine.read_bits(each, 32) for each in sources), carry]
        result = apply_integer(machine, name, values, 32, low)
        if writes:
            machine.write(CARRY, apply_integer(machine, name + " out", values, 32, high))
        machine.write(destination, result)

    return step
