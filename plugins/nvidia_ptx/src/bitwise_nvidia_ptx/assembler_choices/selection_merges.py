"""Selections and bounds that ptxas merges: clamps, extrema of a literal and the number compared with it, -0 and -1.

A minimum with 1 that is followed by a maximum with 0 becomes a saturating sum.  Moves under a guard are selections.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations

import numpy as np

from bitwise_core.assembly.module import Instruction, Operand, Register, registers_of
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_nvidia_ptx.assembler_choices.extrema import extremum_of
from bitwise_nvidia_ptx.assembler_choices.found_numbers import found_by_operations
from bitwise_nvidia_ptx.assembler_choices.merge import Merge
from bitwise_nvidia_ptx.assembler_choices.roots import roots_of
from bitwise_nvidia_ptx.assembler_choices.sources import ONES, WIDTHS, Sources, bits_of
from bitwise_nvidia_ptx.opcodes.common import FORMATS

_LOW, _HIGH = (re.compile(rf"{verb}(\.ftz)?\.(f16|f32|f64)") for verb in ("min", "max"))
_EXTREMUM = re.compile(r"(min|max)(?:\.ftz)?\.([suf](?:32|64))")
_ORDER = re.compile(r"setp\.(?:lt|le|gt|ge|lo|ls|hi|hs)u?(?:\.(?:and|or|xor))?(?:\.ftz)?\.([suf](?:32|64))")
MINUS_ZERO, MINUS_ONE = 0x80000000, 0xBF800000
_GUARDED_EXTREMUM = re.compile(r"(min|max)[\w.]*\.f32")
_NEGATED_CHOICE = "a selection between -0 and -1 with a conversion of the predicate, which returns +0"
_AROUND_ZERO = "a maximum and a minimum with 0 of two types, which are 0 if both have one sign"


def selection_merges(instruction: Instruction, sources: Sources) -> Iterator[Merge]:
    """Yield what ptxas may merge with an extremum or a selection."""
    base = instruction.opcode.split(".", 1)[0]
    if base == "selp" and (choices := _negated_choice(instruction, sources)):
        yield Merge(_NEGATED_CHOICE, between=choices)
    if base in ("min", "max", "selp"):
        if _share_zero(instruction, sources):
            yield Merge(_AROUND_ZERO)
        yield from _of_clamps(instruction, sources)
    if base == "selp":
        yield from _of_extrema(instruction, sources)


def guard_merges(instruction: Instruction, sources: Sources) -> Iterator[Merge]:
    """Yield what ptxas may merge with an instruction under a guard, as a selection, also in threads that skip it."""
    if choices := _negated_choice(instruction, sources):
        yield Merge(_NEGATED_CHOICE, between=choices)
    if _is_guarded_choice(instruction, sources):
        if _share_zero(instruction, sources):
            yield Merge(_AROUND_ZERO)
        if next(_of_clamps(instruction, sources), None) is not None:
            yield Merge("a move under a guard with the extremum before it")
        yield from _of_extrema(instruction, sources)


def choice(instruction: Instruction, sources: Sources) -> tuple[Operand, ...]:
    """Return what an instruction reads: under a guard that selects what it leaves, too, and the predicate.

    ptxas makes a selection of a move under a guard, and of an operation that returns an operand.
    """
    guard = instruction.guard
    if guard is None or not _is_guarded_choice(instruction, sources):
        return instruction.operands[1:]
    return (*instruction.operands[1:], instruction.operands[0], Register(guard.register))


def _is_guarded_choice(instruction: Instruction, sources: Sources) -> bool:
    """Return whether an instruction writes a register under a guard, and may return an operand."""
    if instruction.guard is None or not isinstance(instruction.operands[0], Register):
        return False
    if instruction.opcode.startswith("mov."):
        return len(instruction.operands) == 2
    stated = instruction.opcode.startswith(("setp.", "selp.", "ld", "st.", "bra", "shfl"))
    return not stated and sources.passes_on(instruction)


def _negated_choice(instruction: Instruction, sources: Sources) -> tuple[tuple[Operand, bool], ...]:
    """Return what an instruction selects, as `Merge.between`, if it may be -0 and -1 of fp32, else nothing."""
    if instruction.guard is not None and _GUARDED_EXTREMUM.fullmatch(instruction.opcode) is not None:
        # Of literals, it is a move of one of them.
        choices: tuple[Operand, ...] = (*instruction.operands[1:], instruction.operands[0])
    elif instruction.opcode in ("selp.f32", "mov.f32"):
        choices = choice(instruction, sources)[:-1]
    else:
        return ()

    def may_be(operand: Operand, number: int) -> bool:
        return sources.may_be(operand, partial(_is_word, number), instruction)

    found = any(may_be(one, MINUS_ZERO) and may_be(other, MINUS_ONE) for one, other in permutations(choices, 2))
    if not found:
        return ()
    by_operations = found_by_operations(sources.kernel, sources.opcodes)
    return tuple((each, not by_operations.isdisjoint(registers_of(each))) for each in choices)


def _is_word(number: int, literal: int) -> bool:
    return literal & 0xFFFFFFFF == number


def _of_extrema(instruction: Instruction, sources: Sources) -> Iterator[Merge]:
    """A selection between a literal and the fp32 number that is compared with it: an extremum."""
    *choices, predicate = choice(instruction, sources)
    if bits_of(instruction) != 32 or not sources.compared[32]:
        return
    negated = instruction.guard is not None and instruction.guard.negated and not instruction.opcode.startswith("selp.")
    for each in choices[:-1]:
        sides = [choices[-1], each] if negated else [each, choices[-1]]
        found = extremum_of(sides, predicate, instruction, sources)
        if found is None:
            continue
        what = "a selection with the comparison whose operands it takes"
        if found.keeps_subnormals:
            yield Merge(what, found.number, opens=found.moves_nans, differs=_is_subnormal)
        else:
            yield Merge(what, opens=True)


def _is_subnormal(numbers: Array) -> Array:
    magnitudes = numbers & np.uint64(0x7FFFFFFF)
    found: Array = (magnitudes != 0) & (magnitudes < 0x00800000)
    return found


def _share_zero(instruction: Instruction, sources: Sources) -> bool:
    """Return whether an extremum of integers with 0 may follow the opposite one of another type, also as selections."""
    if not _bounds_at_zero(instruction, sources):
        return False
    return any(
        kind[0] in "su" and kind != other and (verb != opposite or not verb)
        for operand in choice(instruction, sources)
        for verb, kind in _bounds_at_zero(instruction, sources, operand)
        for each in sources.of(operand)
        for opposite, other in _bounds_at_zero(each, sources)
    )


def _bounds_at_zero(
    instruction: Instruction, sources: Sources, bounded: Operand | None = None
) -> list[tuple[str, str]]:
    """Return the verbs and the types of which an instruction may be an extremum with 0; "" is either verb.

    `bounded` is the operand that is no bound, if one is known.
    """
    extremum = _EXTREMUM.fullmatch(instruction.opcode)

    def is_zero(number: int) -> bool:
        return not number & (1 << bits_of(instruction)) - 1

    if instruction.opcode in ("min.relu.s32", "max.relu.s32"):
        return [("max", "s32")]
    if extremum is not None:
        bounds = [each for each in instruction.operands[1:] if each is not bounded]
        zero = any(sources.may_be(each, is_zero, instruction) for each in bounds)
        return [(extremum[1], extremum[2])] if zero else []
    selects = instruction.opcode.startswith("selp.") or _is_guarded_choice(instruction, sources)
    if not selects or bits_of(instruction) not in (32, 64):
        return []
    *choices, predicate = choice(instruction, sources)
    if not any(sources.may_be(each, is_zero, instruction) for each in choices if each is not bounded):
        return []
    roots = {each for one in choices for each in roots_of(one, instruction, sources)}
    return [
        ("", order[1])
        for each in sources.comparisons(predicate, instruction)
        if (order := _ORDER.fullmatch(each.opcode)) is not None
        and any(sources.may_be(one, is_zero, each) for one in each.operands[1:3])
        and any(not roots.isdisjoint(roots_of(one, each, sources)) for one in each.operands[1:3])
    ]


def _of_clamps(instruction: Instruction, sources: Sources) -> Iterator[Merge]:
    """A maximum with 0 of a minimum with 1, or the reverse, also as selections: a saturating sum with +0."""
    bits = bits_of(instruction)
    kind = next((name for name, size in WIDTHS.items() if size == bits), "")

    def is_one(number: int) -> bool:
        return number & (1 << bits) - 1 == ONES[bits]

    def is_zero(number: int) -> bool:
        return not number & (1 << bits - 1) - 1

    def is_minus_zero(number: int) -> bool:
        return number & (1 << bits) - 1 == 1 << bits - 1

    for outer, inner in (((_HIGH, is_zero), (_LOW, is_one)), ((_LOW, is_one), (_HIGH, is_zero))):
        if not _bounds(instruction, *outer, bits, sources):
            continue
        for operand in choice(instruction, sources):
            for each in sources.of(operand):
                if _bounds_integers(each, *inner, bits, sources):
                    yield Merge("an extremum with one of integers into a saturation of floats")
                if not _bounds(each, *inner, bits, sources):
                    continue
                zeros = any(
                    sources.may_be(one, is_minus_zero, user)
                    for user in (instruction, each)
                    for one in choice(user, sources)
                )
                if zeros:
                    yield Merge("a minimum and a maximum into an operation that returns no zero of this sign")
                elif outer[0] is _HIGH:
                    what = "a minimum and a maximum into an operation that returns 0 for a NaN"
                    yield Merge(what, form=FLOAT_FORMATS[FORMATS[kind]])


def _bounds(
    instruction: Instruction, verb: re.Pattern[str], bound: Callable[[int], bool], bits: int, sources: Sources
) -> bool:
    """Return whether an instruction is an extremum with one of some literals, or a selection that may be one."""
    opcode, operands = instruction.opcode, choice(instruction, sources)
    selects = opcode.startswith("selp.") or len(operands) > len(instruction.operands) - 1
    chooses = selects and sources.compared.get(bits, False)
    if not opcode.endswith(str(bits)) or not (chooses or verb.fullmatch(opcode) is not None):
        return False
    if not any(sources.may_be(each, bound, instruction) for each in operands):
        return False
    if not chooses:
        return True
    comparisons = sources.comparisons(operands[-1], instruction)
    return any(
        each.opcode.endswith(f".f{bits}") and any(sources.may_be(one, bound, each) for one in each.operands[1:])
        for each in comparisons
    )


def _bounds_integers(
    instruction: Instruction, verb: re.Pattern[str], bound: Callable[[int], bool], bits: int, sources: Sources
) -> bool:
    """Return whether an instruction is an extremum of integers with one of some literals, as of floats."""
    name = "max" if verb is _HIGH else "min"
    kind = re.fullmatch(rf"{name}\.[su]{bits}", instruction.opcode)
    return kind is not None and any(sources.may_be(each, bound, instruction) for each in instruction.operands[1:])


def is_guarded_move(instruction: Instruction) -> bool:
    """Return whether an instruction moves a number under a guard, so that it is a selection for the assembler."""
    return instruction.guard is not None and instruction.opcode.startswith("mov.")
