"""The mode register: how a kernel rounds, and whether it flushes subnormal numbers.

Source: AMD Instinct MI300 ISA, "Mode register"; LLVM's AMDGPU usage guide, ".amdhsa_ directives".
"""

from __future__ import annotations

from dataclasses import dataclass

from bitwise_amd_gfx942.flow import successors
from bitwise_core.assembly.module import Immediate, Instruction, Kernel, Symbol, once_a_kernel
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction

_ROUNDINGS = ("rn", "ru", "rd", "rz")
KEPT, _FLUSHED = "3", "0"
"""The values of a denormal mode that are modelled."""


@dataclass(frozen=True, slots=True)
class Mode:
    """The rounding of fp32, that of fp16 and fp64, what becomes of their subnormal numbers, and the IEEE mode."""

    rounding: str
    rounding_of_others: str
    denormals: str
    denormals_of_others: str
    ieee: bool
    clamps_nan: bool


OVERFLOW = Symbol("hwreg(HW_REG_MODE, 23, 1)")
"""The one bit of the mode register that a kernel may change: whether results in fp16 are clamped."""


@once_a_kernel
def mode_of(kernel: Kernel) -> Mode:
    """The mode in which a kernel begins, from its descriptor; the defaults are LLVM's."""
    given = kernel.attributes

    def rounding(name: str) -> str:
        number = given.get(name, "0")
        return _ROUNDINGS[int(number)] if number in ("0", "1", "2", "3") else ""

    return Mode(
        rounding("float_round_mode_32"),
        rounding("float_round_mode_16_64"),
        given.get("float_denorm_mode_32", _FLUSHED),
        given.get("float_denorm_mode_16_64", KEPT),
        given.get("ieee_mode", "1") == "1",
        given.get("dx10_clamp", "1") == "1",
    )


@once_a_kernel
def _overflow(kernel: Kernel, opcodes: OpcodeTable) -> tuple[str, frozenset[int], str]:
    """The bit that clamps overflowing results: where it begins, the lines before it is set, and what it is after.

    It may be set once, with a constant, before the kernel parts ways; "" stands for what cannot be told.
    """
    begins = kernel.attributes.get("fp16_overflow", "0")
    places = [
        index for index, each in enumerate(kernel.instructions) if each.opcode[0] == "s" and OVERFLOW in each.operands
    ]
    if not places:
        return begins, frozenset(), begins
    before: list[int] = []
    index, following = 0, successors(kernel, opcodes)
    while index not in places:
        if len(following[index]) != 1 or following[index][0] in before or following[index][0] >= len(following):
            return "", frozenset(), ""
        before.append(index)
        index = following[index][0]
    again = any(
        each in before or each == index
        for place in range(len(following))
        if place not in before
        for each in following[place]
    )
    value = kernel.instructions[index].operands[-1]
    if len(places) > 1 or again or not isinstance(value, Immediate) or value.value not in (0, 1):
        return "", frozenset(), ""
    return begins, frozenset(kernel.instructions[each].line for each in before), str(value.value)


def clamps_overflow(context: Context, instruction: Instruction) -> bool:
    """Whether a result in fp16 or in 8 bits that overflows is the greatest number instead, infinities apart.

    Raises UnknownInstruction where that cannot be told before the kernel runs.
    """
    begins, before, after = _overflow(context.kernel, context.arch.opcodes)
    found = begins if instruction.line in before else after
    if found not in ("0", "1"):
        raise UnknownInstruction(instruction, "gives fp16 or fp8 where it cannot be told whether overflow is clamped")
    return found == "1"


def rounding_of(mode: Mode, form: str, instruction: Instruction) -> str:
    """The rounding of arithmetic in a format.  Raises UnknownInstruction where the descriptor names none."""
    found = mode.rounding if form == "fp32" else mode.rounding_of_others
    if not found:
        raise UnknownInstruction(instruction, "rounds in a mode that is not modelled")
    return found


def flushes(mode: Mode, form: str, instruction: Instruction) -> bool:
    """Whether subnormal numbers of a format are zeros.  Raises UnknownInstruction for a mode between."""
    given = mode.denormals if form == "fp32" else mode.denormals_of_others
    if given not in (KEPT, _FLUSHED):
        raise UnknownInstruction(instruction, "treats subnormal numbers in a mode that is not modelled")
    return given == _FLUSHED
