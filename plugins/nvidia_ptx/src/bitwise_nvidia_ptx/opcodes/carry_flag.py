"""Extended-precision integer arithmetic: sums and products that read or write the carry flag.

Source: PTX ISA 8.7, "Extended-Precision Integer Arithmetic Instructions".
"""

from __future__ import annotations

from dataclasses import replace

from bitwise_core.assembly.module import Instruction, Register
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.instruction_info import Effect, InstructionInfo
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.numerics import operation
from bitwise_nvidia_ptx.opcodes.common import operands_of

CARRY = Register("%carry flag")
"""The carry bit of the condition code register CC, modelled as a predicate register."""


_FLAG = frozenset({CARRY.name})


def with_carry_info(info: InstructionInfo, instruction: Instruction) -> InstructionInfo:
    """Add the carry flag to the registers that an instruction reads (addc, madc) and writes (.cc)."""
    if instruction.opcode.startswith(("addc", "madc")):
        info = replace(info, reads=info.reads | _FLAG, effects=Effect.NONE)
    return replace(info, writes=info.writes | _FLAG) if ".cc" in instruction.opcode else info


def with_carry(instruction: Instruction, context: Context) -> Step:
    """add.cc, addc, mad.lo.cc, mad.hi.cc, madc.lo and madc.hi, with or without .cc, on 32-bit integers."""
    root, *modifiers, kind = instruction.opcode.split(".")
    writes = "cc" in modifiers
    parts = [each for each in modifiers if each != "cc"]
    if kind not in ("u32", "s32") or root not in ("add", "addc", "mad", "madc") or set(parts) - {"lo", "hi"}:
        raise UnknownInstruction(instruction)
    if kind == "s32" and "hi" in parts:
        raise UnknownInstruction(instruction)
    destination, *sources = operands_of(instruction, 4 if root.startswith("mad") else 3)
    reads = root.endswith("c")

    product = operation("mulhi.u32" if "hi" in parts else "mul.b32") if root.startswith("mad") else None
    total, out = operation("addc.b32" if reads else "add.b32"), operation("carryc.u32" if reads else "carry.u32")

    def step(machine: Machine) -> None:
        values = [machine.read_bits(each, 32) for each in sources]
        if product is not None:
            values = [apply_integer(machine, product, values[:2]), values[2]]
        if reads:
            values.append(machine.read_bits(CARRY, 1))
        result = apply_integer(machine, total, values)
        if writes:
            machine.write(CARRY, apply_integer(machine, out, values))
        machine.write(destination, result)

    return step
