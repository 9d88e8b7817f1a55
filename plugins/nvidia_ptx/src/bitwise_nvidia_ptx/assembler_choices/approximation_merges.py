"""Approximations, saturations and comparisons of ranges that ptxas merges with what they read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from bitwise_core.assembly.module import Instruction
from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_nvidia_ptx.assembler_choices.merge import Merge
from bitwise_nvidia_ptx.assembler_choices.ranges import compared_by_range
from bitwise_nvidia_ptx.assembler_choices.sources import Sources

_APPROXIMATION = re.compile(r"(rcp\.approx|div\.approx)(\.ftz)?\.f32")
_MERGED_APPROXIMATION = re.compile(r"((ex2|rcp)\.approx|div\.(full|approx))(\.ftz)?\.f32")
_SCALING = re.compile(r"(mul|div)\.[\w.]*f32")
_SATURATED_AGAIN = re.compile(r"(min|max)(\.ftz)?\.(f16|bf16|f32|f64)(x2)?|mul\.([\w.]*\.)?sat\.[\w.]*f(16|32)(x2)?")
"""What ptxas leaves out behind a saturation, for some literals: that of a number from 0 to 1."""


def approximation_merges(instruction: Instruction, sources: Sources) -> Iterator[Merge]:
    """Yield what ptxas may merge with an approximation, with a saturated number, or by the range of a number."""
    opcode, operands = instruction.opcode, instruction.operands[1:]
    if _APPROXIMATION.fullmatch(opcode) and sources.of_kind(operands[-1:], _is_merged_approximation):
        yield Merge("an approximation with the one whose result it takes")
    quotient = _SCALING.fullmatch(opcode) and sources.of_kind(operands, lambda each: each.startswith("div.approx."))
    if quotient and any(sources.may_be(each, lambda number: not number & 0x7FFFFF) for each in operands):
        yield Merge("a product with a power of two with the quotient whose rounding it leaves out")
    if _SATURATED_AGAIN.fullmatch(opcode) and sources.of_kind(operands, partial(_saturates_another_type, opcode)):
        yield Merge("an extremum or a product with a saturation of another type, as of a number from 0 to 1")
    if opcode.startswith("setp.") and (ranged := compared_by_range(instruction, sources)) is not None:
        what = "a comparison that is decided by the range of its numbers, also for a NaN"
        yield Merge(what, ranged, form=FLOAT_FORMATS["fp32"])


def _saturates_another_type(following: str, opcode: str) -> bool:
    """Return whether an instruction saturates a number of another type than the one that follows it."""
    parts, own = opcode.split("."), following.rsplit(".", 1)[-1]
    written = parts[-2] if parts[0] == "cvt" else parts[-1]
    return "sat" in parts and written.removesuffix("x2") != own.removesuffix("x2")


def _is_merged_approximation(opcode: str) -> bool:
    return _MERGED_APPROXIMATION.fullmatch(opcode) is not None
