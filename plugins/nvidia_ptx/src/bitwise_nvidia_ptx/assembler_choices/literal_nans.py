"""Operations on NaNs that ptxas knows, which it may evaluate itself.

It may then keep the bits of a NaN where the unit returns the canonical one.  Whether it does depends on what it sees:
`abs.ftz.f32` of `cvt.ftz.f32.f32` of the literal 0x7fc00000 is 0x7fc00000, and 0x7fffffff where a shuffle is between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from bitwise_core.assembly.module import Instruction
from bitwise_core.numerics import FLOAT_FORMATS, FloatFormat
from bitwise_nvidia_ptx.assembler_choices.merge import Merge
from bitwise_nvidia_ptx.assembler_choices.sources import Sources
from bitwise_nvidia_ptx.opcodes.common import FORMATS

_OF_FLOATS = re.compile(
    r"(add|sub|mul|fma|min|max|neg|abs|cvt|div|rcp|sqrt|rsqrt|ex2|lg2|sin|cos|tanh)\.([\w.]*\.)?(b?f16|f32|f64)(x2)?"
)
_RESULT = re.compile(r"cvt\.(?:[\w]+\.)*?(b?f16|f32|f64)(x2)?\.")


def literal_nan_merges(instruction: Instruction, sources: Sources) -> Iterator[Merge]:
    """Yield a merge of an operation on floats, of which ptxas may know all operands, and one of them as a NaN."""
    found = _OF_FLOATS.fullmatch(instruction.opcode)
    if found is None:
        return
    elements = FLOAT_FORMATS[FORMATS[found.group(3)]], 2 if found.group(4) else 1
    holds = partial(_is_nan, *elements)
    operands = instruction.operands[1:]
    if all(map(sources.is_known, operands)) and any(
        sources.moves_literal(each, holds, instruction) for each in operands
    ):
        written = _RESULT.match(instruction.opcode)
        result = (FLOAT_FORMATS[FORMATS[written.group(1)]], 2 if written.group(2) else 1) if written else elements
        yield Merge("an operation on floats with a literal NaN, of which it may keep the bits", makes_nan=result)


def _is_nan(form: FloatFormat, count: int, number: int) -> bool:
    ones, magnitude = (1 << form.bits) - 1, (1 << form.bits - 1) - 1
    infinity = ((1 << form.exponent_bits) - 1) << form.bits - 1 - form.exponent_bits
    return any(number >> form.bits * place & ones & magnitude > infinity for place in range(count))
