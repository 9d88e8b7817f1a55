"""Operations on numbers of 16 bits and fewer, and on their pairs, that ptxas merges."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

from bitwise_core.assembly.module import Immediate, Instruction, Operand, Register, Vector, registers_of
from bitwise_nvidia_ptx.assembler_choices.eight_bit_pairs import joined_conversions
from bitwise_nvidia_ptx.assembler_choices.merge import Merge
from bitwise_nvidia_ptx.assembler_choices.sources import LOAD, Sources, bits_of

_RECTIFIER = re.compile(r"max(\.ftz)?\.NaN\.b?f16(x2)?")
_PAIR_OF_INTEGERS = re.compile(r"(add|sub|min|max)\.[su]16x2")
_PAIR_OF_FLOATS = re.compile(r"(add|sub|mul|fma|min|max)\.[\w.]*b?f16x2")
_SIGN_EXTENDING = re.compile(r"(shr|div|rem|mul\.wide|mad\.wide|min|max)\.s16|setp\.[\w.]*s16|cvt\.[\w.]*\.s16")
_UPPER_HALF = re.compile(r"mul\.hi\.[us]16")
_OF_SHORT_FLOAT = re.compile(r"(add|sub|mul|fma|min|max|abs|neg|cvt|setp)\.([\w.]*\.)?b?f16")
_HALF_NEGATION = re.compile(r"(neg|sub)\.s16")
_NARROW_LOAD = re.compile(r"ldu?\.[\w.:]*\.[bsu](8|16)")
_TO_INTEGER = re.compile(r"cvt\.r[nzmp]i\.[\w.]*f16")
_TO_INTEGERS = frozenset({"rni.", "rzi.", "rmi.", "rpi."})
_OF_SHORT_FLOATS = re.compile(r"cvt\.[\w.]*?(b?f16)\.(b?f16)")
_EXTENDING = re.compile(r"cvt\.[su](32|64)\.u(8|16)|(mul|mad)\.wide\.u16")
"""Extensions by zeros, and products that are one where a factor is 1."""
_MASK = re.compile(r"and\.b(32|64)|rem\.[su](32|64)")
_HALF_SIGNS = ("neg.f16", "neg.bf16", "neg.ftz.f16", "abs.f16", "abs.bf16", "abs.ftz.f16", "xor.b16")
"""The beginnings of opcodes that may change the sign of a number of 16 bits."""


def short_merges(instruction: Instruction, sources: Sources) -> Iterator[Merge]:
    """Yield what ptxas may merge with an operation on short numbers or their pairs."""
    opcode, base, operands = instruction.opcode, instruction.opcode.split(".", 1)[0], instruction.operands[1:]
    if opcode in ("mov.b32", "mov.b64") and _takes_halves(instruction) and _is_extended(instruction, sources):
        yield Merge("a move of halves with a load or an extension that fills one of them")
    if _TO_INTEGER.fullmatch(opcode) and sources.of_kind(operands, partial(_rounds_otherwise, opcode)):
        yield Merge("a rounding to an integer with a conversion of 16 bits, whose rounding it takes")
    if _PAIR_OF_INTEGERS.fullmatch(opcode) and any(map(sources.is_known, operands)):
        # Of literals, ptxas computes another sum.
        literal = all(map(sources.is_known, operands))
        what = "an operation on pairs of integers with the one that takes a half of it"
        yield Merge(what, unknown=() if literal else tuple(operands))
    if _RECTIFIER.fullmatch(opcode) and sources.of_kind(operands, partial(_is_rectified_otherwise, opcode)):
        yield Merge("a maximum with an operation of another type")
    if base == "abs" and opcode.endswith("x2") and sources.of_kind(operands, lambda each: each.endswith(".f32")):
        yield Merge("the magnitudes of a pair with the operation on fp32 whose result it takes")
    if base == "cvt" and ".tf32." in opcode and sources.of_kind(operands, lambda each: "x2" in each):
        yield Merge("a rounding to tf32 with an operation on pairs, of which it takes one half")
    if id(instruction) in joined_conversions(sources.kernel, sources.opcodes):
        yield Merge("a conversion to eight bits with a pair behind what reads its result", refused=True)
    if _SIGN_EXTENDING.fullmatch(opcode):
        if sources.of_kind(operands, _takes_upper_half):
            yield from _of_upper_halves(instruction, operands, sources)
        yield from _of_halves(operands, sources)
    if _OF_SHORT_FLOAT.fullmatch(opcode) and sources.of_kind(operands, _takes_upper_half):
        yield Merge("an operation on a float of 16 bits with the product of which it takes one half")
    if _PAIR_OF_FLOATS.fullmatch(opcode):
        if any(_has_signs(each, sources) or _is_computed_literal(each, sources) for each in operands):
            yield Merge("an operation on pairs with a literal whose halves have two signs")
        if _share_negated_halves(operands, sources):
            yield Merge("an operation on one pair twice, of which halves are negated one by one")


def _of_upper_halves(instruction: Instruction, operands: Sequence[Operand], sources: Sources) -> Iterator[Merge]:
    """An operation on the upper half of a product.

    One with a positive literal is negative exactly where the other factor is.  Where neither is, both are the same
    numbers with and without a sign, in 16 bits and in more, so that nothing differs: this is how compilers divide short
    integers.
    """
    what = "an operation on 16 bits with the product of which it takes the upper half"
    for operand in operands:
        halves = [each for each in sources.of(operand) if _takes_upper_half(each.opcode)]
        if not halves:
            continue
        if all(map(_is_by_positive_literal, (*halves, *sources.defined(operand, instruction)))):
            yield Merge(what, operand, 16, lambda numbers: numbers >= 0x8000)
        else:
            yield Merge(what)


def _is_by_positive_literal(made: Instruction) -> bool:
    """Return whether an instruction takes the upper half of a product with a positive literal, as one with a sign."""
    return made.opcode == "mul.hi.s16" and any(
        isinstance(each, Immediate) and 0 < each.value < 0x8000 for each in made.operands[1:]
    )


def _takes_halves(instruction: Instruction) -> bool:
    """Return whether a move takes a number apart to halves of 16 bits."""
    target = instruction.operands[0]
    return isinstance(target, Vector) and 16 * len(target.items) == bits_of(instruction)


def _is_extended(move: Instruction, sources: Sources) -> bool:
    """Return whether a move may take a number of 8 or 16 bits apart that was loaded or extended by zeros.

    ptxas leaves out what changes no bit of such a number, as a mask of the lower half.
    """
    pending: list[tuple[Operand, Instruction]] = [(each, move) for each in move.operands[1:]]
    seen = set[int]()
    while pending:
        for each in sources.defined(*pending.pop()):
            if id(each) in seen:
                continue
            seen.add(id(each))
            if _EXTENDING.fullmatch(each.opcode) or _NARROW_LOAD.fullmatch(each.opcode):
                return True
            packs = each.opcode == "mov.b32" and isinstance(each.operands[1], Vector)
            masks = _MASK.fullmatch(each.opcode) and any(map(sources.is_known, each.operands[1:]))
            if masks or (sources.passes_on(each) and not packs and not each.opcode.startswith("prmt.")):
                pending += [(one, each) for one in each.operands[1:]]
            pending += [(Register(name), sources.kernel.instructions[use]) for name, use in sources.stored(each)]
    return False


def _rounds_otherwise(rounding: str, opcode: str) -> bool:
    """Return whether a conversion of 16 bits has another format than a rounding, or rounds to no integer.

    ptxas makes one rounding of both: of the format of the second, and to the nearest integer where the first has none.
    """
    found, own = _OF_SHORT_FLOATS.fullmatch(opcode), rounding.rsplit(".", 1)[-1]
    return found is not None and (found.groups() != (own, own) or opcode[4:8] not in _TO_INTEGERS)


def _is_rectified_otherwise(maximum: str, opcode: str) -> bool:
    """Return whether ptxas may make a rectifying operation of one of integers, or of the other format."""
    kind, own = (each.rsplit(".", 1)[-1].removesuffix("x2") for each in (opcode, maximum))
    arithmetic = opcode.split(".", 1)[0] in ("add", "sub", "mul", "fma", "min", "max", "cvt", "neg", "abs")
    return _PAIR_OF_INTEGERS.fullmatch(opcode) is not None or (arithmetic and kind in ("f16", "bf16") and kind != own)


def _of_halves(operands: Sequence[Operand], sources: Sources) -> Iterator[Merge]:
    """An operation on a negated number of 16 bits: ptxas negates in 32 bits, where -(-32768) is 32768."""
    for operand in operands:
        if any(_negates_half(each, sources) for each in sources.of(operand)):
            what = "an operation on 16 bits with a negation or a magnitude, in 32 bits"
            yield Merge(what, operand, 16, lambda numbers: numbers == 0x8000)


def _negates_half(made: Instruction, sources: Sources) -> bool:
    if _HALF_NEGATION.fullmatch(made.opcode) is None:
        return False
    return not made.opcode.startswith("sub") or sources.may_be(made.operands[1], lambda number: not number)


def _has_signs(operand: Operand, sources: Sources) -> bool:
    """Return whether an operand may be a pair with a negative literal and another half that is none."""

    def mixed(number: int) -> bool:
        return bool((number ^ number >> 16) & 0x8000)

    if isinstance(operand, Immediate):
        return mixed(operand.value)
    for each in sources.of(operand, literals=True):
        for source in each.operands[1:] if each.opcode.startswith(("mov.", "selp.", "prmt.")) else ():
            halves = [Register(name) for name in registers_of(source)]
            if isinstance(source, Immediate) and each.opcode.startswith(("mov.b32", "mov.u32", "selp.b32")):
                if mixed(source.value):
                    return True
            elif len(halves) > 1 and any(sources.may_be(one, lambda number: bool(number & 0x8000)) for one in halves):
                return True
    return False


def _takes_upper_half(opcode: str) -> bool:
    return _UPPER_HALF.fullmatch(opcode) is not None


def _share_negated_halves(operands: Sequence[Operand], sources: Sources) -> bool:
    """Return whether two operands may be one pair that is put together of halves, of which one may be negated.

    ptxas takes the signs out of the halves, and loses one of them.
    """
    if not any(each.startswith(_HALF_SIGNS) and not each.endswith("x2") for each in sources.present):
        return False
    seen = set[int]()
    for operand in operands:
        made = list(sources.of(operand))
        negated = any(each.opcode.startswith(_HALF_SIGNS) and not each.opcode.endswith("x2") for each in made)
        packs = {id(each) for each in made if isinstance(each.operands[-1], Vector)} if negated else set[int]()
        if not seen.isdisjoint(packs):
            return True
        seen |= packs
    return False


def _is_computed_literal(operand: Operand, sources: Sources) -> bool:
    """Return whether the assembler computes an operand from literals by integer operations, or takes one apart."""
    if not isinstance(operand, Register) or not sources.is_known(operand):
        return False
    moves = ("mov", "selp", "prmt", "shfl", "cvt")
    return any(
        (each.opcode.split(".", 1)[0] not in moves or isinstance(each.operands[0], Vector))
        and _PAIR_OF_FLOATS.fullmatch(each.opcode) is None
        and LOAD.match(each.opcode) is None
        for each in sources.of(operand, literals=True)
    )
