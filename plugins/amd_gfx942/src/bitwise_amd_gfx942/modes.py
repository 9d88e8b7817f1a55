"""The mode register: how a kernel rounds, and whether it flushes subnormal numbers.

Source: AMD Instinct MI300 ISA, "Mode register"; LLVM's AMDGPU usage guide, ".amdhsa_ directives".
"""

from __future__ import annotations

from dataclasses import dataclass

from bitwise_core.asm import Instruction, Kernel, Symbol, once_a_kernel
from bitwise_core.machine.arch import UnknownInstruction

_ROUNDINGS = ("rn", "ru", "rd", "rz")
_KEPT, _FLUSHED = "3", "0"


@dataclass(frozen=True, slots=True)
class Mode:
    """The rounding of fp32, that of fp16 and fp64, what becomes of their subnormal numbers, and the IEEE mode.

    `clamps_fp16` says that results in fp16 are clamped where they overflow, at some point of the kernel or other.
    """

    rounding: str
    rounding_of_others: str
    denormals: str
    denormals_of_others: str
    ieee: bool
    clamps_nan: bool
    clamps_fp16: bool


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
        given.get("float_denorm_mode_16_64", _KEPT),
        given.get("ieee_mode", "1") == "1",
        given.get("dx10_clamp", "1") == "1",
        given.get("fp16_overflow", "0") == "1" or any(OVERFLOW in each.operands for each in kernel.instructions),
    )


def rounding_of(mode: Mode, form: str, instruction: Instruction) -> str:
    """The rounding of arithmetic in a format.  Raises UnknownInstruction where the descriptor names none."""
    found = mode.rounding if form == "fp32" else mode.rounding_of_others
    if form == "fp16" and mode.clamps_fp16:
        raise UnknownInstruction(instruction, "gives fp16 where overflow may be clamped, which is not modelled")
    if not found:
        raise UnknownInstruction(instruction, "rounds in a mode that is not modelled")
    return found


def flushes(mode: Mode, form: str, instruction: Instruction) -> bool:
    """Whether subnormal numbers of a format are zeros.  Raises UnknownInstruction for a mode between."""
    given = mode.denormals if form == "fp32" else mode.denormals_of_others
    if given not in (_KEPT, _FLUSHED):
        raise UnknownInstruction(instruction, "treats subnormal numbers in a mode that is not modelled")
    return given == _FLUSHED
