"""Operations on integers that ptxas merges: signs and magnitudes, shifts, bit fields, comparisons of extrema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from bitwise_core.assembly.module import Immediate, Instruction, Operand, Register
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_nvidia_ptx.assembler_choices.constants import is_assembler_constant
from bitwise_nvidia_ptx.assembler_choices.equalities import compares_with_extremum
from bitwise_nvidia_ptx.assembler_choices.merge import Merge
from bitwise_nvidia_ptx.assembler_choices.sources import Sources, bits_of

_OF_SIGNED = re.compile(
    r"(shr|div|rem|min|max|mul\.wide|mad\.wide|mul\.hi|mad\.hi|bfe|bfind)\.s(32|64)|(min|max)\.relu\.s32"
    r"|setp\.(lt|le|gt|ge)[\w.]*\.s(32|64)|cvt\.([\w.]*\.)?[subf]+\d+\.s(32|64)"
)
"""Operations on 32 and 64 bits whose result depends on whether an operand has a sign."""
_AS_UNSIGNED = re.compile(r"cvt\.[\w.]*\.u\d+\.b?f\d+|bfe\.s\d+|cvt\.s\d+\.s\d+")
"""What ptxas joins with a conversion of an unsigned number, as if that were one of a signed number."""
_SHORT_SHIFT = re.compile(r"sh[lr]\.[bus]16")
_NEGATING = re.compile(r"(not|neg|xor|sub|(mul|mad)\.lo)\.[sub](16|32|64)")
"""Opcodes of which some instructions return -x or -1 - x."""


def integer_merges(instruction: Instruction, sources: Sources) -> Iterator[Merge]:
    """Yield what ptxas may merge with an operation on integers."""
    opcode, base, operands = instruction.opcode, instruction.opcode.split(".", 1)[0], instruction.operands[1:]
    if _NEGATING.fullmatch(opcode) and _negates_itself(instruction, sources):
        yield Merge("a number that a loop negates with its start, as one that no iteration changes")
    if _OF_SIGNED.fullmatch(opcode):
        yield from _of_magnitudes(operands, sources)
    if base == "cvt" and _of_other_sign(opcode, operands, sources):
        yield Merge("a conversion with an operation whose sign it takes for its own")
    if base == "setp" and compares_with_extremum(instruction, sources):
        yield Merge("a comparison of an extremum of integers with its operand, as whether that is the first one")
    if opcode == "lop3.b32":
        yield Merge("an operation on one value twice with others", equal=tuple(operands[:3]))
    if base in ("shl", "shr") and bits_of(instruction) == 64:
        yield from _of_shifts(opcode, operands, sources)
    if base in ("bfe", "bfi"):
        yield from _of_bit_fields(base, bits_of(instruction), operands, sources)
    if _SHORT_SHIFT.fullmatch(opcode) and sources.of_kind(
        operands[1:], lambda each: _AS_UNSIGNED.fullmatch(each) is not None
    ):
        yield Merge("a shift of 16 bits with a conversion to an integer or a signed field, as one of 16 bits")


def _negates_itself(instruction: Instruction, sources: Sources) -> bool:
    """Return whether an instruction negates what it has written itself, from a start that the assembler may know."""
    base, operands = instruction.opcode.split(".", 1)[0], instruction.operands[1:]
    ones = (1 << bits_of(instruction)) - 1
    numbers = [each.value & ones for each in operands if isinstance(each, Immediate)]
    if base == "sub":
        first = operands[0]
        negates = isinstance(first, Immediate) and first.value & ones in (0, ones)
    else:
        negates = base in ("not", "neg") or ones in numbers
    if not negates:
        return False
    changed = [each for each in operands if isinstance(each, Register)]
    return any(
        any(made is instruction for made in sources.of(each)) and sources.may_be(each, lambda number: True)
        for each in changed
    )


def _of_magnitudes(operands: Sequence[Operand], sources: Sources) -> Iterator[Merge]:
    """An operation on signed integers that takes a magnitude for positive, which that of the least integer is not."""
    if sources.present.isdisjoint(_MAGNITUDES):
        return
    what = "an operation on signed integers with a magnitude, which it takes for positive"
    for operand in operands:
        widths = {bits_of(each) for each in sources.of(operand) if each.opcode in _MAGNITUDES}
        for bits in widths:
            if bits == _bits_read(sources.kernel.instructions[sources.use].opcode):
                yield Merge(what, operand, bits, partial(_is_least, bits))
            else:
                yield Merge(what)


_MAGNITUDES = ("abs.s32", "abs.s64")


def _is_least(bits: int, numbers: Array) -> Array:
    found: Array = numbers == np.uint64(1 << bits - 1)
    return found


def _bits_read(opcode: str) -> int:
    """Return the width of the integers that an operation on signed ones reads."""
    return int(opcode.rsplit(".s", 1)[-1])


def _of_other_sign(opcode: str, operands: Sequence[Operand], sources: Sources) -> bool:
    """Return whether a conversion may follow an operation of the other sign that ptxas joins with it."""
    joined = r"bfe\.s\d+|cvt\.s\d+\.s\d+|abs\.s(32|64)"
    return re.fullmatch(r"cvt\.[\w.]*\.b?f\d+\.u\d+", opcode) is not None and sources.of_kind(
        operands, lambda each: re.fullmatch(joined, each) is not None
    )


def _of_shifts(opcode: str, operands: Sequence[Operand], sources: Sources) -> Iterator[Merge]:
    """A shift of 64 bits: of a number that was widened as `cvt.s64.u32` does, or by 64 and more."""
    if sources.may_be(operands[1], lambda number: number >= 64):
        yield Merge("a shift by 64 or more with a product or a literal")
    if opcode == "shl.b64" and sources.of_kind(operands[:1], lambda each: each == "cvt.s64.u32"):
        what = "a shift with an extension by zeros, as one by the sign"
        yield Merge(what, operands[0], 64, lambda numbers: numbers >> np.uint64(31) != 0)


def _of_bit_fields(base: str, bits: int, operands: Sequence[Operand], sources: Sources) -> Iterator[Merge]:
    """A bit field that ends behind the register, or a field of a field."""
    numbers = [each.value for each in operands[-2:] if isinstance(each, Immediate)]
    inside = len(numbers) == 2 and sum(numbers) <= bits
    known = not inside and all(sources.may_be(each, lambda number: True) for each in operands[-2:])
    nested = base == "bfe" and sources.of_kind(operands[:1], lambda each: each.startswith("bfe."))
    if nested or known:
        unknown = tuple(operands[:2] if base == "bfi" else operands[:1])
        # Behind the register, the bits of a number that the assembler does not know depend on what it knows of it.
        evaluated = all(is_assembler_constant(each, sources.kernel, sources.opcodes) for each in unknown)
        what = "a bit field with the operation whose result it takes"
        behind = len(numbers) == 2 and not inside
        yield Merge(what, bits=bits, unknown=unknown if evaluated or not behind else ())
