"""Comparisons of an extremum of integers with one of its operands, which ptxas takes from the extremum.

`min.u16 y, x, 15; setp.eq.u16 p, y, 15` becomes one VIMNMX that also writes the predicate, and an H200 returns another
one than the comparison: a VIMNMX says which operand it takes.  ptxas 12.8, 12.9 and 13.0 do so for sm_90 and sm_100,
for all extrema of 16 bits, also as halves of pairs, and for those of 32 bits with a sign that a maximum with 0 follows,
which may both be selections: VIMNMX.RELU.  They do so through moves, conversions between integers and a mask of 16
bits, for `setp.eq` without another condition alone; an extremum of 32 bits is compared as `s32` or with 16 bits, and
not as `b32` or `u32`.  The analysis relies on no more than the types.  The comparisons of 32 bits were found in machine
code, and not executed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bitwise_core.assembly.module import Instruction, Operand, Register
from bitwise_nvidia_ptx.assembler_choices.roots import followed, literals_of, may_agree, roots_of, share_number
from bitwise_nvidia_ptx.assembler_choices.sources import Sources

_EQUALITY = re.compile(r"setp\.eq\.([\w.]*\.)?[bsu](16|32|64)")
_OF_SHORT = re.compile(r"(min|max)\.([\w.]*\.)?[su]16(x2)?(\.relu)?")
_OF_WORDS = re.compile(r"(min|max)\.([\w.]*\.)?s32(\.relu)?")
_SELECTION = re.compile(r"selp\.[bsu]32|mov\.[bsu]32")
_ORDER = re.compile(r"setp\.(lt|le|gt|ge)\.([\w.]*\.)?[su]32")


def compares_with_extremum(instruction: Instruction, sources: Sources) -> bool:
    """Return whether an instruction may compare an extremum of integers with one of its operands for equality."""
    if _EQUALITY.fullmatch(instruction.opcode) is None:
        return False
    first, second = instruction.operands[1:3]
    return any(
        share_number(bound, made, other, instruction, sources)
        or may_agree(bound, made, other, instruction, bits, sources)
        or (made.opcode.endswith("x2") and _are_literals(bound, made, other, instruction, sources))
        for number, other in ((first, second), (second, first))
        for made, bits in _extrema(number, instruction, sources)
        for bound in _choices(made)
    )


def _extrema(number: Operand, user: Instruction, sources: Sources) -> Iterator[tuple[Instruction, int]]:
    """Yield the extrema that a number may be which write a predicate, with the width of their operands."""
    if any(map(_OF_SHORT.fullmatch, sources.present)):
        extrema = (made for _, made in followed(number, user, sources) if made is not None)
        yield from ((made, 16) for made in extrema if _OF_SHORT.fullmatch(made.opcode))
    if not user.opcode.endswith(("16", "s32")):
        return
    for outer in sources.of(number, user=user):
        if ".relu" in outer.opcode and _OF_WORDS.fullmatch(outer.opcode):
            yield outer, 32
        elif _is_extremum(outer, sources) and _has_zero(outer, sources):
            for source in _choices(outer):
                for inner in sources.of(source, user=outer):
                    if inner is not outer and _is_extremum(inner, sources):
                        yield inner, 32


def _is_extremum(made: Instruction, sources: Sources) -> bool:
    """Return whether an instruction may be an extremum of integers of 32 bits, also as a selection."""
    if _OF_WORDS.fullmatch(made.opcode):
        return True
    if not _SELECTION.fullmatch(made.opcode):
        return False
    predicate = made.operands[-1] if made.guard is None else Register(made.guard.register)
    chosen = _roots(_choices(made), made, sources)
    return any(
        _ORDER.fullmatch(each.opcode) is not None and not chosen.isdisjoint(_roots(each.operands[1:3], each, sources))
        for each in sources.comparisons(predicate, made)
    )


def _has_zero(made: Instruction, sources: Sources) -> bool:
    """Return whether an assembler may know that an instruction chooses between 0 and a number."""
    return any(sources.may_be(each, lambda number: not number & 0xFFFFFFFF, made) for each in _choices(made))


def _choices(made: Instruction) -> tuple[Operand, ...]:
    """Return the numbers between which an instruction chooses; a move under a guard may leave what it writes."""
    return (made.operands[1], made.operands[0]) if made.opcode.startswith("mov.") else made.operands[1:3]


def _roots(operands: Sequence[Operand], user: Instruction, sources: Sources) -> set[object]:
    """Return what some operands may have been computed from."""
    return set[object]().union(*(roots_of(each, user, sources) for each in operands))


def _are_literals(one: Operand, user: Instruction, other: Operand, reader: Instruction, sources: Sources) -> bool:
    """Return whether an assembler knows two operands, of which a half may be one number."""
    return bool(literals_of(one, user, sources) and literals_of(other, reader, sources))
