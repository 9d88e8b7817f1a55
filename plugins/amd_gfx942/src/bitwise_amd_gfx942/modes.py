"""The mode register: rounding, flushing of subnormal numbers, IEEE mode, clamping of fp16 overflow.

Source: AMD Instinct MI300 ISA, "Mode register"; LLVM's AMDGPU usage guide, ".amdhsa_ directives".
"""

from __future__ import annotations

from dataclasses import dataclass

from bitwise_amd_gfx942.analyses.control_flow import successors
from bitwise_core.assembly.module import Immediate, Instruction, Kernel, Symbol, once_a_kernel
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction

_ROUNDINGS = ("rn", "ru", "rd", "rz")
DENORMALS_KEPT, _DENORMALS_FLUSHED = "3", "0"
"""The values of a denormal mode that are modelled."""


@dataclass(frozen=True, slots=True)
class Mode:
    """The fields of the mode register at the kernel's entry.

    A rounding is rn, ru, rd, rz, or "" for an invalid field; a denormal mode is the number in the descriptor.
    `clamps_nan_to_zero` (DX10_CLAMP) says that the modifier clamp turns a NaN into +0.
    """

    rounding_fp32: str
    rounding_fp16_fp64: str
    denormals_fp32: str
    denormals_fp16_fp64: str
    ieee: bool
    clamps_nan_to_zero: bool


FP16_OVERFLOW_BIT = Symbol("hwreg(HW_REG_MODE, 23, 1)")
"""The only bit of the mode register that a kernel may change: whether fp16 results that overflow are clamped."""


@once_a_kernel
def mode_of(kernel: Kernel) -> Mode:
    """The mode at the kernel's entry, from its descriptor; the defaults are LLVM's."""
    given = kernel.attributes

    def rounding(name: str) -> str:
        number = given.get(name, "0")
        return _ROUNDINGS[int(number)] if number in ("0", "1", "2", "3") else ""

    return Mode(
        rounding("float_round_mode_32"),
        rounding("float_round_mode_16_64"),
        given.get("float_denorm_mode_32", _DENORMALS_FLUSHED),
        given.get("float_denorm_mode_16_64", DENORMALS_KEPT),
        given.get("ieee_mode", "1") == "1",
        given.get("dx10_clamp", "1") == "1",
    )


@once_a_kernel
def _fp16_overflow(kernel: Kernel, opcodes: OpcodeTable) -> tuple[str, frozenset[int], str]:
    """The clamping bit: its value at entry, the lines executed before it is written, and its value after the write.

    It may be written once, with a constant, before the first branch.  Otherwise its value is unknown, and both values
    returned are "".  It is also unknown where a function is called before the write and after it: the copies of the
    function share their lines.
    """
    initial = kernel.attributes.get("fp16_overflow", "0")
    writes = [
        index
        for index, each in enumerate(kernel.instructions)
        if each.opcode[0] == "s" and FP16_OVERFLOW_BIT in each.operands
    ]
    if not writes:
        return initial, frozenset(), initial
    before: list[int] = []
    index, following = 0, successors(kernel, opcodes)
    while index not in writes:
        if len(following[index]) != 1 or following[index][0] in before or following[index][0] >= len(following):
            return "", frozenset(), ""
        before.append(index)
        index = following[index][0]
    rest = [each for each in range(len(following)) if each not in before]
    again = any(each in before or each == index for other in rest for each in following[other])
    value = kernel.instructions[index].operands[-1]
    if len(writes) > 1 or again or not isinstance(value, Immediate) or value.value not in (0, 1):
        return "", frozenset(), ""
    lines = frozenset(kernel.instructions[each].line for each in before)
    if any(kernel.instructions[each].line in lines for each in rest):
        return "", frozenset(), ""
    return initial, lines, str(value.value)


def clamps_overflow(context: Context, instruction: Instruction) -> bool:
    """Whether an fp16 or 8-bit result that overflows is replaced by the greatest finite number.

    Infinities that come from infinite operands are kept.  Raises UnknownInstruction where the bit is unknown.
    """
    initial, before, after = _fp16_overflow(context.kernel, context.arch.opcodes)
    found = initial if instruction.line in before else after
    if found not in ("0", "1"):
        raise UnknownInstruction(
            instruction, "has an fp16 or fp8 result where it is unknown whether overflow is clamped"
        )
    return found == "1"


def rounding_of(mode: Mode, form: str, instruction: Instruction) -> str:
    """The rounding of arithmetic in a format.  Raises UnknownInstruction where the descriptor's field is invalid."""
    found = mode.rounding_fp32 if form == "fp32" else mode.rounding_fp16_fp64
    if not found:
        raise UnknownInstruction(instruction, "rounds in a mode that is not modelled")
    return found


def flushes(mode: Mode, form: str, instruction: Instruction) -> bool:
    """Whether subnormal operands and results of a format are flushed to zero.

    Raises UnknownInstruction for a mode that flushes only operands or only results.
    """
    given = mode.denormals_fp32 if form == "fp32" else mode.denormals_fp16_fp64
    if given not in (DENORMALS_KEPT, _DENORMALS_FLUSHED):
        raise UnknownInstruction(instruction, "treats subnormal numbers in a mode that is not modelled")
    return given == _DENORMALS_FLUSHED
