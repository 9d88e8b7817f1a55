"""Output modifiers of floating-point results: clamp, omod, and the saturation of fp16 overflow.

Source: AMD Instinct MI300 ISA, "Output modifiers" and "Mode register" (DX10_CLAMP, FP16_OVFL); LLVM's AMDGPU modifier
syntax.  clamp clamps a result to [0, 1], and a NaN to 0 where DX10_CLAMP is set.  omod multiplies by 2, 4 or 1/2.  The
documentation does not say whether before or after rounding, so arithmetic with omod is a named operation as a whole.
FP16_OVFL turns an fp16 result that overflows into the largest finite number, and leaves an infinity that comes from an
infinite operand.
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


def omod_name(instruction: Instruction) -> str:
    """The name of the factor that omod applies; "" without omod.  Raises UnknownInstruction for other factors."""
    modifiers = form(instruction.opcode).modifiers
    given = [(each, modifiers[each]) for each in OMOD if each in modifiers]
    if not given:
        return ""
    if len(given) > 1 or given[0] not in _FACTORS:
        raise UnknownInstruction(instruction, f"has the modifier {given[0][0]}:{given[0][1]}, which is not modelled")
    return _FACTORS[given[0]]


def overflow_suffix(instruction: Instruction, context: Context, kind: str) -> str:
    """The suffix of an operation's name for overflow: "", or ".satfinite" for fp16 under FP16_OVFL.

    Raises UnknownInstruction.
    """
    return ".satfinite" if kind == "fp16" and clamps_overflow(context, instruction) else ""


def clamp_operation(instruction: Instruction, context: Context, kind: str) -> Operation | None:
    """The operation of the modifier clamp on a result of the format `kind`; None without the modifier."""
    if CLAMP not in form(instruction.opcode).modifiers:
        return None
    nan = "" if mode_of(context.kernel).clamps_nan_to_zero else ".nan"
    return operation(f"saturate{nan}.{kind}@{context.arch.name}")


def apply_clamp(machine: Machine, clamp: Operation | None, value: Value) -> Value:
    """Apply the operation that `clamp_operation` returned to a result."""
    return value if clamp is None else machine.domain.floating(clamp, [value])
