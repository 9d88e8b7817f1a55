"""What is done to a floating-point result before it is written: the modifiers clamp and omod, and overflow's clamping.

Source: AMD Instinct MI300 ISA, "Output modifiers" and "Mode register" (DX10_CLAMP, FP16_OVFL); LLVM's AMDGPU modifier
syntax.  clamp takes a result into [0, 1], a NaN to 0 where DX10_CLAMP is set.  omod multiplies by 2, 4 or 1/2; whether
before rounding or after is not documented, so that the operation as a whole has a name.  FP16_OVFL makes the
greatest number of a result in fp16 that overflows, and leaves an infinity that an operand brings in.
"""

from __future__ import annotations

from bitwise_amd_gfx942.modes import clamps_overflow, mode_of
from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.numerics import Operation, operation

CLAMP = "clamp"
OMOD = ("mul", "div")
_FACTORS = {("mul", "2"): "twice", ("mul", "4"): "four_times", ("div", "2"): "half"}


def factor_of(instruction: Instruction) -> str:
    """The word for the factor that omod applies; "" where there is none.  Raises UnknownInstruction."""
    modifiers = form(instruction.opcode).modifiers
    given = [(each, modifiers[each]) for each in OMOD if each in modifiers]
    if not given:
        return ""
    if len(given) > 1 or given[0] not in _FACTORS:
        raise UnknownInstruction(instruction, f"has the modifier {given[0][0]}:{given[0][1]}, which is not modelled")
    return _FACTORS[given[0]]


def overflow(instruction: Instruction, context: Context, kind: str) -> str:
    """What an operation's name says of results that overflow: nothing, or .satfinite.  Raises UnknownInstruction."""
    return ".satfinite" if kind == "fp16" and clamps_overflow(context, instruction) else ""


def saturation(instruction: Instruction, context: Context, kind: str) -> Operation | None:
    """The operation that the modifier clamp is, on a result of that format; None where it is not there."""
    if CLAMP not in form(instruction.opcode).modifiers:
        return None
    nan = "" if mode_of(context.kernel).clamps_nan_to_zero else ".nan"
    return operation(f"saturate{nan}.{kind}@{context.arch.name}")


def saturated(machine: Machine, clamp: Operation | None, value: Value) -> Value:
    """A result after `saturation`."""
    return value if clamp is None else machine.domain.floating(clamp, [value])
