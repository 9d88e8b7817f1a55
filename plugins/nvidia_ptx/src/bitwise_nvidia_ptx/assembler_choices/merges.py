"""Instructions that ptxas merges with those before them into one whose results differ for some operands.

ptxas replaces `rcp.approx.ftz(ex2.approx.ftz(x))` by the approximation of 2^-x, and a minimum with 1 that is followed
by a maximum with 0 by a saturating sum, which returns 0 for a NaN, and not 1.  Where it does so depends on what it
sees: not through shared memory, a shuffle, or a number that is a parameter.  So the result of such an instruction is
equal only to that of the same execution by the same thread of the same text.

The sequences were found by executing random programs with and without optimisation, and in the machine code of ptxas
12.8 and 12.9 for sm_90.  ptxas 12.6, 12.8, 12.9, 13.0 and 13.1 merge them alike, for sm_90 and sm_100.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import combinations, permutations
from types import FunctionType
from typing import Any, Protocol, cast

import numpy as np

from bitwise_core.assembly.module import (
    Immediate,
    Instruction,
    Kernel,
    Operand,
    Register,
    Vector,
    once_a_kernel,
    program_digest,
    registers_of,
)
from bitwise_core.execution.architecture import Context, OpcodeTable, infos_of, is_complete
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Control, Machine, Step
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value, constant_mask
from bitwise_core.execution.values.term_hash import term
from bitwise_core.numerics import FLOAT_FORMATS, FloatFormat, nan_of
from bitwise_nvidia_ptx.assembler_choices.constants import is_assembler_constant
from bitwise_nvidia_ptx.assembler_choices.eight_bit_pairs import joined_conversions
from bitwise_nvidia_ptx.assembler_choices.equalities import compares_with_extremum
from bitwise_nvidia_ptx.assembler_choices.extrema import extremum_of, roots_of
from bitwise_nvidia_ptx.assembler_choices.found_numbers import found_by_operations
from bitwise_nvidia_ptx.assembler_choices.ranges import compared_by_range
from bitwise_nvidia_ptx.assembler_choices.sources import ONES, WIDTHS, Sources, bits_of
from bitwise_nvidia_ptx.assembler_choices.usual_operations import is_operation, unusual_operations

_APPROXIMATION = re.compile(r"(rcp\.approx|div\.approx)(\.ftz)?\.f32")
_MERGED_APPROXIMATION = re.compile(r"((ex2|rcp)\.approx|div\.(full|approx))(\.ftz)?\.f32")
_SCALING = re.compile(r"(mul|div)\.[\w.]*f32")
_LOW, _HIGH = (re.compile(rf"{verb}(\.ftz)?\.(f16|f32|f64)") for verb in ("min", "max"))
_EXTREMUM = re.compile(r"(min|max)(?:\.ftz)?\.([suf](?:32|64))")
_ORDER = re.compile(r"setp\.(?:lt|le|gt|ge|lo|ls|hi|hs)u?(?:\.(?:and|or|xor))?(?:\.ftz)?\.([suf](?:32|64))")
_SATURATED_AGAIN = re.compile(r"(min|max)(\.ftz)?\.(f16|bf16|f32|f64)(x2)?|mul\.([\w.]*\.)?sat\.[\w.]*f(16|32)(x2)?")
"""What ptxas leaves out behind a saturation, for some literals: that of a number from 0 to 1."""
_RECTIFIER = re.compile(r"max(\.ftz)?\.NaN\.b?f16(x2)?")
_PAIR_OF_INTEGERS = re.compile(r"(add|sub|min|max)\.[su]16x2")
_PAIR_OF_FLOATS = re.compile(r"(add|sub|mul|fma|min|max)\.[\w.]*b?f16x2")
_SIGN_EXTENDING = re.compile(r"(shr|div|rem|mul\.wide|mad\.wide|min|max)\.s16|setp\.[\w.]*s16|cvt\.[\w.]*\.s16")
_OF_SIGNED = re.compile(
    r"(shr|div|rem|min|max|mul\.wide|mad\.wide|mul\.hi|mad\.hi|bfe|bfind)\.s(32|64)|(min|max)\.relu\.s32"
    r"|setp\.(lt|le|gt|ge)[\w.]*\.s(32|64)|cvt\.([\w.]*\.)?[subf]+\d+\.s(32|64)"
)
"""Operations on 32 and 64 bits whose result depends on whether an operand has a sign."""
_EXTREMUM_OF_FLOATS = re.compile(r"(min|max)(\.\w+)*\.(b?f16(x2)?|f32|f64)")
_SIGN_XORED = re.compile(r"(min|max)[\w.]*\.xorsign\.abs\.(b?f\d+(x2)?)")
_UPPER_HALF = re.compile(r"mul\.hi\.[us]16")
_OF_SHORT_FLOAT = re.compile(r"(add|sub|mul|fma|min|max|abs|neg|cvt|setp)\.([\w.]*\.)?b?f16")
_HALF_NEGATION = re.compile(r"(neg|sub)\.s16")
_LOAD = re.compile(r"ld(\.(volatile|relaxed|acquire)(\.\w+)?)?\.(global|shared)\b")
"""A load whose number no assembler knows."""
_NARROW_LOAD = re.compile(r"ldu?\.[\w.:]*\.[bsu](8|16)")
_TO_INTEGER = re.compile(r"cvt\.r[nzmp]i\.[\w.]*f16")
_TO_INTEGERS = frozenset({"rni.", "rzi.", "rmi.", "rpi."})
_OF_SHORT_FLOATS = re.compile(r"cvt\.[\w.]*?(b?f16)\.(b?f16)")
_AS_UNSIGNED = re.compile(r"cvt\.[\w.]*\.u\d+\.b?f\d+|bfe\.s\d+|cvt\.s\d+\.s\d+")
"""What ptxas joins with a conversion of an unsigned number, as if that were one of a signed number."""
_EXTENDING = re.compile(r"cvt\.[su](32|64)\.u(8|16)|(mul|mad)\.wide\.u16")
"""Extensions by zeros, and products that are one where a factor is 1."""
_MASK = re.compile(r"and\.b(32|64)|rem\.[su](32|64)")
_SHORT_SHIFT = re.compile(r"sh[lr]\.[bus]16")
_NEGATING = re.compile(r"(not|neg|xor|sub|(mul|mad)\.lo)\.[sub](16|32|64)")
"""Opcodes of which some instructions return -x or -1 - x."""
_FORMATS = {"f16": "fp16", "f32": "fp32", "f64": "fp64"}
_SCALAR_FORMS = {name: FLOAT_FORMATS[form] for name, form in {**_FORMATS, "bf16": "bf16"}.items()}
"""The formats of numbers, by their types in opcodes; pairs have none."""


class _Noting(Protocol):
    """The domain of bit patterns, which keeps the assumptions of an execution."""

    notes: dict[str, None]


@dataclass(frozen=True, slots=True)
class _Merge:
    """What ptxas merges, as the end of a sentence, and the lanes whose results may differ.

    `operand`: the operand that decides, of `bits` bits; None: every lane.  `differs` takes its patterns.  `form`: only
    a NaN of this format differs, of the operand, or of any one.  `equal`: lanes in which two operands have one value.
    `unknown`: only lanes in which one of these operands is no known number.  `between`: only lanes in which two of
    these operands may be -0 and -1 of fp32; with each comes whether the assembler may find its number where an
    execution does not know it.  `opens`: a NaN of fp32 may be the canonical one; a number differs only where there is
    an `operand` that decides.  `refused`: the machine code may read its result before it is computed.
    """

    what: str
    operand: Operand | None = None
    bits: int = 32
    differs: Callable[[Array], Array] | None = None
    form: FloatFormat | None = None
    equal: tuple[Operand, ...] = ()
    unknown: tuple[Operand, ...] = ()
    between: tuple[tuple[Operand, bool], ...] = ()
    opens: bool = False
    refused: bool = False


@once_a_kernel
def _merges(kernel: Kernel, opcodes: OpcodeTable) -> Mapping[int, _Merge]:
    """Return what ptxas may merge, by the identity of the last instruction of each sequence."""
    if not is_complete(kernel, opcodes):
        return {}
    sources = _sources(kernel, opcodes)
    found: dict[int, _Merge] = {}
    unusual = unusual_operations(kernel, opcodes)
    copied = frozenset(id(each) for each in kernel.instructions if _copies_signs(each, sources))
    of_bytes = _conversions_of_bytes(kernel, opcodes, sources) if copied or unusual else frozenset()
    for sources.use, instruction in enumerate(kernel.instructions):
        if len(instruction.operands) > 1 and not is_guarded_move(instruction):
            of_byte = id(instruction) in of_bytes
            merge = _of_unusual(instruction, sources, unusual) if unusual and not of_byte else None
            if merge is None and copied and not of_byte:
                merge = _of_copied_signs(instruction, sources, copied)
            if merge is None and _may_be_merged(instruction.opcode):
                merge = _merge_of(instruction, sources)
            if merge is not None:
                found[id(instruction)] = merge
    return found


def _of_unusual(instruction: Instruction, sources: Sources, unusual: frozenset[int]) -> _Merge | None:
    """An operation that compilers do not use and one that it reads, or one that reads it, or takes it apart.

    `unusual`: the identities of all of them.  A guard is a selection between what the instruction and an earlier one
    have written.
    """
    opcode, guard, operands = instruction.opcode, instruction.guard, instruction.operands
    takes_apart = isinstance(operands[0], Vector)
    if not (is_operation(opcode) or takes_apart or (guard is not None and opcode.startswith("mov."))):
        return None
    read = operands[1:] if guard is None else (*operands, Register(guard.register))
    every = id(instruction) in unusual
    for operand in read:
        for each in sources.of(operand):
            if each is not instruction and (is_operation(each.opcode) if every else id(each) in unusual):
                return _Merge("two operations, one of which compilers do not use")
    return None


def _copies_signs(instruction: Instruction, sources: Sources) -> bool:
    """Return whether a permutation of bytes by a literal copies the sign of one to all bits of another one."""
    return instruction.opcode == "prmt.b32" and sources.may_be(
        instruction.operands[-1], lambda number: bool(number & 0x8888), instruction
    )


def _of_copied_signs(instruction: Instruction, sources: Sources, copied: frozenset[int]) -> _Merge | None:
    """An operation on a permutation that copies signs, of which ptxas takes copied bits for zeros under a mask."""
    if not (is_operation(instruction.opcode) or isinstance(instruction.operands[0], Vector)):
        return None
    for operand in _choice(instruction, sources):
        for each in sources.of(operand):
            if each is not instruction and id(each) in copied:
                return _Merge("an operation with a permutation of bytes that copies signs")
    return None


_CONVERTED = re.compile(r"cvt\.rn\.(f16|bf16|f32)\.s(16|32)")
_NARROWED = re.compile(r"cvt\.u16\.u32|cvt\.s16\.s32")
_EXTENSIONS = frozenset({0x8880, 0x9991, 0xAAA2, 0xBBB3})
"""Permutations that extend the sign of one byte."""


def _conversions_of_bytes(kernel: Kernel, opcodes: OpcodeTable, sources: Sources) -> frozenset[int]:
    """Return the identities of conversions of one byte of a number, as one with a sign, to a float.

    A permutation or a conversion to 8 bits extends the sign.  The machine code of ptxas 12.8 converts a number with a
    sign, whatever precedes and follows (`python -m bitwise_bench.assembler.extended_bytes`).  Instructions between are
    among them where nothing else reads what they write.
    """
    chains = [(each, _chain_to_byte(each, sources)) for each in kernel.instructions]
    found = {id(each) for each, chain in chains if chain is not None}
    between = {id(each) for _, chain in chains if chain is not None for each in chain}
    if between:
        for each, info in zip(kernel.instructions, infos_of(kernel, opcodes), strict=True):
            if id(each) not in found:
                for name in info.reads:
                    between -= {id(made) for made in sources.defined(Register(name), each)}
    return frozenset(found | between)


def _is_literal_move(instruction: Instruction) -> bool:
    return instruction.opcode.startswith("mov.") and isinstance(instruction.operands[-1], Immediate)


def _chain_to_byte(instruction: Instruction, sources: Sources) -> list[Instruction] | None:
    """Return the instructions between a conversion to a float and the one that extends the sign of a byte, with that
    one if it is a conversion; None if the conversion is of anything else.
    """
    if _CONVERTED.fullmatch(instruction.opcode) is None or instruction.guard is not None:
        return None
    chain: list[Instruction] = []
    made, operand = instruction, instruction.operands[-1]
    while isinstance(operand, Register):
        found = list(sources.defined(operand, made))
        if len(found) != 1 or found[0].guard is not None:
            return None
        made = found[0]
        if made.opcode == "prmt.b32":
            selector = made.operands[-1]
            return chain if isinstance(selector, Immediate) and selector.value in _EXTENSIONS else None
        if made.opcode == "cvt.s8.s32":
            loads = (
                _LOAD.match(each.opcode) or _is_literal_move(each) for each in sources.defined(made.operands[-1], made)
            )
            return [*chain, made] if all(loads) else None
        if _NARROWED.fullmatch(made.opcode) is None:
            return None
        chain.append(made)
        operand = made.operands[-1]
    return None


@once_a_kernel
def _selections(kernel: Kernel, opcodes: OpcodeTable) -> Mapping[int, _Merge]:
    """Return what ptxas may merge with an instruction under a guard, where the guard makes it a selection."""
    if not is_complete(kernel, opcodes):
        return {}
    sources = _sources(kernel, opcodes)
    found: dict[int, _Merge] = {}
    unusual = unusual_operations(kernel, opcodes)
    for sources.use, instruction in enumerate(kernel.instructions):
        if instruction.guard is not None and len(instruction.operands) > 1:
            merge = _of_unusual(instruction, sources, unusual) if unusual else None
            if merge is None and _is_guarded_choice(instruction, sources):
                merge = _of_guarded_move(instruction, sources)
            elif merge is None and (choices := _negated_choice(instruction, sources)):
                merge = _Merge(_NEGATED_CHOICE, between=choices)
            if merge is not None:
                found[id(instruction)] = merge
    return found


@once_a_kernel
def _sources(kernel: Kernel, opcodes: OpcodeTable) -> Sources:
    return Sources(kernel, opcodes)


_BASES = frozenset({"cvt", "min", "max", "selp", "lop3", "shl", "shr", "bfe", "bfi", "copysign", "abs", "setp"})
_OPCODES = (
    _APPROXIMATION, _SCALING, _PAIR_OF_INTEGERS, _RECTIFIER, _SIGN_EXTENDING, _PAIR_OF_FLOATS, _TO_INTEGER, _LOW, _HIGH,
    _OF_SHORT_FLOAT, _NEGATING, _OF_SIGNED,
)  # fmt: skip


@lru_cache(maxsize=1024)
def _may_be_merged(opcode: str) -> bool:
    """Return whether `_merge_of` has a rule on an opcode."""
    base = opcode.split(".", 1)[0]
    return (
        base in _BASES
        or opcode in ("mov.b32", "mov.b64")
        or any(each.fullmatch(opcode) is not None for each in _OPCODES)
    )


def _merge_of(instruction: Instruction, sources: Sources) -> _Merge | None:
    opcode, base, operands = instruction.opcode, instruction.opcode.split(".", 1)[0], instruction.operands[1:]
    if _APPROXIMATION.fullmatch(opcode) and _of_kind(operands[-1:], sources, _is_merged_approximation):
        return _Merge("an approximation with the one whose result it takes")
    if _SCALING.fullmatch(opcode) and _of_kind(operands, sources, lambda each: each.startswith("div.approx.")):
        scales = any(sources.may_be(each, lambda number: not number & 0x7FFFFF) for each in operands)
        return (
            _Merge("a product with a power of two with the quotient whose rounding it leaves out") if scales else None
        )
    if _NEGATING.fullmatch(opcode) and _negates_itself(instruction, sources):
        return _Merge("a number that a loop negates with its start, as one that no iteration changes")
    if _OF_SIGNED.fullmatch(opcode) and (magnitude := _magnitude(operands, sources)) is not None:
        return magnitude
    if base == "cvt" and _of_other_sign(opcode, operands, sources):
        return _Merge("a conversion with an operation whose sign it takes for its own")
    if base == "setp" and compares_with_extremum(instruction, sources):
        return _Merge("a comparison of an extremum of integers with its operand, as whether that is the first one")
    if _SATURATED_AGAIN.fullmatch(opcode) and _of_kind(operands, sources, partial(_saturates_another_type, opcode)):
        return _Merge("an extremum or a product with a saturation of another type, as of a number from 0 to 1")
    if base == "setp" and (ranged := compared_by_range(instruction, sources)) is not None:
        what = "a comparison that is decided by the range of its numbers, also for a NaN"
        return _Merge(what, ranged, form=FLOAT_FORMATS["fp32"])
    if opcode == "lop3.b32":
        return _Merge("an operation on one value twice with others", equal=tuple(operands[:3]))
    if base in ("shl", "shr") and bits_of(instruction) == 64:
        return _of_shifts(opcode, operands, sources)
    if base in ("bfe", "bfi"):
        return _of_bit_fields(base, bits_of(instruction), operands, sources)
    if opcode in ("mov.b32", "mov.b64") and _takes_halves(instruction) and _is_extended(instruction, sources):
        return _Merge("a move of halves with a load or an extension that fills one of them")
    if _TO_INTEGER.fullmatch(opcode) and _of_kind(operands, sources, partial(_rounds_otherwise, opcode)):
        return _Merge("a rounding to an integer with a conversion of 16 bits, whose rounding it takes")
    if _SHORT_SHIFT.fullmatch(opcode) and _of_kind(
        operands[1:], sources, lambda each: _AS_UNSIGNED.fullmatch(each) is not None
    ):
        return _Merge("a shift of 16 bits with a conversion to an integer or a signed field, as one of 16 bits")
    if _SIGN_XORED.fullmatch(opcode) and _of_kind(operands, sources, _is_of_floats):
        form = FLOAT_FORMATS["fp32"] if opcode.endswith(".f32") else None
        return _Merge("an extremum with the signs of NaNs that an operation before it may leave as they are", form=form)
    if base == "copysign":
        return _Merge("a copy of a number's own sign") if _share_roots(instruction, sources) else None
    if base in ("min", "max") and (other := _of_other_nans(opcode, operands, sources)) is not None:
        return other
    if base in ("min", "max") and ".ftz" in opcode and operands[0] in operands[1:]:
        return _Merge("an extremum of a number with itself, which flushes it, with another one")
    if _EXTREMUM_OF_FLOATS.fullmatch(opcode) and _share_number(instruction, sources):
        what = "an extremum of a number with itself, which keeps the bits of its NaN"
        return _Merge(what, form=_SCALAR_FORMS.get(opcode.rsplit(".", 1)[-1]))
    if _PAIR_OF_INTEGERS.fullmatch(opcode):
        known = any(map(sources.is_known, operands))
        what = "an operation on pairs of integers with the one that takes a half of it"
        # Of literals, ptxas computes another sum.
        literal = all(map(sources.is_known, operands))
        return _Merge(what, unknown=() if literal else tuple(operands)) if known else None
    if _RECTIFIER.fullmatch(opcode) and _of_kind(operands, sources, partial(_is_rectified_otherwise, opcode)):
        return _Merge("a maximum with an operation of another type")
    if base == "abs" and opcode.endswith("x2") and _of_kind(operands, sources, lambda each: each.endswith(".f32")):
        return _Merge("the magnitudes of a pair with the operation on fp32 whose result it takes")
    if base == "cvt" and ".tf32." in opcode and _of_kind(operands, sources, lambda each: "x2" in each):
        return _Merge("a rounding to tf32 with an operation on pairs, of which it takes one half")
    if id(instruction) in joined_conversions(sources.kernel, sources.opcodes):
        return _Merge("a conversion to eight bits with a pair behind what reads its result", refused=True)
    if _SIGN_EXTENDING.fullmatch(opcode):
        if _of_kind(operands, sources, _takes_upper_half):
            return _Merge("an operation on 16 bits with the product of which it takes the upper half")
        return _of_halves(operands, sources)
    if _PAIR_OF_FLOATS.fullmatch(opcode) and any(
        _has_signs(each, sources) or _is_computed_literal(each, sources) for each in operands
    ):
        return _Merge("an operation on pairs with a literal whose halves have two signs")
    if _OF_SHORT_FLOAT.fullmatch(opcode) and _of_kind(operands, sources, _takes_upper_half):
        return _Merge("an operation on a float of 16 bits with the product of which it takes one half")
    if _PAIR_OF_FLOATS.fullmatch(opcode) and _share_negated_halves(operands, sources):
        return _Merge("an operation on one pair twice, of which halves are negated one by one")
    if base == "selp" and (choices := _negated_choice(instruction, sources)):
        return _Merge(_NEGATED_CHOICE, between=choices)
    if base not in ("min", "max", "selp"):
        return None
    if _share_zero(instruction, sources):
        return _Merge(_AROUND_ZERO)
    clamps = _of_clamps(instruction, sources)
    return _of_extrema(instruction, sources) if clamps is None and base == "selp" else clamps


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


def _magnitude(operands: Sequence[Operand], sources: Sources) -> _Merge | None:
    """An operation on signed integers that takes a magnitude for positive, which that of the least integer is not."""
    for operand in operands:
        for each in sources.of(operand):
            if each.opcode in ("abs.s32", "abs.s64"):
                bits = bits_of(each)
                what = "an operation on signed integers with a magnitude, which it takes for positive"
                if bits != _bits_read(sources.kernel.instructions[sources.use].opcode):
                    return _Merge(what)
                return _Merge(what, operand, bits, partial(_is_least, bits))
    return None


def _is_least(bits: int, numbers: Array) -> Array:
    found: Array = numbers == np.uint64(1 << bits - 1)
    return found


def _bits_read(opcode: str) -> int:
    """Return the width of the integers that an operation on signed ones reads."""
    return int(opcode.rsplit(".s", 1)[-1])


def _of_other_sign(opcode: str, operands: Sequence[Operand], sources: Sources) -> bool:
    """Return whether a conversion may follow an operation of the other sign that ptxas joins with it."""
    joined = r"bfe\.s\d+|cvt\.s\d+\.s\d+|abs\.s(32|64)"
    return re.fullmatch(r"cvt\.[\w.]*\.b?f\d+\.u\d+", opcode) is not None and _of_kind(
        operands, sources, lambda each: re.fullmatch(joined, each) is not None
    )


def _of_other_nans(opcode: str, operands: Sequence[Operand], sources: Sources) -> _Merge | None:
    """An extremum of 16 bits of an extremum that treats NaNs otherwise: ptxas makes one instruction of both."""
    base, kind = opcode.split(".", 1)[0], opcode.rsplit(".", 1)[-1]
    half = kind.removesuffix("x2")

    def nested(each: str) -> bool:
        same = each.split(".", 1)[0] == base and each.rsplit(".", 1)[-1].removesuffix("x2") == half
        return same and (".NaN" in each) != (".NaN" in opcode)

    if half in ("f16", "bf16") and _of_kind(operands, sources, nested):
        what = "an extremum with another one that treats NaNs otherwise"
        return _Merge(what, form=FLOAT_FORMATS["fp16" if half == "f16" else "bf16"] if kind == half else None)
    return None


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


def _saturates_another_type(following: str, opcode: str) -> bool:
    """Return whether an instruction saturates a number of another type than the one that follows it."""
    parts, own = opcode.split("."), following.rsplit(".", 1)[-1]
    written = parts[-2] if parts[0] == "cvt" else parts[-1]
    return "sat" in parts and written.removesuffix("x2") != own.removesuffix("x2")


def _is_merged_approximation(opcode: str) -> bool:
    return _MERGED_APPROXIMATION.fullmatch(opcode) is not None


def _of_kind(operands: Sequence[Operand], sources: Sources, holds: Callable[[str], bool]) -> bool:
    """Return whether the opcode of an instruction that may have written an operand fulfils a condition.

    The condition depends on nothing but the opcode of the instruction that `sources` follows.
    """
    plain = holds.func if isinstance(holds, partial) else holds
    # A condition is decided by its own text and by the opcode of the instruction whose operands are followed.
    key = (cast(FunctionType, plain).__code__, sources.kernel.instructions[sources.use].opcode)
    present = sources.some_present.get(key)
    if present is None:
        present = sources.some_present[key] = any(map(holds, sources.present))
    if not present:
        return False
    return any(holds(each.opcode) for operand in operands for each in sources.of(operand))


def _of_shifts(opcode: str, operands: Sequence[Operand], sources: Sources) -> _Merge | None:
    """A shift of 64 bits: of a number that was widened as `cvt.s64.u32` does, or by 64 and more."""
    if sources.may_be(operands[1], lambda number: number >= 64):
        return _Merge("a shift by 64 or more with a product or a literal")
    if opcode == "shl.b64" and _of_kind(operands[:1], sources, lambda each: each == "cvt.s64.u32"):
        what = "a shift with an extension by zeros, as one by the sign"
        return _Merge(what, operands[0], 64, lambda numbers: numbers >> np.uint64(31) != 0)
    return None


def _of_bit_fields(base: str, bits: int, operands: Sequence[Operand], sources: Sources) -> _Merge | None:
    """A bit field that ends behind the register, or a field of a field."""
    numbers = [each.value for each in operands[-2:] if isinstance(each, Immediate)]
    inside = len(numbers) == 2 and sum(numbers) <= bits
    known = not inside and all(sources.may_be(each, lambda number: True) for each in operands[-2:])
    nested = base == "bfe" and _of_kind(operands[:1], sources, lambda each: each.startswith("bfe."))
    if nested or known:
        unknown = tuple(operands[:2] if base == "bfi" else operands[:1])
        # Behind the register, the bits of a number that the assembler does not know depend on what it knows of it.
        evaluated = all(is_assembler_constant(each, sources.kernel, sources.opcodes) for each in unknown)
        what = "a bit field with the operation whose result it takes"
        behind = len(numbers) == 2 and not inside
        return _Merge(what, bits=bits, unknown=unknown if evaluated or not behind else ())
    return None


def _of_halves(operands: Sequence[Operand], sources: Sources) -> _Merge | None:
    """An operation on a negated number of 16 bits: ptxas negates in 32 bits, where -(-32768) is 32768."""
    for operand in operands:
        for each in sources.of(operand):
            if _HALF_NEGATION.fullmatch(each.opcode) is None:
                continue
            if not each.opcode.startswith("sub") or sources.may_be(each.operands[1], lambda number: not number):
                what = "an operation on 16 bits with a negation or a magnitude, in 32 bits"
                return _Merge(what, operand, 16, lambda numbers: numbers == 0x8000)
    return None


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


def _share_roots(instruction: Instruction, sources: Sources) -> bool:
    """Return whether the two operands of an instruction may be one number, or its magnitude or negation."""
    one, other = instruction.operands[1:3]
    return one == other or not roots_of(one, instruction, sources).isdisjoint(roots_of(other, instruction, sources))


def _is_of_floats(opcode: str) -> bool:
    return re.fullmatch(r"(add|sub|mul|fma|min|max|neg|abs|cvt)\.([\w.]*\.)?b?f\d+(x2)?", opcode) is not None


def _share_number(instruction: Instruction, sources: Sources) -> bool:
    """Return whether two operands of different names may be one number, behind operations that return it."""
    if instruction.operands[1] == instruction.operands[2]:
        return False
    one, other = (_origins(each, instruction, sources) for each in instruction.operands[1:3])
    return not one.isdisjoint(other)


def _origins(operand: Operand, user: Instruction, sources: Sources) -> set[tuple[str, int]]:
    """Return the registers, with what writes them, that an operand may hold behind operations that return a number."""
    found: set[tuple[str, int]] = set()
    seen: set[tuple[str, int]] = set()
    pending = [(name, user) for name in registers_of(operand)]
    while pending:
        name, reader = pending.pop()
        if (name, id(reader)) in seen:
            continue
        seen.add((name, id(reader)))
        for made in sources.defined(Register(name), reader):
            apart = any(isinstance(each, Vector) for each in made.operands)
            if sources.passes_on(made) and not apart:
                # The predicate of a selection is no number that it returns.
                numbers = made.operands[1:-1] if made.opcode.startswith("selp.") else made.operands[1:]
                pending += [(each, made) for source in numbers for each in registers_of(source)]
            else:
                found.add((name, id(made)))
    return found


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


_HALF_SIGNS = ("neg.f16", "neg.bf16", "neg.ftz.f16", "abs.f16", "abs.bf16", "abs.ftz.f16", "xor.b16")
"""The beginnings of opcodes that may change the sign of a number of 16 bits."""


def _is_computed_literal(operand: Operand, sources: Sources) -> bool:
    """Return whether the assembler computes an operand from literals by integer operations, or takes one apart."""
    if not isinstance(operand, Register) or not sources.is_known(operand):
        return False
    moves = ("mov", "selp", "prmt", "shfl", "cvt")
    return any(
        (each.opcode.split(".", 1)[0] not in moves or isinstance(each.operands[0], Vector))
        and _PAIR_OF_FLOATS.fullmatch(each.opcode) is None
        and _LOAD.match(each.opcode) is None
        for each in sources.of(operand, literals=True)
    )


def _choice(instruction: Instruction, sources: Sources) -> tuple[Operand, ...]:
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


_MINUS_ZERO, _MINUS_ONE = 0x80000000, 0xBF800000
_GUARDED_EXTREMUM = re.compile(r"(min|max)[\w.]*\.f32")
_NEGATED_CHOICE = "a selection between -0 and -1 with a conversion of the predicate, which returns +0"


def _negated_choice(instruction: Instruction, sources: Sources) -> tuple[tuple[Operand, bool], ...]:
    """Return what an instruction selects, as `_Merge.between`, if it may be -0 and -1 of fp32, else nothing."""
    if instruction.guard is not None and _GUARDED_EXTREMUM.fullmatch(instruction.opcode) is not None:
        # Of literals, it is a move of one of them.
        choices: tuple[Operand, ...] = (*instruction.operands[1:], instruction.operands[0])
    elif instruction.opcode in ("selp.f32", "mov.f32"):
        choices = _choice(instruction, sources)[:-1]
    else:
        return ()

    def may_be(operand: Operand, number: int) -> bool:
        return sources.may_be(operand, partial(_is_word, number), instruction)

    found = any(may_be(one, _MINUS_ZERO) and may_be(other, _MINUS_ONE) for one, other in permutations(choices, 2))
    if not found:
        return ()
    by_operations = found_by_operations(sources.kernel, sources.opcodes)
    return tuple((each, not by_operations.isdisjoint(registers_of(each))) for each in choices)


def _is_word(number: int, literal: int) -> bool:
    return literal & 0xFFFFFFFF == number


def _of_guarded_move(instruction: Instruction, sources: Sources) -> _Merge | None:
    """A move under a guard that ptxas may merge as a selection, also in threads that do not execute it."""
    if choices := _negated_choice(instruction, sources):
        return _Merge(_NEGATED_CHOICE, between=choices)
    if _share_zero(instruction, sources):
        return _Merge(_AROUND_ZERO)
    if _of_clamps(instruction, sources) is not None:
        return _Merge("a move under a guard with the extremum before it")
    return _of_extrema(instruction, sources)


def _of_extrema(instruction: Instruction, sources: Sources) -> _Merge | None:
    """A selection between a literal and the fp32 number that is compared with it: an extremum."""
    *choices, predicate = _choice(instruction, sources)
    if bits_of(instruction) != 32 or not sources.compared[32]:
        return None
    negated = instruction.guard is not None and instruction.guard.negated and not instruction.opcode.startswith("selp.")
    for each in choices[:-1]:
        sides = [choices[-1], each] if negated else [each, choices[-1]]
        found = extremum_of(sides, predicate, instruction, sources)
        if found is None:
            continue
        what = "a selection with the comparison whose operands it takes"
        if not found.keeps_subnormals:
            return _Merge(what, opens=True)
        return _Merge(what, found.number, opens=found.moves_nans, differs=_is_subnormal)
    return None


def _is_subnormal(numbers: Array) -> Array:
    magnitudes = numbers & np.uint64(0x7FFFFFFF)
    found: Array = (magnitudes != 0) & (magnitudes < 0x00800000)
    return found


_AROUND_ZERO = "a maximum and a minimum with 0 of two types, which are 0 if both have one sign"


def _share_zero(instruction: Instruction, sources: Sources) -> bool:
    """Return whether an extremum of integers with 0 may follow the opposite one of another type, also as selections."""
    if not _bounds_at_zero(instruction, sources):
        return False
    return any(
        kind[0] in "su" and kind != other and (verb != opposite or not verb)
        for operand in _choice(instruction, sources)
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
    *choices, predicate = _choice(instruction, sources)
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


def _of_clamps(instruction: Instruction, sources: Sources) -> _Merge | None:
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
        for operand in _choice(instruction, sources):
            for each in sources.of(operand):
                if _bounds_integers(each, *inner, bits, sources):
                    return _Merge("an extremum with one of integers into a saturation of floats")
                if not _bounds(each, *inner, bits, sources):
                    continue
                zeros = any(
                    sources.may_be(one, is_minus_zero, user)
                    for user in (instruction, each)
                    for one in _choice(user, sources)
                )
                if zeros:
                    return _Merge("a minimum and a maximum into an operation that returns no zero of this sign")
                if outer[0] is _HIGH:
                    what = "a minimum and a maximum into an operation that returns 0 for a NaN"
                    return _Merge(what, form=FLOAT_FORMATS[_FORMATS[kind]])
    return None


def _bounds(
    instruction: Instruction, verb: re.Pattern[str], bound: Callable[[int], bool], bits: int, sources: Sources
) -> bool:
    """Return whether an instruction is an extremum with one of some literals, or a selection that may be one."""
    opcode, operands = instruction.opcode, _choice(instruction, sources)
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


def unless_merged(step: Step, instruction: Instruction, context: Context) -> Step:
    """Return the step of an instruction, whose result is one of this text where ptxas may merge it with others.

    An execution on bit patterns has a note.  Raises Unsupported in other analyses than the one of terms.
    """
    return _unless(_merges(context.kernel, context.arch.opcodes).get(id(instruction)), step, instruction, context)


def unless_selected(step: Step, instruction: Instruction, context: Context) -> Step:
    """Return the step of an instruction with its guard, as `unless_merged` does, where that selects."""
    merge = _selections(context.kernel, context.arch.opcodes).get(id(instruction))
    return _unless(merge, step, instruction, context)


def _unless(merge: _Merge | None, step: Step, instruction: Instruction, context: Context) -> Step:
    if merge is None:
        return step
    name = f"{instruction.opcode} at line {instruction.line} of {program_digest(context.module, context.kernel)}"
    reason = f"ptxas may merge {merge.what}: {instruction.opcode}"

    def run(machine: Machine) -> Control | None:
        domain = machine.domain.name
        if domain == "addresses":
            return step(machine)
        if merge.refused and domain != "bits":
            raise Unsupported(reason, instruction.line)
        lanes = (
            np.zeros((1, 1), dtype=bool)
            if merge.opens and merge.operand is None
            else _lanes(merge, machine, instruction)
        )
        control = step(machine)
        if merge.opens:
            _open_nans(machine, instruction.operands[0], f"{reason}: a NaN may be the canonical one")
        if not lanes.any():
            return control
        if domain == "bits":
            cast(_Noting, machine.domain).notes[f"{reason}: the bytes are those of the instructions one by one"] = None
            return control
        if domain != "terms":
            raise Unsupported(reason, instruction.line)
        count = machine.memory.executions[instruction.line] = machine.memory.executions.get(instruction.line, 0) + 1
        for destination in map(Register, registers_of(instruction.operands[0])):
            found = as_symbolic_vector(machine.read(destination))
            parts = [found, as_symbolic_vector(machine.thread.astype(np.uint64))]
            own = term(found.bits, f"{name}, execution {count}", parts, recorder=machine.domain.recorder)
            machine.write(destination, blend_values(lanes, own, found))
        return control

    return run


def _open_nans(machine: Machine, destination: Operand, note: str) -> None:
    """Replace a number of fp32 by one whose NaN may have become canonical."""
    if isinstance(destination, Register) and destination.name in machine.registers:
        value, form = machine.read_bits(destination, 32), FLOAT_FORMATS["fp32"]
        if not np.all(machine.domain.assumed_finite(value, form)):
            machine.write(destination, machine.domain.with_open_nans(value, form, note))


def _lanes(merge: _Merge, machine: Machine, instruction: Instruction) -> Array:
    """Return the active lanes whose results may differ, but for the bits of a NaN that is open."""
    if merge.opens and merge.operand is None:
        return np.zeros((1, 1), dtype=bool)
    if merge.equal:
        values = [machine.read_bits(each, 32) for each in merge.equal]
        vectors = [as_symbolic_vector(each) for each in values if not isinstance(each, np.ndarray)]
        pairs = [_same(one, other) for one, other in combinations(vectors, 2)]
        found: Array = np.any(np.broadcast_arrays(*pairs), axis=0) if pairs else np.zeros((1, 1), dtype=bool)
        return np.logical_and(machine.active(), found) if found.any() else found
    active: Array = machine.active()
    if merge.form is not None and merge.operand is None:
        operands = instruction.operands[1:-1] if instruction.opcode.startswith("selp.") else instruction.operands[1:]
        sources, bits = [each for each in operands if isinstance(each, Register)], merge.form.bits
        differing = [_differing(machine.read_bits(each, bits), bits, merge, machine) for each in sources]
        return np.logical_and(active, np.any(np.broadcast_arrays(*differing), axis=0)) if differing else active
    if merge.unknown:
        known = [constant_mask(as_symbolic_vector(machine.read_bits(each, merge.bits))) for each in merge.unknown]
        every: Array = np.all(np.broadcast_arrays(*map(np.asarray, known)), axis=0)
        return np.logical_and(active, np.logical_not(every))
    if merge.between:
        return np.logical_and(active, _selects_between(merge.between, machine))
    if merge.operand is None:
        return active
    value = machine.read_bits(merge.operand, merge.bits)
    return np.logical_and(active, _differing(value, merge.bits, merge, machine))


def _selects_between(choices: Sequence[tuple[Operand, bool]], machine: Machine) -> Array:
    """Return the lanes in which two operands may be -0 and -1 of fp32 for ptxas, which must know both."""
    numbers = [(as_symbolic_vector(machine.read_bits(each, 32)), may_be_found) for each, may_be_found in choices]

    def holds(vector: SymbolicVector, may_be_found: bool, number: int) -> Array:
        known = np.asarray(constant_mask(vector))
        found: Array = np.where(known, vector.words[0] == number, may_be_found)
        return found

    pairs = [holds(*one, _MINUS_ZERO) & holds(*other, _MINUS_ONE) for one, other in permutations(numbers, 2)]
    found: Array = np.any(np.broadcast_arrays(*pairs), axis=0)
    return found


def _differing(value: Value, bits: int, merge: _Merge, machine: Machine) -> Array:
    vector = as_symbolic_vector(value)
    known: Any = np.asarray(constant_mask(vector))
    if merge.form is not None:
        numbers = nan_of(vector.words[0].astype(f"u{bits // 8}"), merge.form)
        unknown: Any = ~np.asarray(machine.domain.assumed_finite(value, merge.form))
    else:
        assert merge.differs is not None
        numbers, unknown = merge.differs(vector.words[0]), np.True_
    found: Array = np.where(known, numbers, unknown)
    return found


def _same(one: SymbolicVector, other: SymbolicVector) -> Array:
    """Return the lanes in which two values are one that is no known number."""
    equal: Array = (one.words == other.words).all(axis=0) & ~np.asarray(constant_mask(one))
    return equal
