"""v_div_scale, v_div_fmas, v_div_fixup: the parts of a division.

Where they are parts of a sequence that returns the correctly rounded quotient (`division_sequences`), the last of them
is that quotient and its intermediate results are undefined.  Elsewhere they are named operations.
"""

from __future__ import annotations

from bitwise_amd_gfx942.division_sequences import division_sequences
from bitwise_amd_gfx942.modes import flushes, mode_of, rounding_of
from bitwise_amd_gfx942.opcodes.acting import in_active_lanes, values_seen, vector
from bitwise_amd_gfx942.opcodes.comparisons import put_set
from bitwise_amd_gfx942.opcodes.constants import BITS
from bitwise_amd_gfx942.opcodes.floating import perform
from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers, form
from bitwise_amd_gfx942.opcodes.implicit import EXECUTION_MASK, RESULT_AND_SET, VCC, implicit
from bitwise_amd_gfx942.opcodes.lanewise import lanewise
from bitwise_amd_gfx942.opcodes.outputs import overflow
from bitwise_amd_gfx942.opcodes.scalar_logic import as_set, pair
from bitwise_amd_gfx942.opcodes.sources import reader, writer
from bitwise_amd_gfx942.output_functions import significand_all_ones
from bitwise_core.assembly.module import Instruction, Register, Vector
from bitwise_core.execution.architecture import Context
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.execution.values.term_hash import poison
from bitwise_core.numerics import operation

TABLE = Table()
_KINDS = {"f16": "fp16", "f32": "fp32", "f64": "fp64"}
_VCC = Vector((Register("vcc_lo"), Register("vcc_hi")))


def inside_division(instruction: Instruction, context: Context) -> bool:
    """Whether an instruction serves a division and nothing else that is read of it counts."""
    return instruction.line in division_sequences(context.kernel, context.arch.opcodes).inner_lines


def exact(instruction: Instruction, context: Context, kind: str) -> bool:
    """Whether the kernel's mode is the one in which the sequence rounds correctly."""
    mode = mode_of(context.kernel)
    return rounding_of(mode, kind, instruction) == "rn" and not flushes(mode, kind, instruction)


def _flush(instruction: Instruction, context: Context, kind: str) -> str:
    """What the names of parts say of subnormal numbers."""
    return ".ftz" if flushes(mode_of(context.kernel), kind, instruction) else ""


@TABLE.opcode("v_div_scale_f32", "v_div_scale_f64", operands=implicit(RESULT_AND_SET, reads=EXECUTION_MASK))
def scale(instruction: Instruction, context: Context) -> Step:
    """The numerator or denominator scaled, and the set of lanes whose quotient is to be scaled back."""
    check_modifiers(instruction)
    kind = _KINDS[form(instruction.opcode).name[-3:]]
    bits = BITS[kind]
    target, flag, *sources = instruction.operands
    out = pair(flag, instruction)
    readers, write = [reader(each, kind, instruction) for each in sources], writer(target, bits, instruction)
    serves = inside_division(instruction, context)
    ending = f"{_flush(instruction, context, kind)}.{kind}@{context.arch.name}"
    scaling, scaled = operation(f"divscale{ending}"), operation(f"divscaled{ending}")

    def step(machine: Machine) -> None:
        if serves:
            result: Value = poison(bits, "inside a division")
            lanes: Value = poison(1, "inside a division")
        else:
            values = values_seen(machine, readers, instruction.operands)
            result = perform(machine, scaling, values)
            lanes = machine.domain.floating(scaled, values)
        put_set(machine, out, lanes)
        in_active_lanes(lambda inner: write(inner, result))(machine)

    return step


@vector(TABLE, "v_div_fmas_f32", "v_div_fmas_f64", operands=implicit(DESTINATION_FIRST, reads=VCC))
def fused(instruction: Instruction, context: Context) -> Step:
    """The last correction, scaled back in the lanes of vcc."""
    kind = _KINDS[form(instruction.opcode).name[-3:]]
    bits = BITS[kind]
    meaning = operation(f"divfmas{_flush(instruction, context, kind)}.{kind}@{context.arch.name}")
    if inside_division(instruction, context):
        write = writer(instruction.operands[0], bits, instruction)
        return lambda machine: write(machine, poison(bits, "inside a division"))

    def compute(machine: Machine, *values: Value) -> Value:
        return perform(machine, meaning, [*values, as_set(machine, _VCC)])

    return lanewise(instruction, (kind,) * 3, bits, compute)


def _may_be_all_ones(machine: Machine, denominator: Value) -> bool:
    """Whether the significand of an fp64 may have no digit 0, see `division_sequences`."""
    known = machine.known(denominator)
    return known is None or bool(significand_all_ones(known).any())


@vector(TABLE, "v_div_fixup_f16", "v_div_fixup_f32", "v_div_fixup_f64", operands=DESTINATION_FIRST, effects=Effect.NONE)
def fixup(instruction: Instruction, context: Context) -> Step:
    """The quotient, special cases seen to."""
    kind = _KINDS[form(instruction.opcode).name[-3:]]
    bits = BITS[kind]
    if instruction.line in division_sequences(context.kernel, context.arch.opcodes).final_lines and exact(
        instruction, context, kind
    ):
        rounded = operation(f"div.rn.{kind}")
        sequence = operation(f"div.sequence.{kind}@{context.arch.name}") if kind == "fp64" else rounded

        def quotient(machine: Machine, approximate: Value, denominator: Value, numerator: Value) -> Value:
            plain = kind == "fp32" or not _may_be_all_ones(machine, denominator)
            return perform(machine, rounded if plain else sequence, [numerator, denominator])

        return lanewise(instruction, (kind,) * 3, bits, quotient, keeps_high=True)
    flush = _flush(instruction, context, kind)
    meaning = operation(f"divfixup{flush}{overflow(instruction, context, kind)}.{kind}@{context.arch.name}")

    def compute(machine: Machine, *values: Value) -> Value:
        return perform(machine, meaning, values)

    return lanewise(instruction, (kind,) * 3, bits, compute, keeps_high=True)
