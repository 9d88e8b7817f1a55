"""Extrema of floats that ptxas merges with what they read, and signs that are copied."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bitwise_core.assembly.module import Instruction, Operand
from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_nvidia_ptx.assembler_choices.merge import Merge
from bitwise_nvidia_ptx.assembler_choices.roots import extrema_of_one_number, share_number
from bitwise_nvidia_ptx.assembler_choices.sources import Sources
from bitwise_nvidia_ptx.opcodes.common import FORMATS

_SIGN_XORED = re.compile(r"(min|max)[\w.]*\.xorsign\.abs\.(b?f\d+(x2)?)")


def extremum_merges(instruction: Instruction, sources: Sources) -> Iterator[Merge]:
    """Yield what ptxas may merge with an extremum of floats, or with a copy of a sign."""
    opcode, base, operands = instruction.opcode, instruction.opcode.split(".", 1)[0], instruction.operands[1:]
    kind = opcode.rsplit(".", 1)[-1]
    form = FLOAT_FORMATS[FORMATS[kind]] if kind in FORMATS else None  # pairs have none
    if _SIGN_XORED.fullmatch(opcode) and sources.of_kind(operands, _is_of_floats):
        what = "an extremum with the signs of NaNs that an operation before it may leave as they are"
        yield Merge(what, form=form if kind == "f32" else None)
    if base == "copysign" and (
        operands[0] == operands[1] or share_number(operands[0], instruction, operands[1], instruction, sources)
    ):
        yield Merge("a copy of a number's own sign")
    if base in ("min", "max"):
        yield from _of_other_nans(opcode, operands, sources)
        if ".ftz" in opcode and operands[0] in operands[1:]:
            yield Merge("an extremum of a number with itself, which flushes it, with another one")
    if id(instruction) in extrema_of_one_number(sources):
        what = "an extremum of a number with itself, which keeps the bits of its NaN"
        yield Merge(what, form=form, moves=kind == "f32")


def _of_other_nans(opcode: str, operands: Sequence[Operand], sources: Sources) -> Iterator[Merge]:
    """An extremum of 16 bits of an extremum that treats NaNs otherwise: ptxas makes one instruction of both."""
    base, kind = opcode.split(".", 1)[0], opcode.rsplit(".", 1)[-1]
    half = kind.removesuffix("x2")

    def nested(each: str) -> bool:
        same = each.split(".", 1)[0] == base and each.rsplit(".", 1)[-1].removesuffix("x2") == half
        return same and (".NaN" in each) != (".NaN" in opcode)

    if half in ("f16", "bf16") and sources.of_kind(operands, nested):
        what = "an extremum with another one that treats NaNs otherwise"
        yield Merge(what, form=FLOAT_FORMATS["fp16" if half == "f16" else "bf16"] if kind == half else None)


def _is_of_floats(opcode: str) -> bool:
    return re.fullmatch(r"(add|sub|mul|fma|min|max|neg|abs|cvt)\.([\w.]*\.)?b?f\d+(x2)?", opcode) is not None
