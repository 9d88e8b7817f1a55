"""Selections that ptxas may make extrema: of an fp32 number and the literal with which it is compared.

`setp.geu.f32 p, x, 1.0; selp.f32 y, x, 1.0, p` becomes FMNMX.NAN, whose NaN is the canonical one, where the selection
keeps the bits of x.  FMNMX flushes no subnormal number: with a comparison that does (`.ftz`), and a literal that is
zero or subnormal, it returns another number than the selection.

ptxas 12.8, 12.9 and 13.0 do so for sm_80 to sm_120 alike, for every literal but -0 and NaNs, ordered and unordered
comparisons, of moves under a guard too, and through moves, signs and operations on integers that leave x as it is.
They do not for two registers that are no literals, in other formats, behind another condition or a branch, and where
something else reads the predicate.  The analysis does not rely on the last of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bitwise_core.assembly.module import Immediate, Instruction, Operand, Register
from bitwise_nvidia_ptx.assembler_choices.roots import may_agree, share_number
from bitwise_nvidia_ptx.assembler_choices.sources import Sources

_COMPARISON = re.compile(r"setp?\.(lt|le|gt|ge)u?\.([\w.]*\.)?f32")
_PLAIN = re.compile(r"setp\.(lt|le|gt|ge)(u?)\.(ftz\.)?f32")
"""A comparison without another condition."""
_INTEGER_COMPARISON = re.compile(r"setp\.[\w.]*\.[bsu](16|32|64)")
_ALL_BUT_SIGN = 0x7FFFFFFF
_LEAST_NORMAL = 0x00800000


@dataclass(frozen=True, slots=True)
class Extremum:
    """A selection that may be an extremum of the number in a register.

    `moves_nans`: the selection may return a NaN.  `keeps_subnormals`: the extremum returns subnormal numbers that the
    comparison takes for zeros.
    """

    number: Register
    moves_nans: bool
    keeps_subnormals: bool


def extremum_of(
    choices: Sequence[Operand], predicate: Operand, instruction: Instruction, sources: Sources
) -> Extremum | None:
    """Return the extremum that ptxas may make of an instruction that selects 32 bits; None if of none.

    The instruction selects the first choice where the predicate is true, the second one elsewhere.
    """
    found: Extremum | None = None
    for comparison in _comparisons(predicate, instruction, sources):
        compared = comparison.operands[1:3]
        for number, bound in (compared, compared[::-1]):
            for truth, chosen, literal in ((True, choices[0], choices[1]), (False, choices[1], choices[0])):
                if not isinstance(chosen, Register) or not isinstance(number, Register):
                    continue
                if not may_agree(literal, instruction, bound, comparison, 32, sources):
                    continue
                if not share_number(chosen, instruction, number, comparison, sources):
                    continue
                nans = not _is_number(chosen, truth, predicate, instruction, number, comparison, sources)
                subnormals = ".ftz" in comparison.opcode and sources.may_be(bound, _is_subnormal_or_zero, comparison)
                if found is not None:
                    nans, subnormals = nans or found.moves_nans, subnormals or found.keeps_subnormals
                if nans or subnormals:
                    found = Extremum(chosen, nans, subnormals)
    return found


def _is_number(
    chosen: Register,
    truth: bool,
    predicate: Operand,
    instruction: Instruction,
    number: Register,
    comparison: Instruction,
    sources: Sources,
) -> bool:
    """Return whether what is chosen where a predicate has this truth is the number that is compared, and no NaN."""
    plain = _PLAIN.fullmatch(comparison.opcode)
    if plain is None or comparison.operands[0] != predicate or list(sources.direct([predicate])) != [comparison]:
        return False
    if bool(plain.group(2)) == truth:
        return False
    return _moved(chosen, instruction, sources) == _moved(number, comparison, sources)


def _moved(register: Register, user: Instruction, sources: Sources) -> object:
    """Return the definition of what a register holds at an instruction, before moves; each has one definition."""
    while True:
        made = list(sources.defined(register, user))
        if len(made) != 1 or made[0].guard is not None:
            return object()
        source = made[0].operands[-1]
        if not made[0].opcode.startswith("mov.") or not isinstance(source, Register):
            return id(made[0]), made[0].operands[0] if made[0].operands[0] == register else register
        register, user = source, made[0]


def _comparisons(predicate: Operand, user: Instruction, sources: Sources) -> Iterator[Instruction]:
    """Yield the comparison of fp32 numbers on which alone a predicate may depend, also one whose result is a number."""
    every = list(sources.comparisons(predicate, user))
    conditions = [each for each in every if not all(isinstance(one, Immediate) for one in each.operands[1:3])]
    for each in conditions if len(conditions) == 1 else ():
        if _COMPARISON.fullmatch(each.opcode):
            yield each
        elif _INTEGER_COMPARISON.fullmatch(each.opcode):
            for operand in each.operands[1:]:
                made = sources.of(operand, user=each)
                yield from (one for one in made if one.opcode.startswith("set.") and _COMPARISON.fullmatch(one.opcode))


def _is_subnormal_or_zero(number: int) -> bool:
    return number & _ALL_BUT_SIGN < _LEAST_NORMAL
